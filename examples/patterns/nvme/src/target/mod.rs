//! The target: serves namespaces to hosts.

mod at_disk;
mod controller;
mod disk;
mod options;
mod pool;
mod queue;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_cm::{ConnectionId, ConnectionManager, Event, Parameters, Service, State, address_of};
use mlx5_dv::Device;
use mlx5_dv::clock::Clock;
use mlx5_dv::objects::Pd;
use mlx5_neighbours::Neighbours;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::TargetError;
use crate::status::Status;
use crate::wire::{
    CmReject, CmReply, CmRequest, CmStatus, Command, Connect, ConnectData, Opcode, ReadWrite, control, fabric,
};
use at_disk::{AtDisk, Finished, copied};
use controller::{Answer, Controller, Subsystem};
use disk::Task;
pub use disk::{Disk, FileDisk, RamDisk};
pub use options::TargetOptions;
use pool::Pool;
use queue::{Queue, QueueError, Ready};

/// Entries of an admin queue at most.
const ADMIN_SIZE: u16 = 32;
/// Events of the connection manager that a turn takes, so that a flood of connections does not delay commands.
const TURN: usize = 16;
/// How long a disk may take for a command before that is told.
const SLOW: Duration = Duration::from_secs(10);
/// How long a queue that ends may take to return its chunks.
const FLUSH: Duration = Duration::from_millis(500);

/// How often an answer that met no receive is sent again at most: one more would be without end.
const MOST_RNR_RETRIES: u8 = 6;
/// The longest time for an acknowledgement: 4.096 us * 2^18, a second.
const LONGEST_ACK_TIMEOUT: u8 = 18;

/// What a target has and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TargetStatistics {
    /// Hosts' controllers, discovery's among them.
    pub controllers: usize,
    /// Queues.
    pub queues: usize,
    /// Chunks with data under way.
    pub chunks_in_use: usize,
    /// I/O commands answered.
    pub commands: u64,
    /// READ commands that disks were given.
    pub reads: u64,
    /// WRITE commands that disks were given.
    pub writes: u64,
    /// WRITE ZEROES commands that disks were given.
    pub write_zeroes: u64,
    /// FLUSH commands that disks were given; one of all namespaces counts once.
    pub flushes: u64,
    /// Commands answered with an error.
    pub failed: u64,
    /// Queues that ended with an error.
    pub broken: u64,
    /// Commands under way at disks that work while the target goes on.
    pub at_disks: usize,
    /// How long the oldest of these has been there.
    pub longest_at_disk: Duration,
}

impl TargetStatistics {
    fn count(&mut self, task: Task) {
        let count = match task {
            Task::Read => &mut self.reads,
            Task::Write => &mut self.writes,
            Task::Zero(_) => &mut self.write_zeroes,
            Task::Flush => &mut self.flushes,
        };
        *count += 1;
    }
}

/// A subsystem with its disks, on a function whose queue pair 1 it owns, or on one of the kernel's. Namespace 1 is the
/// first disk.
///
/// Belongs to one thread: it works while it is [polled](Self::poll), and only then. No host can make it wait for long,
/// or use more memory than its [`TargetOptions`] say.
pub struct Target {
    manager: ConnectionManager,
    pd: Arc<Pd>,
    clock: Clock,
    options: TargetOptions,
    disks: Vec<Box<dyn Disk>>,
    pool: Pool,
    queues: Vec<(ConnectionId, Queue)>,
    controllers: BTreeMap<u16, Controller>,
    at_disk: AtDisk,
    /// Commands that wait for chunks, for data that came in the capsule.
    waiting: VecDeque<(ConnectionId, Ready)>,
    last_cntlid: u16,
    statistics: TargetStatistics,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({}, {} disks, {:?})", self.options.nqn, self.disks.len(), self.statistics())
    }
}

