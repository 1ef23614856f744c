//! What outlives a connection: numbers of messages, and those that the other end may not have.

use std::collections::VecDeque;

use crate::wire::{Data, MessageHeader};

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its header; the session sets its numbers.
    pub header: MessageHeader,
    /// What it says.
    pub front: Vec<u8>,
    /// What few messages have.
    pub middle: Vec<u8>,
    /// Its data, not copied when it is sent again.
    pub data: Data,
}

impl Message {
    /// A message without middle.
    pub fn new(header: MessageHeader, front: Vec<u8>, data: Data) -> Self {
        Message { header, front, middle: Vec::new(), data }
    }

    /// Bytes that it takes while it is kept.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Message>() + self.front.len() + self.middle.len() + self.data.len()
    }
}

/// A session between a client and a server, over one connection at a time.
#[derive(Debug, Default)]
pub struct Session {
    /// Chosen by the client; 0 in a session that is lossy.
    pub(crate) client_cookie: u64,
    /// Chosen by the server; 0 before it has answered, and in a session that is lossy.
    pub(crate) server_cookie: u64,
    /// Counts the connections of the session.
    pub(crate) connect_seq: u64,
    /// The highest count of connections that the other end has told.
    pub(crate) peer_global_seq: u64,
    /// The last message that came.
    pub(crate) in_seq: u64,
    /// The last message that was sent.
    pub(crate) out_seq: u64,
    /// Whether messages are dropped when the connection breaks.
    pub(crate) is_lossy: bool,
    /// Sent; the other end has not said that it has them.
    pub(crate) unacknowledged: VecDeque<Message>,
    /// Not sent over this connection. Those that have a number were, over an earlier one.
    pub(crate) waiting: VecDeque<Message>,
    /// Bytes of both.
    pub(crate) bytes: usize,
}

impl Session {
    /// Takes a message to be sent.
    pub fn push(&mut self, mut message: Message) {
        message.header.seq = 0;
        self.bytes += message.bytes();
        self.waiting.push_back(message);
    }

    /// Bytes of the messages that wait to be sent, and of those that the other end may not have.
    pub fn pending_bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that wait to be sent, and those that the other end may not have.
    pub fn pending(&self) -> (usize, usize) {
        (self.waiting.len(), self.unacknowledged.len())
    }

    /// The next message to send, with its numbers.
    pub(super) fn next(&mut self) -> Option<Message> {
        let mut message = self.waiting.pop_front()?;
        if message.header.seq == 0 {
            self.out_seq += 1;
            message.header.seq = self.out_seq;
        }
        message.header.ack_seq = self.in_seq;
        if self.is_lossy {
            self.bytes -= message.bytes();
        } else {
            self.unacknowledged.push_back(message.clone());
        }
        Some(message)
    }

    /// The other end has all messages up to `seq`.
    pub(super) fn acknowledge(&mut self, seq: u64) {
        while let Some(message) = self.unacknowledged.pop_front_if(|message| message.header.seq <= seq) {
            self.bytes -= message.bytes();
        }
    }

    /// The connection broke: what may not have come is sent again, with its numbers.
    pub(crate) fn broke(&mut self) {
        while let Some(message) = self.unacknowledged.pop_back() {
            self.waiting.push_front(message);
        }
        if self.is_lossy {
            *self = Session { is_lossy: true, ..Session::default() };
        } else if self.server_cookie != 0 {
            // The other end may have chosen the last number.
            self.connect_seq = self.connect_seq.saturating_add(1);
        }
    }

    /// Takes the messages of an earlier session, of which the other end knows nothing.
    pub(crate) fn inherit(&mut self, earlier: Option<Session>) {
        let messages =
            earlier.into_iter().flat_map(|earlier| earlier.unacknowledged.into_iter().chain(earlier.waiting));
        messages.for_each(|message| self.push(message));
    }

    /// The other end has come back, and has all messages up to `seq`.
    pub(super) fn resume(&mut self, seq: u64) {
        while let Some(message) = self.waiting.pop_front_if(|message| (1..=seq).contains(&message.header.seq)) {
            self.bytes -= message.bytes();
        }
    }

    /// The server does not know the session. Messages that were sent may have come to it, or not: after a full reset
    /// they are dropped.
    pub(super) fn reset(&mut self, is_full: bool) {
        (self.server_cookie, self.connect_seq, self.in_seq) = (0, 0, 0);
        if is_full {
            (self.client_cookie, self.out_seq) = (0, 0);
            self.bytes -= self.waiting.drain(..).map(|message| message.bytes()).sum::<usize>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::OSD_OP;

    fn message(tid: u64) -> Message {
        Message::new(MessageHeader { tid, ..MessageHeader::new(OSD_OP, 1) }, vec![], Data::default())
    }

    #[test]
    fn what_may_not_have_come_is_sent_again_with_its_number() {
        let mut session = Session { client_cookie: 1, server_cookie: 2, ..Session::default() };
        (10..14).for_each(|tid| session.push(message(tid)));
        let sent: Vec<u64> = (0..3).filter_map(|_| session.next()).map(|message| message.header.seq).collect();
        assert_eq!(sent, [1, 2, 3]);
        let each = message(10).bytes();
        assert_eq!(session.pending_bytes(), 4 * each);
        session.acknowledge(1);
        session.broke();
        assert_eq!((session.pending(), session.connect_seq, session.pending_bytes()), ((3, 0), 1, 3 * each));
        session.resume(2);
        let again: Vec<_> = std::iter::from_fn(|| session.next()).map(|m| (m.header.seq, m.header.tid)).collect();
        assert_eq!((again.as_slice(), session.pending_bytes()), (&[(3, 12), (4, 13)][..], 2 * each));
        session.acknowledge(3);
        let mut later = Session::default();
        later.inherit(Some(session));
        assert_eq!((later.pending(), later.pending_bytes()), ((1, 0), each));
        later.reset(true);
        assert_eq!((later.pending(), later.pending_bytes()), ((0, 0), 0));
    }

    #[test]
    fn the_last_count_of_connections_that_a_peer_can_name_ends_nothing() {
        let mut session = Session { server_cookie: 2, connect_seq: u64::MAX, ..Session::default() };
        session.broke();
        assert_eq!(session.connect_seq, u64::MAX);
    }

    #[test]
    fn a_lossy_session_starts_anew() {
        let mut session = Session { is_lossy: true, ..Session::default() };
        session.push(message(1));
        session.push(message(2));
        assert_eq!(session.next().unwrap().header.seq, 1);
        assert_eq!(session.pending_bytes(), message(2).bytes(), "what is sent is not kept");
        session.broke();
        assert_eq!((session.pending(), session.out_seq, session.pending_bytes()), ((0, 0), 0, 0));
    }
}
