//! Both ends in this program, on one card.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_dv::Device;
use mlx5_open::watchdog::Watchdog;

use super::arguments::Plan;
use super::platform::Platform;
use super::progress::Progress;
use super::report::{Measured, Table};
use super::run::{NAP, Run};
use super::test_qp::{Role, TestQp, check_count, test_qps};
use crate::output::Failure;

/// Measures every size.
pub fn run(device: &Arc<Device>, plan: &Plan, ours: &Platform, table: Table) -> Result<Vec<Measured>, Failure> {
    check_count(device, 2 * plan.agreed.qps)?;
    let (mut client, mut server) = (test_qps(device, plan)?, test_qps(device, plan)?);
    for (ours, theirs) in client.iter_mut().zip(&mut server) {
        theirs.connect(&ours.address()?)?;
        ours.connect(&theirs.address()?)?;
    }
    table.begin(plan, std::slice::from_ref(ours))?;
    let mut progress = Progress::new(plan);
    let measured = |size: &usize| {
        let row = one_size(device, plan, *size, &mut client, &mut server, &mut progress)?;
        progress.aside(|| table.row(&row))?;
        Ok(row)
    };
    plan.agreed.sizes.iter().map(measured).collect()
}

fn one_size(
    device: &Arc<Device>,
    plan: &Plan,
    size: usize,
    client: &mut [TestQp],
    server: &mut [TestQp],
    progress: &mut Progress,
) -> Result<Measured, Failure> {
    let mut server = Run::new(server, plan, size, Role::Server)?;
    let mut client = Run::new(client, plan, size, Role::Client)?;
    progress.begin(size);
    if plan.events {
        asleep(device, &mut client, &mut server, progress)?;
    } else {
        in_turns(device, &mut client, &mut server, progress)?;
    }
    let theirs = server.end()?;
    let ours = client.end()?.ok_or("the client measured nothing")?;
    Ok(ours.and(theirs))
}

/// Polls both ends in turn on this thread, which leaves a core to the software card.
fn in_turns(device: &Arc<Device>, client: &mut Run, server: &mut Run, progress: &Progress) -> Result<(), Failure> {
    let mut watchdog = Watchdog::new(device);
    while !(client.is_done() && server.is_done()) {
        let moved = client.turn()? | server.turn()?;
        watchdog.check(moved)?;
        progress.set(client.count());
    }
    Ok(())
}

/// Runs each end on a thread of its own, asleep between events.
fn asleep(device: &Arc<Device>, client: &mut Run, server: &mut Run, progress: &Progress) -> Result<(), Failure> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| sleep_through(device, server, |run| over.load(Ordering::Acquire) && run.is_done()));
        let client = sleep_through(device, client, |run| {
            progress.set(run.count());
            run.is_done()
        });
        over.store(true, Ordering::Release);
        let served = server.join().map_err(|_| "the server's thread panicked")?;
        client.and(served)
    })
}

