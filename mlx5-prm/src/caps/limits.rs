//! Which capability bounds which field of which command, as a table, and the check of a command against it.
//!
//! ```
//! use mlx5_prm::caps::{CapPage, limits};
//! use mlx5_prm::cmd::CreateCqIn;
//! use mlx5_prm::ctx::Cqc;
//! use mlx5_prm::layout::Layout;
//!
//! let mut context = Cqc::default();
//! context.w().log_cq_size(25);
//! let mut create = CreateCqIn::default();
//! create.w().cq_context(&context);
//!
//! let card = |_: CapPage, name: &str| (name == "log_max_cq_sz").then_some(22);
//! let broken = limits::check(create.as_bytes(), card);
//! assert_eq!(broken[0].to_string(), "CREATE_CQ: cq_context.log_cq_size=25 > log_max_cq_sz 22");
//! ```

use alloc::vec::Vec;
use core::fmt;

use super::CapPage;
use crate::cmd::{self, InputHeader, Opcode};
use crate::layout::{Element, Info, Kind, Layout};

/// What bounds a command, or one kind of it.
#[derive(Debug, Clone, Copy)]
pub struct Bounded {
    /// The command.
    pub opcode: Opcode,
    /// Only where this field has this value.
    pub when: Option<(&'static str, u64)>,
    /// Its fields' limits.
    pub limits: &'static [Limit],
}

/// A field of a command, and the capability that bounds it.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The field of the input, nested layouts as `outer.inner`; `opcode` for the command itself.
    pub field: &'static str,
    /// How both are related.
    pub rule: Rule,
    /// The capability's page.
    pub page: CapPage,
    /// Its name, nested layouts as `outer.inner`.
    pub capability: &'static str,
}

/// How a field and its capability are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Field <= capability.
    AtMost,
    /// Field < capability: an index into a table of that many.
    Below,
    /// Field <= 2^capability.
    AtMostPower,
    /// 2^(field + n) <= capability: a log against bytes.
    PowerAtMost(u32),
    /// Not zero only where the capability is not zero.
    Needs,
    /// Bit number field of the capability is set.
    BitOf,
}

/// A field that breaks a limit of the card.
#[derive(Debug, Clone, Copy)]
pub struct Violation {
    /// The command.
    pub opcode: Opcode,
    /// The limit.
    pub limit: &'static Limit,
    /// What the field holds.
    pub value: u64,
    /// What the card announces.
    pub capability: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { opcode, limit: Limit { field, rule, capability: name, .. }, value, capability } = self;
        match rule {
            Rule::AtMost => write!(f, "{opcode}: {field}={value} > {name} {capability}"),
            Rule::Below => {
                write!(f, "{opcode}: {field}={value}, but {name} is {capability}: the last index is one less")
            }
            Rule::AtMostPower => write!(f, "{opcode}: {field}={value:#x} > 2^{name}, and {name} is {capability}"),
            Rule::PowerAtMost(add) => {
                write!(f, "{opcode}: {field}={value} means {} bytes > {name} {capability}", bytes(*value, *add))
            }
            Rule::Needs if *field == "opcode" => write!(f, "{opcode} needs {name}, which the card does not announce"),
            Rule::Needs | Rule::BitOf => write!(
                f,
                "{opcode}: {field}={value:#x} needs {name}, which the card does not announce ({capability:#x})"
            ),
        }
    }
}

/// 2^(value + add), as large as it gets.
fn bytes(value: u64, add: u32) -> u64 {
    u32::try_from(value).ok().and_then(|value| 1u64.checked_shl(value.checked_add(add)?)).unwrap_or(u64::MAX)
}

impl Rule {
    fn holds(self, value: u64, capability: u64) -> bool {
        match self {
            Rule::AtMost => value <= capability,
            Rule::Below => value < capability,
            Rule::AtMostPower => u32::try_from(capability).is_ok_and(|log| log >= 64 || value <= 1 << log),
            Rule::PowerAtMost(add) => bytes(value, add) <= capability,
            Rule::Needs => value == 0 || capability != 0,
            Rule::BitOf => value < 64 && capability >> value & 1 != 0,
        }
    }
}

