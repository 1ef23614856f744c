//! Match criteria of flow rules.

use mlx5_prm::flow::FteMatchSetLyr24;
use mlx5_prm::layout::Layout;

use crate::error::Invalid;
use crate::net::Mac;

/// `match_criteria_enable`: the outer headers.
const OUTER_HEADERS: u8 = 1;

/// Error if `value` has bits outside `criteria`, which belong to `name`.
pub(super) fn within_criteria(
    value: &FteMatchSetLyr24,
    criteria: &FteMatchSetLyr24,
    name: &str,
) -> Result<(), Invalid> {
    let mut bytes = value.as_bytes().iter().zip(criteria.as_bytes());
    match bytes.position(|(value, mask)| value & !mask != 0) {
        Some(offset) => Err(Invalid::OutsideCriteria { by: name.into(), offset }),
        None => Ok(()),
    }
}

/// `match_criteria_enable` for rules that match on `criteria` of the outer headers.
pub(super) fn enabled(criteria: &FteMatchSetLyr24) -> u8 {
    if criteria.as_bytes().iter().all(|byte| *byte == 0) { 0 } else { OUTER_HEADERS }
}

/// Matches frames to `mac` by their outer headers. With [`Mac::BROADCAST`]: the criteria for that, with all bits of the
/// field set.
pub(crate) fn to_mac(mac: Mac) -> FteMatchSetLyr24 {
    let [a, b, c, d, e, f] = mac.0;
    let mut headers = FteMatchSetLyr24::default();
    headers.w().dmac_47_16(u32::from_be_bytes([a, b, c, d])).dmac_15_0(u16::from_be_bytes([e, f]));
    headers
}