impl Target {
    /// Listens on `device`; `neighbours` finds the MAC addresses of hosts, except on `devx:`, where the kernel does.
    ///
    /// # Errors
    /// [`TargetError::Option`]; as for [`ConnectionManager::new`]; [`TargetError::Device`].
    pub fn new(
        device: &Arc<Device>,
        neighbours: Option<Neighbours>,
        options: TargetOptions,
        disks: Vec<Box<dyn Disk>>,
    ) -> Result<Self, TargetError> {
        options.check()?;
        let pd = Pd::alloc(device)?;
        let mut manager = ConnectionManager::new(device, neighbours)?;
        manager.listen(Service::tcp(options.port))?;
        Ok(Target {
            manager,
            pool: Pool::new(&pd, options.chunk, options.chunks)?,
            pd,
            clock: device.clock().clone(),
            options,
            disks,
            queues: Vec::new(),
            controllers: BTreeMap::new(),
            at_disk: AtDisk::default(),
            waiting: VecDeque::new(),
            last_cntlid: 0,
            statistics: TargetStatistics::default(),
        })
    }

    /// What it has and did.
    pub fn statistics(&self) -> TargetStatistics {
        TargetStatistics {
            controllers: self.controllers.len(),
            queues: self.queues.len(),
            chunks_in_use: self.pool.in_use(),
            at_disks: self.at_disk.len(),
            longest_at_disk: self.at_disk.longest(self.clock.now()),
            ..self.statistics
        }
    }

    /// Does what there is to do, and says whether there was anything.
    ///
    /// # Errors
    /// [`TargetError::Manager`], [`TargetError::Device`]: the card is broken or gone. [`TargetError::Disk`]: io_uring
    /// is. What a host does wrong ends its queues alone.
    pub fn poll(&mut self) -> Result<bool, TargetError> {
        let mut moved = false;
        for _ in 0..TURN {
            let Some((id, event)) = self.manager.poll()? else { break };
            moved = true;
            self.take_event(id, event);
        }
        let mut index = 0;
        while index < self.queues.len() {
            match self.serve(index) {
                Ok(worked) => {
                    moved |= worked;
                    index += 1;
                }
                Err(error) => self.broke(index, &error),
            }
        }
        moved |= self.poll_disks()?;
        let now = self.clock.now();
        self.tell_slow(now);
        self.expire(now);
        Ok(moved)
    }

    /// Ends a queue for an error.
    fn broke(&mut self, index: usize, error: &QueueError) {
        let (id, queue) = &self.queues[index];
        tracing::info!(%error, qid = queue.qid, "a queue has ended");
        self.statistics.broken += 1;
        self.end(*id);
    }

    fn take_event(&mut self, id: ConnectionId, event: Event) {
        match event {
            Event::ConnectRequest { remote, offer, private_data, .. } => {
                let address = SocketAddr::new(address_of(offer.path.local), self.options.port);
                if let Err(status) = self.accept(id, address, &private_data) {
                    tracing::info!(%remote, %status, "a queue was refused");
                    let reject = CmReject { status: status.number().into(), ..CmReject::default() };
                    if let Err(error) = self.manager.reject(id, reject.as_bytes()) {
                        tracing::debug!(%error, "a refusal was not sent");
                    }
                }
            }
            // Of a queue that has ended before: until now there was no connection to end.
            Event::Established { .. } if !self.queues.iter().any(|(of, _)| *of == id) => {
                if let Err(error) = self.manager.disconnect(id, &[]) {
                    tracing::debug!(%error, "the connection of a queue that has ended was not ended");
                }
            }
            Event::Established { .. } => {}
            _ => self.end(id),
        }
    }

    /// Makes a queue of a connection that a host asks for.
    fn accept(&mut self, id: ConnectionId, address: SocketAddr, private_data: &[u8]) -> Result<(), CmStatus> {
        let (request, _) = CmRequest::read_from_prefix(private_data).map_err(|_| CmStatus::InvalidLength)?;
        if request.recfmt.get() != 0 {
            return Err(CmStatus::InvalidFormat);
        }
        let (qid, entries) = (request.qid.get(), u32::from(request.hsqsize.get()) + 1);
        if qid > self.options.io_queues {
            return Err(CmStatus::InvalidQueue);
        }
        let most = if qid == 0 { ADMIN_SIZE } else { self.options.depth };
        let size = u16::try_from(entries).ok().filter(|&size| (2..=most).contains(&size));
        let size = size.ok_or(CmStatus::InvalidSendSize)?;
        if request.hrqsize.get() < size {
            return Err(CmStatus::InvalidReceiveSize);
        }
        if self.queues.len() >= self.options.queues {
            return Err(CmStatus::NoResources);
        }
        let queue = self.connect(id, (qid, size), address);
        let queue = queue.map_err(|error| {
            tracing::warn!(%error, "no queue for a host");
            CmStatus::NoResources
        })?;
        self.queues.push((id, queue));
        Ok(())
    }

