//! Cost of a post and a poll with many queue pairs, used in turn by their threads.
//!
//! The card's thread is stopped, and the bench writes the completions in its place, which is not measured.

use std::sync::{Arc, Barrier};

use mlx5_benches::{Failure, callgrind, hold_still, median};
use mlx5_dv::objects::QueuePair;
use mlx5_dv::queue::{CompletionQueue, DataSegment, Plain, PostError, RemoteAddress, SendQueue, WrFlags};
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::layout::Layout;
use mlx5_sim::card::FunctionHandle;
use mlx5_sim::objects::PageList;

use super::extent::Extent;
use super::stage::{BYTES, CQES, Desk, Stage, WQES};
use super::timing::{clock, nanoseconds};

/// Argument for the child process that counts instructions.
pub const COUNT: &str = "--count-messages";

/// Work requests in a round: the capacity of one queue pair.
const POSTS: usize = WQES as usize;
/// Step from one queue pair to the next: a prime, so that all are used, and never adjacent ones in sequence.
const STRIDE: usize = 7919;
/// Work requests of a round, each on another queue pair if there are enough.
const WARM_UP: usize = 300;
const ROUNDS: usize = 10_000;
const SHORT: usize = 20;
/// Maximum number of queue pairs for which instructions are counted: creating more takes minutes under valgrind.
const COUNTED: usize = 4096;

/// Prints the table.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    let counts = if extent == Extent::Full { callgrind::run(&[COUNT]) } else { Err("a short run".into()) };
    println!("| threads | QPs | post ns | poll ns | post instr. | poll instr. |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for threads in [1, 2] {
        for &count in extent.queue_pairs().iter().filter(|count| **count >= threads) {
            let (post, poll) = time(threads, count, if extent == Extent::Full { ROUNDS } else { SHORT })?;
            let instructions = |what| {
                let count = counts.as_ref().ok().filter(|_| threads == 1)?.get(&format!("{what} {count}"))?;
                Some(format!("{:.1}", count / POSTS as f64))
            };
            let [posts, polls] = ["post", "poll"].map(|what| instructions(what).unwrap_or("-".into()));
            println!("| {threads} | {count} | {post:.1} | {poll:.1} | {posts} | {polls} |");
        }
    }
    if let Err(why) = counts {
        println!("\ninstructions: not measured: {why}");
    }
    Ok(())
}

/// Runs in the child process.
pub fn child() -> Result<(), Failure> {
    callgrind::count_nothing();
    for &count in Extent::Full.queue_pairs().iter().filter(|count| **count <= COUNTED) {
        let stage = Stage::new()?;
        let mut worker = Worker::new(&stage, count)?;
        let held = hold_still(&stage.handle)?;
        for _ in 0..2 {
            worker.round(|_, work| work())?;
        }
        worker.round(|what, work| callgrind::count(&format!("{what} {count}"), work))?;
        // Firmware no longer answers, so the next card is a new one.
        std::mem::forget((worker, stage, held));
    }
    Ok(())
}

/// Nanoseconds of a post and of a poll: medians over the rounds of all threads, which run concurrently.
fn time(threads: usize, count: usize, rounds: usize) -> Result<(f64, f64), Failure> {
    let stage = Stage::new()?;
    let workers = (0..threads).map(|_| Worker::new(&stage, count / threads)).collect::<Result<Vec<_>, _>>()?;
    let held = hold_still(&stage.handle)?;
    let start = Barrier::new(threads);
    let samples = std::thread::scope(|scope| {
        let running: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.time(&start, rounds))).collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Result<Vec<_>, _>>()
    });
    let (mut posts, mut polls) = (Vec::new(), Vec::new());
    for (post, poll) in samples? {
        posts.extend(post);
        polls.extend(poll);
    }
    // Firmware no longer answers.
    std::mem::forget((stage, held));
    let clock = clock();
    let each = |samples: &mut [f64]| (median(samples) - clock) / POSTS as f64;
    Ok((each(&mut posts), each(&mut polls)))
}

/// A queue of a thread, and the index of its next WQE.
struct Queue {
    sends: SendQueue<Plain>,
    qpn: u32,
    posted: u16,
}

/// A thread's queue pairs.
struct Worker {
    queues: Vec<Queue>,
    /// Queue pair by number.
    by_number: Vec<u32>,
    first_number: u32,
    desk: Desk,
    /// The completion queue as the card sees it, and the number of completions written.
    ring: PageList,
    produced: usize,
    /// Next queue pair.
    next: usize,
    turn: [u32; POSTS],
    from: DataSegment,
    to: RemoteAddress,
    card: FunctionHandle,
    _qps: Vec<Arc<QueuePair>>,
}