/// What in a command's input the card does not allow. `capability` gives what a card announces, in force; a capability
/// that is not known is not checked. Never panics, whatever the bytes.
pub fn check(input: &[u8], capability: impl Fn(CapPage, &str) -> Option<u64>) -> Vec<Violation> {
    let Some(header) = InputHeader::read(input) else { return Vec::new() };
    let Some((info, _)) = cmd::layout_of_command(header.opcode(), header.op_mod()) else { return Vec::new() };
    let opcode = header.opcode();
    let applies = |bounded: &&Bounded| {
        let value = |field| number_at(info, input, field);
        bounded.opcode == opcode && bounded.when.is_none_or(|(field, wanted)| value(field) == Some(wanted))
    };
    let limits = LIMITS.iter().filter(applies).flat_map(|bounded| bounded.limits);
    let broken = limits.filter_map(|limit| {
        let value = number_at(info, input, limit.field)?;
        let capability = capability(limit.page, limit.capability)?;
        (!limit.rule.holds(value, capability)).then_some(Violation { opcode, limit, value, capability })
    });
    broken.collect()
}

/// The number in the field that `path` names, nested layouts as `outer.inner`; `None` if there is none, or the bytes
/// are too few.
pub fn number_at(info: &Info, bytes: &[u8], path: &str) -> Option<u64> {
    let Some((outer, inner)) = path.split_once('.') else { return info.field(path)?.number(bytes) };
    let field = info.field(outer)?;
    match field.kind {
        Kind::Part { element: Element::Layout(part), .. } => number_at(part, bytes.get(field.offset..)?, inner),
        _ => None,
    }
}

macro_rules! limits {
    ($( $opcode:ident $(when $field_is:literal = $value:literal)? {
        $( $field:literal $rule:ident $(($add:literal))? $page:ident $capability:literal, )*
    } )*) => {
        &[ $( Bounded {
            opcode: Opcode::$opcode,
            when: limits!(@when $($field_is = $value)?),
            limits: &[ $( Limit {
                field: $field,
                rule: Rule::$rule $(($add))?,
                page: CapPage::$page,
                capability: $capability,
            }, )* ],
        }, )* ]
    };
    (@when) => { None };
    (@when $field:literal = $value:literal) => { Some(($field, $value)) };
}

