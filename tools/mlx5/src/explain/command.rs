//! Command inputs: decoded, and checked against the limits of a card.

use mlx5_dv::CommandErrorKind;
use mlx5_prm::cmd::{self, CmdStatus, InputHeader};
use mlx5_prm::decode;
use mlx5_prm::layout::Layout;
use mlx5_prm::limits;
use mlx5_tools::kernel_log::{Logged, Outcome};

use super::report::{Report, lines};
use super::{status, syndromes};
use crate::caps::set::CapSet;

/// A command printed by a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// The input, as far as printed.
    input: Vec<u8>,
    /// Whether the input is complete.
    whole: bool,
    /// Inconsistencies of its entry and blocks, and missing parts.
    notes: Vec<String>,
    /// Why it failed, if printed.
    why_not: Option<String>,
    /// Status and syndrome, if firmware refused it.
    refused: Option<(CmdStatus, u32)>,
}

impl Printed {
    /// From a command of a log.
    pub fn of(logged: &Logged) -> Printed {
        let why_not = match &logged.outcome {
            Outcome::Ok => None,
            Outcome::Failed(kind) => Some(kind.to_string()),
            Outcome::Unanswered(why) => Some((*why).to_owned()),
        };
        let refused = match &logged.outcome {
            Outcome::Failed(CommandErrorKind::Status { status, syndrome, .. }) => Some((*status, *syndrome)),
            _ => None,
        };
        Printed { input: logged.input.clone(), whole: logged.whole, notes: logged.notes.clone(), why_not, refused }
    }
}

/// Report on a command printed by a kernel.
pub fn of_printed(printed: &Printed, caps: Option<&CapSet>) -> Option<Report> {
    let mut report = of_input(&printed.input, printed.whole, caps)?;
    report.fields.extend(printed.why_not.iter().map(|why| ("outcome", why.clone())));
    if let Some((status, syndrome)) = printed.refused {
        report.known.extend(syndromes::firmware(syndrome));
        // With an invalid field, the usual causes do not matter.
        if report.offending.is_empty() {
            report.causes = status::of_status(status).causes;
        }
    }
    if !printed.notes.is_empty() {
        report.fields.push(("notes", printed.notes.join("; ")));
    }
    Some(report)
}

/// Report on a command's input; checked against a card if `caps` is given.
pub fn of_bytes(input: &[u8], caps: Option<&CapSet>) -> Option<Report> {
    of_input(input, true, caps)
}

/// The same for an input that may be incomplete, unless `whole`.
fn of_input(input: &[u8], whole: bool, caps: Option<&CapSet>) -> Option<Report> {
    let header = InputHeader::read(input)?;
    let opcode = header.opcode();
    let what = format!("input of {opcode} ({:#x}), op_mod {:#x}", opcode.number(), header.op_mod());
    let Some((info, _)) = cmd::layout_of_command(opcode, header.op_mod()) else {
        let meaning = "a command without a known layout".to_owned();
        return Some(Report { what, meaning, ..Report::default() });
    };
    let mut offending = Vec::new();
    if whole && input.len() < info.size {
        offending.push(format!(
            "the input has {:#x} bytes, but the command's fixed part has {:#x}",
            input.len(),
            info.size
        ));
    }
    offending.extend(reserved(input));
    let mut broken = caps.map_or_else(Vec::new, |caps| limits::check(input, caps));
    if whole {
        broken.extend(limits::check_lists(input));
    }
    offending.extend(broken.iter().map(ToString::to_string));
    let meaning = match (offending.is_empty(), caps) {
        (false, Some(caps)) if !broken.is_empty() => format!("it exceeds the limits of {}", caps.owner()),
        (false, _) => "a card would refuse it".to_owned(),
        (true, Some(caps)) => format!("no field exceeds the known limits of {}", caps.owner()),
        (true, None) => "no field is invalid by itself; not checked against a card".to_owned(),
    };
    let look_at = match caps {
        None => lines(&["the limits of a card: `--caps` with a device, a profile such as connectx5, or a saved file"]),
        Some(_) => Vec::new(),
    };
    let decoded = decode::command_input(input).map(|dump| dump.to_string());
    Some(Report { what, meaning, offending, look_at, decoded, ..Report::default() })
}