    fn connect(
        &mut self,
        id: ConnectionId,
        (qid, size): (u16, u16),
        address: SocketAddr,
    ) -> Result<Queue, TargetError> {
        // CONNECT's data may come in the capsule of either kind of queue.
        let in_capsule = self.options.in_capsule.max(size_of::<ConnectData>());
        let mut queue = Queue::new(&self.pd, (qid, size), in_capsule, address, self.clock.now())?;
        let (rtr, mut rts) = self.manager.attributes(id)?;
        // A host may ask for patience without end, and then take no answers: it would never lose its queue.
        rts.rnr_retry = rts.rnr_retry.min(MOST_RNR_RETRIES);
        rts.timeout = rts.timeout.clamp(1, LONGEST_ACK_TIMEOUT);
        queue.connect_by(&rtr, &rts)?;
        let reply = CmReply { crqsize: size.into(), ..CmReply::default() };
        self.manager
            .accept(id, &Parameters::new(queue.queue_pair().qpn(), rtr.rq_psn).private_data(reply.as_bytes()))?;
        Ok(queue)
    }

    /// Serves the commands that are there, as many as the queue holds: more may come meanwhile, and others wait.
    fn serve(&mut self, index: usize) -> Result<bool, QueueError> {
        let mut worked = false;
        // The host's commands may come before the last message of the connection manager.
        for _ in 0..self.queues[index].1.size() {
            let Some(ready) = self.queues[index].1.poll(&mut self.pool)? else { break };
            worked = true;
            self.run(index, ready)?;
        }
        Ok(worked)
    }

    /// Does what a command asks for, or gives it to its disk.
    fn run(&mut self, index: usize, ready: Ready) -> Result<(), QueueError> {
        let Some(ready) = self.give_to_disk(index, ready) else { return Ok(()) };
        let answer = self.execute(index, &ready);
        let queue = &mut self.queues[index].1;
        if answer.held {
            queue.hold(ready);
            return Ok(());
        }
        self.answer(index, ready, answer)
    }

    fn answer(&mut self, index: usize, ready: Ready, answer: Answer) -> Result<(), QueueError> {
        let queue = &mut self.queues[index].1;
        self.statistics.failed += u64::from(answer.status.is_some());
        queue.answer(ready, answer, &mut self.pool);
        queue.post(&mut self.pool)
    }

    /// Gives an I/O command to its disk, if that works while the target goes on. Returns one that is answered at once.
    fn give_to_disk(&mut self, index: usize, ready: Ready) -> Option<Ready> {
        let (id, queue) = &mut self.queues[index];
        let controller = queue.cntlid.filter(|_| queue.qid > 0).and_then(|cntlid| self.controllers.get_mut(&cntlid));
        let (Some(controller), Some(request)) = (controller, queue.request(&ready)) else { return Some(ready) };
        if is_flush_of_all(&request.command) && self.disks.iter_mut().any(|disk| disk.queue().is_some()) {
            let now = self.clock.now();
            controller.touch(now);
            self.statistics.commands += 1;
            self.statistics.count(Task::Flush);
            self.at_disk.flush_all((*id, ready), &mut self.disks, now);
            return None;
        }
        let Some(at) = index_of_disk(&request.command) else { return Some(ready) };
        let Some(disk) = self.disks.get_mut(at) else { return Some(ready) };
        let Ok((task, offset)) = task(request, &**disk) else { return Some(ready) };
        let to_flush = is_flushed_after(request, task, &**disk);
        let Some(files) = disk.queue() else { return Some(ready) };
        let chunks = match request.carried() {
            Some(bytes) => copied(bytes, &mut self.pool),
            None => Some(request.take_chunks()),
        };
        let Some(chunks) = chunks else {
            self.waiting.push_back((*id, ready));
            return None;
        };
        let now = self.clock.now();
        controller.touch(now);
        controller.counters.count(task, request.len);
        self.statistics.commands += 1;
        self.statistics.count(task);
        self.at_disk.start((*id, ready), (at, files), (task, offset, to_flush), chunks, now);
        None
    }

