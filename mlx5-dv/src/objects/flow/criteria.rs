//! What rules look at in a frame.

use mlx5_prm::flow::FteMatchSetLyr24;
use mlx5_prm::layout::Layout;

use crate::error::Invalid;
use crate::net::Mac;

/// `match_criteria_enable`: the outer headers.
const OUTER_HEADERS: u8 = 1;

/// Refuses bits of `value` that `criteria`, of the thing `name`, do not have.
pub(super) fn looked_at(value: &FteMatchSetLyr24, criteria: &FteMatchSetLyr24, name: &str) -> Result<(), Invalid> {
    let mut bytes = value.as_bytes().iter().zip(criteria.as_bytes());
    match bytes.position(|(value, looked_at)| value & !looked_at != 0) {
        Some(offset) => Err(Invalid::OutsideCriteria { by: name.into(), offset }),
        None => Ok(()),
    }
}

/// `match_criteria_enable`, for rules that look at `criteria` of the outer headers.
pub(super) fn enabled(criteria: &FteMatchSetLyr24) -> u8 {
    if criteria.as_bytes().iter().all(|byte| *byte == 0) { 0 } else { OUTER_HEADERS }
}

/// The outer headers of frames to `mac`; of [`Mac::BROADCAST`] every bit of the field, as criteria.
pub(crate) fn to_mac(mac: Mac) -> FteMatchSetLyr24 {
    let [a, b, c, d, e, f] = mac.0;
    let mut headers = FteMatchSetLyr24::default();
    headers.w().dmac_47_16(u32::from_be_bytes([a, b, c, d])).dmac_15_0(u16::from_be_bytes([e, f]));
    headers
}
