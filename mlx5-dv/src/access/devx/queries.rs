//! Queries of objects by the kernel's asynchronous interface, so that each wait has our own deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::call::Call;
use crate::access::{ObjectHandle, RawCommand};
use crate::clock::Clock;
use crate::deadline::Deadline;
use crate::error::CommandErrorKind;
use crate::kernel::abi::*;
use crate::lock::lock;

/// Event channels for replies; each is used by one query at a time.
#[derive(Debug)]
pub struct Queries {
    idle: Mutex<Vec<OwnedFd>>,
    /// Channels whose reply missed its deadline. Closing one would block until the reply arrives.
    overdue: Mutex<Vec<OwnedFd>>,
    patience: Duration,
}

impl Queries {
    /// Starts without channels. `patience` is the longest wait for a reply.
    pub fn new(patience: Duration) -> Self {
        Queries { idle: Mutex::default(), overdue: Mutex::default(), patience }
    }

    /// Executes `command`, a query of `object`. The reply is all zero, too, if the kernel gave up on it.
    pub fn run(
        &self,
        device: BorrowedFd<'_>,
        object: ObjectHandle,
        command: &RawCommand,
    ) -> Result<Vec<u8>, CommandErrorKind> {
        let idle = lock(&self.idle).pop();
        let channel = idle.map_or_else(|| open_channel(device), Ok).map_err(failed)?;
        send_query(device, channel.as_fd(), object, command).map_err(failed)?;
        match receive_reply(&channel, command.out_len, &Deadline::after(Clock::SYSTEM, self.patience)) {
            Ok(Some(output)) => {
                lock(&self.idle).push(channel);
                Ok(output)
            }
            Ok(None) => {
                lock(&self.overdue).push(channel);
                Err(CommandErrorKind::Timeout(self.patience))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn failed(source: io::Error) -> CommandErrorKind {
    CommandErrorKind::Io { doing: "querying through the kernel".into(), source }
}

fn open_channel(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let channel = Call::new(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC)
        .open(device, MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE)?;
    rustix::fs::fcntl_setfl(&channel, rustix::fs::OFlags::NONBLOCK)?;
    Ok(channel)
}

fn send_query(
    device: BorrowedFd<'_>,
    channel: BorrowedFd<'_>,
    object: ObjectHandle,
    command: &RawCommand,
) -> io::Result<()> {
    Call::new(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY)
        .handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, object)?
        .input(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, &command.input)?
        .descriptor(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, channel)?
        .number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, object.0.into())?
        .number(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, command.out_len as u64)?
        .run(device)
        .map(drop)
}

/// Output of the query in flight on `channel`; `None` if it misses `deadline`.
fn receive_reply(channel: &OwnedFd, out_len: usize, deadline: &Deadline) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; size_of::<AsyncQueryHeader>() + out_len];
    loop {
        let left = deadline.left().and_then(|left| Timespec::try_from(left).ok());
        let mut ready = [PollFd::new(channel, PollFlags::IN)];
        match poll(&mut ready, left.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(channel, &mut bytes) {
            Ok(len) if len == bytes.len() => return Ok(Some(bytes.split_off(size_of::<AsyncQueryHeader>()))),
            Ok(len) => return Err(io::Error::other(format!("a reply of {len} bytes instead of {}", bytes.len()))),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
