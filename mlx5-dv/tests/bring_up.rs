//! Bring-up and teardown on the software card.

use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mlx5_dv::access::trace::{CommandRecord, Direction, Observers, Traced, kernel_dump};
use mlx5_dv::access::{Access, RawCommand, UarMapping};
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::{Error, Gid, Invalid, Options};
use mlx5_open::Sim;
use mlx5_prm::cmd::{AccessRegisterIn, AccessRegisterOut, DeallocPdIn, NopIn, Opcode, WithTail};
use mlx5_prm::layout::Layout;
use mlx5_prm::limits;
use mlx5_prm::reg::{PmtuReg, RegisterId};
use mlx5_sim::profile::Profile;

/// How long anything may take that is to succeed.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn comes_up_in_the_prm_s_order_and_leaves_nothing_behind() {
    let sim = Sim::builder().build().unwrap();
    let seen = Arc::new(Mutex::new(vec![]));
    let sink = Arc::clone(&seen);
    let observer = move |record: &CommandRecord| {
        if record.direction == Direction::Input {
            sink.lock().unwrap().push(record.opcode);
        }
    };
    let device = sim.open_with(0, Options::default().observe(Arc::new(observer))).unwrap();
    let port = device.port().unwrap();
    assert!(port.up, "{port:?}");
    assert_eq!(device.gids()[0].address, device.mac().link_local());
    assert_eq!(device.query_gid(0).unwrap(), device.gids()[0]);
    assert!(device.firmware_pages() > 0);
    assert!(device.caps().log_max_qp > 0);

    let order = [
        Opcode::EnableHca,
        Opcode::QueryIssi,
        Opcode::SetIssi,
        Opcode::QueryPages,
        Opcode::ManagePages,
        Opcode::SetHcaCap,
        Opcode::QueryPages,
        Opcode::ManagePages,
        Opcode::InitHca,
        Opcode::SetDriverVersion,
        Opcode::AllocUar,
        Opcode::CreateEq,
        Opcode::CreateEq,
    ];
    assert_in_order(&seen.lock().unwrap(), &order);
    seen.lock().unwrap().clear();

    drop(device);
    let order = [
        Opcode::DestroyEq,
        Opcode::DestroyEq,
        Opcode::DeallocUar,
        Opcode::TeardownHca,
        Opcode::ManagePages,
        Opcode::DisableHca,
    ];
    assert_in_order(&seen.lock().unwrap(), &order);
    let counts = sim.handle(0).counts();
    assert_eq!((counts.eqs, counts.uars, counts.pages_held, counts.dma_ranges), (0, 0, 0, 0), "{counts:?}");
    assert_eq!(sim.violations(), []);
}

/// Checks that `wanted` occur in `seen` in this order, possibly with others in between.
fn assert_in_order(seen: &[Opcode], wanted: &[Opcode]) {
    let mut rest = seen.iter();
    for opcode in wanted {
        assert!(rest.any(|seen| seen == opcode), "{opcode} is missing or out of order in {seen:?}");
    }
}

#[test]
fn any_access_can_be_wrapped_in_a_tracer_of_the_kernel_s_format() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&text);
    let mut observers = Observers::default();
    observers.push(Arc::new(move |record: &CommandRecord| sink.lock().unwrap().push_str(&kernel_dump("sim", record))));
    let traced = Traced::new(Arc::clone(device.access()), observers);
    // SAFETY: a command that names no memory; also below.
    unsafe { traced.execute(RawCommand::new(&NopIn::default(), "")) }.unwrap();
    // No such PD: refused, and the dump shows the refusal.
    let mut dealloc = DeallocPdIn::default();
    dealloc.w().pd(0x123456);
    // SAFETY: as above.
    unsafe { traced.execute(RawCommand::new(&dealloc, "PD 0x123456")) }.expect_err("no such PD");
    let text = text.lock().unwrap();
    for expected in [
        "dump command data NOP(0x80d) INPUT\ncmd[0]: 000: 080d0000 ",
        "dump command data NOP(0x80d) OUTPUT\ncmd[0]: 000: 00000000 ",
        "dump command data DEALLOC_PD(0x801) INPUT\ncmd[0]: 000: 08010000 00000000 00123456 ",
        "dump command data DEALLOC_PD(0x801) OUTPUT\ncmd[0]: 000: 05000000 ",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

/// A register's layout depends on the input.
#[test]
fn an_output_is_decoded_by_the_input_that_it_answers() {
    let sim = Sim::builder().build().unwrap();
    let seen: Arc<Mutex<Vec<CommandRecord>>> = Arc::default();
    let observer = |seen: &Arc<Mutex<Vec<CommandRecord>>>| {
        let sink = Arc::clone(seen);
        Arc::new(move |record: &CommandRecord| sink.lock().unwrap().push(record.clone()))
    };
    let device = sim.open_with(0, Options::default().observe(observer(&seen))).unwrap();
    let mut observers = Observers::default();
    observers.push(observer(&seen));
    let traced = Traced::new(Arc::clone(device.access()), observers);
    seen.lock().unwrap().clear();

    let mut port = PmtuReg::default();
    port.w().local_port(1);
    let mut access = AccessRegisterIn::default();
    access.w().op_mod(1).register_id(RegisterId::Pmtu.number() as u16);
    let mut access = WithTail::new(access, port.as_bytes().to_vec());
    access.out_tail = PmtuReg::SIZE;
    // SAFETY: reads a register.
    unsafe { traced.execute(RawCommand::new(&access, "PMTU")) }.unwrap();
    let seen = seen.lock().unwrap();
    let outputs: Vec<&CommandRecord> = seen.iter().filter(|record| record.direction == Direction::Output).collect();
    assert_eq!(outputs.len(), 2, "the command queue's own observer, and that of the wrapped access");
    for output in outputs {
        assert_eq!(output.data.len(), AccessRegisterOut::SIZE + PmtuReg::SIZE);
        let text = output.decoded().unwrap().to_string();
        assert!(text.contains("max_mtu = 0x"), "{text}");
    }
}

/// The driver uses only what the capabilities of the card allow.
#[test]
fn no_command_of_the_bring_up_is_beyond_what_the_card_announces() {
    let sim = Sim::builder().build().unwrap();
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let observer = move |record: &CommandRecord| {
        if record.direction == Direction::Input {
            sink.lock().unwrap().push(record.data.clone());
        }
    };
    let device = sim.open_with(0, Options::default().observe(Arc::new(observer))).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 20);
    for input in seen.iter() {
        let broken = [limits::check(input, device.caps()), limits::check_lists(input)].concat();
        assert!(broken.is_empty(), "{broken:?}");
    }
}