impl Worker {
    /// `count` queue pairs, each of which has sent a message.
    fn new(stage: &Stage, count: usize) -> Result<Self, Failure> {
        let mut desk = stage.desk()?;
        let create = |_| stage.create(&desk.uar, desk.completions.cq());
        let qps = (0..count).map(create).collect::<Result<Vec<_>, _>>()?;
        stage.connect(&qps)?;
        let with_numbers = stage.send_queues(&mut desk, &qps)?.into_iter().zip(&qps);
        let queues: Vec<_> = with_numbers.map(|(sends, qp)| Queue { sends, qpn: qp.qpn(), posted: 1 }).collect();
        let first_number = qps.iter().map(|qp| qp.qpn()).min().unwrap_or(0);
        let last_number = qps.iter().map(|qp| qp.qpn()).max().unwrap_or(0);
        let mut by_number = vec![0; (last_number - first_number + 1) as usize];
        for (i, queue) in queues.iter().enumerate() {
            by_number[(queue.qpn - first_number) as usize] = i as u32;
        }
        let cqn = desk.completions.cq().cqn();
        let ring = stage.handle.with(move |f| Some(f.nic.objects.cqs.get(cqn)?.ring.clone())).flatten();
        Ok(Worker {
            queues,
            by_number,
            first_number,
            desk,
            ring: ring.ok_or("the model does not know the queue")?,
            produced: count,
            next: 0,
            turn: [0; POSTS],
            from: stage.memory.segment(2048..2048 + BYTES),
            to: stage.target(),
            card: stage.handle.clone(),
            _qps: qps,
        })
    }

    /// A round: a work request to each queue pair in turn, their completions, a poll for each. Calls `measured` with
    /// the work to measure.
    fn round(&mut self, mut measured: impl FnMut(&str, &mut dyn FnMut() -> bool) -> bool) -> Result<(), Failure> {
        for place in &mut self.turn {
            *place = self.next as u32;
            self.next = (self.next + STRIDE) % self.queues.len();
        }
        let Worker { queues, turn, from, to, .. } = self;
        if !measured("post", &mut || post(queues, turn, *from, *to).is_ok()) {
            return Err("a send queue is full".into());
        }
        self.complete()?;
        let Worker { queues, by_number, first_number, desk, .. } = self;
        if !measured("poll", &mut || poll(&mut desk.completions, queues, by_number, *first_number).is_some()) {
            return Err("a completion is missing".into());
        }
        Ok(())
    }

    /// Nanoseconds of the posts and of the polls of each round.
    fn time(mut self, start: &Barrier, rounds: usize) -> Result<(Vec<f64>, Vec<f64>), Failure> {
        let (mut posts, mut polls) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        start.wait();
        for round in 0..WARM_UP + rounds {
            self.round(|what, work| {
                let (time, done) = nanoseconds(work);
                if round >= WARM_UP {
                    if what == "post" { &mut posts } else { &mut polls }.push(time);
                }
                done
            })?;
        }
        // Firmware no longer answers.
        std::mem::forget(self);
        Ok((posts, polls))
    }

    /// Writes the completions of this round, as a card does.
    fn complete(&mut self) -> Result<(), Failure> {
        for &place in &self.turn {
            let queue = &mut self.queues[place as usize];
            let entries = CQES as usize;
            let mut cqe = Cqe::ZERO;
            cqe.w().opcode(CqeOpcode::Requester).qpn(queue.qpn).wqe_counter(queue.posted).send_wqe_opcode(0x08);
            cqe.w().byte_cnt(BYTES as u32).owner((self.produced / entries) & 1 != 0);
            let at = self.produced % entries * Cqe::SIZE;
            self.ring.write(self.card.dma(), at as u64, cqe.as_bytes())?;
            queue.posted = queue.posted.wrapping_add(1);
            self.produced += 1;
        }
        Ok(())
    }
}

/// An RDMA WRITE of 64 bytes and a doorbell for each queue pair in turn.
#[inline(never)]
fn post(queues: &mut [Queue], turn: &[u32; POSTS], from: DataSegment, to: RemoteAddress) -> Result<(), PostError> {
    for &place in turn {
        let mut batch = queues[place as usize].sends.batch();
        // SAFETY: registered memory that lives as long as the stage, which nobody writes.
        unsafe { batch.write(place.into(), WrFlags::SIGNALLED, to, &[from])? };
        batch.ring();
    }
    Ok(())
}

/// Polls their completions, each given to its queue.
#[inline(never)]
fn poll(completions: &mut CompletionQueue, queues: &mut [Queue], by_number: &[u32], first: u32) -> Option<u64> {
    let mut sum = 0u64;
    for _ in 0..POSTS {
        let completion = completions.poll()?.ok()?;
        let place = by_number[(completion.work.qpn - first) as usize];
        sum = sum.wrapping_add(queues[place as usize].sends.retire(&completion.work).ok()?);
    }
    Some(sum)
}
