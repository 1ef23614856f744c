//! The state machine: messages, calls and time go in; messages, events and the next time come out. IBTA 12.9.
//!
//! It does no input or output and reads no clock: every call gets the time.

mod calls;
mod error;
pub(crate) mod limits;
mod receive;
mod sidr;
mod table;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mlx5_prm::ib::{CmAnswered, CmAttribute, CmDreq, CmRej, CmRejectReason, MAD};

use crate::message::{Service, header, mad, padded};
pub use error::CallError;
use table::{Connection, Table};
pub use types::{Agreed, Config, ConnectionId, Event, Parameters, Path, Route, State, Transmit};

/// A connection manager without a network.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    table: Table,
    /// Listeners, with the number of requests of each that wait for the program's answer.
    listeners: HashMap<Service, usize>,
    /// The last communication ID, before it is mixed with `operand`.
    last_id: u32,
    operand: u32,
    last_tid: u64,
    transmits: VecDeque<Transmit>,
    events: VecDeque<(ConnectionId, Event)>,
}

/// A rejection with its common fields only.
struct Refusal {
    path: Path,
    tid: u64,
    local_id: u32,
    remote_id: u32,
    answered: CmAnswered,
    reason: CmRejectReason,
}

impl Refusal {
    fn message(&self, additional: &[u8], private_data: &[u8]) -> [u8; MAD] {
        let mut rej = CmRej::default();
        rej.w()
            .hdr(&header(CmAttribute::ConnectReject, self.tid))
            .local_comm_id(self.local_id)
            .remote_comm_id(self.remote_id)
            .message_rejected(self.answered)
            .rejected_info_length(additional.len() as u8)
            .reason(self.reason)
            .ari(&padded(additional))
            .private_data(&padded(private_data));
        mad(&rej)
    }
}

impl Machine {
    /// Creates a connection manager without connections.
    pub fn new(config: Config) -> Self {
        // Any mixing function will do: it makes numbers of an earlier process unlikely.
        let mixed = config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Machine {
            config,
            table: Table::default(),
            listeners: HashMap::new(),
            last_id: 0,
            operand: (mixed >> 32) as u32,
            last_tid: mixed << 32,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        self.events.pop_front()
    }

    /// Whether there is an event.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called, at the latest; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.table.next_deadline()
    }