/// The table. What a limit rests on: the name and the description of the capability in the PRM, and what Linux's
/// drivers check before they send the command.
pub const LIMITS: &[Bounded] = limits! {
    SetDriverVersion { "opcode" Needs General "driver_version", }
    CreateEq { "eq_context_entry.log_eq_size" AtMost General "log_max_eq_sz", }
    CreateCq {
        "cq_context.log_cq_size" AtMost General "log_max_cq_sz",
        "cq_context.cqe_comp_en" Needs General "cqe_compression",
        "cq_context.oi" Needs General "cq_oi",
        "cq_context.cq_period" Needs General "cq_moderation",
        "cq_context.cq_max_count" Needs General "cq_moderation",
        "cq_context.cq_period_mode" Needs General "cq_period_start_from_cqe",
        "cq_context.apu_cq" Needs General "apu",
    }
    CreateCq when "cq_context.cqe_sz" = 2 { "cq_context.cqe_sz" Needs General "cqe_128_always", }
    ModifyCq when "op_mod" = 1 {
        "op_mod" Needs General "cq_resize",
        "cq_context.log_cq_size" AtMost General "log_max_cq_sz",
    }
    CreateMkey {
        "memory_key_mkey_entry.a" Needs General "atomic",
        "memory_key_mkey_entry.relaxed_ordering_write" Needs General "relaxed_ordering_write",
    }
    CreateMkey when "memory_key_mkey_entry.length64" = 0 {
        "memory_key_mkey_entry.len" AtMostPower General "log_max_mrw_sz",
    }
    CreateUmem { "umem.ats" Needs General "ats", }
    CreateQp {
        "qpc.log_sq_size" AtMost General "log_max_qp_sz",
        "qpc.log_rq_size" AtMost General "log_max_qp_sz",
        "qpc.log_msg_max" AtMost General "log_max_msg",
        "qpc.log_rq_stride" PowerAtMost(4) General "max_wqe_sz_rq",
        "qpc.log_sra_max" AtMost General "log_max_ra_req_qp",
        "qpc.log_rra_max" AtMost General "log_max_ra_res_qp",
        "qpc.rae" Needs General "atomic",
        "qpc.block_lb_mc" Needs General "block_lb_mc",
        "qpc.cd_master" Needs General "cd",
        "qpc.cd_slave_send" Needs General "cd",
        "qpc.cd_slave_receive" Needs General "cd",
        "qpc.log_num_dci_stream_channels" AtMost General "log_max_dci_stream_channels",
        "qpc.log_num_dci_errored_streams" AtMost General "log_max_dci_errored_streams",
    }
    CreateQp when "qpc.st" = 0 { "opcode" Needs General "rc", }
    CreateQp when "qpc.st" = 1 { "opcode" Needs General "uc", }
    CreateQp when "qpc.st" = 2 { "opcode" Needs General "ud", }
    CreateQp when "qpc.st" = 3 { "opcode" Needs General "xrc", }
    CreateQp when "qpc.st" = 5 { "opcode" Needs General "dct", }
    Init2rtrQp {
        "qpc.log_msg_max" AtMost General "log_max_msg",
        "qpc.log_rra_max" AtMost General "log_max_ra_res_qp",
        "qpc.rae" Needs General "atomic",
        "qpc.primary_address_path.src_addr_index" Below Roce "roce_address_table_size",
    }
    Rtr2rtsQp {
        "qpc.log_sra_max" AtMost General "log_max_ra_req_qp",
        "qpc.rae" Needs General "atomic",
    }
    CreateSrq {
        "srq_context_entry.log_srq_size" AtMost General "log_max_srq_sz",
        "srq_context_entry.log_rq_stride" PowerAtMost(4) General "max_wqe_sz_rq",
    }
    CreateXrcSrq {
        "opcode" Needs General "xrc",
        "xrc_srq_context_entry.log_xrc_srq_size" AtMost General "log_max_srq_sz",
        "xrc_srq_context_entry.log_rq_stride" PowerAtMost(4) General "max_wqe_sz_rq",
    }
    CreateDct { "opcode" Needs General "dct", }
    CreateRmp { "ctx.wq.log_wq_sz" AtMost General "log_max_wq_sz", }
    CreateRq {
        "ctx.wq.log_wq_sz" AtMost General "log_max_wq_sz",
        "ctx.delay_drop_en" Needs General "rq_delay_drop",
        "ctx.scatter_fcs" Needs Ethernet "scatter_fcs",
        "ctx.hairpin" Needs General "hairpin",
        "ctx.wq.log_hairpin_num_packets" AtMost General "log_max_hairpin_num_packets",
        "ctx.wq.log_hairpin_data_sz" AtMost General "log_max_hairpin_wq_data_sz",
        "ctx.wq.shampo_enable" Needs General "shampo",
    }
    CreateRq when "ctx.wq.wq_type" = 2 { "ctx.wq.wq_type" Needs General "striding_rq", }
    CreateRq when "ctx.wq.wq_type" = 3 { "ctx.wq.wq_type" Needs General "striding_rq", }
    CreateSq {
        "ctx.wq.log_wq_sz" AtMost General "log_max_wq_sz",
        "ctx.allow_swp" Needs Ethernet "swp",
        "ctx.reg_umr" Needs Ethernet "reg_umr_sq",
        "ctx.hairpin" Needs General "hairpin",
        "ctx.ts_cqe_to_dest_cqn" Needs General "ts_cqe_to_dest_cqn",
        "ctx.packet_pacing_rate_limit_index" Needs Qos "packet_pacing",
    }
    CreateTis { "ctx.tls_en" Needs General "tls_tx", }
    CreateTir {
        "ctx.tls_en" Needs General "tls_rx",
        "ctx.lro_max_ip_payload_size" Needs Ethernet "lro_cap",
    }
    CreateRqt { "rqt_context.rqt_max_size" AtMostPower General "log_max_rqt_size", }
    CreateFlowTable when "table_type" = 0 {
        "opcode" Needs FlowTable "flow_table_properties_nic_receive.ft_support",
        "flow_table_context.log_size" AtMost FlowTable "flow_table_properties_nic_receive.log_max_ft_size",
        "flow_table_context.decap_en" Needs FlowTable "flow_table_properties_nic_receive.decap",
        "flow_table_context.reformat_en" Needs FlowTable "flow_table_properties_nic_receive.reformat",
        "flow_table_context.termination_table" Needs FlowTable "flow_table_properties_nic_receive.termination_table",
    }
    CreateFlowTable when "table_type" = 1 {
        "opcode" Needs FlowTable "flow_table_properties_nic_transmit.ft_support",
        "flow_table_context.log_size" AtMost FlowTable "flow_table_properties_nic_transmit.log_max_ft_size",
        "flow_table_context.reformat_en" Needs FlowTable "flow_table_properties_nic_transmit.reformat",
    }
    CreateFlowTable when "table_type" = 4 {
        "opcode" Needs EswitchFlowTable "flow_table_properties_nic_esw_fdb.ft_support",
        "flow_table_context.log_size" AtMost EswitchFlowTable "flow_table_properties_nic_esw_fdb.log_max_ft_size",
        "flow_table_context.decap_en" Needs EswitchFlowTable "flow_table_properties_nic_esw_fdb.decap",
        "flow_table_context.reformat_en" Needs EswitchFlowTable "flow_table_properties_nic_esw_fdb.reformat",
    }
    SetRoceAddress {
        "roce_address_index" Below Roce "roce_address_table_size",
        "roce_address.roce_version" BitOf Roce "roce_version",
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::{CreateCqIn, CreateQpIn};
    use crate::ctx::{Cqc, Qpc};
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn every_row_names_a_field_of_its_command_and_a_capability_of_its_page() {
        for bounded in LIMITS {
            let (input, _) = cmd::layout_of_command(bounded.opcode, 0).unwrap_or_else(|| panic!("{}", bounded.opcode));
            let bytes = vec![0; input.size];
            let fields = bounded.limits.iter().map(|limit| limit.field).chain(bounded.when.map(|(field, _)| field));
            for field in fields {
                assert!(number_at(input, &bytes, field).is_some(), "{}: no field {field}", bounded.opcode);
            }
            for limit in bounded.limits {
                let page = limit.page.layout().unwrap_or_else(|| panic!("{}: no layout", limit.page));
                let bytes = vec![0; page.size];
                assert!(number_at(page, &bytes, limit.capability).is_some(), "{}: no {}", limit.page, limit.capability);
            }
        }
    }

    #[test]
    fn each_rule_holds_at_its_edge_and_breaks_past_it() {
        let edges = [
            (Rule::AtMost, 22, 23, 22),
            (Rule::Below, 254, 255, 255),
            (Rule::AtMostPower, 1 << 10, (1 << 10) + 1, 10),
            (Rule::PowerAtMost(4), 5, 6, 512),
            (Rule::Needs, 0, 1, 0),
            (Rule::BitOf, 2, 1, 1 << 2),
        ];
        for (rule, good, bad, capability) in edges {
            assert!(rule.holds(good, capability), "{rule:?} {good}");
            assert!(!rule.holds(bad, capability), "{rule:?} {bad}");
        }
        assert!(Rule::AtMostPower.holds(u64::MAX, 64) && !Rule::PowerAtMost(4).holds(u64::MAX, u64::MAX - 1));
    }

    #[test]
    fn what_is_broken_is_named_and_what_is_unknown_is_not_checked() {
        let mut context = Cqc::default();
        let _ = context.w().log_cq_size(23).cqe_comp_en(true);
        let mut create = CreateCqIn::default();
        let _ = create.w().cq_context(&context);
        let card = |_: CapPage, name: &str| match name {
            "log_max_cq_sz" => Some(22),
            "cqe_compression" => Some(0),
            _ => None,
        };
        let broken: Vec<_> = check(create.as_bytes(), card).iter().map(Violation::to_string).collect();
        assert_eq!(broken.len(), 2);
        assert_eq!(broken[0], "CREATE_CQ: cq_context.log_cq_size=23 > log_max_cq_sz 22");
        assert!(broken[1].contains("cq_context.cqe_comp_en=0x1 needs cqe_compression"));
        assert!(check(create.as_bytes(), |_, _| None).is_empty());
        assert!(check(&[], card).is_empty() && check(&[0xff; 64], card).is_empty());
    }

    #[test]
    fn a_row_with_a_condition_applies_only_then() {
        let mut create = CreateQpIn::default();
        let card = |_: CapPage, name: &str| (name == "uc").then_some(0);
        assert!(check(create.as_bytes(), card).is_empty());
        let mut context = Qpc::default();
        let _ = context.w().st(crate::values::ServiceType::Uc);
        let _ = create.w().qpc(&context);
        assert_eq!(
            check(create.as_bytes(), card)[0].to_string(),
            "CREATE_QP needs uc, which the card does not announce"
        );
    }
}
