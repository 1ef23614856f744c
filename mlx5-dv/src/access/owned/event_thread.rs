//! The background thread of an owned function. It sleeps on the interrupt vectors' eventfds, reads the event queues,
//! serves firmware's page requests, and looks after firmware's health.
//!
//! It never waits for a command: those it sends are looked after each time it wakes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use mlx5_prm::eqe::{CommandEvent, CompletionEvent, Eqe, EventType, PageRequestEvent};
use mlx5_prm::layout::Layout;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::command::{Class, CommandQueue, Pending};
use super::event_queue::EventQueue;
use super::health::Health;
use super::pages::{BATCH, FirmwarePages};
use super::registers::Registers;
use crate::access::AsyncEvent;
use crate::access::liveness::Liveness;
use crate::access::subscribers::{Subscribers, signal};
use crate::error::{CommandError, Death, Error};
use crate::lock::lock;

/// Most pages firmware may hold: 4 GiB. More is a firmware gone wrong, not a need.
const MOST_PAGES: usize = 1 << 20;
/// How long a command of this thread may stay unseen when its event is lost.
const LOST_EVENT: Duration = Duration::from_millis(20);
/// How long the thread may take to end.
const JOIN: Duration = Duration::from_secs(5);

/// What the thread needs of its function.
#[derive(Debug, Clone)]
pub struct Shared {
    pub liveness: Arc<Liveness>,
    pub registers: Arc<Registers>,
    pub commands: Arc<CommandQueue>,
    pub pages: Arc<FirmwarePages>,
    pub subscribers: Arc<Subscribers>,
    /// How often firmware's health is looked at.
    pub health_interval: Duration,
    /// How long the health counter may stand still.
    pub health_patience: Duration,
}

/// An event queue and the eventfds of the vectors that say when to read it.
type Watched = (EventQueue, Option<File>);

/// The running thread, from outside.
#[derive(Debug)]
pub struct EventThread {
    control: Arc<Control>,
    /// The queues, once the thread has ended.
    ended: mpsc::Receiver<Vec<EventQueue>>,
}

#[derive(Debug)]
struct Control {
    wake: OwnedFd,
    stop: AtomicBool,
    inbox: Mutex<Vec<Watched>>,
}

impl EventThread {
    /// Starts the thread.
    pub fn start(shared: Shared, name: &str) -> Result<Self, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("creating an eventfd", error.into()))?;
        let control = Arc::new(Control { wake, stop: AtomicBool::new(false), inbox: Mutex::default() });
        let (sender, ended) = mpsc::sync_channel(1);
        let thread = Thread {
            health: Health::new(shared.health_patience),
            shared,
            control: Arc::clone(&control),
            queues: vec![],
            jobs: VecDeque::new(),
            current: None,
        };
        std::thread::Builder::new()
            .name(format!("mlx5 {}", name.rsplit('/').next().unwrap_or(name)))
            .spawn(move || {
                // Nobody waits any more if this fails; the queues' memory then goes back here.
                let _ = sender.send(thread.run());
            })
            .map_err(|error| Error::io("starting the background thread", error))?;
        Ok(EventThread { control, ended })
    }

    /// Hands an event queue over. `vector` is the eventfd that says when to read it, if no other queue has that vector.
    pub fn adopt(&self, queue: EventQueue, vector: Option<OwnedFd>) {
        lock(&self.control.inbox).push((queue, vector.map(File::from)));
        signal(&self.control.wake);
    }

    /// Ends the thread and returns its queues. `None` if it does not end in time: it keeps them.
    pub fn stop(self) -> Option<Vec<EventQueue>> {
        self.control.stop.store(true, Ordering::Release);
        signal(&self.control.wake);
        let queues = self.ended.recv_timeout(JOIN).ok();
        if queues.is_none() {
            tracing::error!("the background thread does not end: left behind");
        }
        queues
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        signal(&self.control.wake);
    }
}

/// Something to do about pages.
#[derive(Debug)]
enum Job {
    Give { function: u16, count: usize },
    Take { function: u16, count: usize },
    Refuse { function: u16 },
}

/// The page command under way, and what was given with it.
#[derive(Debug)]
struct Current {
    job: Job,
    pending: Pending,
    pages: Vec<u64>,
}

struct Thread {
    shared: Shared,
    control: Arc<Control>,
    queues: Vec<Watched>,
    health: Health,
    jobs: VecDeque<Job>,
    current: Option<Current>,
}

impl Thread {
    fn run(mut self) -> Vec<EventQueue> {
        let mut next_health = Instant::now();
        while !self.control.stop.load(Ordering::Acquire) {
            self.queues.append(&mut lock(&self.control.inbox));
            let dead = self.shared.liveness.death().is_some();
            let mut more = false;
            if !dead {
                // Queues are read at each turn, interrupt or not: a lost interrupt costs one health interval.
                more = self.read_queues().unwrap_or_else(|death| {
                    tracing::debug!(%death, "event queues no longer read");
                    false
                });
                self.serve_pages();
            }
            let now = Instant::now();
            if !dead && now >= next_health {
                self.health.check(&self.shared.registers, &self.shared.liveness, now);
                next_health = now + self.shared.health_interval;
            }
            let rest = if more { Duration::ZERO } else { next_health.saturating_duration_since(now) };
            self.sleep((!dead).then_some(rest));
        }
        self.queues.append(&mut lock(&self.control.inbox));
        self.queues.into_iter().map(|(queue, _)| queue).collect()
    }

