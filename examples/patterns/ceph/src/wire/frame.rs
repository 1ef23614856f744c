//! Frames of msgr2.1 in crc mode (`src/msg/async/frames_v2.h` and `.cc`, `doc/dev/msgr2.rst`): a preamble, one to four
//! segments, the first with its CRC behind it, and, if there are others, an epilogue with theirs.

use super::crc::{crc, segment_crc};
use super::data::Data;

/// What a frame is (`ceph::msgr::v2::Tag`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of Ceph")]
pub enum Tag {
    Hello = 1,
    AuthRequest,
    AuthBadMethod,
    AuthReplyMore,
    AuthRequestMore,
    AuthDone,
    AuthSignature,
    ClientIdent,
    ServerIdent,
    IdentMissingFeatures,
    SessionReconnect,
    SessionReset,
    SessionRetry,
    SessionRetryGlobal,
    SessionReconnectOk,
    Wait,
    Message,
    Keepalive2,
    Keepalive2Ack,
    Ack,
}

impl Tag {
    const ALL: [Tag; 20] = [
        Tag::Hello,
        Tag::AuthRequest,
        Tag::AuthBadMethod,
        Tag::AuthReplyMore,
        Tag::AuthRequestMore,
        Tag::AuthDone,
        Tag::AuthSignature,
        Tag::ClientIdent,
        Tag::ServerIdent,
        Tag::IdentMissingFeatures,
        Tag::SessionReconnect,
        Tag::SessionReset,
        Tag::SessionRetry,
        Tag::SessionRetryGlobal,
        Tag::SessionReconnectOk,
        Tag::Wait,
        Tag::Message,
        Tag::Keepalive2,
        Tag::Keepalive2Ack,
        Tag::Ack,
    ];

    fn of(number: u8) -> Option<Tag> {
        Self::ALL.into_iter().find(|tag| *tag as u8 == number)
    }
}

/// Segments that a frame may have (`MAX_NUM_SEGMENTS`).
pub const SEGMENTS: usize = 4;
/// Bytes of `preamble_block_t`: tag, number of segments, length and alignment of each, flags, a reserved byte, a CRC.
const PREAMBLE: usize = 32;
const CRC_AT: usize = PREAMBLE - CRC;
const FLAGS_AT: usize = 26;
/// Bytes of a CRC.
const CRC: usize = 4;
/// Bytes of `epilogue_crc_rev1_block_t`: the late status, and the CRCs of all segments but the first.
const EPILOGUE: usize = 1 + (SEGMENTS - 1) * CRC;
/// Late status: the sender has sent all of the frame, or gave it up (`FRAME_LATE_STATUS_*`).
const COMPLETE: u8 = 0xe;
const ABORTED: u8 = 0x1;
const STATUS_MASK: u8 = 0xf;
/// Alignment that the sender asks for: of all segments but a message's data (`segment_t`).
const ALIGNMENT: u16 = 8;
const DATA_ALIGNMENT: u16 = 4096;
/// Bytes that are reserved for a segment before they have come.
const RESERVED: usize = 1 << 20;

/// Why bytes are no frame. The connection is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Damage.
    #[error("the CRC of the {what} is {found:#010x}, calculated {calculated:#010x}")]
    Crc {
        /// Of what.
        what: &'static str,
        /// What came.
        found: u32,
        /// What it should be.
        calculated: u32,
    },
    /// A tag that is none, or one of a feature that was not offered.
    #[error("unknown tag {0}")]
    Tag(u8),
    /// Too many segments, or none.
    #[error("{0} segments, of 1 to {SEGMENTS}")]
    Segments(u8),
    /// A last segment that is empty, of several.
    #[error("the last of several segments is empty")]
    LastEmpty,
    /// Longer than this side takes.
    #[error("segment {segment} has {bytes} bytes, at most {most} are taken")]
    TooLong {
        /// Which segment.
        segment: usize,
        /// What the preamble says.
        bytes: u32,
        /// The limit.
        most: u32,
    },
    /// Compression, which was not offered.
    #[error("flags {0:#x}: neither compression nor anything else was offered")]
    Flags(u8),
    /// A late status that is neither.
    #[error("late status {0:#x} is neither complete nor aborted")]
    LateStatus(u8),
}

