//! One end of a connection: takes bytes, gives bytes, tells what was said.

use std::sync::Arc;

use super::error::{ProtocolError, State};
use super::outbox::{Outbox, Part};
use super::session::{Message, Session};
use crate::wire::{
    AuthDone, AuthRequest, BANNER_BYTES, Banner, ClientIdent, ControlError, EntityAddress, EntityKind, EntityName,
    FEATURES, Frame, FrameReader, Hello, Limits, MessageHeader, Reconnect, ServerIdent, Stamp, Tag, encode_frame,
    encode_message, missing, required,
};

/// Who this end is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name.
    pub name: EntityName,
    /// Its addresses, those that clients connect to; a client's has port 0.
    pub addresses: Vec<EntityAddress>,
    /// Whether a server gives lossy sessions, and a client asks for one.
    pub is_lossy: bool,
    /// What it takes.
    pub limits: Limits,
}

/// What the other end said.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A client asks for a session.
    Ident(ClientIdent),
    /// A client comes back to a session.
    Reconnect(Reconnect),
    /// The session begins, or goes on.
    Ready,
    /// The server has forgotten the session: what was sent is lost, and a new one begins.
    Reset,
    /// A message.
    Message(Message),
    /// The other end is alive; it was asked, and the question had this time.
    Alive(Stamp),
}

/// What a server says to a client that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The session is not known; whether all of it is to be forgotten.
    Reset(bool),
    /// Its count of the session's connections is behind this one.
    Retry(u64),
    /// Its count of connections is behind this one.
    RetryGlobal(u64),
}

/// Bytes that wait for the stream until no further message is encoded.
const ENOUGH: usize = 1 << 20;
/// Bytes of an empty signature (`sha256_digest_t`).
const SIGNATURE: [u8; 32] = [0; 32];

/// One end of a connection.
#[derive(Debug)]
pub struct Protocol {
    identity: Arc<Identity>,
    /// A client: whom it calls, and the count of its connections.
    target: Option<(EntityAddress, u64)>,
    state: State,
    banner: Vec<u8>,
    reader: FrameReader,
    outbox: Outbox,
    session: Session,
    /// Messages that came since the other end was last told.
    to_acknowledge: u64,
    /// The last question of the other end that is not answered. Each stands for those before it, so that questions of
    /// one that reads no answers do not pile up.
    alive_asked: Option<Stamp>,
    /// Where the other end sees this one.
    seen_as: Option<EntityAddress>,
    peer_kind: Option<EntityKind>,
}

impl Protocol {
    /// A client that calls `target`. `session` is new, or that of an earlier connection; `global_seq` counts the
    /// connections of this client.
    pub fn client(identity: Arc<Identity>, target: EntityAddress, session: Session, global_seq: u64) -> Self {
        Self::new(identity, Some((target, global_seq)), target, session)
    }

    /// A server of a client that is at `from`.
    pub fn server(identity: Arc<Identity>, from: EntityAddress) -> Self {
        Self::new(identity, None, from, Session::default())
    }

    fn new(
        identity: Arc<Identity>,
        target: Option<(EntityAddress, u64)>,
        peer: EntityAddress,
        session: Session,
    ) -> Self {
        let reader = FrameReader::new(identity.limits);
        let hello = Hello { kind: identity.name.kind, peer };
        let mut protocol = Protocol {
            identity,
            target,
            state: State::Banner,
            banner: Vec::with_capacity(BANNER_BYTES),
            reader,
            outbox: Outbox::default(),
            session,
            to_acknowledge: 0,
            alive_asked: None,
            seen_as: None,
            peer_kind: None,
        };
        protocol.outbox.push(Part::Own(Banner::OURS.to_bytes().to_vec()));
        protocol.say(Tag::Hello, &hello.encode());
        protocol
    }

    /// What it waits for.
    pub fn state(&self) -> State {
        self.state
    }

    /// Its session.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The session, for the next connection.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// What the other end is, once it has said so.
    pub fn peer_kind(&self) -> Option<EntityKind> {
        self.peer_kind
    }

