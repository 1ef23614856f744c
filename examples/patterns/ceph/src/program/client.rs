//! The client: sends operations, some at a time, and counts the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use mlx5_ceph::msgr2::Message;
use mlx5_ceph::wire::{Data, OSD_OP_REPLY, OsdOp, OsdReply};
use mlx5_ceph::{Event, Messenger, MessengerOptions, PeerId};

use super::common::{CONTENTS, Failure, Idle, content, seconds};

/// How long no answer may come.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than an operation takes beside its data.
const FRONT: usize = 4096;

#[derive(Debug, Args)]
// The command has the name already.
#[group(skip)]
pub(super) struct Client {
    /// Number of sessions.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,
    /// Operations of a session that wait for an answer.
    #[arg(short, long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Operations of a session.
    #[arg(short = 'n', long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    ios: u64,
    /// Bytes of an operation.
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(0..=32 << 20))]
    size: u32,
    /// Break a connection after every this many answers: it is made again.
    #[arg(long, default_value_t = 0)]
    kill_every: u64,
    /// How long a session sends nothing after an answer, in seconds.
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = seconds)]
    think_time: Duration,
    #[command(flatten)]
    idle: Idle,
}

impl Default for Client {
    fn default() -> Self {
        Client {
            jobs: 4,
            concurrency: 16,
            ios: 2000,
            size: 4096,
            kill_every: 0,
            think_time: Duration::ZERO,
            idle: Idle::default(),
        }
    }
}

/// One session.
#[derive(Debug, Default)]
struct Job {
    /// The next operation, from 1.
    next: u64,
    /// Operations without an answer. A lossy session's are sent again when it breaks.
    open: BTreeSet<u64>,
    answered: u64,
    /// Until when it sends nothing.
    thinks_until: Option<Instant>,
}

impl Client {
    /// What its messenger needs beyond `options`.
    pub(super) fn options(&self, mut options: MessengerOptions) -> MessengerOptions {
        options.nonce = std::process::id();
        // Contents are shared, so that as much as is asked for may be under way.
        let under_way = (self.size as usize + FRONT).saturating_mul(2 * self.concurrency as usize);
        options.pending_bytes = options.pending_bytes.max(under_way);
        options
    }

    /// Runs to the end of all operations, by a messenger of its [`options`](Self::options).
    pub(super) fn run(mut self, mut messenger: Messenger, server: SocketAddr) -> Result<(), Failure> {
        let contents: Vec<_> = (0..CONTENTS).map(|kind| Data::from(content(kind, self.size as usize))).collect();
        let mut jobs = BTreeMap::new();
        for _ in 0..self.jobs {
            let job = Job { next: 1, ..Job::default() };
            jobs.insert(messenger.connect(server)?, job);
        }
        let (begin, mut since, mut again, mut answers) = (Instant::now(), Instant::now(), 0, 0);
        for (peer, job) in &mut jobs {
            self.fill(&mut messenger, *peer, job, &contents)?;
        }
        while answers < self.ios * u64::from(self.jobs) {
            let moved = messenger.poll()?;
            while let Some(event) = messenger.next_event() {
                match event {
                    Event::Message(peer, message) if message.header.kind == OSD_OP_REPLY => {
                        since = Instant::now();
                        let Some(job) = jobs.get_mut(&peer) else { continue };
                        self.answered(&message, job)?;
                        job.thinks_until = (!self.think_time.is_zero()).then(|| since + self.think_time);
                        self.fill(&mut messenger, peer, job, &contents)?;
                        answers += 1;
                        if self.kill_every > 0 && answers.is_multiple_of(self.kill_every) {
                            messenger.kill(peer);
                        }
                    }
                    Event::Broken(_, trouble) => println!("a connection broke: {trouble}"),
                    Event::Reset(peer) => {
                        let open = jobs.get(&peer).map(|job| job.open.iter().copied().collect::<Vec<_>>());
                        for tid in open.into_iter().flatten() {
                            again += 1;
                            messenger.send(peer, self.operation(tid, &contents))?;
                        }
                    }
                    _ => {}
                }
            }
            for (peer, job) in &mut jobs {
                if job.thinks_until.take_if(|until| Instant::now() >= *until).is_some() {
                    since = Instant::now();
                    self.fill(&mut messenger, *peer, job, &contents)?;
                }
            }
            if !moved && since.elapsed() > PATIENCE + self.think_time {
                return Err(format!("no answer for {} s; {answers} came", PATIENCE.as_secs()).into());
            }
            self.idle.turn(moved, &mut messenger)?;
        }
        let (elapsed, done) = (begin.elapsed(), messenger.statistics());
        println!(
            "{answers} operations of {} bytes in {:.3} s: {:.0} a second; {} connections broke, {again} operations sent \
             again by us",
            self.size,
            elapsed.as_secs_f64(),
            answers as f64 / elapsed.as_secs_f64(),
            done.broken,
        );
        jobs.into_keys().for_each(|peer| messenger.close(peer));
        // What was said last is on its way.
        let end = Instant::now() + Duration::from_secs(2);
        while !messenger.stack().streams().is_empty() && Instant::now() < end {
            messenger.poll()?;
        }
        Ok(())
    }

    fn operation(&self, tid: u64, contents: &[Data]) -> Message {
        let op = OsdOp { object: "object-name".into(), pool: 1, tid, bytes: self.size };
        Message::new(op.header(), op.encode(), contents[(tid % CONTENTS) as usize].clone())
    }

    /// Sends operations until enough wait for an answer.
    fn fill(&self, messenger: &mut Messenger, peer: PeerId, job: &mut Job, contents: &[Data]) -> Result<(), Failure> {
        while job.thinks_until.is_none() && job.open.len() < self.concurrency as usize && job.next <= self.ios {
            messenger.send(peer, self.operation(job.next, contents))?;
            job.open.insert(job.next);
            job.next += 1;
        }
        Ok(())
    }

    /// Each operation is answered once. Ceph's server answers in order; one that lost its session may have answered
    /// before.
    fn answered(&self, message: &Message, job: &mut Job) -> Result<(), Failure> {
        let reply = OsdReply::decode(&message.front)?;
        let tid = message.header.tid;
        if !job.open.remove(&tid) {
            return Err(format!("an answer to operation {tid}, which none waits for").into());
        }
        job.answered += 1;
        match reply.result {
            0 => Ok(()),
            result => Err(format!("operation {tid} failed: {result}").into()),
        }
    }
}
