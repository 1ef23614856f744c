//! The measurements: each operation by the driver and, twice, by hand.

pub mod forward;
pub mod frames;

use std::hint::black_box;
use std::rc::Rc;

use mlx5_benches::Failure;
use mlx5_dv::objects::{AnyDoorbell, DoorbellMode};
use mlx5_dv::queue::{CompletionQueue, PostError, ReceiveQueue, SendQueue};
use mlx5_prm::layout::Layout;
use uar::{BlueFlame, Plain};

use crate::bare::Ring;
use crate::driver;
use crate::request::Requests;
use crate::stage::{PROOF_CQES, PROOF_WQEBBS, Pair, RING, Shared, Stage, completions, shared};

/// One side of a measurement.
pub struct Loop {
    /// Unmeasured preparation: makes room, writes completions.
    pub ready: Box<dyn FnMut()>,
    /// The measured work: [`Row::operations`] operations. Its result must be the same for all loops of a row.
    pub run: Box<dyn FnMut() -> u64>,
}

/// One operation.
pub struct Row {
    pub name: String,
    /// Operations of one run.
    pub operations: usize,
    pub driver: Loop,
    /// Two equal loops: their difference is the machine's noise.
    pub bare: [Loop; 2],
    /// Whether the loops have stored the same bytes.
    pub same: Box<dyn Fn() -> bool>,
}

type PostDriver<D> = fn(&mut SendQueue<D>, &Requests, usize) -> Result<(), PostError>;
type PostBare = fn(&mut Ring, &Requests, usize);

/// Work requests of one kind.
struct Post<D: DoorbellMode> {
    name: String,
    /// WQEBBs of each.
    wqebbs: u16,
    /// Meaningful bytes of each.
    bytes: usize,
    driver: PostDriver<D>,
    bare: PostBare,
}

/// A pair, and two bare rings that advance with its send ring.
struct Sending<D: DoorbellMode> {
    pair: Rc<Pair<D>>,
    bare: [Shared<Ring>; 2],
    requests: Rc<Requests>,
}

impl<D: DoorbellMode + 'static> Sending<D> {
    fn new(stage: &Stage, requests: &Rc<Requests>) -> Result<Self, Failure> {
        let pair = stage.pair::<D>()?;
        let ring = || shared(Ring::new(RING, 64, pair.sender_qpn, 0, PROOF_WQEBBS.into()));
        let bare = [ring(), ring()];
        Ok(Sending { pair: Rc::new(pair), bare, requests: Rc::clone(requests) })
    }

    fn row(&self, post: Post<D>) -> Row {
        let operations = RING / usize::from(post.wqebbs);
        let Post { wqebbs, bytes, driver, bare, name } = post;
        let (pair, requests) = (Rc::clone(&self.pair), Rc::clone(&self.requests));
        let qpn = pair.sender_qpn;
        let (state, again) = (Rc::clone(&pair.sender), Rc::clone(&pair.sender));
        let driver = Loop {
            ready: Box::new(move || state.borrow_mut().complete(qpn)),
            run: Box::new(move || {
                let mut state = again.borrow_mut();
                let posted = driver(&mut state.queue, &requests, operations);
                assert!(posted.is_ok(), "{posted:?}");
                state.posted = state.posted.wrapping_add(operations as u16 * wqebbs);
                state.last = Some(state.posted.wrapping_sub(wqebbs));
                0
            }),
        };
        let by_hand = |ring: &Shared<Ring>| {
            let (ring, requests) = (Rc::clone(ring), Rc::clone(&self.requests));
            let run = move || {
                bare(&mut ring.borrow_mut(), &requests, operations);
                0
            };
            Loop { ready: Box::new(|| {}), run: Box::new(run) }
        };
        let bare = [by_hand(&self.bare[0]), by_hand(&self.bare[1])];
        let rings = [Rc::clone(&self.bare[0]), Rc::clone(&self.bare[1])];
        let same = move || {
            (0..operations).map(|i| i * usize::from(wqebbs) * 64).all(|at| {
                let ours = pair.card.sent(at, bytes);
                rings.iter().all(|ring| ring.borrow().bytes(at, bytes) == ours)
            })
        };
        Row { name, operations, driver, bare, same: Box::new(same) }
    }
}