    /// Takes bytes off the front of `bytes` until something was said. `None` once all are taken.
    ///
    /// # Errors
    /// [`ProtocolError`]: the connection has to be broken off.
    pub fn hear(&mut self, bytes: &mut &[u8]) -> Result<Option<Heard>, ProtocolError> {
        if self.state == State::Banner && !self.hear_banner(bytes)? {
            return Ok(None);
        }
        while let Some(frame) = self.reader.read(bytes)? {
            if let Some(heard) = self.handle(frame)? {
                return Ok(Some(heard));
            }
        }
        Ok(None)
    }

    fn hear_banner(&mut self, bytes: &mut &[u8]) -> Result<bool, ProtocolError> {
        let (head, rest) = bytes.split_at(bytes.len().min(BANNER_BYTES - self.banner.len()));
        self.banner.extend_from_slice(head);
        *bytes = rest;
        let Some(banner) = self.banner.first_chunk() else { return Ok(false) };
        Banner::from_bytes(banner)?;
        self.state = State::Hello;
        Ok(true)
    }

    fn handle(&mut self, Frame { tag, segments }: Frame) -> Result<Option<Heard>, ProtocolError> {
        let [first, front, middle, data] = segments;
        let is_client = self.target.is_some();
        // Here alone each frame may have an answer that nothing else bounds: before that, each frame comes once.
        if self.state == State::Session && self.outbox.bytes() >= ENOUGH {
            return Err(ProtocolError::Unread(self.outbox.bytes()));
        }
        match (tag, self.state) {
            (Tag::Hello, State::Hello) => self.hello(&Hello::decode(&first)?),
            (Tag::AuthRequest, State::Auth) if !is_client => self.authenticate(&AuthRequest::decode(&first)?)?,
            (Tag::AuthDone, State::Auth) if is_client => self.authenticated(AuthDone::decode(&first)?)?,
            (Tag::AuthSignature, State::Signature) => self.signed(&first)?,
            (Tag::ClientIdent, State::Session) if !is_client => return self.client_ident(ClientIdent::decode(&first)?),
            (Tag::SessionReconnect, State::Session) if !is_client => {
                self.state = State::Decision;
                return Ok(Some(Heard::Reconnect(Reconnect::decode(&first)?)));
            }
            (Tag::ServerIdent, State::Session) if is_client => {
                self.server_ident(ServerIdent::decode(&first)?)?;
                return Ok(Some(Heard::Ready));
            }
            (Tag::IdentMissingFeatures, State::Session) if is_client => {
                return Err(ProtocolError::Wanted(number(&first)?));
            }
            (Tag::Wait, State::Session) if is_client => return Err(ProtocolError::Wait),
            (
                Tag::SessionReset | Tag::SessionRetry | Tag::SessionRetryGlobal | Tag::SessionReconnectOk,
                State::Session,
            ) if is_client && self.session.server_cookie != 0 => return self.reconnecting(tag, &first),
            (Tag::Message, State::Ready) => return self.message(&first, front, middle, data),
            (Tag::Ack, State::Ready) => self.session.acknowledge(number(&first)?),
            (Tag::Keepalive2, State::Ready) => self.alive_asked = Some(Stamp::decode(&first)?),
            (Tag::Keepalive2Ack, State::Ready) => return Ok(Some(Heard::Alive(Stamp::decode(&first)?))),
            (tag, state) => return Err(ProtocolError::Unexpected { tag, state }),
        }
        Ok(None)
    }

    fn hello(&mut self, hello: &Hello) {
        (self.seen_as, self.peer_kind) = (Some(hello.peer), Some(hello.kind));
        self.state = State::Auth;
        if self.target.is_some() {
            let request = AuthRequest { method: AuthRequest::NONE, modes: vec![AuthRequest::CRC] };
            self.say(Tag::AuthRequest, &request.encode());
        }
    }

    fn authenticate(&mut self, request: &AuthRequest) -> Result<(), ProtocolError> {
        if request.method != AuthRequest::NONE || !request.modes.contains(&AuthRequest::CRC) {
            return Err(ProtocolError::Authentication { method: request.method, modes: request.modes.clone() });
        }
        self.say(Tag::AuthDone, &AuthDone { global_id: 0, mode: AuthRequest::CRC }.encode());
        self.say(Tag::AuthSignature, &SIGNATURE);
        self.state = State::Signature;
        Ok(())
    }

