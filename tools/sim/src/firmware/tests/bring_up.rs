//! The function's states, capabilities, identity, health.

use std::time::Duration;

use mlx5_prm::caps::{AtomicCaps, CmdHcaCap, RoceCap};
use mlx5_prm::cmd::*;
use mlx5_prm::layout::Layout;

use super::client::{Client, Failure};
use crate::fault::{Fault, Times};
use crate::firmware::hca::RULE_ISSI;
use crate::firmware::syndromes::Syndrome;
use crate::firmware::{self, HcaState};
use crate::profile::Profile;
use crate::strict::rules;

#[test]
fn the_states_in_their_order() {
    let mut client = Client::new();
    assert_eq!(client.refused(&QueryIssiIn::default()), Syndrome::NotEnabled);
    assert_eq!(client.refused(&AllocPdIn::default()), Syndrome::NotEnabled);
    client.exec(&EnableHcaIn::default()).unwrap();
    client.set_issi();
    assert_eq!(client.refused(&EnableHcaIn::default()), Syndrome::AlreadyEnabled);
    assert_eq!(client.refused(&AllocPdIn::default()), Syndrome::NotInitialized);
    assert_eq!(client.refused(&TeardownHcaIn::default()), Syndrome::NotInitialized);
    assert_eq!(client.refused(&InitHcaIn::default()), Syndrome::BootPagesMissing);
    client.satisfy(1);
    assert_eq!(client.refused(&InitHcaIn::default()), Syndrome::InitPagesMissing);
    client.satisfy(2);
    client.exec(&InitHcaIn::default()).unwrap();
    assert_eq!(client.refused(&InitHcaIn::default()), Syndrome::AlreadyInitialized);
    assert_eq!(client.refused(&SetHcaCapIn::default()), Syndrome::AlreadyInitialized);
    assert_eq!(client.refused(&DisableHcaIn::default()), Syndrome::StillInitialized);
    client.exec(&AllocPdIn::default()).unwrap();
    client.exec(&TeardownHcaIn::default()).unwrap();
    assert_eq!(client.violations(), ["objects left at TEARDOWN_HCA"]);
    assert_eq!(client.refused(&AllocPdIn::default()), Syndrome::NotInitialized);
    client.exec(&DisableHcaIn::default()).unwrap();
    assert_eq!(client.violations(), ["pages not taken back before DISABLE_HCA"]);
    assert_eq!(client.f.nic.firmware.state(), HcaState::Disabled);
    client.bring_up();
}

#[test]
fn a_graceful_end_leaves_nothing() {
    let mut client = Client::up();
    client.exec(&TeardownHcaIn::default()).unwrap();
    let held = client.f.nic.firmware.pages_held();
    while client.f.nic.firmware.pages_held() > 0 {
        assert!(!client.take(200).is_empty());
    }
    assert_eq!(held, 8 + 512);
    client.exec(&DisableHcaIn::default()).unwrap();
    assert_eq!(client.violations(), [] as [&str; 0]);
}

#[test]
fn reset_forgets_everything() {
    let mut client = Client::up();
    client.exec(&AllocPdIn::default()).unwrap();
    firmware::reset(&mut client.f);
    assert_eq!(client.f.object_count(), 0);
    assert_eq!(client.f.nic.firmware.pages_held(), 0);
    assert!(client.f.nic.firmware.init_segment(&client.f.nic.profile, client.f.nic.now).initializing());
}

#[test]
fn the_nic_interface_turns_the_function_off_and_starts_it_anew() {
    let mut client = Client::up();
    let queue = client.f.nic.firmware.queue.address as u32;
    let read = |client: &Client| client.f.nic.firmware.init_segment(&client.f.nic.profile, client.f.nic.now);
    firmware::write_register(&mut client.f, 0x14, queue | 1 << 8);
    assert_eq!((read(&client).nic_interface(), read(&client).cmdq_phy_addr_31_12()), (1, queue >> 12));
    assert_eq!(client.exec(&QueryIssiIn::default()).map(|_| ()), Err(Failure::Unanswered));
    firmware::write_register(&mut client.f, 0x14, queue | 7 << 8);
    assert!(read(&client).initializing());
    assert_eq!((read(&client).nic_interface(), client.f.nic.firmware.state()), (1, HcaState::Disabled));
    client.f.nic.now += Duration::from_millis(10);
    assert_eq!((read(&client).nic_interface(), read(&client).initializing()), (1, false));
}

