//! The event loop: reads the event queues, serves firmware's page requests, and checks firmware's health.
//!
//! It never waits for a command: each turn checks those in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::eqe::{CommandEvent, CompletionEvent, Eqe, EventType, PageRequestEvent};
use mlx5_prm::layout::Layout;

use super::command::{Class, CommandQueue, Pending};
use super::event_queue::EventQueue;
use super::health::Health;
use super::pages::{BATCH, FirmwarePages, PageOwner};
use super::registers::Registers;
use crate::access::AsyncEvent;
use crate::access::liveness::Liveness;
use crate::access::subscribers::Subscribers;
use crate::error::{CommandError, Death};

/// Most pages that firmware may hold: 4 GiB. A larger demand is a firmware error.
pub(super) const MOST_PAGES: usize = 1 << 20;
/// Most requests of firmware's that wait to be served. It has one at a time for each function.
const MOST_JOBS: usize = 1 << 16;
/// How long a completed command of the loop may go unnoticed when its event is lost.
const LOST_EVENT: Duration = Duration::from_millis(20);

/// The parts of the function that the loop uses.
#[derive(Debug, Clone)]
pub struct Shared {
    pub liveness: Arc<Liveness>,
    pub registers: Arc<Registers>,
    pub commands: Arc<CommandQueue>,
    pub pages: Arc<FirmwarePages>,
    pub subscribers: Arc<Subscribers>,
    /// Interval between health checks.
    pub health_interval: Duration,
    /// How long the health counter may stand still.
    pub health_patience: Duration,
}

/// A page job.
#[derive(Debug)]
enum Job {
    Give { owner: PageOwner, count: usize },
    Take { owner: PageOwner, count: usize },
    Refuse { owner: PageOwner },
}

/// The page command in flight, and the pages it gives.
#[derive(Debug)]
struct Current {
    job: Job,
    pending: Pending,
    pages: Vec<u64>,
}

/// The event loop's state. Driven by a thread or by a virtual clock.
#[derive(Debug)]
pub struct EventLoop {
    pub shared: Shared,
    /// In order of creation.
    pub queues: Vec<EventQueue>,
    health: Health,
    next_health: Duration,
    jobs: VecDeque<Job>,
    current: Option<Current>,
}

impl EventLoop {
    /// An event loop without queues.
    pub fn new(shared: Shared) -> Self {
        let health = Health::new(shared.health_patience);
        let (queues, jobs) = (vec![], VecDeque::new());
        EventLoop { shared, queues, health, next_health: Duration::ZERO, jobs, current: None }
    }

    /// Does what is due. Returns the time until the next turn if no event arrives; `None` if the card is dead.
    pub fn turn(&mut self, now: Duration) -> Option<Duration> {
        if self.shared.liveness.death().is_some() {
            return None;
        }
        // Read the queues at each turn, with or without interrupt: a lost interrupt costs one health interval.
        let more = self.read_queues().unwrap_or_else(|death| {
            tracing::debug!(%death, "event queues are no longer read");
            false
        });
        self.serve_pages();
        if now >= self.next_health {
            self.health.check(&self.shared.registers, &self.shared.liveness, now);
            self.next_health = now + self.shared.health_interval;
        }
        let rest = self.next_health.saturating_sub(now);
        Some(match &self.current {
            _ if more => Duration::ZERO,
            Some(_) => rest.min(LOST_EVENT),
            None => rest,
        })
    }

    /// Reads every queue, at most one ring's worth each, so that pages, health and a stop request get their turn.
    /// Returns whether a queue may hold more.
    fn read_queues(&mut self) -> Result<bool, Death> {
        let mut queues = std::mem::take(&mut self.queues);
        let result = queues.iter_mut().try_fold(false, |more, queue| Ok(more | self.read_queue(queue)?));
        self.queues = queues;
        result
    }

    fn read_queue(&mut self, queue: &mut EventQueue) -> Result<bool, Death> {
        let mut any = false;
        for _ in 0..queue.capacity() {
            let Some(event) = queue.next()? else {
                // An event written between this read and the arming raises the interrupt at once, so none is missed.
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
                self.page_request(PageOwner::of(&request), request.num_pages() as i32);
            }
            event_type => {
                tracing::debug!(%event_type, sub_type = event.event_sub_type(), "event");
                self.shared.subscribers.tell(AsyncEvent::of(event));
            }
        }
    }

    fn page_request(&mut self, owner: PageOwner, pages: i32) {
        tracing::debug!(?owner, pages, "page request");
        if self.jobs.len() >= MOST_JOBS {
            tracing::error!(?owner, pages, "firmware asks on and on, without waiting: not served");
            return;
        }
        let count = pages.unsigned_abs() as usize;
        self.jobs.push_back(match pages {
            ..0 => Job::Take { owner, count: count.min(self.shared.pages.held()) },
            _ => Job::Give { owner, count },
        });
    }

    /// Checks the page command in flight, and starts the next one.
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

    /// Starts a job. False if no slot is free.
    fn begin(&mut self, job: Job) -> bool {
        let (command, pages) = match job {
            Job::Give { count: 0, .. } | Job::Take { count: 0, .. } => return true,
            // Now, and not when it asked: what it asked for before is given meanwhile.
            Job::Give { owner, count } if count + self.shared.pages.held() > MOST_PAGES => {
                tracing::error!(count, "firmware asks for an implausible number of pages: refused");
                self.jobs.push_front(Job::Refuse { owner });
                return true;
            }
            Job::Give { owner, count } => match self.shared.pages.give_command(owner, count) {
                Ok(given) => given,
                Err(error) => {
                    tracing::error!(%error, "out of memory for firmware's pages");
                    self.jobs.push_front(Job::Refuse { owner });
                    return true;
                }
            },
            Job::Take { owner, count } => (FirmwarePages::take_command(owner, count), vec![]),
            Job::Refuse { owner } => (FirmwarePages::cannot_give_command(owner), vec![]),
        };
        // SAFETY: gives pages that `pages` reserves for firmware, takes some back, or reports that there are none.
        match unsafe { self.shared.commands.submit(command, Class::Pages) } {
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
                // Firmware that replied has not taken the pages. Without a reply it may have, so they stay given.
                if error.status().is_some() {
                    self.shared.pages.not_taken(pages);
                }
                return;
            }
        };
        match job {
            Job::Give { owner, count } => {
                self.jobs.push_front(Job::Give { owner, count: count - count.min(BATCH) });
            }
            Job::Take { owner, count } => match self.shared.pages.taken(&output) {
                // Firmware may return fewer pages than it offered; then there are no more.
                Ok(came) if came == BATCH => {
                    self.jobs.push_front(Job::Take { owner, count: count.saturating_sub(came) });
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "taking pages back"),
            },
            Job::Refuse { .. } => {}
        }
    }
}
