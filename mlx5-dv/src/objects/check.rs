//! What is asked of a card, held against its capabilities and the fields that carry it.

use mlx5_prm::ctx::{QueueState, TimestampFormat};

use crate::error::Error;

/// `Ok` if `wanted` is at most `1 << log_most`; else an error that names the field and the capability.
pub(crate) fn within(field: &str, wanted: u64, capability: &str, log_most: u8) -> Result<(), Error> {
    let most = 1u64.checked_shl(log_most.into()).unwrap_or(u64::MAX);
    if wanted <= most {
        return Ok(());
    }
    Err(Error::Invalid(format!("{field} is {wanted}, and this card takes at most {most} ({capability} = {log_most})")))
}

/// The error that `object`, a queue of frames in `state`, does not take `call`, which needs `wanted`; `first` leads
/// there.
pub(crate) fn wrong_state(object: &str, state: QueueState, call: &str, wanted: &str, first: &str) -> Error {
    Error::Invalid(format!("{object} is in {state}, and {call} needs {wanted}; first call {first}"))
}

/// A queue, or queue pair, whose completions carry its own number.
pub(super) const NO_USER_INDEX: u32 = 0xff_ffff;

/// What the timestamps of completions are, by the capability of their kind of queue: free running wherever the card
/// can, as Linux asks.
pub(super) fn timestamps(format: u8) -> TimestampFormat {
    // The card's clock shows real time, and cannot be read otherwise.
    const REAL_TIME_ONLY: u8 = 1;
    if format == REAL_TIME_ONLY { TimestampFormat::Default } else { TimestampFormat::FreeRunning }
}

/// `Ok` if `value` fits in `bits` bits; else an error that names the field.
pub(crate) fn fits(field: &str, value: u32, bits: u32) -> Result<(), Error> {
    if value >> bits == 0 {
        return Ok(());
    }
    Err(Error::Invalid(format!("{field} is {value:#x}, and the field has {bits} bits")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_the_field_and_the_capability() {
        assert!(within("entries", 1 << 22, "log_max_cq_sz", 22).is_ok());
        let text = within("entries", (1 << 22) + 1, "log_max_cq_sz", 22).unwrap_err().to_string();
        assert_eq!(text, "entries is 4194305, and this card takes at most 4194304 (log_max_cq_sz = 22)");
        assert!(within("len", u64::MAX, "log_max_mrw_sz", 64).is_ok());
        assert!(fits("psn", 0xff_ffff, 24).is_ok());
        assert_eq!(fits("psn", 1 << 24, 24).unwrap_err().to_string(), "psn is 0x1000000, and the field has 24 bits");
    }
}
