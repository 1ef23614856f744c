//! Asynchronous events that the kernel forwards, and the thread that reads them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::eqe::{Eqe, EventType};
use mlx5_prm::layout::Layout;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use zerocopy::IntoBytes;

use super::call::Call;
use crate::access::liveness::Liveness;
use crate::access::subscribers::{Subscribers, signal};
use crate::access::{AsyncEvent, ObjectHandle};
use crate::error::{Death, Error};
use crate::kernel::abi::*;

/// Queue pair events to subscribe to.
const OF_QUEUE_PAIRS: &[EventType] = &[
    EventType::WqCatastrophic,
    EventType::WqInvalidRequest,
    EventType::WqAccessError,
    EventType::SrqLastWqe,
    EventType::SendQueueDrained,
    EventType::CommunicationEstablished,
];

/// The channel of asynchronous events. Dropping it stops the thread.
#[derive(Debug)]
pub struct Events {
    channel: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    /// Opens the channel, subscribes to port changes, and starts the thread.
    pub fn start(
        device: BorrowedFd<'_>,
        liveness: Arc<Liveness>,
        subscribers: Arc<Subscribers>,
    ) -> Result<Self, Error> {
        let failed = |error| Error::io("opening the kernel's event channel", error);
        let channel = Arc::new(open_channel(device).map_err(failed)?);
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let wake = Arc::new(wake);
        let reader = Reader { channel: Arc::clone(&channel), wake: Arc::clone(&wake), liveness, subscribers };
        let thread = std::thread::Builder::new().name("mlx5-devx".into()).spawn(|| reader.run()).map_err(failed)?;
        let events = Events { channel, wake, thread: Some(thread) };
        events.subscribe(device, None, &[EventType::PortChange]);
        Ok(events)
    }

    /// Subscribes to the events of an object that a command of `opcode` has just created.
    pub fn watch(&self, device: BorrowedFd<'_>, opcode: Opcode, object: ObjectHandle) {
        match opcode {
            Opcode::CreateQp => self.subscribe(device, Some(object), OF_QUEUE_PAIRS),
            Opcode::CreateRmp => {
                self.subscribe(device, Some(object), &[EventType::SrqLimit, EventType::SrqCatastrophic]);
            }
            Opcode::CreateDct => self.subscribe(device, Some(object), &[EventType::DctKeyViolation]),
            Opcode::CreateCq => self.subscribe(device, Some(object), &[EventType::CqError]),
            _ => {}
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
    wake: Arc<OwnedFd>,
    liveness: Arc<Liveness>,
    subscribers: Arc<Subscribers>,
}

impl Reader {
    /// Runs until it is woken to stop, or the kernel removes the device.
    fn run(self) {
        loop {
            let mut ready =
                [PollFd::new(&self.channel, PollFlags::IN | PollFlags::RDHUP), PollFd::new(&self.wake, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "event thread stopped: no more events are read"),
            }
            let [channel, wake] = ready.map(|ready| ready.revents());
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
        }
    }

    /// Reads one event. False when there will be no more.
    fn read(&self) -> bool {
        let mut bytes = [0; size_of::<AsyncEventHeader>() + Eqe::SIZE];
        match rustix::io::read(&self.channel, &mut bytes) {
            Ok(len) if len == bytes.len() => {
                if let Some(entry) = Eqe::read(&bytes[size_of::<AsyncEventHeader>()..]) {
                    self.subscribers.tell(AsyncEvent::of(&entry));
                }
            }
            Ok(len) => tracing::warn!(len, "event of unexpected length dropped"),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::OVERFLOW) => tracing::warn!("the kernel dropped events: out of memory"),
            Err(_) => return false,
        }
        true
    }
}