    /// Until a vector fires, someone wants something, or `limit` passed (`None`: no limit).
    fn sleep(&mut self, limit: Option<Duration>) {
        let limit = match (&self.current, limit) {
            (Some(_), Some(limit)) => Some(limit.min(LOST_EVENT)),
            (_, limit) => limit,
        };
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::from_borrowed_fd(self.control.wake.as_fd(), PollFlags::IN)];
        if limit.is_some() {
            let vectors = self.queues.iter().filter_map(|(_, vector)| vector.as_ref());
            fds.extend(vectors.map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // A signal. Whatever else it may be, it must not keep a processor busy.
            std::thread::sleep(Duration::from_millis(1));
            return;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect();
        drop(fds);
        let mut counter = [0; 8];
        if ready[0] {
            let _ = rustix::io::read(&self.control.wake, &mut counter);
        }
        let vectors = self.queues.iter_mut().filter_map(|(_, vector)| vector.as_mut());
        for (vector, _) in vectors.zip(&ready[1..]).filter(|(_, ready)| **ready) {
            // Whatever it counted: the queue is read until it is empty.
            let _ = vector.read(&mut counter);
        }
    }

    /// Reads every queue, a ring's worth of each at most: then the others, pages, health and the end have their turn.
    /// Whether one may hold more.
    fn read_queues(&mut self) -> Result<bool, Death> {
        let mut queues = std::mem::take(&mut self.queues);
        let result = queues.iter_mut().try_fold(false, |more, (queue, _)| Ok(more | self.read_queue(queue)?));
        self.queues = queues;
        result
    }

    fn read_queue(&mut self, queue: &mut EventQueue) -> Result<bool, Death> {
        let mut any = false;
        for _ in 0..queue.capacity() {
            let Some(event) = queue.next()? else {
                // An event written between this look and the arming raises the interrupt at once, so none is missed.
                if any || !queue.armed() {
                    queue.arm()?;
                }
                return Ok(false);
            };
            any = true;
            self.handle(&event);
        }
        Ok(true)
    }

    fn handle(&mut self, event: &Eqe) {
        match event.event_type() {
            EventType::Completion => {
                let cqn = CompletionEvent::read(event.event_data()).map_or(0, |event| event.cqn());
                self.shared.subscribers.completed(cqn);
            }
            EventType::Command => {
                let slots = CommandEvent::read(event.event_data()).map_or(0, |event| event.vector());
                self.shared.commands.completed(slots);
            }
            EventType::PageRequest => {
                let request = PageRequestEvent::read(event.event_data()).unwrap_or(PageRequestEvent::ZERO);
                self.page_request(request.func_id(), request.num_pages() as i32);
            }
            event_type => {
                tracing::debug!(%event_type, sub_type = event.event_sub_type(), "event");
                self.shared.subscribers.tell(AsyncEvent::of(event));
            }
        }
    }

    fn page_request(&mut self, function: u16, pages: i32) {
        tracing::debug!(function, pages, "page request");
        let count = pages.unsigned_abs() as usize;
        let held = self.shared.pages.held();
        self.jobs.push_back(match pages {
            ..0 => Job::Take { function, count: count.min(held) },
            _ if count + held > MOST_PAGES => {
                tracing::error!(count, held, "firmware asks for more pages than it can need: refused");
                Job::Refuse { function }
            }
            _ => Job::Give { function, count },
        });
    }

    /// Looks after the page command under way, and begins the next.
    fn serve_pages(&mut self) {
        loop {
            if let Some(mut current) = self.current.take() {
                match self.shared.commands.finish(&mut current.pending) {
                    Some(result) => self.page_command_done(current.job, result, &current.pages),
                    None => {
                        self.current = Some(current);
                        return;
                    }
                }
            }
            let Some(job) = self.jobs.pop_front() else { return };
            if !self.begin(job) {
                return;
            }
        }
    }

    /// False if no slot is free now.
    fn begin(&mut self, job: Job) -> bool {
        let (command, pages) = match job {
            Job::Give { count: 0, .. } | Job::Take { count: 0, .. } => return true,
            Job::Give { function, count } => match self.shared.pages.give_command(function, count) {
                Ok(given) => given,
                Err(error) => {
                    tracing::error!(%error, "no memory for firmware's pages");
                    self.jobs.push_front(Job::Refuse { function });
                    return true;
                }
            },
            Job::Take { function, count } => (FirmwarePages::take_command(function, count), vec![]),
            Job::Refuse { function } => (FirmwarePages::cannot_give_command(function), vec![]),
        };
        match self.shared.commands.submit(command, Class::Pages) {
            Some(Ok(pending)) => self.current = Some(Current { job, pending, pages }),
            Some(Err(error)) => {
                tracing::error!(%error, "page request not served");
                self.shared.pages.not_taken(&pages);
            }
            None => {
                self.shared.pages.not_taken(&pages);
                self.jobs.push_front(job);
                return false;
            }
        }
        true
    }

    fn page_command_done(&mut self, job: Job, result: Result<Vec<u8>, CommandError>, pages: &[u64]) {
        let output = match result {
            Ok(output) => output,
            Err(error) => {
                tracing::error!(%error, "page request not served");
                // Firmware that answered has not taken them. One that did not may have: then they stay given.
                if error.status().is_some() {
                    self.shared.pages.not_taken(pages);
                }
                return;
            }
        };
        match job {
            Job::Give { function, count } => {
                self.jobs.push_front(Job::Give { function, count: count - count.min(BATCH) });
            }
            Job::Take { function, count } => match self.shared.pages.taken(&output) {
                // Firmware may give back fewer than it offered: then that was all.
                Ok(came) if came == BATCH => {
                    self.jobs.push_front(Job::Take { function, count: count.saturating_sub(came) });
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "pages taken back"),
            },
            Job::Refuse { .. } => {}
        }
    }
}