/// Linux after a health failure: function off (or reset), all pages dropped, and a restart with the same pages.
#[test]
fn a_driver_that_gives_up_gets_its_memory_back() {
    for (off, pause) in [(1, 0), (7, 20)] {
        let mut client = Client::up();
        let parents = client.parents();
        client.ready_for_roce();
        let command = client.qp(&parents);
        let qpn = client.exec(&command).unwrap().reply.qpn();
        let pages: Vec<u64> = client.f.nic.firmware.pages.addresses().collect();
        client.f.nic.faults.inject(Fault::CommandSwallowed { opcode: None }, Times::Count(1));
        assert_eq!(client.exec(&NopIn::default()).map(|_| ()), Err(Failure::Unanswered));
        let queue = client.f.nic.firmware.queue.address;
        firmware::write_register(&mut client.f, 0x14, queue as u32 | off << 8);
        assert_eq!((client.f.object_count(), client.f.nic.firmware.pages_held()), (0, 0));
        assert_eq!(client.f.nic.firmware.commands_under_way(), 0);

        client.f.nic.now += Duration::from_millis(pause);
        firmware::write_register(&mut client.f, 0x10, (queue >> 32) as u32);
        firmware::write_register(&mut client.f, 0x14, queue as u32);
        client.exec(&EnableHcaIn::default()).unwrap();
        client.set_issi();
        let mut query = QueryPagesIn::default();
        query.w().op_mod(1);
        assert_eq!(client.exec(&query).unwrap().num_pages(), 8);
        client.exec(&super::client::give(&pages)).unwrap();
        query.w().op_mod(2);
        assert_eq!(client.exec(&query).unwrap().num_pages(), 0);
        client.exec(&InitHcaIn::default()).unwrap();
        assert!(!client.f.nic.objects.vport.roce_enabled());
        let parents = client.parents();
        let command = client.qp(&parents);
        assert_eq!(client.exec(&command).unwrap().reply.qpn(), qpn, "numbers start anew");
        assert_eq!(client.violations(), [] as [&str; 0]);
    }
}

pub(super) fn capability<L: Layout>(client: &mut Client, op_mod: u16) -> L {
    let mut query = QueryHcaCapIn::default();
    query.w().op_mod(op_mod);
    L::read(client.exec(&query).unwrap().capability()).unwrap()
}

pub(super) fn set<L: Layout>(op_mod: u16, page: &L) -> SetHcaCapIn {
    let mut capability = [0; 0x1000];
    capability[..L::SIZE].copy_from_slice(Layout::as_bytes(page));
    let mut command = SetHcaCapIn::default();
    command.w().op_mod(op_mod).capability(&capability);
    command
}

#[test]
fn capabilities_are_set_within_their_maximum() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    let (max, mut current) = (capability::<CmdHcaCap>(&mut client, 0), capability::<CmdHcaCap>(&mut client, 1));
    assert!(current.log_max_qp() < max.log_max_qp());
    current.w().log_max_qp(max.log_max_qp());
    client.exec(&set(0, &current)).unwrap();
    assert_eq!(capability::<CmdHcaCap>(&mut client, 1), current);
    assert_eq!(capability::<CmdHcaCap>(&mut client, 0), max);
    let mut above = current;
    above.w().log_max_qp(max.log_max_qp() + 1);
    assert_eq!(client.refused(&set(0, &above)), Syndrome::CapabilityAboveMaximum);
    let mut unannounced = current;
    unannounced.w().go_back_n(true);
    assert_eq!(client.refused(&set(0, &unannounced)), Syndrome::CapabilityAboveMaximum);
    let mut roce = capability::<RoceCap>(&mut client, 9);
    assert!(!roce.sw_r_roce_src_udp_port());
    roce.w().sw_r_roce_src_udp_port(true);
    client.exec(&set(8, &roce)).unwrap();
    assert_eq!(capability::<RoceCap>(&mut client, 9), roce);
    let mut reserved = set(0, &current);
    let mut bytes = *reserved.capability();
    bytes[0x200] = 1;
    reserved.w().capability(&bytes);
    assert_eq!(client.refused(&reserved), Syndrome::ReservedSet);
    let mut query = QueryHcaCapIn::default();
    for page in [5, 6, 11, 13] {
        query.w().op_mod(page << 1);
        assert_eq!(client.refused(&query), Syndrome::UnknownCapabilityPage);
    }
}

