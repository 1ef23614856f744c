use super::read::Is;
use super::rule::Rule;
use super::*;
use crate::cmd::{
    AllocModifyHeaderContextIn, CreateCqIn, CreateEqIn, CreateMkeyIn, CreateQpIn, CreateRqIn, SetHcaCapIn,
};
use crate::ctx::{AccessMode, Cqc, Eqc, Mkc, Qpc, Rqc, Wq};
use crate::decode::walk;
use crate::layout::{Info, Kind};
use alloc::string::ToString;
use alloc::vec;
use core::convert::Infallible;
use std::collections::BTreeMap;

/// A card that announces these, and of which no more is known.
#[derive(Default)]
struct Announced(BTreeMap<(u32, String), u64>);

impl Card for Announced {
    fn current(&self, page: CapPage, name: &str) -> Option<u64> {
        self.0.get(&(page.number(), name.into())).copied()
    }
}

/// An input with room for a list, and a card.
struct Case {
    info: &'static Info,
    input: Vec<u8>,
    card: Announced,
}

impl Case {
    fn new(opcode: Opcode) -> Case {
        let info = cmd::find(opcode).unwrap_or_else(|| panic!("{opcode} has no layout")).input;
        let mut input = vec![0; info.size + 0x400];
        input[..2].copy_from_slice(&(opcode.number() as u16).to_be_bytes());
        Case { info, input, card: Announced::default() }
    }

    /// Sets the field that the command or the card has under this name; `false` if it has none, or not so wide a one.
    fn set(&mut self, field: Field, number: u64) -> bool {
        let table = || {
            let numbers = Numbers::of(self.info, &self.input, vec!["table_type", "obj_context.table_type"]);
            Known { numbers, card: &self.card }.capability(field)
        };
        match field.origin {
            Origin::Input => self.set_input(field.name, number).is_some(),
            _ => {
                let (page, name) = table().unwrap_or_else(|| panic!("{}: of no flow table", field.name));
                let row = page.layout().and_then(|info| input::field_at(info, &name));
                let row = row.unwrap_or_else(|| panic!("{page} has no {name}"));
                self.card.0.insert((page.number(), name), number);
                row.bits() >= 64 || number >> row.bits() == 0
            }
        }
    }

    /// Sets the field in every element of the list it lies in, if it does.
    fn set_input(&mut self, name: &str, number: u64) -> Option<()> {
        let (mut path, mut places) = (input::Path::default(), Vec::new());
        let _: Result<(), Infallible> = walk(self.info, &self.input, &mut |at| {
            if path.name(&at) == name && at.number.is_some() {
                places.push((at.offset, *at.field));
            }
            Ok(())
        });
        assert!(!places.is_empty(), "{}: no field {name}", self.info.name);
        places.iter().try_for_each(|(offset, row)| match row.kind {
            Kind::Part { .. } => self.input.get_mut(*offset).map(|byte| *byte = number as u8),
            Kind::Bits { .. } => row.set(&mut self.input[offset - row.offset..], number),
        })
    }

    /// Makes true what the limit hangs on. What a mask asks for is set in the field, beside what else is.
    fn meet(&mut self, conditions: &[Condition]) {
        for condition in conditions {
            let number = match condition.is {
                Is::One(texts) => self.value(condition.field, texts.split('|').next().unwrap_or_default()),
                Is::Any(u64::MAX) => 1,
                Is::Any(mask) => mask & mask.wrapping_neg(),
            };
            assert!(self.set(condition.field, number), "{condition:?}");
        }
    }

    fn value(&mut self, field: Field, text: &str) -> u64 {
        rule::number(text).unwrap_or_else(|| {
            self.set(field, 0);
            let numbers = Numbers::of(self.info, &self.input, vec![field.name]);
            let known = Known { numbers, card: &self.card };
            (0..0x10000).find(|n| known.name_of(field, *n) == Some(text)).unwrap_or_else(|| panic!("no value {text}"))
        })
    }
}

/// Every limit of the table, with the command and its conditions.
fn limits() -> Vec<(Opcode, Vec<Condition>, Limit)> {
    let all = read::headings().flat_map(|(heading, lines)| {
        let block = read::parsed((heading, lines)).unwrap_or_else(|| panic!("not of the language: under {heading}"));
        read::commands(heading).flat_map(move |name| {
            let opcode = Opcode::ALL.iter().find(|opcode| opcode.prm_name() == Some(name));
            let opcode = *opcode.unwrap_or_else(|| panic!("no command is called {name}"));
            let of_block = block.limits.clone().into_iter();
            of_block.map(|limit| (opcode, block.conditions.clone(), limit)).collect::<Vec<_>>()
        })
    });
    all.collect()
}