/// The longest segments that are taken.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a control frame, and of a message's header, front and middle.
    pub control: u32,
    /// Bytes of a message's data.
    pub data: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { control: 1 << 20, data: 64 << 20 }
    }
}

/// A frame that has come whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub tag: Tag,
    /// Its segments; those that it has not are empty.
    pub segments: [Vec<u8>; SEGMENTS],
}

/// The bytes of a frame before and behind its last segment: what is sent between them is not copied here.
pub fn encode_frame(tag: Tag, segments: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    encode(tag, segments, segment_crc)
}

/// As [`encode_frame`], of a message: the CRC of data that were sent before is known.
pub fn encode_message(header: &[u8], front: &[u8], middle: &[u8], data: &Data) -> (Vec<u8>, Vec<u8>) {
    encode(Tag::Message, &[header, front, middle, data], |_| data.crc())
}

fn encode(tag: Tag, segments: &[&[u8]], data_crc: impl Fn(&[u8]) -> u32) -> (Vec<u8>, Vec<u8>) {
    let count = segments.iter().rposition(|segment| !segment.is_empty()).map_or(1, |last| last + 1);
    let segments = &segments[..count];
    let mut head = vec![0; PREAMBLE];
    (head[0], head[1]) = (tag as u8, count as u8);
    for (at, segment) in segments.iter().enumerate() {
        let field = &mut head[2 + 6 * at..][..6];
        field[..4].copy_from_slice(&(segment.len() as u32).to_le_bytes());
        let alignment = if tag == Tag::Message && at == SEGMENTS - 1 { DATA_ALIGNMENT } else { ALIGNMENT };
        field[4..].copy_from_slice(&alignment.to_le_bytes());
    }
    let sum = crc(0, &head[..CRC_AT]).to_le_bytes();
    head[CRC_AT..].copy_from_slice(&sum);
    let mut tail = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == count;
        if !is_last {
            head.extend_from_slice(segment);
        }
        if at == 0 && !segment.is_empty() {
            let sum = segment_crc(segment).to_le_bytes();
            if is_last { &mut tail } else { &mut head }.extend_from_slice(&sum);
        }
    }
    if count > 1 {
        tail.push(COMPLETE);
        let sums = (1..SEGMENTS).map(|at| match segments.get(at) {
            None => 0,
            Some(data) if at == SEGMENTS - 1 => data_crc(data),
            Some(segment) => segment_crc(segment),
        });
        sums.for_each(|sum| tail.extend_from_slice(&sum.to_le_bytes()));
    }
    (head, tail)
}

/// What the reader waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preamble,
    Segment(usize),
    FirstCrc,
    Epilogue,
}

/// Takes bytes as they come, and makes frames of them. Nothing is taken before its CRC is right.
#[derive(Debug)]
pub struct FrameReader {
    limits: Limits,
    stage: Stage,
    /// What has come of a preamble, a CRC or an epilogue.
    part: Vec<u8>,
    tag: Tag,
    lengths: [u32; SEGMENTS],
    count: usize,
    segments: [Vec<u8>; SEGMENTS],
}

impl FrameReader {
    /// A reader of frames within `limits`.
    pub fn new(limits: Limits) -> Self {
        FrameReader {
            limits,
            stage: Stage::Preamble,
            part: Vec::with_capacity(PREAMBLE),
            tag: Tag::Hello,
            lengths: [0; SEGMENTS],
            count: 0,
            segments: Default::default(),
        }
    }

