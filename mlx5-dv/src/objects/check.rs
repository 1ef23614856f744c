//! Checks of options against the card's capabilities and field widths.

use std::ops::RangeInclusive;
use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::ctx::TimestampFormat;

use crate::caps::{CapPage, Caps, FREE_RUNNING_ONLY, REAL_TIME_ONLY};
use crate::device::Device;
use crate::error::{Error, Invalid};

/// `Ok` if `wanted` is at most `1 << log_most`; otherwise an error that names the field and the capability.
pub(crate) fn within(field: &'static str, wanted: u64, capability: &'static str, log_most: u8) -> Result<(), Invalid> {
    in_range(field, wanted, 0..=1u64.checked_shl(log_most.into()).unwrap_or(u64::MAX), capability)
}

/// `Ok` if `given` is in `limit`, which `capability` sets; otherwise an error that names the field and the capability.
pub(crate) fn in_range(
    field: &'static str,
    given: u64,
    limit: RangeInclusive<u64>,
    capability: &'static str,
) -> Result<(), Invalid> {
    if limit.contains(&given) {
        return Ok(());
    }
    Err(Invalid::out_of_range(field, given, limit, "this card").capability(capability))
}

/// `Ok` if the card has the dynamically connected transport.
pub(crate) fn check_dc(caps: &Caps) -> Result<(), Error> {
    match caps.current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.dct()) {
        true => Ok(()),
        false => Err(Error::Unsupported { what: "dynamic connections".into(), capability: "dct" }),
    }
}

/// `Ok` if the card has the port `port`.
pub(super) fn port_exists(port: u8, caps: &Caps) -> Result<(), Invalid> {
    in_range("port", port.into(), 1..=caps.num_ports.max(1).into(), "num_ports")
}

/// `Ok` if a port has a P_Key of this index.
pub(super) fn pkey_exists(index: u16, caps: &Caps) -> Result<(), Invalid> {
    let last = u64::from(caps.pkey_table_len()) - 1;
    if caps.is_infiniband() {
        return in_range("pkey_index", index.into(), 0..=last, "pkey_table_size");
    }
    if u64::from(index) <= last {
        return Ok(());
    }
    let mend = "leave it 0: a port of Ethernet has the default P_Key alone, and VLANs part its networks";
    Err(Invalid::out_of_range("pkey_index", index.into(), 0..=last, "the P_Key table of this port").mend(mend))
}

/// `Ok` if all of `others` belong to `device`; `what` names them in the error.
pub(super) fn one_device<const N: usize>(
    what: &'static str,
    device: &Arc<Device>,
    others: [&Arc<Device>; N],
) -> Result<(), Invalid> {
    let same = others.iter().all(|other| Arc::ptr_eq(device, other));
    if same { Ok(()) } else { Err(Invalid::ForeignDevice { what }) }
}

/// `user_index` of a queue or queue pair that has none: its completions carry its own number.
pub(super) const NO_USER_INDEX: u32 = 0xff_ffff;

/// `user_index` for contexts. Errors: [`Error::Invalid`] where it has more than 24 bits or means none,
/// [`Error::Unsupported`] where the card's completions carry none.
pub(super) fn user_index(wanted: Option<u32>, caps: &Caps) -> Result<u32, Error> {
    let Some(index) = wanted else { return Ok(NO_USER_INDEX) };
    fits("user_index", index, 24)?;
    if index == NO_USER_INDEX {
        let limit = 0..=u64::from(NO_USER_INDEX) - 1;
        return Err(Invalid::out_of_range("user_index", index.into(), limit, "a completion").into());
    }
    match caps.cqe_version {
        0 => Err(Error::Unsupported { what: "completions with a user_index".into(), capability: "cqe_version" }),
        _ => Ok(index),
    }
}

/// The timestamp format for completions, by the capability of the queue type: free running if supported, as Linux
/// chooses.
fn timestamps(format: u8) -> TimestampFormat {
    if format == REAL_TIME_ONLY { TimestampFormat::Default } else { TimestampFormat::FreeRunning }
}

/// As [`timestamps`], for a queue whose completions bear real time if that is `wanted`. `capability` names `format`.
pub(super) fn chosen_timestamps(wanted: bool, format: u8, capability: &'static str) -> Result<TimestampFormat, Error> {
    match format {
        _ if !wanted => Ok(timestamps(format)),
        FREE_RUNNING_ONLY => Err(Error::Unsupported { what: "completions with real time".into(), capability }),
        _ => Ok(TimestampFormat::RealTime),
    }
}