/// All measurements, in the order of the table.
pub fn all(stage: &Stage) -> Result<Vec<Row>, Failure> {
    let requests = Rc::new(stage.requests());
    let mut rows = Vec::new();
    let plain = Sending::<Plain>::new(stage, &requests)?;
    let post = |name: &str, wqebbs, bytes, driver: PostDriver<Plain>, bare: PostBare| {
        plain.row(Post { name: name.into(), wqebbs, bytes, driver, bare })
    };
    rows.push(post("RDMA WRITE 64 B from memory, doorbell", 1, 48, driver::write::<_, 1, 1>, Ring::write::<1, 1>));
    rows.push(post("RDMA WRITE 64 B inline, doorbell", 2, 100, driver::write_inline, Ring::write_inline));
    rows.push(post("SEND 64 B from memory, doorbell", 1, 32, driver::send, Ring::send));
    rows.push(post("SEND 64 B inline, doorbell", 2, 84, driver::send_inline, Ring::send_inline));
    rows.push(post("RDMA READ 64 B, doorbell", 1, 48, driver::read, Ring::read));
    rows.push(post("RDMA WRITE 64 B, a doorbell every 4", 1, 48, driver::write::<_, 4, 1>, Ring::write::<4, 1>));
    rows.push(post("RDMA WRITE 64 B, a doorbell every 16", 1, 48, driver::write::<_, 16, 1>, Ring::write::<16, 1>));
    rows.push(post("RDMA WRITE 64 B, a doorbell every 64", 1, 48, driver::write::<_, 64, 1>, Ring::write::<64, 1>));
    rows.push(post(
        "RDMA WRITE 64 B, a doorbell and a completion every 64",
        1,
        48,
        driver::write::<_, 64, 64>,
        Ring::write::<64, 64>,
    ));

    let any = Sending::<AnyDoorbell>::new(stage, &requests)?;
    rows.push(any.row(Post {
        name: "RDMA WRITE 64 B from memory, AnyDoorbell".into(),
        wqebbs: 1,
        bytes: 48,
        driver: driver::write::<_, 1, 1>,
        bare: Ring::write::<1, 1>,
    }));
    let blue_flame = Sending::<BlueFlame>::new(stage, &requests)?;
    rows.push(blue_flame.row(Post {
        name: "RDMA WRITE 64 B from memory, BlueFlame".into(),
        wqebbs: 1,
        bytes: 48,
        driver: driver::write::<_, 1, 1>,
        bare: Ring::write_blue_flame,
    }));

    let rings = [0; 2].map(|_| shared(Ring::new(RING, 16, 0, 0, 0)));
    rows.push(receive(
        &plain.pair,
        &rings,
        &requests,
        "RECV, doorbell record",
        driver::receive::<1>,
        Ring::receive::<1>,
    ));
    rows.push(receive(
        &plain.pair,
        &rings,
        &requests,
        "RECV, a doorbell record every 16",
        driver::receive::<16>,
        Ring::receive::<16>,
    ));

    let rings = [0; 2].map(|_| shared(Ring::new(RING, 64, 0, 0xff, PROOF_CQES)));
    rows.push(poll(&plain.pair, &rings, "poll", driver::poll::<1>, Ring::poll::<1>));
    rows.push(poll(&plain.pair, &rings, "poll, 16 at a time", driver::poll::<16>, Ring::poll::<16>));
    let retire = |name, driver: RetireDriver, bare| poll_and_retire(&plain, &rings, name, driver, bare);
    rows.push(retire("poll and retire a send", driver::poll_and_retire::<_, 1>, Ring::poll_and_retire::<1>));
    rows.push(retire(
        "poll and retire a send, 16 at a time",
        driver::poll_and_retire::<_, 16>,
        Ring::poll_and_retire::<16>,
    ));
    rows.push(poll_empty(&plain.pair, &rings));
    Ok(rows)
}

fn receive(
    pair: &Rc<Pair<Plain>>,
    rings: &[Shared<Ring>; 2],
    requests: &Rc<Requests>,
    name: &str,
    post: fn(&mut ReceiveQueue, &Requests, usize) -> Result<(), PostError>,
    bare: PostBare,
) -> Row {
    let qpn = pair.receiver_qpn;
    let (state, again) = (Rc::clone(&pair.receiver), Rc::clone(&pair.receiver));
    let ours = Rc::clone(requests);
    let driver = Loop {
        ready: Box::new(move || state.borrow_mut().complete(qpn)),
        run: Box::new(move || {
            let mut state = again.borrow_mut();
            let posted = post(&mut state.queue, &ours, RING);
            assert!(posted.is_ok(), "{posted:?}");
            state.posted = state.posted.wrapping_add(RING as u16);
            state.last = Some(state.posted.wrapping_sub(1));
            0
        }),
    };
    let by_hand = |ring: &Shared<Ring>| {
        let (ring, requests) = (Rc::clone(ring), Rc::clone(requests));
        let run = move || {
            bare(&mut ring.borrow_mut(), &requests, RING);
            0
        };
        Loop { ready: Box::new(|| {}), run: Box::new(run) }
    };
    let (pair, same) = (Rc::clone(pair), rings.clone());
    Row {
        name: name.into(),
        operations: RING,
        driver,
        bare: [by_hand(&rings[0]), by_hand(&rings[1])],
        same: Box::new(move || {
            let ours = pair.card.receives(0, RING * 16);
            same.iter().all(|ring| ring.borrow().bytes(0, RING * 16) == ours)
        }),
    }
}

