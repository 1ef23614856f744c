//! Both ends of the ping-pong on the software card, every byte checked, and nothing for strict mode to report.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::{Device, Options};
use mlx5_examples::pingpong::{Failure, Player, Role, Setup};
use mlx5_neighbours::{Neighbours, Network, address_of};
use mlx5_open::Sim;
use mlx5_open::watchdog::Watchdog;

fn setup(size: usize, mtu: u32) -> Setup {
    Setup {
        size,
        mtu,
        rx_depth: 16,
        iters: 50,
        service_level: 0,
        events: false,
        gid_index: 0,
        check: true,
        page_size: None,
        ring_pages: None,
        on_demand: None,
        own_events: false,
        prefetch: false,
    }
}

fn play(client: &Arc<Device>, server: &Arc<Device>, setup: &Setup) -> Result<(), Failure> {
    let mut near = Player::new(client, setup, Role::Client)?;
    let mut far = Player::new(server, setup, Role::Server)?;
    far.connect(&near.address()?, None)?;
    near.connect(&far.address()?, None)?;
    if setup.events {
        return std::thread::scope(|scope| {
            let far = scope.spawn(|| far.play());
            near.play()?;
            far.join().map_err(|_| "the server's thread panicked")?
        });
    }
    near.begin()?;
    let mut watchdog = Watchdog::new(client);
    while !(near.is_done() && far.is_done()) {
        let moved = near.turn()? | far.turn()?;
        watchdog.check(moved)?;
    }
    Ok(())
}

#[test]
fn messages_of_every_size_and_path_mtu_arrive_whole() -> Result<(), Failure> {
    let sim = Sim::builder().build()?;
    let device = sim.open(0)?;
    for mtu in [256, 512, 1024, 2048, 4096] {
        for size in [1, 63, 64, mtu as usize, mtu as usize + 1, 3 * mtu as usize - 1, 70_000] {
            play(&device, &device, &setup(size, mtu)).map_err(|error| format!("{size} bytes, MTU {mtu}: {error}"))?;
        }
    }
    assert_eq!(sim.violations(), []);
    Ok(())
}

#[test]
fn a_path_mtu_that_does_not_fit_the_port_is_refused() -> Result<(), Failure> {
    let sim = Sim::builder().build()?;
    let mut options = Options::default();
    options.mtu = Some(1522);
    let device = sim.open_with(0, options)?;
    play(&device, &device, &setup(1, 1024))?;
    let refused = play(&device, &device, &setup(1, 4096)).unwrap_err().to_string();
    assert!(refused.contains("path_mtu is 4096") && refused.contains("the port's MTU of 1522"), "{refused}");
    assert!(refused.contains("Options::mtu"), "{refused}");
    Ok(())
}

#[test]
fn a_service_level_is_one_of_eight() -> Result<(), Failure> {
    let sim = Sim::builder().build()?;
    let device = sim.open(0)?;
    play(&device, &device, &Setup { service_level: 7, ..setup(100, 1024) })?;
    let refused = play(&device, &device, &Setup { service_level: 8, ..setup(100, 1024) }).unwrap_err().to_string();
    assert!(refused.contains("service_level is 0x8"), "{refused}");
    assert_eq!(sim.violations(), []);
    Ok(())
}

#[test]
fn two_functions_talk_over_the_wire_and_sleep_in_between() -> Result<(), Failure> {
    let sim = Sim::builder().functions(2).build()?;
    let (first, second) = (sim.open(0)?, sim.open(1)?);
    play(&first, &second, &setup(5000, 1024))?;
    play(&second, &first, &Setup { events: true, ..setup(5000, 1024) })?;
    assert_eq!(sim.violations(), []);
    Ok(())
}

#[test]
fn the_software_card_is_as_it_was_when_the_ends_are_gone() -> Result<(), Failure> {
    let sim = Sim::builder().build()?;
    let device = sim.open(0)?;
    let before = sim.handle(0).counts();
    play(&device, &device, &setup(100, 1024))?;
    let after = sim.handle(0).counts();
    assert_eq!(
        (after.qps, after.cqs, after.mkeys, after.pds, after.umems),
        (before.qps, before.cqs, before.mkeys, before.pds, before.umems)
    );
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused() -> Result<(), Failure> {
    let device = Sim::builder().build()?.open(0)?;
    let error = Player::new(&device, &setup(100, 1000), Role::Client).expect_err("no such MTU");
    assert!(error.to_string().contains("1000"), "{error}");
    let no_gid = Setup { gid_index: 77, ..setup(100, 1024) };
    let error = Player::new(&device, &no_gid, Role::Client)?.address().expect_err("no such GID");
    assert!(error.to_string().contains("77"), "{error}");
    Ok(())
}

#[test]
fn functions_with_addresses_of_their_own_find_each_other() -> Result<(), Failure> {
    let sim = Sim::builder().functions(2).build()?;
    let open = |function, address: &str| {
        let network: Network = address.parse()?;
        let mut options = Options::default();
        options.ip = Some(network.address());
        let device = sim.open_with(function, options)?;
        let neighbours = Neighbours::start(&device, Some(network))?;
        Ok::<_, Failure>((device, neighbours))
    };
    let (near, near_neighbours) = open(0, "10.0.0.4/24")?;
    let (far, far_neighbours) = open(1, "10.0.0.5/24")?;
    let setup = Setup { gid_index: 1, ..setup(5000, 1024) };
    let mut client = Player::new(&near, &setup, Role::Client)?;
    let mut server = Player::new(&far, &setup, Role::Server)?;
    let patience = Duration::from_secs(20);
    let mac = |neighbours: &Neighbours, gid| neighbours.resolve(address_of(gid), patience);
    server.connect(&client.address()?, Some(mac(&far_neighbours, client.address()?.gid)?))?;
    client.connect(&server.address()?, Some(mac(&near_neighbours, server.address()?.gid)?))?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| server.play());
        client.play()?;
        server.join().map_err(|_| "the server's thread panicked")?
    })?;
    assert_eq!(sim.violations(), []);
    Ok(())
}
