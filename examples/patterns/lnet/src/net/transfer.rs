//! Transfers under way.

use std::collections::VecDeque;
use std::time::Duration;

use mlx5_dv::objects::Buffer;
use mlx5_dv::queue::FastKey;

use super::events::{Id, Role};
use super::failure::TransferError;
use crate::payload::Payload;
use crate::plan::Write;
use crate::wire::{Header, LnetMessage, RdmaDescriptor};

/// A message to send.
#[derive(Debug)]
pub(super) enum Outgoing {
    Noop,
    /// LNet's header, and the transfer's data if it has the role for it.
    Immediate(Header),
    PutReq(Header),
    GetReq(Header),
    PutAck {
        source_cookie: u64,
    },
    PutNak {
        cookie: u64,
        status: i32,
    },
    /// The end of a PUT or GET of the other end's: RDMA WRITEs by its key, and the message.
    Done {
        is_put: bool,
        cookie: u64,
        status: i32,
        rkey: u32,
        writes: VecDeque<Write>,
    },
}

impl Outgoing {
    /// Work requests that it takes at most.
    pub(super) fn work_requests(&self) -> usize {
        match self {
            Outgoing::Done { writes, .. } => writes.len() + 1,
            _ => 2,
        }
    }

    /// Whether its transfer is over once it is sent.
    pub(super) fn ends(&self) -> bool {
        match self {
            Outgoing::Done { .. } => true,
            Outgoing::Immediate(header) => !matches!(header.message, LnetMessage::Get(_)),
            _ => false,
        }
    }
}

/// Where the key of a transfer is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyStage {
    /// Not registered yet.
    Fresh,
    Registered,
    /// To be invalidated, or that is under way.
    Closing,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) id: Id,
    pub(super) role: Role,
    /// The buffers that no work request and no key has.
    pub(super) parts: Vec<Buffer>,
    /// Their lengths at the start.
    lens: Vec<usize>,
    /// Of each buffer that is being sent: whether it was cut off the one before.
    joins: VecDeque<bool>,
    /// Buffers that are not sent, and whether each was cut off the one before.
    unsent: Vec<(Buffer, bool)>,
    pub(super) len: usize,
    pub(super) key: Option<(FastKey, bool, KeyStage)>,
    /// The memory that the key opened.
    pub(super) opened: Option<RdmaDescriptor>,
    /// Whether a message of it waits to be sent.
    pub(super) queued: bool,
    /// Work requests under way.
    pub(super) sending: usize,
    pub(super) deadline: Duration,
    /// LNet's header of a transfer of ours.
    pub(super) header: Option<Header>,
    /// What the peer calls a PUT that this end receives.
    pub(super) source_cookie: u64,
    /// What becomes of it once its last message is sent.
    pub(super) on_sent: Option<Result<usize, TransferError>>,
    pub(super) result: Option<Result<usize, TransferError>>,
}

impl Transfer {
    pub(super) fn new(id: Id, role: Role, payload: Payload, deadline: Duration) -> Self {
        let (len, parts) = (payload.len(), payload.into_parts());
        let lens = parts.iter().map(Buffer::len).collect();
        let joins = VecDeque::new();
        Transfer {
            id,
            role,
            parts,
            lens,
            joins,
            unsent: Vec::new(),
            len,
            key: None,
            opened: None,
            queued: false,
            sending: 0,
            deadline,
            header: None,
            source_cookie: 0,
            on_sent: None,
            result: None,
        }
    }

    /// One that is over.
    pub(super) fn over(id: Id, payload: Payload, result: Result<usize, TransferError>) -> Self {
        Transfer { result: Some(result), ..Transfer::new(id, Role::ImmediatePut, payload, Duration::ZERO) }
    }

    /// Whether it waits for the peer.
    pub(super) fn waits(&self) -> bool {
        !self.queued && self.on_sent.is_none() && self.result.is_none()
    }

    /// Copies its data.
    pub(super) fn read(&self, mut bytes: &mut [u8]) {
        for part in &self.parts {
            let (here, rest) = bytes.split_at_mut(bytes.len().min(part.len()));
            part.read(0, here);
            bytes = rest;
        }
    }

    /// Copies `bytes` to the front of its memory.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        for part in &mut self.parts {
            let (here, rest) = bytes.split_at(bytes.len().min(part.len()));
            part.write(0, here);
            bytes = rest;
        }
    }

    pub(super) fn lens(&self) -> &[usize] {
        &self.lens
    }

    /// Takes its payload, for a key.
    pub(super) fn take_payload(&mut self) -> Payload {
        Payload::new(std::mem::take(&mut self.parts)).unwrap_or_default()
    }

    /// Whether nothing of it is under way.
    pub(super) fn is_over(&self) -> bool {
        self.result.is_some() && !self.queued && self.sending == 0
    }

    pub(super) fn finish(&mut self, result: Result<usize, TransferError>) {
        self.result.get_or_insert(result);
    }

    /// Takes the buffers of RDMA WRITEs off the front, cut into their pieces.
    pub(super) fn cut(&mut self, writes: &VecDeque<Write>) -> Vec<(u64, Vec<Buffer>)> {
        let mut parts = VecDeque::from(std::mem::take(&mut self.parts));
        let mut was_cut = false;
        let mut all = Vec::with_capacity(writes.len());
        for write in writes {
            let mut pieces = Vec::with_capacity(write.pieces.len());
            for &bytes in &write.pieces {
                let Some(mut part) = parts.pop_front() else { break };
                self.joins.push_back(was_cut);
                was_cut = bytes < part.len();
                if was_cut {
                    let rest = part.len() - bytes;
                    let mut behind = part.split_off(bytes);
                    behind.set_len(rest);
                    parts.push_front(behind);
                }
                pieces.push(part);
            }
            all.push((write.addr, pieces));
        }
        let joins = std::iter::once(was_cut).chain(std::iter::repeat(false));
        self.unsent = parts.into_iter().zip(joins).collect();
        all
    }

    /// A buffer is back, in order.
    pub(super) fn returned(&mut self, buffer: Buffer) {
        let joins = self.joins.pop_front().unwrap_or(false);
        self.put_back(buffer, joins);
    }

    fn put_back(&mut self, buffer: Buffer, joins: bool) {
        let alone = match self.parts.last_mut() {
            Some(last) if joins => last.append(buffer).err(),
            _ => Some(buffer),
        };
        self.parts.extend(alone);
    }

    /// Its payload; `None` where buffers of it were lost with their queue.
    pub(super) fn payload(&mut self) -> Option<Payload> {
        for (buffer, joins) in std::mem::take(&mut self.unsent) {
            self.put_back(buffer, joins);
        }
        let mut parts = std::mem::take(&mut self.parts);
        if parts.len() != self.lens.len() {
            return None;
        }
        for (part, &len) in parts.iter_mut().zip(&self.lens) {
            if part.capacity() < len {
                return None;
            }
            part.set_len(len);
        }
        Payload::new(parts).ok()
    }
}
