//! The measurements of frames that are forwarded where they were received.

use std::rc::Rc;

use mlx5_benches::Failure;
use mlx5_prm::layout::Layout;

use super::{FEWER, Loop, Row};
use crate::bare::forward::Forwarding as Bare;
use crate::driver::forward as driver;
use crate::stage::forward::{
    ForwardState, Forwarding, Queues, RECEIVES, SENDS, STRIDES, send_completions, stride_completions,
};
use crate::stage::{Shared, Stage, shared};

type Driver = fn(&mut Queues, usize) -> Option<u64>;
type ByHand = fn(&mut Bare, usize) -> Option<u64>;

/// The rings of a loop, and what their card has done.
type WithState<T> = Shared<(T, ForwardState)>;

/// The queues of the driver, and two loops by hand.
struct Rows {
    queues: Rc<Forwarding>,
    state: Shared<ForwardState>,
    bare: [WithState<Bare>; 2],
}

/// All measurements, in the order of the table.
pub fn all(stage: &Stage) -> Result<Vec<Row>, Failure> {
    let bursts = |what: &str, burst| format!("{what}, bursts of {burst}");
    let (receive, forward) = ("frame of 60 B received into strides", "frame of 60 B received and forwarded in place");
    let rows = Rows::new(stage)?;
    let receives = |burst, driver: Driver, bare| rows.row(bursts(receive, burst), false, driver, bare);
    let mut all = vec![
        receives(1, |queues, count| driver::receive::<1>(&mut queues.receiver, count), Bare::receive::<1>),
        receives(8, |queues, count| driver::receive::<8>(&mut queues.receiver, count), Bare::receive::<8>),
        receives(32, |queues, count| driver::receive::<32>(&mut queues.receiver, count), Bare::receive::<32>),
        receives(64, |queues, count| driver::receive::<64>(&mut queues.receiver, count), Bare::receive::<64>),
    ];
    let bursts_of =
        |burst, driver: Driver, bare| rows.row(bursts(&format!("{receive} (`burst`)"), burst), false, driver, bare);
    all.extend([
        bursts_of(1, |queues, count| driver::receive_bursts::<1>(&mut queues.receiver, count), Bare::receive::<1>),
        bursts_of(8, |queues, count| driver::receive_bursts::<8>(&mut queues.receiver, count), Bare::receive::<8>),
        bursts_of(32, |queues, count| driver::receive_bursts::<32>(&mut queues.receiver, count), Bare::receive::<32>),
        bursts_of(64, |queues, count| driver::receive_bursts::<64>(&mut queues.receiver, count), Bare::receive::<64>),
    ]);
    let rows = Rows::new(stage)?;
    let forwards = |burst, driver: Driver, bare| rows.row(bursts(forward, burst), true, driver, bare);
    all.extend([
        forwards(1, driver::forward::<1>, Bare::forward::<1>),
        forwards(8, driver::forward::<8>, Bare::forward::<8>),
        forwards(32, driver::forward::<32>, Bare::forward::<32>),
        forwards(64, driver::forward::<64>, Bare::forward::<64>),
    ]);
    let each =
        |burst, driver: Driver, bare| rows.row(bursts(&format!("{forward} (`push_each`)"), burst), true, driver, bare);
    all.extend([
        each(1, driver::forward_bursts::<1>, Bare::forward::<1>),
        each(8, driver::forward_bursts::<8>, Bare::forward::<8>),
        each(32, driver::forward_bursts::<32>, Bare::forward::<32>),
        each(64, driver::forward_bursts::<64>, Bare::forward::<64>),
    ]);
    Ok(all)
}

impl Rows {
    fn new(stage: &Stage) -> Result<Self, Failure> {
        let queues = stage.forwarding()?;
        let state = queues.state;
        let bare = [0; 2].map(|_| shared((Bare::new(&state, queues.buffers, queues.most), state)));
        Ok(Rows { queues: Rc::new(queues), state: shared(state), bare })
    }

    /// A buffer of frames, which are also sent on if they are `forwarded`.
    fn row(&self, name: String, forwarded: bool, driver: Driver, bare: ByHand) -> Row {
        let bare = [self.by_hand(0, forwarded, bare), self.by_hand(1, forwarded, bare)];
        let (queues, rings) = (Rc::clone(&self.queues), self.bare.clone());
        // Whole rings, so also what neither stores to.
        let same = move || {
            let (sends, receives) = (queues.sent.sent(0, SENDS * 64), queues.received.receives(0, RECEIVES));
            rings.iter().all(|ring| {
                let ring = &ring.borrow().0;
                ring.sends(0, SENDS * 64) == sends && ring.receives() == receives
            })
        };
        Row { name, operations: STRIDES, driver: self.driver(forwarded, driver), bare, same: Box::new(same) }
    }

    /// The driver's loop. Before it, the card completes what the last one sent, and a buffer of receives.
    fn driver(&self, forwarded: bool, driver: Driver) -> Loop {
        let (queues, again, state) = (Rc::clone(&self.queues), Rc::clone(&self.queues), Rc::clone(&self.state));
        let mut is_clear = false;
        let ready = move || {
            let state = &mut *state.borrow_mut();
            let completions = send_completions(state, |at| queues.sent.sent(at, 16));
            completions.iter().for_each(|(at, cqe)| queues.sent.complete(*at, cqe));
            if !std::mem::replace(&mut is_clear, true) {
                queues.clear();
            }
            stride_completions(state).for_each(|(at, cqe)| queues.received.complete(at, &cqe));
            state.go_on(forwarded);
        };
        let run = move || driver(&mut again.queues.borrow_mut(), STRIDES).unwrap_or(FEWER);
        Loop { ready: Box::new(ready), run: Box::new(run) }
    }

    /// As [`driver`](Self::driver), by hand.
    fn by_hand(&self, index: usize, forwarded: bool, bare: ByHand) -> Loop {
        let (rings, again) = (Rc::clone(&self.bare[index]), Rc::clone(&self.bare[index]));
        let mut is_clear = false;
        let ready = move || {
            let (rings, state) = &mut *rings.borrow_mut();
            let completions = send_completions(state, |at| rings.sends(at, 16));
            completions.iter().for_each(|(at, cqe)| rings.complete_send(*at, cqe.as_bytes()));
            if !std::mem::replace(&mut is_clear, true) {
                rings.clear();
            }
            stride_completions(state).for_each(|(at, cqe)| rings.complete(at, cqe.as_bytes()));
            state.go_on(forwarded);
        };
        let run = move || bare(&mut again.borrow_mut().0, STRIDES).unwrap_or(FEWER);
        Loop { ready: Box::new(ready), run: Box::new(run) }
    }
}
