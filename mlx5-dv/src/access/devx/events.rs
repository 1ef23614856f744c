//! Asynchronous events that the kernel forwards, and the thread that reads them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::eqe::{Eqe, EventType, QpEvent};
use mlx5_prm::layout::Layout;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::call::Call;
use crate::access::liveness::Liveness;
use crate::access::subscribers::{Subscribers, signal};
use crate::access::{AsyncEvent, ObjectHandle};
use crate::error::{Death, Error};
use crate::kernel::abi::shared::{
    AsyncEventDesc, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, UVERBS_METHOD_ASYNC_EVENT_ALLOC,
    UVERBS_OBJECT_ASYNC_EVENT, srq_words,
};
use crate::kernel::abi::*;
use crate::lock::lock;

/// Events to subscribe to of queue pairs, and of send and receive queues of frames.
const OF_WORK_QUEUES: &[EventType] =
    &[EventType::WqCatastrophic, EventType::WqInvalidRequest, EventType::WqAccessError];
/// Those of queue pairs alone.
const OF_QUEUE_PAIRS: &[EventType] =
    &[EventType::SrqLastWqe, EventType::SendQueueDrained, EventType::CommunicationEstablished];

/// The channel of asynchronous events. Dropping it stops the thread.
#[derive(Debug)]
pub struct Events {
    channel: Arc<OwnedFd>,
    of_kernel: Option<Arc<KernelEvents>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Events of the kernel's own objects, which commands of this process do not reach.
#[derive(Debug)]
struct KernelEvents {
    channel: OwnedFd,
    /// Handle and number of each shared receive queue, by what its events say.
    srqs: Mutex<HashMap<u64, (ObjectHandle, u32)>>,
    last_user_handle: AtomicU64,
}

/// Reads an event of just `entry`'s length. False for one of another length, which is dropped; the end of the channel
/// is an error.
fn read_whole(channel: &OwnedFd, entry: &mut [u8]) -> io::Result<bool> {
    match rustix::io::read(channel, &mut *entry)? {
        len if len == entry.len() => Ok(true),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        len => {
            tracing::warn!(len, "event of unexpected length dropped");
            Ok(false)
        }
    }
}

impl KernelEvents {
    fn of(channel: OwnedFd) -> Self {
        KernelEvents { channel, srqs: Mutex::default(), last_user_handle: AtomicU64::new(0) }
    }

    /// Reads one event; `None` if it is about nothing that this driver has. The end of the channel is an error.
    fn read(&self) -> io::Result<Option<AsyncEvent>> {
        let mut entry = AsyncEventDesc::default();
        let is_whole = read_whole(&self.channel, entry.as_mut_bytes())?;
        Ok(is_whole.then(|| self.event(&entry)).flatten())
    }

    fn event(&self, entry: &AsyncEventDesc) -> Option<AsyncEvent> {
        let event_type = match entry.event_type {
            srq_words::EVENT_LIMIT_REACHED => EventType::SrqLimit,
            srq_words::EVENT_ERR => EventType::SrqCatastrophic,
            _ => return None,
        };
        let (_, srqn) = *lock(&self.srqs).get(&entry.element)?;
        let mut about = QpEvent::ZERO;
        about.w().qp_srq_n(srqn);
        let mut data = [0; 28];
        data.copy_from_slice(Layout::as_bytes(&about));
        Some(AsyncEvent { event_type, sub_type: 0, data })
    }
}

impl Events {
    /// Opens the channel, subscribes to port changes, and starts the thread. `of_kernel` is the channel of the kernel's
    /// own objects, if this process has it.
    pub fn start(
        device: BorrowedFd<'_>,
        of_kernel: Option<OwnedFd>,
        liveness: Arc<Liveness>,
        subscribers: Arc<Subscribers>,
    ) -> Result<Self, Error> {
        let failed = |error| Error::io("opening the kernel's event channel", error);
        let channel = Arc::new(open_channel(device).map_err(failed)?);
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let wake = Arc::new(wake);
        let of_kernel = of_kernel.map(KernelEvents::of).map(Arc::new);
        let (theirs, heard) = (Arc::clone(&channel), of_kernel.clone());
        let reader = Reader { channel: theirs, of_kernel: heard, wake: Arc::clone(&wake), liveness, subscribers };
        let thread = std::thread::Builder::new().name("mlx5-devx".into()).spawn(|| reader.run()).map_err(failed)?;
        let events = Events { channel, of_kernel, wake, thread: Some(thread) };
        events.subscribe(device, None, &[EventType::PortChange]);
        Ok(events)
    }

