//! What dumps look like, to the letter.

use mlx5_prm::cmd::{CreateEqIn, ManagePagesIn, Opcode, QueryHcaCapOut, SetDriverVersionIn};
use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome, ErrorCqe, TagMatchingCqe};
use mlx5_prm::ctx::{Eqc, Qpc};
use mlx5_prm::decode::{self, Dump, Uncovered};
use mlx5_prm::eqe::{CqErrorEvent, Eqe, EventType};
use mlx5_prm::layout::{Be64, Layout};
use mlx5_prm::values::QpState;

#[test]
fn a_command_with_context_array_and_tail() {
    let mut eqc = Eqc::default();
    eqc.w().oi(true).st(9).log_eq_size(7);
    let mut create = CreateEqIn::default();
    create.w().eq_context_entry(&eqc).event_bitmask(&[0.into(), Be64::new(0x80a), 0.into(), 0.into()]);
    let bytes = [create.as_bytes(), &0x1234_5000u64.to_be_bytes()].concat();
    assert_eq!(
        decode::command_input(&bytes).unwrap().to_string(),
        "\
create_eq_in, 0x118 bytes
  0x0000 [31:16] opcode = CREATE_EQ (0x301)
  0x0010         eq_context_entry
  0x0010 [17]      oi = 1
  0x0010 [11:8]    st = ARMED (0x9)
  0x001c [28:24]   log_eq_size = 0x7
  0x0060         event_bitmask[1] = 0x80a
  0x0110         pas[0] = 0x12345000
"
    );
}

#[test]
fn bits_that_no_field_covers_and_an_early_end() {
    let mut bytes = ManagePagesIn::default().as_bytes().to_vec();
    bytes[2] = 0x80;
    assert_eq!(decode::uncovered(&ManagePagesIn::INFO, &bytes), Some(Uncovered { offset: 0, bits: 0x8000 }));
    bytes.truncate(0xb);
    assert_eq!(
        Dump::new(&ManagePagesIn::INFO, &bytes).to_string(),
        "\
manage_pages_in, 0xb bytes
  0x0000 [31:16] opcode = MANAGE_PAGES (0x108)
  0x0000         0x00008000 set, and no field there
  ends early: manage_pages_in has 0x10 bytes
"
    );
}

#[test]
fn text_reads_as_text() {
    let mut version = [0; 64];
    version[..16].copy_from_slice(b"Linux,mlx5_core,");
    let mut set = SetDriverVersionIn::default();
    set.w().driver_version(&version);
    let text = Dump::of(&set).to_string();
    assert!(text.ends_with("  0x0010         driver_version = \"Linux,mlx5_core,\"\n"), "{text}");
}

#[test]
fn a_capability_page_is_chosen_by_op_mod() {
    let mut bytes = vec![0; QueryHcaCapOut::SIZE];
    bytes[0x10 + 0x44 + 3] = 1;
    bytes[0x10 + 0x44] = 0x04; // reserved
    assert_eq!(
        decode::command_output(Opcode::QueryHcaCap, 1, &bytes).unwrap().to_string(),
        "\
query_hca_cap_out, 0x1010 bytes
  0x0010         capability
  0x0054 [0]       rc = 1
  0x0054         0x04000000 set, and no field there
"
    );
    let dump = decode::command_output(Opcode::QueryHcaCap, 1, &bytes).unwrap();
    let mut set = Vec::new();
    let walked = dump.walk::<()>(&mut |found| {
        let number = found.number.filter(|number| *number != 0);
        set.extend(number.map(|number| (found.offset, found.depth, found.field.name, number)));
        Ok(())
    });
    assert_eq!((walked, set), (Ok(()), vec![(0x54, 1, "rc", 1)]), "what programs walk is what people read");
    assert_eq!(dump.uncovered().collect::<Vec<_>>(), [Uncovered { offset: 0x54, bits: 0x0400_0000 }]);
    let unknown = decode::command_output(Opcode::QueryHcaCap, 0x4000, &bytes).unwrap().to_string();
    assert!(unknown.contains("  0x0050         capability[64] = 00 00 00 00 04 00 00 01 00..\n"), "{unknown}");
}

#[test]
fn zeros_on_request() {
    let eqc = Eqc::default();
    assert_eq!(Dump::of(&eqc).to_string(), "eqc, 0x40 bytes\n");
    assert_eq!(Dump::of(&eqc).with_zeros().to_string().lines().count(), 1 + Eqc::FIELDS.len());
}

#[test]
fn events_and_completions_by_their_kind() {
    let mut error = CqErrorEvent::default();
    error.w().cqn(0x12).syndrome(1);
    let mut eqe = Eqe::default();
    eqe.w().event_type(EventType::CqError).event_data(error.as_bytes().try_into().unwrap());
    assert_eq!(
        decode::event(eqe.as_bytes()).unwrap().to_string(),
        "\
eqe, 0x40 bytes
  0x0000 [23:16] event_type = CQ_ERROR (0x4)
  0x0020         event_data
  0x0020 [23:0]    cqn = 0x12
  0x0028 [7:0]     syndrome = CQ_OVERRUN (0x1)
"
    );
    let mut cqe = ErrorCqe::default();
    cqe.w().opcode(CqeOpcode::RequesterError).syndrome(CqeSyndrome::RemoteAccess).qpn(0x55);
    assert_eq!(
        decode::completion(cqe.as_bytes()).unwrap().to_string(),
        "\
err_cqe, 0x40 bytes
  0x0034 [7:0]   syndrome = REMOTE_ACCESS_ERR (0x13)
  0x0038 [23:0]  qpn = 0x55
  0x003c [7:4]   opcode = REQ_ERR (0xd)
"
    );
    // The last byte of a card's completion with error: solicited, as all with error are.
    let mut bytes = cqe.as_bytes().to_vec();
    bytes[0x3f] = 0xd3;
    let text = decode::completion(&bytes).unwrap().to_string();
    assert!(text.contains("[1]     se = 1") && !text.contains("no field there"), "{text}");
    let mut bytes = [0; 64];
    bytes[0x3f] = 0xc7;
    for text in [decode::completion(&bytes).unwrap(), Dump::new(&TagMatchingCqe::INFO, &bytes)].map(|d| d.to_string()) {
        assert!(text.contains("cqe_format = INLINE_DATA32_SEG") && text.contains("[1]     se = 1"), "{text}");
        assert!(!text.contains("no field there"), "{text}");
    }
}

#[test]
fn debug_is_one_line_of_what_is_set() {
    let mut qpc = Qpc::default();
    qpc.w().state(QpState::Rtr).pd(0x11);
    assert_eq!(format!("{qpc:?}"), "Qpc { state: RTR, pd: 0x11, .. }");
    let mut create = CreateEqIn::default();
    create.w().event_bitmask(&[0.into(), 2.into(), 0.into(), 0.into()]);
    assert_eq!(format!("{create:?}"), "CreateEqIn { opcode: CREATE_EQ, event_bitmask: [0x0, 0x2, 0x0, 0x0], .. }");
    assert_eq!(format!("{:?}", QpState::Unknown(12)), "Unknown(12)");
}