    /// Says which disk does not answer: its hosts give up after a while, and cannot tell it from a lost connection.
    fn tell_slow(&mut self, now: Duration) {
        if let Some(slow) = self.at_disk.newly_slow(now, SLOW) {
            let (task, offset) = (slow.task, slow.offset);
            let namespace = slow.disk.map_or("all".into(), |disk| (disk + 1).to_string());
            tracing::warn!(namespace, ?task, offset, "a disk has not answered for {} s", SLOW.as_secs());
        }
    }

    /// Answers commands that disks are done with, and starts those that have waited for chunks.
    fn poll_disks(&mut self) -> Result<bool, TargetError> {
        let mut moved = false;
        for disk in 0..self.disks.len() {
            while let Some(files) = self.disks[disk].queue() {
                let failed = |error| TargetError::Disk { path: format!("namespace {}", disk + 1), error };
                let Some(finished) = self.at_disk.poll(disk, files).map_err(failed)? else { break };
                moved = true;
                self.finish(finished);
            }
        }
        for _ in 0..self.waiting.len() {
            let Some((id, ready)) = self.waiting.pop_front() else { break };
            let Some(index) = self.queues.iter().position(|(of, _)| *of == id) else { continue };
            if let Err(error) = self.run(index, ready) {
                self.broke(index, &error);
            }
        }
        Ok(moved)
    }

    /// Answers a command that its disk is done with.
    fn finish(&mut self, finished: Finished) {
        let Finished { pending, chunks, result } = finished;
        let task = pending.task;
        let found = self.queues.iter().position(|(id, _)| *id == pending.connection);
        let request = found.and_then(|index| self.queues[index].1.request(&pending.ready));
        match request.filter(|_| task == Task::Read) {
            Some(request) => request.give_chunks(chunks),
            None => chunks.into_iter().for_each(|chunk| self.pool.put(chunk)),
        }
        let Some(index) = found else { return };
        if let Err(error) = self.answer(index, pending.ready, done(result, task)) {
            self.broke(index, &error);
        }
    }

    fn execute(&mut self, index: usize, ready: &Ready) -> Answer {
        let Some(request) = self.queues[index].1.request(ready) else { return Answer::fail(Status::INTERNAL) };
        let command = request.command;
        let connect: Connect = command.form();
        if command.opcode == fabric::COMMAND && connect.fctype == fabric::CONNECT {
            let data = request.bytes();
            let answer = self.connect_queue(index, &connect, &data);
            return answer.unwrap_or_else(|refused| refused);
        }
        let queue = &mut self.queues[index].1;
        let controller = queue.cntlid.and_then(|cntlid| self.controllers.get_mut(&cntlid));
        let Some(controller) = controller else { return Answer::fail(Status::SEQUENCE_ERROR) };
        controller.touch(self.clock.now());
        if queue.qid > 0 {
            self.statistics.commands += 1;
            return io(queue, ready, (controller, &mut self.statistics), &mut self.disks);
        }
        let subsystem = Subsystem { options: &self.options, disks: &self.disks, address: queue.address };
        let mut answer = match command.opcode {
            fabric::COMMAND => controller.of_fabrics(&command, &self.options),
            _ => controller.admin(&command, &subsystem),
        };
        put_data(queue, ready, &mut answer);
        answer
    }