    /// Takes bytes off the front of `bytes` until a frame is whole. `None` once all are taken.
    ///
    /// # Errors
    /// [`FrameError`]: nothing that follows makes sense.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        loop {
            if !self.fill(bytes) {
                return Ok(None);
            }
            if self.advance()? {
                let frame = Frame { tag: self.tag, segments: std::mem::take(&mut self.segments) };
                return Ok(Some(frame));
            }
        }
    }

    /// Fills what is waited for. Returns whether all of it is there.
    fn fill(&mut self, bytes: &mut &[u8]) -> bool {
        let (target, wanted) = match self.stage {
            Stage::Preamble => (&mut self.part, PREAMBLE),
            Stage::Segment(at) => (&mut self.segments[at], self.lengths[at] as usize),
            Stage::FirstCrc => (&mut self.part, CRC),
            Stage::Epilogue => (&mut self.part, EPILOGUE),
        };
        if target.is_empty() {
            target.reserve(wanted.min(RESERVED));
        }
        let (head, rest) = bytes.split_at(bytes.len().min(wanted - target.len()));
        target.extend_from_slice(head);
        *bytes = rest;
        target.len() == wanted
    }

    /// Checks what has come, and goes on to what follows. Returns whether the frame is whole.
    fn advance(&mut self) -> Result<bool, FrameError> {
        match self.stage {
            Stage::Preamble => {
                self.preamble()?;
                self.stage = Stage::Segment(0);
            }
            Stage::Segment(0) if self.lengths[0] > 0 => self.stage = Stage::FirstCrc,
            Stage::Segment(at) => return Ok(self.behind(at)),
            Stage::FirstCrc => {
                check("first segment", sum_at(&self.part, 0), segment_crc(&self.segments[0]))?;
                self.part.clear();
                return Ok(self.behind(0));
            }
            Stage::Epilogue => {
                for at in 1..self.count {
                    let found = sum_at(&self.part, 1 + (at - 1) * CRC);
                    check("segment", found, segment_crc(&self.segments[at]))?;
                }
                let status = self.part[0];
                self.part.clear();
                self.stage = Stage::Preamble;
                match status & STATUS_MASK {
                    COMPLETE => return Ok(true),
                    ABORTED => self.segments.iter_mut().for_each(Vec::clear),
                    _ => return Err(FrameError::LateStatus(status)),
                }
            }
        }
        Ok(false)
    }

    /// Goes on behind segment `at`. Returns whether the frame is whole: without others it has no epilogue.
    fn behind(&mut self, at: usize) -> bool {
        self.stage = match (at + 1 == self.count, self.count) {
            (true, 1) => Stage::Preamble,
            (true, _) => Stage::Epilogue,
            (false, _) => Stage::Segment(at + 1),
        };
        self.stage == Stage::Preamble
    }

    fn preamble(&mut self) -> Result<(), FrameError> {
        let part = &self.part;
        check("preamble", sum_at(part, CRC_AT), crc(0, &part[..CRC_AT]))?;
        let (tag, count, flags) = (part[0], part[1], part[FLAGS_AT]);
        self.tag = Tag::of(tag).ok_or(FrameError::Tag(tag))?;
        if !(1..=SEGMENTS as u8).contains(&count) {
            return Err(FrameError::Segments(count));
        }
        if flags != 0 {
            return Err(FrameError::Flags(flags));
        }
        self.count = usize::from(count);
        for segment in 0..SEGMENTS {
            let bytes = if segment < self.count { sum_at(part, 2 + 6 * segment) } else { 0 };
            let is_data = self.tag == Tag::Message && segment == SEGMENTS - 1;
            let most = if is_data { self.limits.data } else { self.limits.control };
            if bytes > most {
                return Err(FrameError::TooLong { segment, bytes, most });
            }
            self.lengths[segment] = bytes;
        }
        if self.count > 1 && self.lengths[self.count - 1] == 0 {
            return Err(FrameError::LastEmpty);
        }
        self.part.clear();
        Ok(())
    }
}