    fn authenticated(&mut self, done: AuthDone) -> Result<(), ProtocolError> {
        if done.mode != AuthRequest::CRC {
            return Err(ProtocolError::Authentication { method: AuthRequest::NONE, modes: vec![done.mode] });
        }
        self.say(Tag::AuthSignature, &SIGNATURE);
        self.state = State::Signature;
        Ok(())
    }

    fn signed(&mut self, signature: &[u8]) -> Result<(), ProtocolError> {
        if signature != SIGNATURE {
            let what = "signature, where nothing is signed, of bytes";
            return Err(ControlError::Value { what, given: signature.len() as u64 }.into());
        }
        self.state = State::Session;
        if self.target.is_some() {
            self.ask_for_session();
        }
        Ok(())
    }

    /// The client's addresses, as the server sees them.
    fn addresses(&self) -> Vec<EntityAddress> {
        let nonce = self.identity.addresses.first().map_or(0, |address| address.nonce);
        match self.seen_as.and_then(|address| address.socket) {
            Some(mut socket) if self.target.is_some() => {
                socket.set_port(0);
                vec![EntityAddress::msgr2(socket, nonce)]
            }
            _ => self.identity.addresses.clone(),
        }
    }

    fn ask_for_session(&mut self) {
        let Some((target, global_seq)) = self.target else { return };
        let (addresses, session) = (self.addresses(), &self.session);
        if session.server_cookie == 0 {
            let ident = ClientIdent {
                addresses,
                target,
                number: self.identity.name.number,
                global_seq,
                supported: FEATURES,
                required: required(),
                is_lossy: self.identity.is_lossy,
                cookie: session.client_cookie,
            };
            self.say(Tag::ClientIdent, &ident.encode());
            return;
        }
        let reconnect = Reconnect {
            addresses,
            client_cookie: session.client_cookie,
            server_cookie: session.server_cookie,
            global_seq,
            connect_seq: session.connect_seq,
            message_seq: session.in_seq,
        };
        self.say(Tag::SessionReconnect, &reconnect.encode());
    }

    fn client_ident(&mut self, ident: ClientIdent) -> Result<Option<Heard>, ProtocolError> {
        let lacking = missing(ident.supported);
        if lacking != 0 {
            self.say(Tag::IdentMissingFeatures, &lacking.to_le_bytes());
            return Err(ProtocolError::Features(lacking));
        }
        check_wanted(ident.required)?;
        if !self.identity.addresses.contains(&ident.target) {
            return Err(ProtocolError::Address { wanted: ident.target, found: self.identity.addresses.clone() });
        }
        self.state = State::Decision;
        Ok(Some(Heard::Ident(ident)))
    }

    fn server_ident(&mut self, ident: ServerIdent) -> Result<(), ProtocolError> {
        let lacking = missing(ident.supported);
        if lacking != 0 {
            return Err(ProtocolError::Features(lacking));
        }
        check_wanted(ident.required)?;
        if let Some((wanted, _)) = self.target
            && !ident.addresses.contains(&wanted)
        {
            return Err(ProtocolError::Address { wanted, found: ident.addresses });
        }
        let session = &mut self.session;
        (session.server_cookie, session.peer_global_seq) = (ident.cookie, ident.global_seq);
        session.is_lossy = ident.is_lossy;
        self.state = State::Ready;
        Ok(())
    }

    /// The server's answer to a client that comes back.
    fn reconnecting(&mut self, tag: Tag, first: &[u8]) -> Result<Option<Heard>, ProtocolError> {
        match tag {
            Tag::SessionReconnectOk => {
                self.session.resume(number(first)?);
                self.state = State::Ready;
                return Ok(Some(Heard::Ready));
            }
            Tag::SessionReset => {
                let is_full = first.first().is_some_and(|full| *full != 0);
                let cookie = self.session.client_cookie;
                self.session.reset(is_full);
                self.session.client_cookie = cookie;
                self.ask_for_session();
                return Ok(is_full.then_some(Heard::Reset));
            }
            Tag::SessionRetryGlobal => {
                if let Some((_, global_seq)) = &mut self.target {
                    *global_seq = number(first)?.saturating_add(1).max(*global_seq);
                }
            }
            _ => self.session.connect_seq = number(first)?.saturating_add(1),
        }
        self.ask_for_session();
        Ok(None)
    }