    /// Number of connections, including those in timewait.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// All connections.
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        self.table.ids()
    }

    /// State of a connection; `None` after its end.
    pub fn state(&self, id: ConnectionId) -> Option<State> {
        self.table.get(id.0).map(|connection| connection.state)
    }

    /// What both sides agreed on. It is final after [`Event::ConnectResponse`] or [`accept`](Self::accept).
    pub fn agreed(&self, id: ConnectionId) -> Option<Agreed> {
        self.table.get(id.0).map(|connection| connection.agreed)
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some(id) = self.table.due(now) {
            self.expired(now, id);
        }
    }

    fn expired(&mut self, now: Duration, id: u32) {
        let Some(connection) = self.table.get_mut(id) else { return };
        match connection.state {
            State::ReqSent | State::RepSent | State::DreqSent | State::SidrReqSent => {
                if connection.tries == 0 {
                    return self.give_up(now, id);
                }
                connection.tries -= 1;
                let deadline = now + connection.interval;
                self.send_again(id);
                self.table.set_deadline(id, Some(deadline));
            }
            // The program did not answer.
            State::ReqReceived | State::RepReceived => {
                self.refuse(id, CmRejectReason::Timeout, &[]);
                self.end(id, Event::Unreachable);
            }
            State::SidrReqReceived => self.end(id, Event::Unreachable),
            State::Timewait => self.end(id, Event::TimewaitExit),
            State::Rejected | State::SidrAnswered => _ = self.table.remove(id),
            State::Established => {}
        }
    }

    /// The remote did not answer any retransmission.
    fn give_up(&mut self, now: Duration, id: u32) {
        match self.state(ConnectionId(id)) {
            Some(State::ReqSent | State::RepSent) => {
                self.refuse(id, CmRejectReason::Timeout, &[]);
                self.end(id, Event::Unreachable);
            }
            Some(State::DreqSent) => self.ended(now, id, false, Vec::new()),
            _ => self.end(id, Event::Unreachable),
        }
    }

    /// Reports an event, unless the program has destroyed the connection.
    fn report(&mut self, id: u32, event: Event) {
        if self.table.get(id).is_some_and(|connection| !connection.orphan) {
            self.events.push_back((ConnectionId(id), event));
        }
    }

    /// Reports the last event of a connection, and removes it.
    fn end(&mut self, id: u32, event: Event) {
        self.report(id, event);
        self.leave_backlog(id);
        self.table.remove(id);
    }

    /// Ends the connection. Its late messages are still answered.
    fn ended(&mut self, now: Duration, id: u32, confirmed: bool, private_data: Vec<u8>) {
        self.report(id, Event::Disconnected { confirmed, private_data });
        self.wait_out(now, id, State::Timewait);
    }

    /// From now on only answers late messages.
    fn wait_out(&mut self, now: Duration, id: u32, state: State) {
        self.leave_backlog(id);
        // As Linux has it: the remote's queue pair may be connected again at once, to another one of ours.
        self.table.forget_queue_pair(id);
        if let Some(connection) = self.table.get_mut(id) {
            connection.state = state;
        }
        self.table.set_deadline(id, Some(now + self.config.timewait));
    }

    fn leave_backlog(&mut self, id: u32) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if std::mem::take(&mut connection.in_backlog)
            && let Some(waiting) = self.listeners.get_mut(&connection.service)
        {
            *waiting = waiting.saturating_sub(1);
        }
    }

    fn transmit(&mut self, path: Path, message: [u8; MAD]) {
        self.transmits.push_back(Transmit { path, mad: Box::new(message) });
    }

    fn send_again(&mut self, id: u32) {
        let Some(connection) = self.table.get(id) else { return };
        if let Some(last) = &connection.last {
            self.transmits.push_back(Transmit { path: connection.path, mad: last.clone() });
        }
    }

    /// Sends `message` of connection `id`, and sets its state to `state`. Without an answer within `interval` the
    /// message is retransmitted, `tries` times.
    fn ask(&mut self, now: Duration, id: u32, state: State, message: [u8; MAD], (interval, tries): (Duration, u8)) {
        self.remember(id, state, message);
        if let Some(connection) = self.table.get_mut(id) {
            (connection.interval, connection.tries) = (interval, tries);
        }
        self.table.set_deadline(id, Some(now + interval));
    }

    /// Sends `message` of connection `id`, and keeps it for retransmission.
    fn remember(&mut self, id: u32, state: State, message: [u8; MAD]) {
        self.leave_backlog(id);
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.state = state;
        connection.last = Some(Box::new(message));
        self.send_again(id);
    }

    /// Sends a rejection of the remote's last message, or of our own request. The state does not change.
    fn refuse(&mut self, id: u32, reason: CmRejectReason, private_data: &[u8]) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let refusal = Refusal {
            path: connection.path,
            tid: connection.tid,
            local_id: id,
            remote_id: connection.remote_id,
            answered: match connection.state {
                State::ReqReceived => CmAnswered::Req,
                State::RepReceived => CmAnswered::Rep,
                _ => CmAnswered::Other,
            },
            reason,
        };
        // A remote that does not know our number finds the connection by this.
        let guid = self.config.ca_guid.to_be_bytes();
        let additional: &[u8] = if reason == CmRejectReason::Timeout { &guid } else { &[] };
        let message = refusal.message(additional, private_data);
        connection.last = Some(Box::new(message));
        self.send_again(id);
    }

    /// Rejects a message that belongs to no connection.
    fn turn_away(&mut self, refusal: &Refusal) {
        self.transmit(refusal.path, refusal.message(&[], &[]));
    }

    /// Asks the remote to end connection `id`.
    fn part(&mut self, now: Duration, id: u32, private_data: &[u8]) {
        let tid = self.next_tid();
        let Some(connection) = self.table.get_mut(id) else { return };
        let mut dreq = CmDreq::default();
        dreq.w()
            .hdr(&header(CmAttribute::DisconnectRequest, tid))
            .local_comm_id(id)
            .remote_comm_id(connection.remote_id)
            .remote_qpn_eecn(connection.remote_qpn)
            .private_data(&padded(private_data));
        let patience = (self.config.round_trip(self.config.response_timeout), self.config.retries);
        self.ask(now, id, State::DreqSent, mad(&dreq), patience);
    }

    fn next_tid(&mut self) -> u64 {
        self.last_tid = self.last_tid.wrapping_add(1);
        self.last_tid
    }

    /// Number for a new connection. Errors: [`CallError::Full`].
    fn next_id(&mut self) -> Result<u32, CallError> {
        if self.table.len() >= self.config.connections {
            return Err(CallError::Full { most: self.config.connections });
        }
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            let id = self.last_id ^ self.operand;
            if id != 0 && !self.table.contains(id) {
                return Ok(id);
            }
        }
    }

    fn connection(&self, id: ConnectionId) -> Result<&Connection, CallError> {
        let known = self.table.get(id.0).filter(|connection| !connection.orphan);
        known.ok_or(CallError::Unknown(id.0))
    }
}