    /// CONNECT: NVMe over fabrics, "Connect Command".
    fn connect_queue(&mut self, index: usize, connect: &Connect, data: &[u8]) -> Result<Answer, Answer> {
        let (id, queue) = &mut self.queues[index];
        let data = controller::connect_data(data).ok_or_else(|| Answer::fail(Status::INVALID_SGL_LENGTH))?;
        if connect.recfmt.get() != 0 {
            return Err(Answer::fail(Status::CONNECT_FORMAT));
        }
        if queue.cntlid.is_some() {
            return Err(Answer::fail(Status::SEQUENCE_ERROR));
        }
        if connect.qid.get() != queue.qid {
            return Err(controller::invalid_parameter(std::mem::offset_of!(Connect, qid), false));
        }
        if u32::from(connect.sqsize.get()) + 1 != u32::from(queue.size()) {
            return Err(controller::invalid_parameter(std::mem::offset_of!(Connect, sqsize), false));
        }
        let cntlid = if queue.qid == 0 {
            let cntlid = free_cntlid(&self.controllers, self.last_cntlid)?;
            let keep_alive = Duration::from_millis(connect.kato.get().into());
            let made = Controller::connect(cntlid, *id, &data, keep_alive, &self.options, self.clock.now())?;
            self.last_cntlid = cntlid;
            self.controllers.insert(cntlid, made);
            cntlid
        } else {
            let cntlid = data.cntlid.get();
            let missing = || controller::invalid_parameter(std::mem::offset_of!(ConnectData, cntlid), true);
            self.controllers.get(&cntlid).ok_or_else(missing)?.takes_queue(&data, &self.options)?;
            cntlid
        };
        queue.cntlid = Some(cntlid);
        Ok(Answer::result(cntlid.into()))
    }

    /// Ends a queue, and with an admin queue all of its controller's.
    fn end(&mut self, id: ConnectionId) {
        let Some(at) = self.queues.iter().position(|(of, _)| *of == id) else { return };
        let (_, queue) = self.queues.swap_remove(at);
        let admin_of = queue.cntlid.filter(|_| queue.qid == 0);
        self.manager.keep(id, queue.queue_pair());
        queue.close(&mut self.pool, FLUSH);
        // One that the host has ended is not there any more.
        let _ = self.manager.disconnect(id, &[]);
        if let Some(cntlid) = admin_of {
            self.controllers.remove(&cntlid);
            let others: Vec<_> =
                self.queues.iter().filter(|(_, queue)| queue.cntlid == Some(cntlid)).map(|(id, _)| *id).collect();
            others.into_iter().for_each(|id| self.end(id));
        }
    }