#[test]
fn of_the_atomic_page_the_byte_order_is_set_and_all_else_kept() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    let before = capability::<AtomicCaps>(&mut client, 7);
    let mut chosen = AtomicCaps::ZERO;
    chosen.w().atomic_req_8B_endianness_mode(1);
    client.exec(&set(6, &chosen)).unwrap();
    let mut expected = before;
    expected.w().atomic_req_8B_endianness_mode(1);
    assert_eq!(capability::<AtomicCaps>(&mut client, 7), expected);
    assert!(expected.atomic_operations() != 0);
}

#[test]
fn identity() {
    for profile in Profile::NAMES.map(|name| Profile::by_name(name).unwrap()) {
        let (fw_rev, psid) = (profile.fw_rev, profile.psid);
        let mut client = Client::with(profile);
        client.bring_up();
        let adapter = client.exec(&QueryAdapterIn::default()).unwrap();
        assert!(adapter.query_adapter_struct().vsd_contd_psid().starts_with(psid.as_bytes()));
        let segment = client.f.nic.firmware.init_segment(&client.f.nic.profile, client.f.nic.now);
        assert_eq!((segment.fw_rev_major(), segment.fw_rev_minor(), segment.fw_rev_subminor()), fw_rev);
        assert_eq!((segment.cmd_interface_rev(), segment.log_cmdq_size(), segment.log_cmdq_stride()), (5, 5, 6));
        assert_eq!(client.exec(&QueryIssiIn::default()).unwrap().supported_issi_dw0(), 3);
    }
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    let mut issi = SetIssiIn::default();
    issi.w().current_issi(1);
    client.exec(&issi).unwrap();
    assert_eq!(client.exec(&QueryIssiIn::default()).unwrap().current_issi(), 1);
    issi.w().current_issi(40);
    assert_eq!(client.refused(&issi), Syndrome::UnknownIssi);
    let mut version = SetDriverVersionIn::default();
    let mut text = [0; 64];
    text[..5].copy_from_slice(b"tests");
    version.w().driver_version(&text);
    client.exec(&version).unwrap();
    assert_eq!(client.f.nic.firmware.driver_version(), "tests");
}

#[test]
fn the_health_counter_counts_and_the_timer_ticks() {
    let mut client = Client::up();
    let read = |client: &mut Client| {
        firmware::tick(&mut client.f);
        client.f.nic.firmware.init_segment(&client.f.nic.profile, client.f.nic.now)
    };
    let before = read(&mut client);
    client.f.nic.now += Duration::from_millis(100);
    let after = read(&mut client);
    assert_eq!(after.health_counter() - before.health_counter(), 10);
    let ticks = after.internal_timer_l().wrapping_sub(before.internal_timer_l());
    assert!(ticks.abs_diff(15_625_000) <= 1, "156.25 MHz for 100 ms: {ticks}");
    let stopped = client.f.nic.faults.inject(Fault::HealthCounterStopped, Times::Always);
    client.f.nic.faults.inject(Fault::Health { syndrome: 1 }, Times::Always);
    client.f.nic.now += Duration::from_millis(100);
    let ill = read(&mut client);
    assert_eq!(ill.health_counter(), after.health_counter());
    assert_eq!(ill.health_buffer().synd().number(), 1);
    client.f.nic.faults.clear(stopped);
    assert!(read(&mut client).health_counter() > ill.health_counter());
}

#[test]
fn a_driver_that_leaves_the_interface_at_step_0_is_told() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    client.satisfy(1);
    client.satisfy(2);
    client.exec(&InitHcaIn::default()).unwrap();
    assert_eq!(client.violations(), [RULE_ISSI]);
    // It stays from one start to the next, and goes with the function.
    client.exec(&TeardownHcaIn::default()).unwrap();
    client.set_issi();
    client.exec(&InitHcaIn::default()).unwrap();
    client.exec(&TeardownHcaIn::default()).unwrap();
    client.exec(&InitHcaIn::default()).unwrap();
    assert_eq!(client.violations(), [] as [&str; 0]);
}

