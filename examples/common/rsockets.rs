//! What two rsockets tell each other, and what a receiver keeps of it; without a card. librdmacm's `rsocket.c`.
//!
//! All of it comes from strangers: what they say wrongly is an error, which says what it was.

use std::collections::VecDeque;
use std::ops::Range;

use mlx5_dv::queue::RemoteAddress;

/// Bytes of the ring that the other end writes, in two halves.
pub const RING: usize = 1 << 17;
/// Entries of the list of targets that the other end writes, and bytes of each: address (8), key (4), length (4), in
/// the byte order that this end asked for.
pub const TARGETS: usize = 2;
/// Bytes of a target.
pub const TARGET: usize = 16;
/// Messages that the other end may send before it gets new credit.
pub const CREDIT: u16 = 384;

/// Memory of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Where it begins.
    pub address: RemoteAddress,
    /// Its bytes; of a list of targets their number.
    pub len: usize,
}

impl Target {
    /// Reads it in the byte order that was asked for.
    pub fn read(bytes: [u8; TARGET], is_big_endian: bool) -> Self {
        let all = u128::from_be_bytes(bytes);
        let (addr, rkey, len) = in_order((all >> 64) as u64, (all >> 32) as u32, all as u32, is_big_endian);
        Target { address: RemoteAddress { addr, rkey }, len: len as usize }
    }

    /// Its bytes in the order that the other end asked for.
    pub fn bytes(self, is_big_endian: bool) -> [u8; TARGET] {
        let (addr, rkey, len) = in_order(self.address.addr, self.address.rkey, self.len as u32, is_big_endian);
        (u128::from(addr) << 64 | u128::from(rkey) << 32 | u128::from(len)).to_be_bytes()
    }

    /// What is behind the first `bytes`, no more than all. The other end says any address: its card refuses what is
    /// none of its memory.
    pub fn behind(self, bytes: usize) -> Self {
        let address = RemoteAddress { addr: self.address.addr.wrapping_add(bytes as u64), ..self.address };
        Target { address, len: self.len.saturating_sub(bytes) }
    }
}

/// The numbers of a target between this program and big-endian bytes.
fn in_order(addr: u64, rkey: u32, len: u32, is_big_endian: bool) -> (u64, u32, u32) {
    if is_big_endian { (addr, rkey, len) } else { (addr.swap_bytes(), rkey.swap_bytes(), len.swap_bytes()) }
}

/// What ends tell each other when they connect: rsocket.c `struct rs_conn_data`, its numbers big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Whether its targets are to be written big-endian.
    pub is_big_endian: bool,
    /// Messages that it has receives for.
    pub credit: u16,
    /// Its list of targets, with the number of entries as length.
    pub list: Target,
    /// The first half of its ring.
    pub ring: Target,
}

impl Greeting {
    /// Its bytes on the wire.
    pub const BYTES: usize = 8 + 2 * TARGET;
    const VERSION: u8 = 1;
    /// `RS_CONN_FLAG_NET`.
    const BIG_ENDIAN: u8 = 1;

    /// As it goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let flags = if self.is_big_endian { Self::BIG_ENDIAN } else { 0 };
        let [high, low] = self.credit.to_be_bytes();
        [&[Self::VERSION, flags, high, low, 0, 0, 0, 0][..], &self.list.bytes(true), &self.ring.bytes(true)].concat()
    }

    /// Reads it from private data, which may be longer.
    ///
    /// # Errors
    /// It is too short, of another version, or has no room for as many targets as there are.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let greeting: &[u8; Self::BYTES] =
            bytes.first_chunk().ok_or("the other end has no rsocket: it says too little")?;
        let [version, flags, high, low, _, _, _, _, targets @ ..] = *greeting;
        if version != Self::VERSION {
            return Err(format!("the other end has rsockets of version {version}, not {}", Self::VERSION));
        }
        let [list, ring] = [0, TARGET].map(|at| {
            let mut bytes = [0; TARGET];
            bytes.copy_from_slice(&targets[at..at + TARGET]);
            Target::read(bytes, true)
        });
        if list.len < TARGETS {
            return Err(format!("the other end has no room for {TARGETS} targets"));
        }
        let is_big_endian = flags & Self::BIG_ENDIAN != 0;
        Ok(Greeting { is_big_endian, credit: u16::from_be_bytes([high, low]), list, ring })
    }
}

