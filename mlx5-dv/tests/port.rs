//! The driver's configuration of the port: MAC address and MTU.

use mlx5_dv::{Device, Mac, Options, VportCounters};
use mlx5_open::Sim;
use mlx5_prm::cmd::{ModifyVportStateIn, Opcode};
use mlx5_prm::reg::PortCounterGroup;
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::profile::Profile;

/// The L2 table entries of function 0, and its vport's unicast list.
fn addresses(sim: &Sim) -> (Vec<Mac>, Vec<Mac>) {
    let of = |f: &mut mlx5_sim::function::Function| {
        let table = f.nic.objects.l2_table.as_ref();
        (table.and_then(|table| table.get(0)).into_iter().collect::<Vec<_>>(), f.nic.objects.vport.unicast.clone())
    };
    let (table, list) = sim.handle(0).with(of).unwrap();
    (table.into_iter().map(Mac).collect(), list.into_iter().map(Mac).collect())
}

fn mtu(options: Options) -> Result<u16, String> {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open_with(0, options).map_err(|error| error.to_string())?;
    Ok(device.port().unwrap().mtu)
}

fn with_mtu(mtu: u16) -> Options {
    let mut options = Options::default();
    options.mtu = Some(mtu);
    options
}

fn refuse(sim: &Sim, opcode: Opcode) {
    let fault = Fault::CommandStatus { opcode: Some(opcode.number() as u16), status: 3, syndrome: 0x1234 };
    sim.handle(0).faults().inject(fault, Times::Always);
}

#[test]
fn the_switch_is_told_the_address_and_forgets_it() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let mac = device.mac();
    assert_eq!(mac, device.port().unwrap().mac);
    assert_eq!(addresses(&sim), (vec![mac], vec![mac]));
    drop(device);
    assert_eq!(addresses(&sim), (vec![], vec![]));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_function_without_an_l2_table_lists_its_address_alone() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().eswitch_manager(false);
    profile.general_current.w().eswitch_manager(false);
    let sim = Sim::builder().profile(profile).build().unwrap();
    let device = sim.open(0).unwrap();
    assert_eq!(addresses(&sim), (vec![], vec![device.mac()]));
    drop(device);
    assert_eq!(addresses(&sim), (vec![], vec![]));
}

#[test]
fn a_function_that_was_given_no_address_takes_a_random_one() {
    let profile = Profile { base_mac: [0; 6], ..Profile::connectx5() };
    let sim = Sim::builder().profile(profile).build().unwrap();
    let first = sim.open(0).unwrap().mac();
    let device = sim.open(0).unwrap();
    let Mac(bytes) = device.mac();
    assert_eq!(bytes[0] & 3, 2, "one station's, administered locally: {}", device.mac());
    assert_ne!(first, device.mac());
    assert_eq!(device.gids()[0].mac, device.mac());
    assert_eq!(addresses(&sim), (vec![device.mac()], vec![device.mac()]));
    assert_eq!(device.port().unwrap().mac, Mac([0; 6]));
}

#[test]
fn a_card_that_refuses_the_address_still_opens() {
    for opcode in [Opcode::SetL2TableEntry, Opcode::AccessReg] {
        let sim = Sim::builder().build().unwrap();
        refuse(&sim, opcode);
        drop(sim.open(0).unwrap());
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn the_mtu_is_raised_to_what_roce_needs_and_never_lowered_unasked() {
    assert_eq!(mtu(Options::default()), Ok(4214));
    let sim = Sim::builder().build().unwrap();
    sim.handle(0).with(|f| f.nic.port.mtu = 9000).unwrap();
    let mut options = Options::default();
    options.reset = false;
    let port = sim.open_with(0, options).unwrap().port().unwrap();
    assert_eq!((port.mtu, port.max_mtu), (9000, 10_000));
}

#[test]
fn the_mtu_is_what_the_options_say() {
    for wanted in [1522, 9022, 10_000] {
        assert_eq!(mtu(with_mtu(wanted)), Ok(wanted));
    }
    let said = mtu(with_mtu(10_001)).unwrap_err();
    assert!(said.contains("Options::mtu is 10001") && said.contains("at most 10000"), "{said}");
    let said = mtu(with_mtu(10)).unwrap_err();
    assert!(said.contains("ACCESS_REG") && said.contains("PMTU"), "{said}");
}

#[test]
fn an_mtu_that_is_asked_for_and_refused_is_an_error() {
    let sim = Sim::builder().build().unwrap();
    refuse(&sim, Opcode::AccessReg);
    let said = sim.open_with(0, with_mtu(9022)).unwrap_err().to_string();
    assert!(said.contains("PMTU"), "{said}");
}

#[test]
fn board_link_and_counters_are_the_card_s() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (device, other) = (sim.open(0).unwrap(), sim.open(1).unwrap());
    assert_eq!(device.adapter().unwrap().psid, Profile::connectx5().psid);
    let mode = device.link().unwrap().and_then(|link| link.mode).unwrap();
    assert_eq!((mode.speed_mbps, mode.lanes), (100_000, 4));
    assert_eq!(device.query_vport_counters().unwrap(), VportCounters::default());

    let downs = |device: &Device| {
        let physical = device.query_port_counters(PortCounterGroup::PhysicalLayer, 0).unwrap().unwrap();
        physical.get("link_down_events").unwrap()
    };
    let before = (downs(&device), downs(&other));
    let set_admin = |state| {
        let mut set = ModifyVportStateIn::default();
        set.w().admin_state(state);
        device.execute(&set, "port").unwrap();
    };
    set_admin(0);
    assert_eq!(device.link().unwrap().unwrap().mode, None, "no link, no mode");
    set_admin(1);
    assert_eq!((downs(&device), downs(&other)), (before.0 + 1, before.1));

    // Groups that are announced are asked for only where they are.
    for (group, capability) in
        [(PortCounterGroup::PhysicalLayerStatistical, "pcam_reg"), (PortCounterGroup::PerTrafficClass, "sbcam_reg")]
    {
        let error = device.query_port_counters(group, 0).unwrap_err().to_string();
        assert!(error.contains(&format!("(capability {capability})")), "{error}");
    }
    let error = device.query_port_counters(PortCounterGroup::RsFecHistogram, 0).unwrap_err().to_string();
    assert!(error.contains("PPCNT"), "{error}");
}

#[test]
fn an_infiniband_port_is_left_to_its_subnet_manager() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().port_type(0).roce(false);
    profile.general_current.w().port_type(0).roce(false);
    let sim = Sim::builder().profile(profile).build().unwrap();
    let device = sim.open(0).unwrap();
    let port = device.port().unwrap();
    assert_eq!((port.up, port.lid, port.mtu, port.path_mtu()), (true, Some(1), 4096, Some(4096)));
    assert_eq!((device.mac(), device.gids().len()), (Mac([0; 6]), 0));
    assert!(device.caps().is_infiniband());
    drop(device);
    assert_eq!(sim.violations(), []);
}
