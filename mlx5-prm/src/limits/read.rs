//! Parser of `table.txt`, which explains its syntax.

use alloc::vec::Vec;

use super::rule::{Field, Origin, Rule, Term, field, number};
use crate::caps::CapPage;
use crate::cmd::Opcode;
use crate::flow::FlowTableType;

/// The table.
const TABLE: &str = include_str!("table.txt");

/// A heading and its limits.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// All of them must hold.
    pub(super) conditions: Vec<Condition>,
    pub(super) limits: Vec<Limit>,
}

/// A condition for a block to apply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub(super) field: Field,
    pub(super) is: Is,
}

/// The values that a condition accepts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Is {
    /// One of these values, separated by bars.
    One(&'static str),
    /// Any of these bits.
    Any(u64),
}

/// A line: one limit.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    pub(super) left: Term,
    pub(super) rule: Rule,
    pub(super) right: Vec<Term>,
    /// Source of the limit.
    pub(super) source: &'static str,
}

impl Block {
    /// All fields in its conditions and limits.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        let of_limits = self.limits.iter().flat_map(|limit| limit.right.iter().chain([&limit.left]));
        // It chooses the properties of flow tables.
        let table_type = ["table_type", "obj_context.table_type"].map(|name| Field { origin: Origin::Input, name });
        let of_conditions = self.conditions.iter().map(|condition| condition.field);
        of_conditions.chain(of_limits.map(|term| term.field)).chain(table_type)
    }
}

/// The blocks of this command.
pub(super) fn blocks(opcode: Opcode) -> impl Iterator<Item = Block> {
    let name = opcode.prm_name().unwrap_or_default();
    headings().filter(move |(heading, _)| commands(heading).any(|command| command == name)).filter_map(parsed)
}

/// All headings with their lines.
pub(super) fn headings() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let mut lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    core::iter::from_fn(move || {
        let heading = lines.next()?;
        let mut under = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            under.push(line);
        }
        Some((heading, under))
    })
}

/// The commands in a heading.
pub(super) fn commands(heading: &'static str) -> impl Iterator<Item = &'static str> {
    let (text, _) = sourced(heading);
    let (commands, _) = text.split_once(" if ").unwrap_or((text, ""));
    commands.split(',').map(str::trim)
}

/// Parses a block; `None` if a line is invalid.
pub(super) fn parsed((heading, lines): (&'static str, Vec<&'static str>)) -> Option<Block> {
    let (text, of_all) = sourced(heading);
    let conditions = text.split_once(" if ").map_or("", |(_, conditions)| conditions);
    let conditions = conditions.split(" and ").filter(|text| !text.is_empty()).map(condition).collect::<Option<_>>()?;
    let limits = lines.into_iter().map(|line| limit(line, of_all)).collect::<Option<_>>()?;
    Some(Block { conditions, limits })
}

/// Splits a line into its content and its source.
fn sourced(line: &'static str) -> (&'static str, &'static str) {
    let (text, source) = line.split_once(" -- ").unwrap_or((line, ""));
    (text.trim(), source.trim())
}

fn condition(text: &'static str) -> Option<Condition> {
    Some(match (text.split_once('='), text.split_once('&')) {
        (Some((name, texts)), _) => Condition { field: field(name)?, is: Is::One(texts) },
        (None, Some((name, mask))) => Condition { field: field(name)?, is: Is::Any(number(mask)?) },
        (None, None) => Condition { field: field(text)?, is: Is::Any(u64::MAX) },
    })
}

fn limit(line: &'static str, of_all: &'static str) -> Option<Limit> {
    let (text, source) = sourced(line);
    let (left, rest) = text.split_once(' ')?;
    let (rule, right) = rest.split_once(' ')?;
    let source = if source.is_empty() { of_all } else { source };
    let right = right.split(" or ").map(term).collect::<Option<_>>()?;
    Some(Limit { left: term(left)?, rule: Rule::of(rule)?, right, source })
}

fn term(text: &'static str) -> Option<Term> {
    let Some(exponent) = text.strip_prefix("2^") else {
        let (name, mask) = match text.split_once('&') {
            Some((name, mask)) => (name, Some(number(mask)?)),
            None => (text, None),
        };
        return Some(Term { field: field(name)?, power: false, plus: 0, mask });
    };
    let sum = exponent.strip_prefix('(').and_then(|sum| sum.strip_suffix(')')?.split_once('+'));
    let (name, plus) = match sum {
        Some((name, plus)) => (name, plus.parse().ok()?),
        None => (exponent, 0),
    };
    Some(Term { field: field(name)?, power: true, plus, mask: None })
}

/// The capability with the properties of a type of flow tables.
pub(super) fn flow_table_properties(kind: FlowTableType) -> Option<(CapPage, &'static str)> {
    use FlowTableType as Kind;
    Some(match kind {
        Kind::NicRx => (CapPage::FlowTable, "flow_table_properties_nic_receive"),
        Kind::NicTx => (CapPage::FlowTable, "flow_table_properties_nic_transmit"),
        Kind::EswEgressAcl => (CapPage::EswitchFlowTable, "flow_table_properties_esw_acl_egress"),
        Kind::EswIngressAcl => (CapPage::EswitchFlowTable, "flow_table_properties_esw_acl_ingress"),
        Kind::Fdb | Kind::FdbRx | Kind::FdbTx => (CapPage::EswitchFlowTable, "flow_table_properties_nic_esw_fdb"),
        Kind::SnifferRx => (CapPage::FlowTable, "flow_table_properties_nic_receive_sniffer"),
        Kind::SnifferTx => (CapPage::FlowTable, "flow_table_properties_nic_transmit_sniffer"),
        Kind::RdmaRx => (CapPage::FlowTable, "flow_table_properties_nic_receive_rdma"),
        Kind::RdmaTx => (CapPage::FlowTable, "flow_table_properties_nic_transmit_rdma"),
        Kind::PortSel => (CapPage::PortSelection, "flow_table_properties_port_selection"),
        Kind::RdmaTransportRx => (CapPage::AdvancedRdma, "rdma_transport_rx_flow_table_properties"),
        Kind::RdmaTransportTx => (CapPage::AdvancedRdma, "rdma_transport_tx_flow_table_properties"),
        Kind::Unknown(_) => return None,
    })
}