/// What of the limit is broken where its left field holds `left` and the first of its right ones `right`, the others 0;
/// `None` where a field cannot hold so much.
fn broken((opcode, conditions, limit): &(Opcode, Vec<Condition>, Limit), left: u64, right: u64) -> Option<Vec<String>> {
    let mut case = Case::new(*opcode);
    case.meet(conditions);
    // A field that the limit hangs on keeps what makes it apply.
    let free = |field: Field, number: u64| {
        let mut of_field = conditions.iter().filter(|condition| condition.field == field);
        of_field.all(|one| matches!(one.is, Is::Any(mask) if number & mask != 0))
    };
    for (i, term) in limit.right.iter().enumerate() {
        let number = if i == 0 { right } else { 0 };
        if !free(term.field, number) || !case.set(term.field, number) {
            return None;
        }
    }
    let named = limit.left.field.name != "opcode";
    let kept = conditions.iter().any(|one| one.field == limit.left.field && !matches!(one.is, Is::Any(u64::MAX)));
    if named && !kept && !(free(limit.left.field, left) && case.set(limit.left.field, left)) {
        return None;
    }
    let about = |one: &Violation| one.field == limit.left.field.name && one.source == limit.source;
    Some(check(&case.input, &case.card).iter().filter(|one| about(one)).map(ToString::to_string).collect())
}

#[test]
fn every_limit_breaks_past_its_edge_and_names_the_field_and_holds_at_it() {
    for one in limits() {
        let (opcode, _, limit) = &one;
        let (left, right) = (limit.left, limit.right[0]);
        let edges: Vec<(u64, u64, u64, u64)> = match limit.rule {
            // What holds: left, right. What breaks: left, right.
            Rule::Needs => vec![(1, 1, 1, 0)],
            Rule::In => vec![(1, 2, 1, 1), (0, 1, 0, 2)],
            Rule::Within => vec![(1, 1, 1, 0)],
            Rule::AtMost if left.power => vec![(1, left.of(1), 2, left.of(1))],
            Rule::AtMost => (0..4).map(|n| (right.of(n), n, right.of(n) + 1, n)).collect(),
            Rule::AtLeast => vec![(2, 2, 1, 2)],
            Rule::Below | Rule::Counted => (0..9).map(|n| (right.of(n).saturating_sub(1), n, right.of(n), n)).collect(),
        };
        let mut told = 0;
        for (good, announced, bad, of) in edges {
            let Some(said) = broken(&one, bad, of) else { continue };
            assert_eq!(said.len(), 1, "{opcode}: {} {bad} against {of}: {said:?}", left.field.name);
            let named = said[0].contains(left.field.name) || left.field.name == "opcode";
            let capability = right.field.name.rsplit('.').next().unwrap_or_default();
            assert!(named && said[0].contains(capability) && said[0].contains(&opcode.to_string()), "{said:?}");
            // The edge may be where the limit does not apply, such as index 0 where 0 is none.
            let allowed = broken(&one, good, announced).unwrap_or_default();
            // A table of none has no last index.
            assert!(allowed.is_empty() || of == 0, "{opcode}: {good} against {announced}: {allowed:?}");
            told += 1;
        }
        assert!(told > 0, "{opcode}: {} cannot break {limit:?}", left.field.name);
    }
}

#[test]
fn every_limit_says_where_it_is_to_be_read_and_stands_once() {
    let all = limits();
    assert!(all.len() > 400, "{}", all.len());
    let mut seen: Vec<String> = Vec::new();
    for (opcode, conditions, limit) in &all {
        assert!(!limit.source.is_empty(), "{opcode}: {limit:?}");
        let Limit { left, rule, right, .. } = limit;
        seen.push(std::format!("{opcode} {conditions:?} {left:?} {rule:?} {right:?}"));
    }
    seen.sort();
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "a limit stands twice");
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
    let broken: Vec<_> = check(create.as_bytes(), &card).iter().map(Violation::to_string).collect();
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert_eq!(broken[0], "CREATE_CQ: cq_context.log_cq_size=23 > log_max_cq_sz 22");
    assert!(broken[1].contains("cq_context.cqe_comp_en=0x1 needs cqe_compression"));
    assert!(check(create.as_bytes(), &|_: CapPage, _: &str| None).is_empty());
    assert!(check(&[], &card).is_empty() && check(&[0xff; 64], &card).is_empty());
}

