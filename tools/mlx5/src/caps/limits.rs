//! What capabilities mean as numbers: `log_max_qp` 17 is 131072 queue pairs.

use serde::Serialize;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things of this name, in the plural.
    Things(&'static str),
    /// Bytes of this.
    Bytes(&'static str),
}
use Unit::{Bytes, Things};

/// Limits of the general page, by PRM name. Those whose name starts with `log_` hold the exponent of a power of two.
const LIMITS: &[(&str, Unit)] = &[
    ("log_max_qp", Things("queue pairs")),
    ("log_max_qp_sz", Things("WQEs in a queue pair's ring")),
    ("log_max_cq", Things("completion queues")),
    ("log_max_cq_sz", Things("CQEs in a completion queue")),
    ("log_max_eq", Things("event queues")),
    ("log_max_eq_sz", Things("EQEs in an event queue")),
    ("log_max_srq", Things("shared receive queues")),
    ("log_max_srq_sz", Things("WQEs in a shared receive queue")),
    ("log_max_sq", Things("send queues")),
    ("log_max_rq", Things("receive queues")),
    ("log_max_rmp", Things("receive memory pools")),
    ("log_max_wq_sz", Things("WQEs in a work queue")),
    ("max_wqe_sz_sq", Bytes("largest send WQE")),
    ("max_wqe_sz_rq", Bytes("largest receive WQE")),
    ("log_max_pd", Things("protection domains")),
    ("log_max_mkey", Things("memory keys")),
    ("log_max_mrw_sz", Bytes("largest memory region")),
    ("log_max_umem", Things("umems")),
    ("log_max_msg", Bytes("largest message")),
    ("log_max_ra_req_qp", Things("READs and atomics of a queue pair in flight, as requester")),
    ("log_max_ra_res_qp", Things("READs and atomics of a queue pair in flight, as responder")),
    ("log_max_ra_req_dc", Things("READs and atomics of a DC queue pair in flight, as requester")),
    ("log_max_ra_res_dc", Things("READs and atomics of a DC queue pair in flight, as responder")),
    ("max_qp_cnt", Things("queue counters")),
    ("log_max_mcg", Things("multicast groups")),
    ("max_qp_mcg", Things("queue pairs in a multicast group")),
    ("log_max_xrcd", Things("XRC domains")),
    ("log_max_transport_domain", Things("transport domains")),
    ("log_max_tir", Things("TIRs")),
    ("log_max_tis", Things("TISs")),
    ("log_max_tis_per_sq", Things("TISs in a send queue")),
    ("log_max_rqt", Things("receive queue tables")),
    ("log_max_rqt_size", Things("receive queues in a table")),
    ("log_max_uctx", Things("user contexts")),
    ("log_max_l2_table", Things("entries of the L2 table")),
    ("log_max_current_uc_list", Things("unicast addresses of the vport")),
    ("log_max_current_mc_list", Things("multicast addresses of the vport")),
    ("log_max_vlan_list", Things("VLANs of the vport")),
    ("log_bf_reg_size", Bytes("BlueFlame register")),
    ("log_max_klm_list_size", Things("entries of an indirect key")),
    ("log_max_dek", Things("encryption keys")),
    ("log_max_sf", Things("subfunctions")),
];

/// A limit as a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The capability, by its PRM name.
    pub capability: &'static str,
    /// Its value.
    pub value: u64,
    /// What it allows; `None` from 2^64 on.
    pub limit: Option<u64>,
    /// `bytes`, or what there are so many of.
    pub unit: &'static str,
    /// What the bytes are of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<&'static str>,
}

/// The limits that `value` gives for capabilities of the general page. What is zero is not announced, and left out.
pub fn limits(value: impl Fn(&str) -> Option<u64>) -> Vec<Limit> {
    let limit = |(capability, unit): &(&'static str, Unit)| {
        let value = value(capability).filter(|value| *value > 0)?;
        let (unit, of) = match *unit {
            Things(things) => (things, None),
            Bytes(of) => ("bytes", Some(of)),
        };
        Some(Limit { capability, value, limit: number(capability, value), unit, of })
    };
    LIMITS.iter().filter_map(limit).collect()
}