type PollDriver = fn(&mut CompletionQueue, usize) -> Option<u64>;
type PollBare = fn(&mut Ring, usize) -> Option<u64>;
type RetireDriver = fn(&mut CompletionQueue, &mut SendQueue<Plain>, usize) -> Option<u64>;

/// A value that no sum of completions has.
const FEWER: u64 = u64::MAX;

/// The loops that poll by hand the given completions.
fn by_hand(
    rings: &[Shared<Ring>; 2],
    qpn: u32,
    poll: impl Fn(&mut Ring, usize) -> Option<u64> + Copy + 'static,
) -> [Loop; 2] {
    let by_hand = |ring: &Shared<Ring>| {
        let (ring, again) = (Rc::clone(ring), Rc::clone(ring));
        let ready = move || {
            let mut ring = ring.borrow_mut();
            for (at, cqe) in completions(ring.next_entry(), RING, qpn, 0, 1) {
                ring.fill(at, cqe.as_bytes());
            }
        };
        let run = move || poll(&mut again.borrow_mut(), RING).unwrap_or(FEWER);
        Loop { ready: Box::new(ready), run: Box::new(run) }
    };
    [by_hand(&rings[0]), by_hand(&rings[1])]
}

fn poll(pair: &Rc<Pair<Plain>>, rings: &[Shared<Ring>; 2], name: &str, driver: PollDriver, bare: PollBare) -> Row {
    let qpn = pair.sender_qpn;
    let (cq, again, card) = (Rc::clone(&pair.cq), Rc::clone(&pair.cq), pair.card.clone());
    let driver = Loop {
        ready: Box::new(move || {
            let mut cq = cq.borrow_mut();
            completions(cq.produced, RING, qpn, 0, 1).for_each(|(at, cqe)| card.complete(at, &cqe));
            cq.produced = cq.produced.wrapping_add(RING as u32);
        }),
        run: Box::new(move || driver(&mut again.borrow_mut().queue, RING).unwrap_or(FEWER)),
    };
    Row { name: name.into(), operations: RING, driver, bare: by_hand(rings, qpn, bare), same: Box::new(|| true) }
}

/// The sends that complete were posted before, without measuring: a full ring.
fn poll_and_retire(
    sending: &Sending<Plain>,
    rings: &[Shared<Ring>; 2],
    name: &str,
    retire: RetireDriver,
    bare: PollBare,
) -> Row {
    let (pair, requests) = (Rc::clone(&sending.pair), Rc::clone(&sending.requests));
    let (again, qpn) = (Rc::clone(&pair), pair.sender_qpn);
    let mut bare_rings = sending.bare.clone();
    let driver = Loop {
        ready: Box::new(move || {
            let (mut sender, mut cq) = (pair.sender.borrow_mut(), pair.cq.borrow_mut());
            sender.complete(qpn);
            let posted = driver::write::<_, 1, 1>(&mut sender.queue, &requests, RING);
            assert!(posted.is_ok(), "{posted:?}");
            // The bare rings stay in step.
            bare_rings.iter_mut().for_each(|ring| ring.borrow_mut().write::<1, 1>(&requests, RING));
            completions(cq.produced, RING, qpn, sender.posted, 1).for_each(|(at, cqe)| pair.card.complete(at, &cqe));
            sender.posted = sender.posted.wrapping_add(RING as u16);
            cq.produced = cq.produced.wrapping_add(RING as u32);
        }),
        run: Box::new(move || {
            let (mut sender, mut cq) = (again.sender.borrow_mut(), again.cq.borrow_mut());
            let retired = retire(&mut cq.queue, &mut sender.queue, RING);
            u64::from(black_box(retired).is_none())
        }),
    };
    // Loops may retire different WQEs, but all must be retired.
    let bare = by_hand(rings, qpn, move |ring, count| black_box(bare(ring, count)).map(|_| 0));
    Row { name: name.into(), operations: RING, driver, bare, same: Box::new(|| true) }
}

fn poll_empty(pair: &Rc<Pair<Plain>>, rings: &[Shared<Ring>; 2]) -> Row {
    let cq = Rc::clone(&pair.cq);
    let by_hand = |ring: &Shared<Ring>| {
        let ring = Rc::clone(ring);
        Loop { ready: Box::new(|| {}), run: Box::new(move || u64::from(ring.borrow_mut().poll_empty(RING))) }
    };
    Row {
        name: "poll an empty queue".into(),
        operations: RING,
        driver: Loop {
            ready: Box::new(|| {}),
            run: Box::new(move || u64::from(driver::poll_empty(&mut cq.borrow_mut().queue, RING))),
        },
        bare: [by_hand(&rings[0]), by_hand(&rings[1])],
        same: Box::new(|| true),
    }
}