/// What the immediate data of a message say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// It brought this many bytes. `RS_OP_DATA`.
    Data(u32),
    /// The receiver may send this many messages in all, modulo 2^16; it may have brought a target. `RS_OP_SGL`.
    Credit(u16),
    /// Its sender closes the stream. `RS_OP_CTRL`, `RS_CTRL_DISCONNECT`.
    Disconnect,
    /// Another control message, of this number.
    Control(u32),
}

impl Message {
    /// Bits of the number below the kind.
    const NUMBER_BITS: u32 = 29;
    const DATA: u32 = 0;
    const CREDIT: u32 = 4;
    const CONTROL: u32 = 7;
    const DISCONNECT: u32 = 0;

    /// Reads immediate data.
    ///
    /// # Errors
    /// A kind that was not agreed on.
    pub fn read(immediate: u32) -> Result<Self, String> {
        let number = immediate & ((1 << Self::NUMBER_BITS) - 1);
        match immediate >> Self::NUMBER_BITS {
            Self::DATA => Ok(Message::Data(number)),
            Self::CREDIT => Ok(Message::Credit(number as u16)),
            Self::CONTROL if number == Self::DISCONNECT => Ok(Message::Disconnect),
            Self::CONTROL => Ok(Message::Control(number)),
            other => Err(format!("a message of kind {other}, which was not agreed on")),
        }
    }

    /// The immediate data. Of more bytes than 29 bits count the lower bits.
    pub fn immediate(self) -> u32 {
        let (kind, number) = match self {
            Message::Data(bytes) => (Self::DATA, bytes),
            Message::Credit(credit) => (Self::CREDIT, credit.into()),
            Message::Disconnect => (Self::CONTROL, Self::DISCONNECT),
            Message::Control(number) => (Self::CONTROL, number),
        };
        kind << Self::NUMBER_BITS | number & ((1 << Self::NUMBER_BITS) - 1)
    }
}

/// What the other end needs to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    /// The half of the ring that becomes its target again: which of the two, and the entry of its list.
    pub half: Option<usize>,
    /// The entry of its list that a message without a target names.
    pub entry: usize,
    /// Its new credit.
    pub credit: u16,
}

/// The ring as its reader knows it: what came, and what the other end may write again.
#[derive(Debug)]
pub struct Incoming {
    /// Where in the ring the next byte is to be read.
    at: usize,
    /// Bytes of messages that have come, and are not read; and of all of them.
    messages: VecDeque<usize>,
    unread: usize,
    /// Messages read, modulo 2^16, and those since the last credit.
    read: u16,
    uncredited: u16,
    /// Bytes read that are not the other end's target again. Its first half is the first target.
    free: usize,
    /// The entry of the other end's list to write next. As there are two, it is also the number of the half of the ring
    /// that goes there.
    entry: usize,
}

impl Default for Incoming {
    fn default() -> Self {
        let (messages, free) = (VecDeque::new(), RING / 2);
        Incoming { at: 0, messages, unread: 0, read: 0, uncredited: 0, free, entry: 1 }
    }
}

impl Incoming {
    /// A message came that brought `bytes`.
    ///
    /// # Errors
    /// They are more than the other end had targets for.
    pub fn came(&mut self, bytes: u32) -> Result<(), String> {
        let bytes = bytes as usize;
        let room = RING - self.free - self.unread;
        if bytes > room {
            return Err(format!("a message brought {bytes} bytes, where {room} had room"));
        }
        self.unread += bytes;
        self.messages.push_back(bytes);
        Ok(())
    }

    /// Where to read next, no more than `most` bytes; `None` if nothing has come.
    pub fn next(&self, most: usize) -> Option<Range<usize>> {
        let len = most.min(*self.messages.front()?).min(RING - self.at);
        Some(self.at..self.at + len)
    }