#[test]
fn a_row_with_a_condition_applies_only_then() {
    let mut create = CreateQpIn::default();
    let card = |_: CapPage, name: &str| (name == "uc").then_some(0);
    assert!(check(create.as_bytes(), &card).is_empty());
    let mut context = Qpc::default();
    let _ = context.w().st(crate::values::ServiceType::Uc);
    let _ = create.w().qpc(&context);
    assert_eq!(check(create.as_bytes(), &card)[0].to_string(), "CREATE_QP needs uc, which the card does not have");
}

#[test]
fn what_an_input_lacks_is_zero() {
    let mut card = Announced::default();
    card.0.insert((CapPage::Roce.number(), "roce_version".into()), 1 << 2);
    // SET_ROCE_ADDRESS up to the first byte of its address; the version is behind it.
    let mut input = vec![0; 0x11];
    input[..2].copy_from_slice(&(Opcode::SetRoceAddress.number() as u16).to_be_bytes());
    assert_eq!(check(&input, &card), []);
    input[0x10] = 1;
    let said: Vec<_> = check(&input, &card).iter().map(Violation::to_string).collect();
    assert!(matches!(&said[..], [one] if one.contains("roce_version")), "{said:?}");
}

#[test]
fn flow_tables_are_checked_against_the_properties_of_their_type() {
    let card = |page: CapPage, name: &str| match (page, name) {
        (CapPage::EswitchFlowTable, "flow_table_properties_nic_esw_fdb.max_modify_header_actions") => Some(2),
        (CapPage::FlowTable, _) => Some(64),
        _ => None,
    };
    let of = |kind| {
        let mut alloc = AllocModifyHeaderContextIn::default();
        let _ = alloc.w().table_type(kind).num_of_actions(3);
        check(alloc.as_bytes(), &card)
    };
    assert!(of(FlowTableType::NicRx).is_empty());
    let broken = of(FlowTableType::Fdb);
    let named = "num_of_actions=3 > flow_table_properties_nic_esw_fdb.max_modify_header_actions 2";
    assert!(broken[0].to_string().ends_with(named), "{broken:?}");
}

