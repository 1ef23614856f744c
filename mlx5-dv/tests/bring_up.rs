//! Bring-up and teardown on the software card.

use std::sync::{Arc, Mutex};

use mlx5_dv::Options;
use mlx5_dv::access::trace::{CommandRecord, Direction};
use mlx5_open::Sim;
use mlx5_prm::cmd::Opcode;

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
    let order =
        [Opcode::DestroyEq, Opcode::DestroyEq, Opcode::DeallocUar, Opcode::TeardownHca, Opcode::ManagePages, Opcode::DisableHca];
    assert_in_order(&seen.lock().unwrap(), &order);
    let counts = sim.handle(0).counts();
    assert_eq!((counts.eqs, counts.uars, counts.pages_held, counts.dma_ranges), (0, 0, 0, 0), "{counts:?}");
    assert_eq!(sim.violations(), []);
}

/// `wanted` occur in `seen` in this order, perhaps with others between.
fn assert_in_order(seen: &[Opcode], wanted: &[Opcode]) {
    let mut rest = seen.iter();
    for opcode in wanted {
        assert!(rest.any(|seen| seen == opcode), "{opcode} is missing or out of order in {seen:?}");
    }
}
