//! What a protocol has to say, until a stream takes it.

use std::collections::VecDeque;

use crate::wire::Data;

/// Bytes in a row: of this connection alone, or of a message that is sent again if the connection breaks.
#[derive(Debug)]
pub(super) enum Part {
    Own(Vec<u8>),
    Shared(Data),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Own(bytes) => bytes,
            Part::Shared(bytes) => bytes,
        }
    }
}

/// Parts in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    parts: VecDeque<Part>,
    /// Bytes of the first part that are taken.
    taken: usize,
    bytes: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, part: Part) {
        if !part.bytes().is_empty() {
            self.bytes += part.bytes().len();
            self.parts.push_back(part);
        }
    }

    /// Bytes that no stream has taken.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first parts, of `N` at most.
    pub(super) fn first<const N: usize>(&self) -> [&[u8]; N] {
        let mut first = [&[][..]; N];
        for (at, (slot, part)) in first.iter_mut().zip(&self.parts).enumerate() {
            *slot = &part.bytes()[if at == 0 { self.taken } else { 0 }..];
        }
        first
    }

    /// Removes the first `bytes`.
    pub(super) fn take(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.taken += bytes;
        while let Some(first) = self.parts.front()
            && self.taken >= first.bytes().len()
        {
            self.taken -= first.bytes().len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_in_any_pieces() {
        let mut outbox = Outbox::default();
        outbox.push(Part::Own(b"abc".to_vec()));
        outbox.push(Part::Own(vec![]));
        outbox.push(Part::Shared(b"defg".to_vec().into()));
        let mut all = vec![];
        while outbox.bytes() > 0 {
            let first = outbox.first::<2>().concat();
            all.push(first[0]);
            outbox.take(1);
        }
        assert_eq!((all.as_slice(), outbox.first::<1>()), (&b"abcdefg"[..], [&[][..]]));
    }
}