/// `lag_tx_port_affinity` for contexts, for the port `wanted` of a bond; 0 leaves the choice to the card. `what` is who
/// chooses, `may_choose` the capability that it needs, by name and value.
pub(super) fn lag_port(
    wanted: Option<u8>,
    what: &str,
    general: &CmdHcaCap,
    may_choose: (&'static str, bool),
) -> Result<u8, Error> {
    let Some(port) = wanted else { return Ok(0) };
    let missing = if general.num_lag_ports() < 2 { Some("num_lag_ports") } else { None };
    if let Some(capability) = missing.or((!may_choose.1).then_some(may_choose.0)) {
        return Err(Error::Unsupported { what: format!("{what}'s choice of a port of a bond"), capability });
    }
    in_range("lag_port", port.into(), 1..=general.num_lag_ports().into(), "num_lag_ports")?;
    Ok(port)
}

/// `Ok` if `value` fits in `bits` bits; otherwise an error that names the field.
pub(crate) fn fits(field: &'static str, value: u32, bits: u32) -> Result<(), Invalid> {
    if value.checked_shr(bits).unwrap_or(0) == 0 {
        return Ok(());
    }
    Err(Invalid::TooWide { what: field, given: value.into(), bits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::RawPage;
    use mlx5_prm::caps::PortType;
    use mlx5_prm::layout::Layout;

    #[test]
    fn limits_name_the_field_and_the_capability() {
        assert!(within("entries", 1 << 22, "log_max_cq_sz", 22).is_ok());
        let Err(Invalid::OutOfRange { what, given, limit, capability, .. }) =
            within("entries", (1 << 22) + 1, "log_max_cq_sz", 22)
        else {
            panic!("refused")
        };
        assert_eq!((what, given, limit, capability), ("entries", 4_194_305, 0..=4_194_304, Some("log_max_cq_sz")));
        assert!(within("len", u64::MAX, "log_max_mrw_sz", 64).is_ok());
        assert!(fits("psn", 0xff_ffff, 24).is_ok() && fits("key", u32::MAX, 32).is_ok());
        assert_eq!(fits("psn", 1 << 24, 24), Err(Invalid::TooWide { what: "psn", given: 1 << 24, bits: 24 }));
    }

    #[test]
    fn p_keys_end_with_the_table_of_the_port() {
        let caps = |port_type: PortType, size| {
            let mut general = CmdHcaCap::ZERO;
            general.w().pkey_table_size(size);
            let page = RawPage { page: CapPage::General, max: vec![], current: general.as_bytes().to_vec() };
            Caps { pages: vec![page], port_type: port_type.number() as u8, ..Caps::default() }
        };
        let (ethernet, infiniband) = (caps(PortType::Ethernet, 5), caps(PortType::Ib, 1));
        assert_eq!((ethernet.pkey_table_len(), infiniband.pkey_table_len()), (1, 256));
        assert!(pkey_exists(0, &ethernet).is_ok() && pkey_exists(255, &infiniband).is_ok());
        let refused = pkey_exists(256, &infiniband).unwrap_err().to_string();
        assert!(refused.contains("pkey_index is 256") && refused.contains("pkey_table_size"), "{refused}");
        assert!(pkey_exists(1, &ethernet).unwrap_err().to_string().contains("pkey_index is 1"));
    }

    #[test]
    fn a_port_of_a_bond_is_chosen_where_the_card_lets_it() {
        let chosen = |ports, may_choose, wanted| {
            let mut general = CmdHcaCap::default();
            general.w().num_lag_ports(ports);
            lag_port(wanted, "a queue", &general, ("may", may_choose))
        };
        assert_eq!((chosen(1, false, None).unwrap(), chosen(2, true, Some(2)).unwrap()), (0, 2));
        let refused = |ports, may_choose, port| chosen(ports, may_choose, Some(port)).unwrap_err().to_string();
        assert!(refused(1, true, 1).contains("num_lag_ports"));
        let text = refused(2, false, 1);
        assert!(text.contains("a queue's choice of a port of a bond") && text.contains("capability may"), "{text}");
        for port in [0, 3] {
            let text = refused(2, true, port);
            assert!(text.contains(&format!("lag_port is {port}")) && text.contains("num_lag_ports"), "{text}");
        }
    }
}