/// Runs one end until `is_over`, and sleeps while there is nothing to do. The server may sleep for the whole run.
fn sleep_through(device: &Arc<Device>, run: &mut Run, is_over: impl Fn(&Run) -> bool) -> Result<(), Failure> {
    let mut watchdog = Watchdog::new(device);
    while !is_over(run) {
        let moved = run.turn()?;
        if moved || run.is_done() {
            watchdog.check(true)?;
        }
        if !moved && !is_over(run) {
            run.sleep(NAP)?;
            watchdog.slept(NAP)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{Agreed, Amount, AtomicType, Connection, Operation, Test};
    use super::*;

    fn plan(test: Test, operation: Operation) -> Plan {
        of_service(Connection::Rc, test, operation)
    }

    fn of_service(connection: Connection, test: Test, operation: Operation) -> Plan {
        let (amount, atomic_type) = (Amount::Messages { warm_up: 5, counted: 100 }, AtomicType::CompareSwap);
        let (sizes, qps, both_ways, mtu, rdma_cm) = (vec![8], 1, false, 1024, false);
        Plan::example(Agreed { test, operation, connection, atomic_type, sizes, amount, qps, both_ways, mtu, rdma_cm })
    }

    #[test]
    fn a_message_costs_no_allocation() {
        let device = mlx5_open::open("sim").unwrap();
        let reliable = [Operation::Write, Operation::Send, Operation::Read, Operation::Atomic];
        let services = [(Connection::Rc, &reliable[..]), (Connection::Uc, &reliable[..2])];
        let tests = [Test::Lat, Test::Bw].into_iter().flat_map(|test| services.map(|of| (test, of)));
        for (test, (connection, operations)) in tests {
            for operation in operations.iter().copied() {
                let plan = of_service(connection, test, operation);
                let (mut ours, mut theirs) = (test_qps(&device, &plan).unwrap(), test_qps(&device, &plan).unwrap());
                theirs[0].connect(&ours[0].address().unwrap()).unwrap();
                ours[0].connect(&theirs[0].address().unwrap()).unwrap();
                let mut server = Run::new(&mut theirs, &plan, 8, Role::Server).unwrap();
                let mut client = Run::new(&mut ours, &plan, 8, Role::Client).unwrap();
                let progress = Progress::new(&plan);
                let used = allocation_counter::measure(|| {
                    in_turns(&device, &mut client, &mut server, &progress).unwrap();
                });
                assert_eq!(used.count_total, 0, "{test:?} {operation:?}: {used:?}");
                assert!(client.end().unwrap().is_some() && server.end().unwrap().is_none());
            }
        }
    }

    #[test]
    fn what_arrives_damaged_is_an_error_that_names_the_byte() {
        let device = mlx5_open::open("sim").unwrap();
        let plan = plan(Test::Bw, Operation::Write);
        let mut qps = test_qps(&device, &plan).unwrap();
        qps[0].prepare(8, Role::Server);
        let error = qps[0].check(8, Role::Client, false).unwrap_err().to_string();
        assert!(error.contains("byte 0 of a message of 8 bytes is 0x00 instead of"), "{error}");
    }

    #[test]
    fn atomics_are_checked_on_a_card_whose_replies_are_big_endian() {
        let mut profile = mlx5_sim::profile::Profile::connectx5();
        for page in [&mut profile.atomic_max, &mut profile.atomic_current] {
            page.w().supported_atomic_req_8B_endianness_mode_1(false).atomic_req_8B_endianness_mode(0);
        }
        let sim = mlx5_open::Sim::builder().profile(profile).build().unwrap();
        let device = sim.open(0).unwrap();
        let plan = plan(Test::Bw, Operation::Atomic);
        let (mut ours, mut theirs) = (test_qps(&device, &plan).unwrap(), test_qps(&device, &plan).unwrap());
        theirs[0].connect(&ours[0].address().unwrap()).unwrap();
        ours[0].connect(&theirs[0].address().unwrap()).unwrap();
        let mut server = Run::new(&mut theirs, &plan, 8, Role::Server).unwrap();
        let mut client = Run::new(&mut ours, &plan, 8, Role::Client).unwrap();
        in_turns(&device, &mut client, &mut server, &Progress::new(&plan)).unwrap();
        assert!(client.end().unwrap().is_some() && server.end().unwrap().is_none());
    }

    #[test]
    fn atomics_that_were_not_carried_out_are_an_error_that_names_the_number() {
        let device = mlx5_open::open("sim").unwrap();
        let mut qps = test_qps(&device, &plan(Test::Bw, Operation::Atomic)).unwrap();
        qps[0].prepare(8, Role::Client);
        let error = qps[0].check_fetched(8, Role::Server, 7).unwrap_err().to_string();
        assert!(error.contains("the last of 7 atomics found 0x0 instead of"), "{error}");
    }
}
