//! The measurements of frames.

use std::rc::Rc;

use mlx5_benches::Failure;
use mlx5_dv::queue::ethernet::{EthernetReceiveQueue, EthernetSendQueue};
use mlx5_dv::queue::{CompletionQueue, PostError};
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::SEGMENT;
use uar::Plain;

use super::{FEWER, Loop, Row};
use crate::bare::Ring;
use crate::driver::frames as driver;
use crate::request::FrameRequests;
use crate::stage::frames::{Buffers, FramePair, PROOF_FRAMES, frame_completions};
use crate::stage::{Card, RING, Shared, Stage, shared};

type PostDriver = fn(&mut EthernetSendQueue<Plain>, &FrameRequests, usize) -> Result<(), PostError>;
type PostBare = fn(&mut Ring, &FrameRequests, usize);
type ReceiveDriver = fn(&mut CompletionQueue, &mut EthernetReceiveQueue, &Buffers, usize) -> Option<u64>;
type ReceiveBare = fn(&mut Ring, &mut Ring, &Buffers, usize) -> Option<u64>;

const WQEBB: usize = 64;

/// All measurements, in the order of the table.
pub fn all(stage: &Stage) -> Result<Vec<Row>, Failure> {
    let pair = Rc::new(stage.frames()?);
    let sqn = pair.sender.borrow().queue.sq().sqn();
    let rings = [0; 2].map(|_| shared(Ring::new(RING, WQEBB, sqn, 0, PROOF_FRAMES as u32)));
    let post = |name, burst, driver: PostDriver, bare| post(&pair, &rings, name, burst, driver, bare);
    let header = |doorbell| format!("frame of 64 B, 18 of them in the WQE, {doorbell}");
    let burst = |call, doorbell| format!("frames of 64 B by multi-packet WQEs (`{call}`), {doorbell}");
    let (each, every_16, every_64) = ("doorbell", "a doorbell every 16", "a doorbell every 64");
    let mut rows = vec![
        post(header(each), 1, driver::headers::<_, 1>, Ring::headers::<1>),
        post(header(every_16), 16, driver::headers::<_, 16>, Ring::headers::<16>),
        post(header(every_64), 64, driver::headers::<_, 64>, Ring::headers::<64>),
        post("frame of 64 B from memory, doorbell".into(), 1, driver::whole, Ring::whole),
        post(burst("send_several", every_16), 16, driver::several::<_, 16>, Ring::several::<16>),
        post(burst("send_several", every_64), 64, driver::several::<_, 64>, Ring::several::<64>),
        post(burst("pointers", every_16), 16, driver::pointers::<_, 16>, Ring::pointers::<16>),
        post(burst("pointers", every_64), 64, driver::pointers::<_, 64>, Ring::pointers::<64>),
        post(burst("copies", every_16), 16, driver::copies::<_, 16>, Ring::copies::<16>),
        post(burst("copies", every_64), 64, driver::copies::<_, 64>, Ring::copies::<64>),
    ];
    let rings = [0; 2].map(|_| shared(Receiving::new()));
    let receive = |name, driver: ReceiveDriver, bare| receive(&pair, &rings, name, driver, bare);
    let (one, checked) = (driver::receive::<1>, driver::receive_checked);
    rows.push(receive("poll a frame, post its buffer again", one, Ring::receive_frames::<1, false>));
    rows.push(receive(
        "poll a frame and its checksums, post its buffer again",
        checked,
        Ring::receive_frames::<1, true>,
    ));
    let (many, by_hand) = (driver::receive::<16>, Ring::receive_frames::<16, false>);
    rows.push(receive("poll frames, post their buffers again, 16 at a time", many, by_hand));
    Ok(rows)
}

/// Bursts of `burst` frames that a ring holds.
fn bursts(pair: &FramePair, burst: usize, bare: PostBare) -> usize {
    let mut ring = Ring::new(RING, WQEBB, 0, 0, 0);
    bare(&mut ring, &pair.requests, burst);
    RING / ring.next_entry() as usize
}