    /// Subscribes to the events of an object that a command of `opcode` has just created.
    pub fn watch(&self, device: BorrowedFd<'_>, opcode: Opcode, object: ObjectHandle) {
        match opcode {
            Opcode::CreateQp => {
                self.subscribe(device, Some(object), OF_WORK_QUEUES);
                self.subscribe(device, Some(object), OF_QUEUE_PAIRS);
            }
            Opcode::CreateSq | Opcode::CreateRq => self.subscribe(device, Some(object), OF_WORK_QUEUES),
            Opcode::CreateRmp => {
                self.subscribe(device, Some(object), &[EventType::SrqLimit, EventType::SrqCatastrophic]);
            }
            Opcode::CreateDct => self.subscribe(device, Some(object), &[EventType::DctKeyViolation]),
            Opcode::CreateCq => self.subscribe(device, Some(object), &[EventType::CqError]),
            _ => {}
        }
    }

    /// Whether this process gets events of the kernel's own objects.
    pub fn are_heard(&self) -> bool {
        self.of_kernel.is_some()
    }

    /// What the events of a new object of the kernel's are to say.
    pub fn new_user_handle(&self) -> u64 {
        self.of_kernel.as_ref().map_or(0, |events| events.last_user_handle.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The events that say `user_handle` are about this shared receive queue.
    pub fn watch_srq(&self, user_handle: u64, handle: ObjectHandle, srqn: u32) {
        if let Some(events) = &self.of_kernel {
            lock(&events.srqs).insert(user_handle, (handle, srqn));
        }
    }

    /// Ends [`watch_srq`](Self::watch_srq).
    pub fn forget_srq(&self, handle: ObjectHandle) {
        if let Some(events) = &self.of_kernel {
            lock(&events.srqs).retain(|_, (other, _)| *other != handle);
        }
    }

    /// One type at a time: a card need not support all of them.
    fn subscribe(&self, device: BorrowedFd<'_>, object: Option<ObjectHandle>, types: &[EventType]) {
        for event_type in types {
            let number = event_type.number() as u16;
            if let Err(error) = subscribe(device, self.channel.as_fd(), object, number, None) {
                tracing::warn!(%error, ?event_type, "the kernel does not deliver these events");
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        signal(&self.wake);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("event thread panicked");
        }
    }
}

/// Opens an event channel.
pub fn open_channel(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let whole_events = 0;
    let channel = Call::new(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC)
        .number(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, whole_events)?
        .open(device, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE)?;
    rustix::fs::fcntl_setfl(&channel, rustix::fs::OFlags::NONBLOCK)?;
    Ok(channel)
}

/// Opens the channel of asynchronous events of the kernel's own objects. The first one of a context gets them.
pub fn open_kernel_channel(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let channel = Call::new(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC)
        .open(device, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)?;
    rustix::fs::fcntl_setfl(&channel, rustix::fs::OFlags::NONBLOCK)?;
    Ok(channel)
}

/// Delivers events of `event_type` about `object` (or the device) to `channel`, or signals `eventfd` instead. Closing
/// the channel ends the subscription.
pub fn subscribe(
    device: BorrowedFd<'_>,
    channel: BorrowedFd<'_>,
    object: Option<ObjectHandle>,
    event_type: u16,
    eventfd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let eventfd = eventfd.map(|eventfd| eventfd.as_raw_fd());
    let mut call = Call::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT)
        .descriptor(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, channel)?
        .input(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, event_type.as_bytes())?;
    if let Some(object) = object {
        call = call.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, object)?;
    }
    if let Some(eventfd) = &eventfd {
        call = call.input(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, eventfd.as_bytes())?;
    }
    call.run(device).map(drop)
}

/// State of the reader thread.
struct Reader {
    channel: Arc<OwnedFd>,
    of_kernel: Option<Arc<KernelEvents>>,
    wake: Arc<OwnedFd>,
    liveness: Arc<Liveness>,
    subscribers: Arc<Subscribers>,
}

impl Reader {
    /// Runs until it is woken to stop, or the kernel removes the device.
    fn run(self) {
        loop {
            let mut ready = vec![
                PollFd::new(&self.channel, PollFlags::IN | PollFlags::RDHUP),
                PollFd::new(&self.wake, PollFlags::IN),
            ];
            ready.extend(self.of_kernel.iter().map(|events| PollFd::new(&events.channel, PollFlags::IN)));
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "event thread stopped: no more events are read"),
            }
            let (channel, wake) = (ready[0].revents(), ready[1].revents());
            let kernel = ready.get(2).map_or(PollFlags::empty(), PollFd::revents);
            if !wake.is_empty() {
                return;
            }
            // The kernel closes its users' channels when it removes the device.
            if channel.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
                return self.liveness.end(Death::Released);
            }
            if channel.contains(PollFlags::IN) && !self.read() {
                return self.liveness.end(Death::Released);
            }
            if !kernel.is_empty() && !self.read_of_kernel() {
                return self.liveness.end(Death::Released);
            }
        }
    }

    /// As [`read`](Self::read), of the kernel's own objects.
    fn read_of_kernel(&self) -> bool {
        let Some(events) = &self.of_kernel else { return true };
        match events.read() {
            Ok(event) => event.into_iter().for_each(|event| self.subscribers.tell(event)),
            Err(error) => return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
        true
    }

    /// Reads one event. False when there will be no more.
    fn read(&self) -> bool {
        let mut bytes = [0; size_of::<AsyncEventHeader>() + Eqe::SIZE];
        match read_whole(&self.channel, &mut bytes) {
            Ok(true) => {
                if let Some(entry) = Eqe::read(&bytes[size_of::<AsyncEventHeader>()..]) {
                    self.subscribers.tell(AsyncEvent::of(&entry));
                }
            }
            Ok(false) => {}
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::AGAIN | Errno::INTR) => {}
                Some(Errno::OVERFLOW) => tracing::warn!("the kernel dropped events: out of memory"),
                _ => return false,
            },
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_queue_of_the_kernel_s_names_it_by_its_number() {
        let channel = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        let events = KernelEvents::of(channel);
        lock(&events.srqs).insert(3, (ObjectHandle(9), 0x77));
        let entry = |element, event_type| AsyncEventDesc { element, event_type, ..AsyncEventDesc::default() };
        let event = events.event(&entry(3, 15)).unwrap();
        assert_eq!(crate::Event::from(event), crate::Event::SrqLimitReached { srqn: 0x77 });
        let event = events.event(&entry(3, 14)).unwrap();
        assert_eq!(crate::Event::from(event), crate::Event::SrqError { srqn: 0x77 });
        // Of a queue that was destroyed; of a port.
        assert_eq!((events.event(&entry(4, 15)), events.event(&entry(1, 9))), (None, None));
    }

    #[test]
    fn an_event_counts_as_a_whole_only_and_a_channel_that_ended_is_not_read_again() {
        let (channel, kernel) = io::pipe().unwrap();
        let events = KernelEvents::of(channel.into());
        lock(&events.srqs).insert(3, (ObjectHandle(9), 0x77));
        let entry = AsyncEventDesc { element: 3, event_type: srq_words::EVENT_ERR, ..AsyncEventDesc::default() };
        for (len, is_heard) in [(entry.as_bytes().len(), true), (12, false)] {
            rustix::io::write(&kernel, &entry.as_bytes()[..len]).unwrap();
            assert_eq!(events.read().unwrap().is_some(), is_heard, "{len} bytes");
        }
        drop(kernel);
        assert_eq!(events.read().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