/// The four bytes at `at`, as a number.
fn sum_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn check(what: &'static str, found: u32, calculated: u32) -> Result<(), FrameError> {
    if found == calculated { Ok(()) } else { Err(FrameError::Crc { what, found, calculated }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(tag: Tag, segments: &[&[u8]]) -> Vec<u8> {
        let (head, tail) = encode_frame(tag, segments);
        let last = segments.iter().rfind(|segment| !segment.is_empty()).copied().unwrap_or_default();
        [&head, last, &tail].concat()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let (mut reader, mut frames, mut rest) = (FrameReader::new(Limits::default()), vec![], bytes);
        while let Some(frame) = reader.read(&mut rest)? {
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Changes a preamble, and makes its CRC right.
    fn with_preamble(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = bytes_of(Tag::Message, &[b"header", b"front"]);
        change(&mut bytes[..CRC_AT]);
        let sum = crc(0, &bytes[..CRC_AT]).to_le_bytes();
        bytes[CRC_AT..PREAMBLE].copy_from_slice(&sum);
        bytes
    }

    #[test]
    fn frames_have_ceph_s_lengths() {
        assert_eq!(bytes_of(Tag::Wait, &[b""]).len(), 32);
        assert_eq!(bytes_of(Tag::Ack, &[&[0; 8]]).len(), 32 + 8 + 4);
        assert_eq!(bytes_of(Tag::Message, &[&[0; 41], &[0; 10], b"", &[0; 100]]).len(), 32 + 41 + 4 + 10 + 100 + 13);
        assert_eq!(bytes_of(Tag::Message, &[&[0; 41], &[0; 10], b"", b""])[1], 2, "segments");
    }

    #[test]
    fn lies_of_a_preamble_are_refused() {
        let mut damaged = bytes_of(Tag::Ack, &[&[7; 8]]);
        damaged[4] ^= 1;
        assert!(matches!(read(&damaged), Err(FrameError::Crc { what: "preamble", .. })));
        assert_eq!(read(&with_preamble(|bytes| bytes[0] = 0)), Err(FrameError::Tag(0)));
        assert_eq!(read(&with_preamble(|bytes| bytes[0] = 21)), Err(FrameError::Tag(21)));
        for count in [0, 5, 255] {
            assert_eq!(read(&with_preamble(|bytes| bytes[1] = count)), Err(FrameError::Segments(count)));
        }
        assert_eq!(read(&with_preamble(|bytes| bytes[1] = 3)), Err(FrameError::LastEmpty));
        assert_eq!(read(&with_preamble(|bytes| bytes[FLAGS_AT] = 1)), Err(FrameError::Flags(1)));
        let long = with_preamble(|bytes| bytes[5] = 0xff);
        assert!(matches!(read(&long), Err(FrameError::TooLong { segment: 0, .. })));
    }

    #[test]
    fn damage_to_a_segment_and_a_wrong_late_status_are_refused_and_an_aborted_frame_is_dropped() {
        let bytes = bytes_of(Tag::Message, &[b"header", b"front"]);
        for at in [PREAMBLE, PREAMBLE + 6, PREAMBLE + 10, bytes.len() - 12] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            assert!(matches!(read(&damaged), Err(FrameError::Crc { .. })), "byte {at}");
        }
        let mut late = bytes.clone();
        late[bytes.len() - EPILOGUE] = 0;
        assert_eq!(read(&late), Err(FrameError::LateStatus(0)));
        late[bytes.len() - EPILOGUE] = ABORTED;
        let both = [late, bytes.clone()].concat();
        assert_eq!(read(&both).unwrap(), read(&bytes).unwrap());
    }

    proptest! {
        #[test]
        fn frames_are_read_back_however_they_come(
            first in proptest::collection::vec(any::<u8>(), 0..50),
            front in proptest::collection::vec(any::<u8>(), 0..300),
            data in proptest::collection::vec(any::<u8>(), 0..3000),
            piece in 1usize..500,
        ) {
            let bytes = bytes_of(Tag::Message, &[&first, &front, b"", &data]);
            let shared = Data::from(data.clone());
            for _ in 0..2 {
                let (head, tail) = encode_message(&first, &front, b"", &shared);
                prop_assert_eq!((head, tail), encode_frame(Tag::Message, &[&first, &front, b"", &data]));
            }
            let (mut reader, mut frames) = (FrameReader::new(Limits::default()), vec![]);
            for mut piece in [&bytes[..], &bytes[..]].concat().chunks(piece) {
                while let Some(frame) = reader.read(&mut piece).unwrap() {
                    frames.push(frame);
                }
            }
            let frame = Frame { tag: Tag::Message, segments: [first, front, vec![], data] };
            prop_assert_eq!(frames, vec![frame.clone(), frame]);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let framed = with_preamble(|head| {
                let len = bytes.len().min(CRC_AT);
                head[..len].copy_from_slice(&bytes[..len]);
            });
            let _ = read(&framed);
        }
    }
}