#[test]
fn a_capability_set_above_the_most_is_named_unless_it_is_so_already() {
    struct Both;
    impl Card for Both {
        fn current(&self, _: CapPage, name: &str) -> Option<u64> {
            Some(if name == "log_max_cq" { 20 } else { 0 })
        }
        fn max(&self, _: CapPage, name: &str) -> Option<u64> {
            Some(if name == "log_max_qp" { 17 } else { 0 })
        }
    }
    let said = |edit: &dyn Fn(&mut crate::caps::CmdHcaCap)| {
        let mut caps = crate::caps::CmdHcaCap::default();
        edit(&mut caps);
        let mut set = SetHcaCapIn::default();
        let mut page = [0; 0x1000];
        page[..caps.as_bytes().len()].copy_from_slice(caps.as_bytes());
        let _ = set.w().op_mod(CapPage::General.op_mod(false)).capability(&page);
        check(set.as_bytes(), &Both).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(said(&|caps| _ = caps.w().log_max_qp(17).log_max_cq(20).log_uar_page_sz(4)), Vec::<String>::new());
    let named = "SET_HCA_CAP: capability.log_max_qp=18 > maximum 17";
    assert_eq!(said(&|caps| _ = caps.w().log_max_qp(18)), [named]);
}

/// The command with this list after it.
fn listed(command: &[u8], list: &[u64]) -> Vec<String> {
    let list: Vec<u8> = list.iter().flat_map(|one| one.to_be_bytes()).collect();
    check_lists(&[command, &list[..]].concat()).iter().map(ToString::to_string).collect()
}

#[test]
fn page_lists_are_held_against_the_queues_size_and_page_size() {
    let mut cq = CreateCqIn::default();
    let mut context = Cqc::default();
    let _ = context.w().log_cq_size(8);
    let _ = cq.w().cq_context(&context);
    assert_eq!(listed(cq.as_bytes(), &[0x1000, 0x2000, 0x3000, 0x4000]), Vec::<String>::new());
    let short = "CREATE_CQ: the page list has 1 entries; 16384 bytes in pages of 4096 take 4";
    assert_eq!(listed(cq.as_bytes(), &[0x1000]), [short]);
    let _ = context.w().log_page_size(2);
    let _ = cq.w().cq_context(&context);
    assert_eq!(listed(cq.as_bytes(), &[0x10000]), Vec::<String>::new());
    let _ = context.w().page_offset(1);
    let _ = cq.w().cq_context(&context);
    let offset = "CREATE_CQ: the page list has 1 entries; 16384 bytes from byte 256 in pages of 16384 take 2";
    assert_eq!(listed(cq.as_bytes(), &[0x10000]), [offset]);
    let _ = cq.w().cq_umem_valid(true);
    assert_eq!(listed(cq.as_bytes(), &[]), Vec::<String>::new());

    let mut qp = CreateQpIn::default();
    let mut context = Qpc::default();
    // 32 receive WQEs of 64 bytes, 64 send WQEBBs of 64: 6 KiB.
    let _ = context.w().log_rq_size(5).log_rq_stride(2).log_sq_size(6);
    let _ = qp.w().qpc(&context);
    assert_eq!(listed(qp.as_bytes(), &[0x1000, 0x2000]), Vec::<String>::new());
    let short = "CREATE_QP: the page list has 1 entries; 6144 bytes in pages of 4096 take 2";
    assert_eq!(listed(qp.as_bytes(), &[0x1000]), [short]);
    let _ = context.w().rq_type(1);
    let _ = qp.w().qpc(&context);
    assert_eq!(listed(qp.as_bytes(), &[0x1001]), ["CREATE_QP: pas[0]=0x1001 is not aligned to 4096 bytes"]);
    let _ = qp.w().qpc_ext(true);
    let mut extended = [0; 25];
    extended[24] = 0x1000;
    assert_eq!(listed(qp.as_bytes(), &extended), Vec::<String>::new());
    let none = "CREATE_QP: the page list has 0 entries; 4096 bytes in pages of 4096 take 1";
    assert_eq!(listed(qp.as_bytes(), &extended[..24]), [none]);

    let mut rq = CreateRqIn::default();
    let mut wq = Wq::default();
    let _ = wq.w().log_wq_sz(9).log_wq_stride(4);
    let mut context = Rqc::default();
    let _ = context.w().wq(&wq);
    let _ = rq.w().ctx(&context);
    assert_eq!(listed(rq.as_bytes(), &[0x1000, 0]), ["CREATE_RQ: pas[1] is 0"]);
    let _ = context.w().hairpin(true);
    let _ = rq.w().ctx(&context);
    assert_eq!(listed(rq.as_bytes(), &[]), Vec::<String>::new());

    let mut eq = CreateEqIn::default();
    let mut context = Eqc::default();
    let _ = context.w().log_eq_size(31);
    let _ = eq.w().eq_context_entry(&context);
    assert!(listed(eq.as_bytes(), &[0x1000])[0].contains("take 33554432"));
}

#[test]
fn translations_of_a_key_are_held_against_its_length() {
    let mut context = Mkc::default();
    context.set_access_mode(AccessMode::Mtt);
    let _ = context.w().start_addr(0x1800).len(0x2000).log_page_size(12).translations_octword_size(2);
    let mut create = CreateMkeyIn::default();
    let _ = create.w().memory_key_mkey_entry(&context).translations_octword_actual_size(2);
    assert_eq!(listed(create.as_bytes(), &[1; 4]), Vec::<String>::new());
    let few = "CREATE_MKEY: translations_octword_actual_size=2 asks for 32 bytes of klm_pas_mtt, the list has 24";
    assert_eq!(listed(create.as_bytes(), &[1; 3]), [few]);
    let _ = context.w().translations_octword_size(1);
    let _ = create.w().memory_key_mkey_entry(&context).translations_octword_actual_size(1);
    let few = "CREATE_MKEY: memory_key_mkey_entry.translations_octword_size=1 are 2 translations; \
               8192 bytes in pages of 4096 take 3";
    assert_eq!(listed(create.as_bytes(), &[1; 2]), [few]);
    let _ = context.w().free(true);
    let _ = create.w().memory_key_mkey_entry(&context);
    assert_eq!(listed(create.as_bytes(), &[1; 2]), Vec::<String>::new());
}

#[test]
fn elements_that_are_counted_are_there() {
    let mut alloc = AllocModifyHeaderContextIn::default();
    let _ = alloc.w().num_of_actions(3);
    assert_eq!(listed(alloc.as_bytes(), &[0; 3]), Vec::<String>::new());
    let few = "ALLOC_MODIFY_HEADER_CONTEXT: num_of_actions=3 asks for 24 bytes of actions, the list has 16";
    assert_eq!(listed(alloc.as_bytes(), &[0; 2]), [few]);
}

#[test]
fn no_bytes_panic() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let card = |_: CapPage, name: &str| Some(name.len() as u64);
    for opcode in Opcode::ALL {
        for length in [16, 40, 0x110, 0x500] {
            let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            bytes[..2].copy_from_slice(&(opcode.number() as u16).to_be_bytes());
            let _ = (check(&bytes, &card), check_lists(&bytes));
        }
    }
}