/// Frames of one kind, `burst` of them a doorbell.
fn post(
    pair: &Rc<FramePair>,
    rings: &[Shared<Ring>; 2],
    name: String,
    burst: usize,
    driver: PostDriver,
    bare: PostBare,
) -> Row {
    let operations = burst * bursts(pair, burst, bare);
    let (before, posting) = (Rc::clone(pair), Rc::clone(pair));
    let mut is_clear = false;
    let driver = Loop {
        ready: Box::new(move || {
            before.sender.borrow_mut().rewind();
            if !std::mem::replace(&mut is_clear, true) {
                before.card.clear_sends();
            }
        }),
        run: Box::new(move || {
            let posted = driver(&mut posting.sender.borrow_mut().queue, &posting.requests, operations);
            assert!(posted.is_ok(), "{posted:?}");
            0
        }),
    };
    let by_hand = |ring: &Shared<Ring>| {
        let (ring, again, pair) = (Rc::clone(ring), Rc::clone(ring), Rc::clone(pair));
        let mut is_clear = false;
        let ready = move || {
            let mut ring = ring.borrow_mut();
            ring.rewind();
            if !std::mem::replace(&mut is_clear, true) {
                ring.fill(0, &[0; RING * WQEBB]);
            }
        };
        let run = move || {
            bare(&mut again.borrow_mut(), &pair.requests, operations);
            0
        };
        Loop { ready: Box::new(ready), run: Box::new(run) }
    };
    let bare = [by_hand(&rings[0]), by_hand(&rings[1])];
    let (pair, rings) = (Rc::clone(pair), rings.clone());
    // The whole ring, so also what neither stores to.
    let same = move || {
        let ours = pair.card.sent(0, RING * WQEBB);
        rings.iter().all(|ring| ring.borrow().bytes(0, RING * WQEBB) == ours)
    };
    Row { name, operations, driver, bare, same: Box::new(same) }
}

/// The rings of a loop that receives by hand.
struct Receiving {
    completions: Ring,
    receives: Ring,
}

impl Receiving {
    /// As those of a [`FramePair`]: all receives are posted, that of the proof again.
    fn new() -> Self {
        let completions = Ring::new(RING, WQEBB, 0, 0xff, PROOF_FRAMES as u32);
        Receiving { completions, receives: Ring::new(RING, SEGMENT, 0, 0, (RING + PROOF_FRAMES) as u32) }
    }
}

/// The loops that receive by hand.
fn by_hand(rings: &[Shared<Receiving>; 2], rqn: u32, buffers: Buffers, bare: ReceiveBare) -> [Loop; 2] {
    let by_hand = |rings: &Shared<Receiving>| {
        let (rings, again) = (Rc::clone(rings), Rc::clone(rings));
        let mut is_clear = false;
        let ready = move || {
            let mut rings = rings.borrow_mut();
            if !std::mem::replace(&mut is_clear, true) {
                rings.receives.fill(0, &[0; RING * SEGMENT]);
            }
            for (at, cqe) in frame_completions(rings.completions.next_entry(), rqn) {
                rings.completions.fill(at, cqe.as_bytes());
            }
        };
        let run = move || {
            let mut rings = again.borrow_mut();
            let Receiving { completions, receives } = &mut *rings;
            bare(completions, receives, &buffers, RING).unwrap_or(FEWER)
        };
        Loop { ready: Box::new(ready), run: Box::new(run) }
    };
    [by_hand(&rings[0]), by_hand(&rings[1])]
}

/// Whether the rings have the same receives as the driver's.
fn same(card: &Card, rings: &[Shared<Receiving>; 2]) -> Box<dyn Fn() -> bool> {
    let (card, rings) = (card.clone(), rings.clone());
    Box::new(move || {
        let ours = card.receives(0, RING * SEGMENT);
        rings.iter().all(|rings| rings.borrow().receives.bytes(0, RING * SEGMENT) == ours)
    })
}

/// What the card does before a run: completes every receive. The first time the ring is cleared.
fn arrive(card: &Card, produced: &mut u32, rqn: u32, is_clear: &mut bool) {
    if !std::mem::replace(is_clear, true) {
        card.clear_receives();
    }
    frame_completions(*produced, rqn).for_each(|(at, cqe)| card.complete(at, &cqe));
    *produced = produced.wrapping_add(RING as u32);
}

/// Frames that are received: a full ring of them.
fn receive(
    pair: &Rc<FramePair>,
    rings: &[Shared<Receiving>; 2],
    name: &str,
    driver: ReceiveDriver,
    bare: ReceiveBare,
) -> Row {
    let (before, again) = (Rc::clone(pair), Rc::clone(pair));
    let mut is_clear = false;
    let driver = Loop {
        ready: Box::new(move || {
            let produced = &mut before.received.borrow_mut().produced;
            arrive(&before.card, produced, before.rqn, &mut is_clear);
        }),
        run: Box::new(move || {
            let (mut cq, mut rq) = (again.received.borrow_mut(), again.receiver.borrow_mut());
            driver(&mut cq.queue, &mut rq, &again.buffers, RING).unwrap_or(FEWER)
        }),
    };
    let bare = by_hand(rings, pair.rqn, pair.buffers, bare);
    Row { name: name.into(), operations: RING, driver, bare, same: same(&pair.card, rings) }
}