    /// The first `len` bytes of [`next`](Self::next) were read.
    pub fn took(&mut self, len: usize) {
        let Some(message) = self.messages.front_mut() else { return };
        let len = len.min(*message);
        (self.at, self.free, self.unread) = ((self.at + len) % RING, self.free + len, self.unread - len);
        *message -= len;
        if *message == 0 {
            self.messages.pop_front();
            self.read = self.read.wrapping_add(1);
            self.uncredited = self.uncredited.saturating_add(1);
        }
    }

    /// Makes a half of the ring that was read the other end's next target, and renews its credit, once either is due.
    pub fn owed(&mut self) -> Option<Owed> {
        let has_half = self.free >= RING / 2;
        if !has_half && self.uncredited < CREDIT / 2 {
            return None;
        }
        let entry = self.entry;
        if has_half {
            self.free -= RING / 2;
            self.entry = (entry + 1) % TARGETS;
        }
        self.uncredited = 0;
        Some(Owed { half: has_half.then_some(entry), entry, credit: self.read.wrapping_add(CREDIT) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting {
        let list = Target { address: RemoteAddress { addr: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c }, len: 2 };
        let ring = Target { address: RemoteAddress { addr: u64::MAX, rkey: 7 }, len: RING / 2 };
        Greeting { is_big_endian: true, credit: 0x0180, list, ring }
    }

    #[test]
    fn a_greeting_has_its_numbers_big_endian() {
        let bytes = greeting().bytes();
        assert_eq!(bytes[..12], [1, 1, 1, 0x80, 0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(bytes[12..24], [5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 2]);
        assert_eq!(Greeting::read(&bytes), Ok(greeting()));
        assert!(Greeting::read(&bytes[..39]).unwrap_err().contains("too little"));
        assert!(Greeting::read(&[&[2], &bytes[1..]].concat()).unwrap_err().contains("version 2"));
        let few = Greeting { list: Target { len: 1, ..greeting().list }, ..greeting() };
        assert!(Greeting::read(&few.bytes()).unwrap_err().contains("no room"));
    }

    #[test]
    fn immediate_data_say_what_a_message_is() {
        for (message, immediate) in [
            (Message::Data(65536), 0x0001_0000),
            (Message::Credit(0xffff), 0x8000_ffff),
            (Message::Disconnect, 0xe000_0000),
            (Message::Control(1), 0xe000_0001),
        ] {
            assert_eq!((message.immediate(), Message::read(immediate)), (immediate, Ok(message)));
        }
        assert!(Message::read(0x2000_0000).unwrap_err().contains("kind 1"));
    }

    #[test]
    fn halves_that_were_read_are_targets_again() {
        let mut incoming = Incoming::default();
        let owed = |entry, credit| Some(Owed { half: Some(entry), entry, credit });
        assert_eq!(incoming.owed(), owed(1, CREDIT));
        assert_eq!(incoming.owed(), None);
        incoming.came(RING as u32).unwrap();
        assert_eq!(incoming.next(usize::MAX), Some(0..RING));
        incoming.took(RING / 2);
        assert_eq!((incoming.owed(), incoming.owed()), (owed(0, CREDIT), None));
        incoming.took(RING / 2);
        assert_eq!((incoming.owed(), incoming.next(1)), (owed(1, CREDIT + 1), None));
        for _ in 0..CREDIT / 2 {
            incoming.came(0).unwrap();
            assert_eq!(incoming.next(9), Some(0..0));
            incoming.took(0);
        }
        assert_eq!(incoming.owed(), Some(Owed { half: None, entry: 0, credit: CREDIT + 1 + CREDIT / 2 }));
    }

    #[test]
    fn more_bytes_than_there_were_targets_for_are_refused() {
        let mut incoming = Incoming::default();
        assert!(incoming.came(RING as u32 / 2 + 1).unwrap_err().contains("65536 had room"));
        incoming.came(RING as u32 / 2).unwrap();
        assert!(incoming.came(1).is_err());
        incoming.owed();
        incoming.came(1).unwrap();
    }

    #[test]
    fn messages_without_end_may_be_read_before_there_is_new_credit() {
        let mut incoming = Incoming::default();
        incoming.owed();
        for _ in 0..=u16::MAX {
            incoming.came(0).unwrap();
            incoming.took(0);
        }
        assert_eq!(incoming.owed(), Some(Owed { half: None, entry: 0, credit: CREDIT }));
    }
}
