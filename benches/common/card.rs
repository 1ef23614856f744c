//! The software card in this process.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use mlx5_dv::objects::{AccessFlags, AddressPath, InitAttributes, QueuePair, RtrAttributes, RtsAttributes};
use mlx5_dv::queue::{Completion, CompletionQueue};
use mlx5_prm::values::PathMtu;
use mlx5_sim::card::FunctionHandle;

use crate::Failure;

/// Timeout of everything that the card does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Moves `qp` to RTS, connected to queue pair `remote_qpn` of the same function.
///
/// # Errors
/// The function has no GID, or firmware refuses.
pub fn connect(qp: &QueuePair, remote_qpn: u32, path_mtu: PathMtu) -> Result<(), Failure> {
    let gid = qp.device().gids().first().copied().ok_or("the card has no GID")?;
    let mut attributes = RtrAttributes::new(remote_qpn, 0, AddressPath::new(gid.address.octets(), gid.mac));
    attributes.path_mtu = Some(path_mtu);
    let remote_access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    qp.init(&InitAttributes { remote_access, ..InitAttributes::default() })?;
    qp.ready_to_receive(&attributes)?;
    qp.ready_to_send(&RtsAttributes::new(0))?;
    Ok(())
}

/// Polls for the next completion while the card is running.
///
/// # Errors
/// It is an error completion, or there is none in time.
pub fn completion(queue: &mut CompletionQueue) -> Result<Completion, Failure> {
    let mut deadline = None;
    for turn in 1u64.. {
        if let Some(completion) = queue.poll() {
            return Ok(completion?);
        }
        if turn.is_multiple_of(1 << 20) && Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + PATIENCE) {
            break;
        }
    }
    let cq = queue.cq();
    let why = match cq.device().death() {
        Some(death) => format!("the driver has given the card up: {death}"),
        None => {
            "the driver finds nothing wrong with the card, so its thread was not let run, or it lost a doorbell".into()
        }
    };
    Err(format!("no completion came to completion queue {:#x} for {} s; {why}", cq.cqn(), PATIENCE.as_secs()).into())
}

/// The card is stopped until this is dropped.
#[derive(Debug)]
pub struct Held {
    _release: Sender<()>,
}

/// Stops the thread of the function's card until the returned value is dropped: no other processor then reads the rings
/// or holds their cache lines.
///
/// # Errors
/// The thread does not stop in time.
pub fn hold_still(function: &FunctionHandle) -> Result<Held, Failure> {
    let (release, released) = channel::<()>();
    let (entered_tx, entered): (Sender<()>, Receiver<()>) = channel();
    let handle = function.clone();
    std::thread::spawn(move || {
        handle.with(move |_| {
            let _ = entered_tx.send(());
            let _ = released.recv();
        })
    });
    let is_late = |_| format!("the card's thread did not come to be held still within {} s", PATIENCE.as_secs());
    entered.recv_timeout(PATIENCE).map_err(is_late)?;
    Ok(Held { _release: release })
}