    /// Answers [`Heard::Ident`]: `session` begins, whose cookies are set.
    pub fn accept(&mut self, session: Session, global_seq: u64) {
        self.session = session;
        let ident = ServerIdent {
            addresses: self.identity.addresses.clone(),
            number: self.identity.name.number,
            global_seq,
            supported: FEATURES,
            required: required(),
            is_lossy: self.session.is_lossy,
            cookie: self.session.server_cookie,
        };
        self.say(Tag::ServerIdent, &ident.encode());
        self.state = State::Ready;
    }

    /// Answers [`Heard::Reconnect`]: `session` goes on, of whose messages the client has those up to `seq`.
    pub fn resume(&mut self, session: Session, seq: u64) {
        self.session = session;
        self.session.resume(seq);
        let has = self.session.in_seq;
        self.say(Tag::SessionReconnectOk, &has.to_le_bytes());
        self.state = State::Ready;
    }

    /// Answers [`Heard::Reconnect`]: the client is to ask again, otherwise.
    pub fn refuse(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Reset(is_full) => self.say(Tag::SessionReset, &[is_full.into()]),
            Refusal::Retry(seq) => self.say(Tag::SessionRetry, &seq.to_le_bytes()),
            Refusal::RetryGlobal(seq) => self.say(Tag::SessionRetryGlobal, &seq.to_le_bytes()),
        }
        self.state = State::Session;
    }

    fn message(
        &mut self,
        header: &[u8],
        front: Vec<u8>,
        middle: Vec<u8>,
        data: Vec<u8>,
    ) -> Result<Option<Heard>, ProtocolError> {
        let header = MessageHeader::decode(header)?;
        self.session.acknowledge(header.ack_seq);
        // A message that came before the connection broke. Its sender was told when it came back.
        if header.seq <= self.session.in_seq {
            tracing::debug!(seq = header.seq, has = self.session.in_seq, "an old message is dropped");
            return Ok(None);
        }
        self.session.in_seq = header.seq;
        if !self.session.is_lossy {
            self.to_acknowledge += 1;
        }
        Ok(Some(Heard::Message(Message { header, front, middle, data: data.into() })))
    }

    /// Asks the other end for a sign of life, which comes back with `stamp`.
    pub fn ask_alive(&mut self, stamp: Stamp) {
        if self.state == State::Ready {
            self.say(Tag::Keepalive2, &stamp.encode());
        }
    }

    /// Encodes what waits, as long as the stream is not behind: a sign of life, messages, and what came if no message
    /// tells that.
    pub fn pump(&mut self) {
        if self.state != State::Ready {
            return;
        }
        if self.outbox.bytes() < ENOUGH
            && let Some(stamp) = self.alive_asked.take()
        {
            self.say(Tag::Keepalive2Ack, &stamp.encode());
        }
        while self.outbox.bytes() < ENOUGH
            && let Some(message) = self.session.next()
        {
            self.to_acknowledge = 0;
            self.say_message(&message);
        }
        if self.to_acknowledge > 0 && self.outbox.bytes() < ENOUGH {
            self.to_acknowledge = 0;
            let has = self.session.in_seq;
            self.say(Tag::Ack, &has.to_le_bytes());
        }
    }

    fn say_message(&mut self, Message { header, front, middle, data }: &Message) {
        let header = header.encode();
        let (mut head, tail) = encode_message(&header, front, middle, data);
        if data.is_empty() {
            // The last segment is one of the small ones.
            head.extend_from_slice(
                [middle, front, &header].into_iter().find(|last| !last.is_empty()).unwrap_or(&header),
            );
        }
        self.outbox.push(Part::Own(head));
        self.outbox.push(Part::Shared(data.clone()));
        self.outbox.push(Part::Own(tail));
    }

    fn say(&mut self, tag: Tag, payload: &[u8]) {
        let (mut head, tail) = encode_frame(tag, &[payload]);
        head.extend_from_slice(payload);
        head.extend_from_slice(&tail);
        self.outbox.push(Part::Own(head));
    }

    /// Bytes that wait for the stream.
    pub fn to_send(&self) -> usize {
        self.outbox.bytes()
    }

    /// The first parts of them.
    pub fn parts(&self) -> [&[u8]; 16] {
        self.outbox.first()
    }

    /// The stream has taken `bytes` of them.
    pub fn taken(&mut self, bytes: usize) {
        self.outbox.take(bytes);
    }
}