/// Messages on set bits that no field covers.
fn reserved(input: &[u8]) -> Vec<String> {
    let dump = decode::command_input(input);
    let found = dump.into_iter().flat_map(|dump| dump.uncovered().collect::<Vec<_>>());
    found.map(|at| format!("reserved bits {:#010x} of the dword at {:#x} are set", at.bits, at.offset)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_dv::Device;
    use mlx5_prm::cmd::{Command, CreateCqIn, CreateEqIn, CreateQpIn, CreateUmemIn, SetRoceAddressIn};
    use mlx5_prm::ctx::{Cqc, Eqc, Qpc, Umem};
    use mlx5_prm::values::ServiceType;

    fn create_cq(log_cq_size: u8, pages: &[u64]) -> Vec<u8> {
        let mut context = Cqc::default();
        let _ = context.w().log_cq_size(log_cq_size);
        let mut create = CreateCqIn::default();
        let _ = create.w().cq_context(&context);
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        [create.as_bytes(), &list[..]].concat()
    }

    #[test]
    fn a_sound_command_is_blamed_for_nothing() {
        let caps = CapSet::load("connectx5").expect("the software card");
        let report = of_bytes(&create_cq(7, &[0x1000, 0x2000]), Some(&caps)).expect("a command");
        assert_eq!(report.offending, Vec::<String>::new());
    }

    #[test]
    fn a_size_above_the_capability_is_named_with_both_numbers() {
        let caps = CapSet::load("connectx5").expect("the software card");
        let report = of_bytes(&create_cq(25, &[0x1000]), Some(&caps)).expect("a command");
        assert_eq!(report.offending[0], "CREATE_CQ: cq_context.log_cq_size=25 > log_max_cq_sz 22");
    }

    #[test]
    fn reserved_bits_and_broken_page_lists_are_named() {
        let mut input = create_cq(7, &[0, 0x1001]);
        input[8] = 0x80;
        let offending = of_bytes(&input, None).expect("a command").offending;
        assert_eq!(offending[0], "reserved bits 0x80000000 of the dword at 0x8 are set");
        assert_eq!(offending[1], "CREATE_CQ: pas[0] is 0");
        assert_eq!(offending[2], "CREATE_CQ: pas[1]=0x1001 is not aligned to 4096 bytes");
        let offending = of_bytes(&create_cq(8, &[0x1000]), None).expect("a command").offending;
        assert_eq!(offending, ["CREATE_CQ: the page list has 1 entries; 16384 bytes in pages of 4096 take 4"]);
        let mut context = Eqc::default();
        let _ = context.w().log_eq_size(31);
        let mut create = CreateEqIn::default();
        let _ = create.w().eq_context_entry(&context);
        assert!(of_bytes(create.as_bytes(), None).expect("a command").offending[0].contains("entries"));
    }

    #[test]
    fn an_unknown_or_short_command_is_said_to_be_one() {
        let report = of_bytes(&[0xff; 16], None).expect("a header");
        assert!(report.meaning.contains("without a known layout"));
        assert!(of_bytes(&create_cq(7, &[])[..0x20], None).expect("a header").offending[0].contains("0x20 bytes"));
        assert_eq!(of_bytes(&[0; 8], None), None);
    }

    /// The card refuses the command, and what is said of it names the field.
    fn refused_and_named<C: Command>(device: &Device, caps: &CapSet, command: &C, field: &str) {
        // SAFETY: a command that the software card refuses, which has no memory of this process but the driver's.
        let error =
            unsafe { device.execute_raw(command, "") }.err().unwrap_or_else(|| panic!("{field}: the card took it"));
        let refused = matches!(error.kind, CommandErrorKind::Status { status, .. } if status != CmdStatus::Ok);
        assert!(refused, "{field}: {error}");
        assert!(error.to_string().contains(field), "the driver names the field too: {error}");
        let offending = of_bytes(command.head(), Some(caps)).expect("a command").offending;
        assert!(offending.iter().any(|one| one.contains(field)), "{field}: {offending:?}");
    }

    #[test]
    fn what_the_software_card_refuses_for_a_limit_is_named() {
        let device = mlx5_open::open("sim").expect("the software card");
        let caps = CapSet::query(&device, "sim").expect("its capabilities");
        let cq = |context: &Cqc| {
            let mut create = CreateCqIn::default();
            let _ = create.w().cq_context(context);
            create
        };
        let mut context = Cqc::default();
        let _ = context.w().log_cq_size(25);
        refused_and_named(&device, &caps, &cq(&context), "cq_context.log_cq_size=25");
        let mut context = Cqc::default();
        let _ = context.w().apu_cq(true);
        refused_and_named(&device, &caps, &cq(&context), "cq_context.apu_cq");
        let mut context = Eqc::default();
        let _ = context.w().log_eq_size(31);
        let mut create = CreateEqIn::default();
        let _ = create.w().eq_context_entry(&context);
        refused_and_named(&device, &caps, &create, "eq_context_entry.log_eq_size=31");
        let mut umem = Umem::default();
        let _ = umem.w().ats(true);
        let mut create = CreateUmemIn::default();
        let _ = create.w().umem(&umem);
        refused_and_named(&device, &caps, &create, "umem.ats");
        let mut context = Qpc::default();
        let _ = context.w().st(ServiceType::Dci).log_num_dci_stream_channels(1);
        let mut create = CreateQpIn::default();
        let _ = create.w().qpc(&context);
        refused_and_named(&device, &caps, &create, "log_num_dci_stream_channels");
        let mut set = SetRoceAddressIn::default();
        let _ = set.w().roce_address_index(255);
        refused_and_named(&device, &caps, &set, "roce_address_index=255");
    }
}