/// What the value of a capability of `page` means, such as `131072 queue pairs`; `None` where the number speaks for
/// itself, or where nothing is announced.
pub fn meaning(page: &str, capability: &str, value: u64) -> Option<String> {
    if value == 0 {
        return None;
    }
    match LIMITS.iter().find(|(name, _)| page == "general" && *name == capability) {
        Some((_, unit)) => Some(text(number(capability, value), value, *unit)),
        None if is_log(capability) => Some(number(capability, value).map_or(format!("2^{value}"), |n| n.to_string())),
        None => None,
    }
}

impl Limit {
    /// Such as `131072 queue pairs`, `16 GiB largest memory region`.
    pub fn text(&self) -> String {
        text(self.limit, self.value, self.of.map_or(Things(self.unit), Bytes))
    }
}

fn text(limit: Option<u64>, value: u64, unit: Unit) -> String {
    match (unit, limit) {
        (Things(things), Some(limit)) => format!("{limit} {things}"),
        (Things(things), None) => format!("2^{value} {things}"),
        (Bytes(of), Some(limit)) => format!("{} {of}", bytes(limit)),
        (Bytes(of), None) => format!("2^{value} bytes {of}"),
    }
}

/// Whether the last part of a name is that of an exponent.
fn is_log(capability: &str) -> bool {
    capability.rsplit('.').next().is_some_and(|name| name.starts_with("log_"))
}

fn number(capability: &str, value: u64) -> Option<u64> {
    if is_log(capability) { 1u64.checked_shl(u32::try_from(value).ok()?) } else { Some(value) }
}

/// Bytes in the largest binary unit that divides them: `16 GiB`, `1000 bytes`.
pub fn bytes(count: u64) -> String {
    let units = [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(log, _)| count != 0 && count.trailing_zeros() >= *log);
    whole.map_or_else(|| format!("{count} bytes"), |(log, unit)| format!("{} {unit}", count >> log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::caps::CmdHcaCap;
    use mlx5_prm::layout::Layout;

    #[test]
    fn logarithms_are_told_as_numbers_with_units() {
        assert_eq!(meaning("general", "log_max_qp", 17).as_deref(), Some("131072 queue pairs"));
        assert_eq!(meaning("general", "log_max_mrw_sz", 34).as_deref(), Some("16 GiB largest memory region"));
        assert_eq!(meaning("general", "log_max_mrw_sz", 64).as_deref(), Some("2^64 bytes largest memory region"));
        assert_eq!(meaning("general", "max_wqe_sz_sq", 1008).as_deref(), Some("1008 bytes largest send WQE"));
        assert_eq!(meaning("flow_table", "nic_receive.log_max_ft_num", 24).as_deref(), Some("16777216"));
    }

    #[test]
    fn what_is_not_announced_or_no_logarithm_has_no_meaning_of_its_own() {
        assert_eq!(meaning("general", "log_max_xrq", 0), None);
        assert_eq!(meaning("general", "roce", 1), None);
        assert_eq!(meaning("qos", "log_max_qp", 0), None);
    }

    #[test]
    fn every_limit_is_a_capability_and_zeros_are_left_out() {
        for (name, _) in LIMITS {
            assert!(CmdHcaCap::INFO.field(name).is_some(), "{name}");
        }
        let found = limits(|name| match name {
            "log_max_qp" => Some(18),
            "log_max_xrcd" => Some(0),
            _ => None,
        });
        let [limit] = &found[..] else { panic!("one limit: {found:?}") };
        assert_eq!((limit.limit, limit.text().as_str()), (Some(1 << 18), "262144 queue pairs"));
    }
}