/// `Ok` if this side has the features `required`.
fn check_wanted(required: u64) -> Result<(), ProtocolError> {
    match required & !FEATURES {
        0 => Ok(()),
        lacking => Err(ProtocolError::Wanted(lacking)),
    }
}

/// A frame of one number.
fn number(bytes: &[u8]) -> Result<u64, ControlError> {
    Ok(crate::wire::Reader::new(bytes).u64()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(kind: EntityKind, addresses: Vec<EntityAddress>) -> Arc<Identity> {
        let name = EntityName { kind, number: 1 };
        Arc::new(Identity { name, addresses, is_lossy: false, limits: Limits::default() })
    }

    /// Brings what `from` says to `to`. Returns what that has heard.
    fn carry(from: &mut Protocol, to: &mut Protocol) -> Vec<Heard> {
        let mut heard = Vec::new();
        while from.to_send() > 0 {
            let bytes = from.parts().concat();
            from.taken(bytes.len());
            let mut rest = &bytes[..];
            while let Some(said) = to.hear(&mut rest).unwrap() {
                heard.push(said);
            }
        }
        heard
    }

    /// A client and a server in a session.
    fn ready() -> (Protocol, Protocol) {
        let at = EntityAddress::msgr2("10.0.0.1:6800".parse().unwrap(), 0);
        let session = || Session { client_cookie: 1, ..Session::default() };
        let mut client = Protocol::client(identity(EntityKind::CLIENT, vec![]), at, session(), 1);
        let mut server = Protocol::server(identity(EntityKind::OSD, vec![at]), at);
        while client.state() != State::Ready {
            if carry(&mut client, &mut server).iter().any(|heard| matches!(heard, Heard::Ident(_))) {
                server.accept(Session { server_cookie: 2, ..session() }, 1);
            }
            carry(&mut server, &mut client);
        }
        (client, server)
    }

    #[test]
    fn a_client_that_comes_back_again_and_again_and_reads_no_answer_is_refused() {
        let at = EntityAddress::msgr2("10.0.0.1:6800".parse().unwrap(), 0);
        let mut server = Protocol::server(identity(EntityKind::OSD, vec![at]), at);
        server.state = State::Session;
        let reconnect = Reconnect {
            addresses: vec![],
            client_cookie: 1,
            server_cookie: 2,
            global_seq: 1,
            connect_seq: 1,
            message_seq: 0,
        };
        let payload = reconnect.encode();
        let (head, tail) = encode_frame(Tag::SessionReconnect, &[&payload]);
        let asked = [head, payload, tail].concat();
        let error = loop {
            match server.hear(&mut &asked[..]) {
                Ok(Some(Heard::Reconnect(_))) => server.refuse(Refusal::Reset(true)),
                Ok(heard) => panic!("{heard:?}"),
                Err(error) => break error,
            }
            assert!(server.to_send() < 2 * ENOUGH, "answers pile up");
        };
        assert!(matches!(error, ProtocolError::Unread(bytes) if bytes >= ENOUGH), "{error}");
    }

    #[test]
    fn answers_to_a_peer_that_reads_none_do_not_pile_up_and_the_last_question_is_answered() {
        const QUESTIONS: u32 = 50_000;
        let (mut client, mut server) = ready();
        for seconds in 1..=QUESTIONS {
            client.ask_alive(Stamp { seconds, nanoseconds: 0 });
            carry(&mut client, &mut server);
            server.pump();
        }
        assert!(server.to_send() < ENOUGH + 100, "{} bytes", server.to_send());
        carry(&mut server, &mut client);
        server.pump();
        let last = Heard::Alive(Stamp { seconds: QUESTIONS, nanoseconds: 0 });
        assert_eq!(carry(&mut server, &mut client), [last]);
    }
}