    /// Tells all hosts that it goes, and waits for up to `patience` until they know.
    ///
    /// # Errors
    /// [`TargetError::Manager`], [`TargetError::Device`]: the card is broken or gone.
    pub fn shut_down(mut self, patience: Duration) -> Result<(), TargetError> {
        let deadline = self.clock.now() + patience;
        for id in self.queues.iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id);
        }
        let is_told = |manager: &ConnectionManager, id| manager.state(id) != Some(State::DreqSent);
        while self.clock.now() < deadline && !self.manager.ids().all(|id| is_told(&self.manager, id)) {
            self.manager.poll()?;
            self.clock.pause(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Ends what was silent for too long.
    fn expire(&mut self, now: Duration) {
        let patience = self.options.connect_timeout;
        let lost = self.controllers.values().filter(|controller| controller.is_lost(now));
        let idle = self.queues.iter().filter(|(_, queue)| queue.cntlid.is_none() && now > queue.since + patience);
        let ended: Vec<_> = lost.map(|controller| controller.admin).chain(idle.map(|(id, _)| *id)).collect();
        for id in ended {
            tracing::info!("a host was silent for too long");
            self.statistics.broken += 1;
            self.end(id);
        }
    }
}

/// A controller number that is not in use.
fn free_cntlid(controllers: &BTreeMap<u16, Controller>, last: u16) -> Result<u16, Answer> {
    // 0xfff0 and above are reserved.
    let after = (last + 1..0xfff0).chain(1..=last);
    let mut free = after.filter(|cntlid| !controllers.contains_key(cntlid));
    free.next().ok_or_else(|| Answer::fail(Status::CONNECT_BUSY))
}

/// Puts the data of an answer into the command's chunks. A command with room for more or less gets an error.
fn put_data(queue: &mut Queue, ready: &Ready, answer: &mut Answer) {
    let Some(request) = queue.request(ready) else { return };
    let data = std::mem::take(&mut answer.data);
    if answer.status.is_some() || request.is_from_host() {
        return;
    }
    if data.len() != request.len {
        *answer = Answer::fail(Status::INVALID_SGL_LENGTH);
        return;
    }
    let mut rest = data.as_slice();
    for chunk in request.chunks() {
        let (part, more) = rest.split_at(rest.len().min(chunk.len()));
        chunk.as_mut_slice()[..part.len()].copy_from_slice(part);
        rest = more;
    }
}

/// Whether a command flushes all namespaces.
fn is_flush_of_all(command: &Command) -> bool {
    command.opcode == Opcode::Flush.number() && command.nsid.get() == u32::MAX
}

/// Index of the disk that a command names.
fn index_of_disk(command: &Command) -> Option<usize> {
    usize::try_from(command.nsid.get()).ok()?.checked_sub(1)
}

/// An I/O command.
fn io(
    queue: &mut Queue,
    ready: &Ready,
    (controller, statistics): (&mut Controller, &mut TargetStatistics),
    disks: &mut [Box<dyn Disk>],
) -> Answer {
    let Some(request) = queue.request(ready) else { return Answer::fail(Status::INTERNAL) };
    let command = request.command;
    if is_flush_of_all(&command) {
        statistics.count(Task::Flush);
        return done(disks.iter_mut().try_for_each(|disk| disk.flush()), Task::Flush);
    }
    let Some(disk) = index_of_disk(&command).and_then(|index| disks.get_mut(index)) else {
        return Answer::fail(Status::INVALID_NAMESPACE);
    };
    let (task, offset) = match task(request, &**disk) {
        Ok(task) => task,
        Err(status) => return Answer::fail(status),
    };
    controller.counters.count(task, request.len);
    statistics.count(task);
    let to_flush = is_flushed_after(request, task, &**disk);
    let result = match task {
        Task::Zero(len) => disk.write_zeroes(offset, len),
        Task::Flush => disk.flush(),
        Task::Read => read(&mut **disk, offset, request),
        Task::Write => write(&mut **disk, offset, request),
    };
    let result = if to_flush { result.and_then(|()| disk.flush()) } else { result };
    done(result, task)
}

/// What a disk has to do for a command, and where.
fn task(request: &queue::Request, disk: &dyn Disk) -> Result<(Task, u64), Status> {
    let opcode = Opcode::from_number(request.command.opcode).ok_or(Status::INVALID_OPCODE)?;
    if opcode == Opcode::Flush {
        return Ok((Task::Flush, 0));
    }
    let (offset, len) = extent(&request.command, disk)?;
    match opcode {
        Opcode::WriteZeroes => Ok((Task::Zero(len), offset)),
        _ if request.len as u64 != len => Err(Status::INVALID_SGL_LENGTH),
        Opcode::Read => Ok((Task::Read, offset)),
        _ => Ok((Task::Write, offset)),
    }
}

/// Whether what a command writes must be durable before its answer (FUA), and is so by a flush alone. A READ with FUA
/// is one without, as Linux's target has it.
fn is_flushed_after(request: &queue::Request, task: Task, disk: &dyn Disk) -> bool {
    let names: ReadWrite = request.command.form();
    let writes = matches!(task, Task::Write | Task::Zero(_));
    writes && names.control.get() & control::FUA != 0 && disk.has_write_cache()
}

fn done(result: std::io::Result<()>, task: Task) -> Answer {
    match result {
        Ok(()) => Answer::default(),
        Err(error) => {
            tracing::warn!(%error, "a disk failed");
            let status = if task == Task::Read { Status::READ_ERROR } else { Status::WRITE_FAULT };
            Answer { status: Some(status), ..Answer::default() }
        }
    }
}

/// Bytes of a disk that a command names: offset and length.
fn extent(command: &Command, disk: &dyn Disk) -> Result<(u64, u64), Status> {
    let names: ReadWrite = command.form();
    let (first, blocks) = (names.slba.get(), u64::from(names.length.get()) + 1);
    let inside = first.checked_add(blocks).is_some_and(|end| end <= disk.blocks());
    let block = u64::from(disk.block_size());
    if inside { Ok((first * block, blocks * block)) } else { Err(Status::LBA_OUT_OF_RANGE) }
}

fn read(disk: &mut dyn Disk, mut offset: u64, request: &mut queue::Request) -> std::io::Result<()> {
    for chunk in request.chunks() {
        disk.read(offset, chunk.as_mut_slice())?;
        offset += chunk.len() as u64;
    }
    Ok(())
}

fn write(disk: &mut dyn Disk, mut offset: u64, request: &queue::Request) -> std::io::Result<()> {
    for piece in request.pieces() {
        disk.write(offset, piece)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