#[test]
fn a_command_of_an_older_edition_is_the_same_command() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    client.set_issi();
    client.satisfy(1);
    client.satisfy(2);
    let init = InitHcaIn::default();
    client.exec_bytes(&init.as_bytes()[..0x10], 16).unwrap();
    assert_eq!(client.violations(), [] as [&str; 0], "as the first headers had it");
    // What it says in the room that there is.
    let mut query = QueryHcaCapIn::default();
    query.w().op_mod(1);
    let whole = client.exec(&query).unwrap();
    assert_eq!(client.exec_bytes(query.as_bytes(), 0x110).unwrap()[..], whole.as_bytes()[..0x110]);
    assert_eq!(client.violations(), [] as [&str; 0], "no driver knows of later capabilities");
}

#[test]
fn a_command_that_is_too_short_for_what_it_says_is_doubted() {
    let mut client = Client::up();
    let mut counter = QueryQCounterIn::default();
    let number = client.exec(&AllocQCounterIn::default()).unwrap().counter_set_id();
    counter.w().counter_set_id(number);
    client.f.nic.objects.queue_counters.get_mut(number.into()).unwrap().rx_write_requests = 7;
    // The counter's number is at the end of the input: without it, it is number 0.
    let mut short = counter.as_bytes().to_vec();
    short.truncate(0x10);
    assert!(client.exec_bytes(&short, QueryQCounterOut::SIZE).is_err());
    assert_eq!(client.violations(), [rules::INPUT_SHORT]);
    client.exec_bytes(counter.as_bytes(), 0x10).unwrap();
    assert_eq!(client.violations(), [rules::OUTPUT_CUT]);
}

#[test]
fn an_output_of_an_older_edition_ends_before_the_pages_of_queue_pairs() {
    let mut client = Client::up();
    let mut query = QueryQpIn::default();
    query.w().qpn(77);
    let status = |outcome: Result<Vec<u8>, Failure>| match outcome {
        Err(Failure::Refused(status, _)) => status,
        other => panic!("{other:?}"),
    };
    // There is no such queue pair: the output's length was accepted.
    assert_eq!(status(client.exec_bytes(query.as_bytes(), 0x110)), CmdStatus::BadResource);
    assert_eq!(status(client.exec_bytes(query.as_bytes(), 0x108)), CmdStatus::BadOutputLength);
    assert!(client.violations().is_empty());
}

#[test]
fn lengths_reserved_bits_op_mods_and_opcodes() {
    let mut client = Client::up();
    let status = |outcome: Result<_, Failure>| match outcome.map(|_: Vec<u8>| ()) {
        Err(Failure::Refused(status, _)) => status,
        other => panic!("{other:?}"),
    };
    let mut input = CreateUmemIn::default().as_bytes().to_vec();
    assert_eq!(status(client.exec_bytes(&input[..0x20], 16)), CmdStatus::BadInputLength);
    assert_eq!(status(client.exec_bytes(&input, 12)), CmdStatus::BadOutputLength);
    input[8] = 1;
    assert_eq!(client.refused(&CreateUmemIn::read(&input).unwrap()), Syndrome::ReservedSet);
    let pd = AllocPdIn::default();
    let longer = [pd.as_bytes(), &[0; 16]].concat();
    client.exec_bytes(&longer, 16).unwrap();
    let longer = [pd.as_bytes(), &[1; 16]].concat();
    assert_eq!(status(client.exec_bytes(&longer, 16)), CmdStatus::BadInputLength);
    let mut pd = AllocPdIn::default();
    pd.w().op_mod(1);
    assert_eq!(client.refused(&pd), Syndrome::UnknownOpMod);
    let mut pd = AllocPdIn::default();
    pd.w().uid(5);
    assert_eq!(client.refused(&pd), Syndrome::NoUserContext);
    let mut unknown = [0; 16];
    unknown[..2].copy_from_slice(&0x7f0u16.to_be_bytes());
    assert_eq!(status(client.exec_bytes(&unknown, 16)), CmdStatus::BadOpcode);
    let mut enable = EnableHcaIn::default();
    enable.w().function_id(3);
    let mut fresh = Client::new();
    assert_eq!(fresh.refused(&enable), Syndrome::OtherFunction);
}