#[test]
fn gids_are_the_port_s_own() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut options = Options::default();
    options.ip = Some([10, 0, 0, 1].into());
    let first = sim.open_with(0, options).unwrap();
    let second = sim.open_with(1, Options::default().ip("2001:db8::1".parse().unwrap())).unwrap();
    assert_ne!(first.mac(), second.mac());
    let gids = first.gids();
    assert_eq!(gids.len(), 2);
    assert!(gids[1].ipv4 && gids[1].address.to_string() == "::ffff:10.0.0.1", "{gids:?}");
    assert_eq!(first.query_gid(1).unwrap(), gids[1]);
    assert_eq!(second.query_gid(0).unwrap().address, second.mac().link_local());
    let global = second.query_gid(1).unwrap();
    assert!(!global.ipv4 && global.address.to_string() == "2001:db8::1", "{global:?}");
    let wrong = Gid { index: u16::MAX, ..gids[0] };
    let error = first.set_gid(wrong).expect_err("too far");
    let Error::Invalid(Invalid::OutOfRange { given, limit, capability, .. }) = error else { panic!("{error}") };
    assert_eq!((given, *limit.end() + 1), (0xffff, first.caps().roce_address_table_size.into()));
    assert_eq!(capability, Some("roce_address_table_size"));
}

#[test]
fn on_the_card_s_own_processor_pages_are_given_in_its_name() {
    let profile = Profile { embedded_cpu: true, ..Profile::connectx5() };
    let sim = Sim::builder().profile(profile).build().unwrap();
    let device = sim.open(0).unwrap();
    let held = device.firmware_pages();
    assert!(held > 0);
    // At run time firmware asks by an event, for which it fills up its contexts.
    let pd = Pd::alloc(&device).unwrap();
    let region = |_| MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    let mut regions = vec![];
    let begin = Instant::now();
    while device.firmware_pages() == held {
        regions.extend((0..64).map(region));
        assert!(begin.elapsed() < SOON, "no pages were asked for");
    }
    drop((regions, pd));
    let handle = sim.handle(0);
    drop(device);
    assert_eq!(handle.counts().dma_ranges, 0, "all pages came back");
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_gid_of_a_vlan_is_the_card_s_and_the_port_s_until_it_is_cleared() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let link_local = device.gids()[0];
    let tagged = Gid { index: 3, ..link_local }.vlan(5);
    device.set_gid(tagged).unwrap();
    device.set_gid(Gid { index: 2, ..tagged }).unwrap();
    assert_eq!(device.query_gid(3).unwrap(), tagged);
    assert_eq!(device.gids(), [link_local, Gid { index: 2, ..tagged }, tagged], "by index");
    let error = device.set_gid(tagged.vlan(4095)).expect_err("a reserved VLAN").to_string();
    assert!(error.contains("Gid::vlan is 4095") && error.contains("4094"), "{error}");
    device.set_gid(Gid { address: Ipv6Addr::UNSPECIFIED, ..tagged }).unwrap();
    assert_eq!(device.gids(), [link_local, Gid { index: 2, ..tagged }]);
    assert!(device.query_gid(3).unwrap().address.is_unspecified());
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_function_is_opened_and_closed_a_hundred_times() {
    let sim = Sim::builder().build().unwrap();
    for _ in 0..100 {
        let device = sim.open(0).unwrap();
        let uar = device.access().alloc_uar(UarMapping::Uncached).unwrap();
        device.access().free_uar(uar).unwrap();
    }
    assert_eq!(sim.handle(0).counts().dma_ranges, 0);
    assert_eq!(sim.violations(), []);
}

#[test]
fn who_opens_a_function_waits_for_the_end_of_an_earlier_opening() {
    let sim = Sim::builder().build().unwrap();
    let first = sim.open(0).unwrap();
    let (opened, name) = std::thread::scope(|scope| {
        let second = scope.spawn(|| sim.open(0));
        let name = first.name().to_string();
        drop(first);
        (second.join().unwrap(), name)
    });
    assert_eq!(opened.unwrap().name(), name);
    assert_eq!(sim.violations(), []);
}
