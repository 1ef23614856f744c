//! Which RDMA WRITEs carry the bytes of one end's buffers to the other end's fragments.

use std::collections::VecDeque;

use crate::wire::RdmaDescriptor;

/// An RDMA WRITE: pieces of the buffers, in order, to one remote address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) addr: u64,
    /// Bytes of each piece: none is of more than one buffer.
    pub(crate) pieces: Vec<usize>,
}

/// Why a transfer cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The other end's memory is shorter than the data, or the data than it.
    #[error("{bytes} bytes between memory of {source_bytes} and {sink_bytes}")]
    Exhausted {
        /// Bytes of the transfer.
        bytes: u64,
        /// Bytes of the source.
        source_bytes: u64,
        /// Bytes of the sink.
        sink_bytes: u64,
    },
    /// It takes more RDMA WRITEs than the connection allows fragments.
    #[error("more RDMA WRITEs than the {0} fragments of the connection")]
    TooManyFragments(u16),
}

impl PlanError {
    /// The error number that o2iblnd tells the other end: `kiblnd_init_rdma` of `o2iblnd_cb.c`.
    pub(crate) fn status(&self) -> i32 {
        match self {
            PlanError::Exhausted { .. } => crate::status::EPROTO,
            PlanError::TooManyFragments(_) => crate::status::EMSGSIZE,
        }
    }
}

/// The RDMA WRITEs of `bytes` bytes from buffers of `parts` bytes. `kiblnd_init_rdma`.
pub(crate) fn plan(
    parts: &[usize],
    sink: &RdmaDescriptor,
    bytes: u64,
    most_pieces: usize,
    max_fragments: u16,
) -> Result<VecDeque<Write>, PlanError> {
    let source_bytes = parts.iter().map(|&part| part as u64).sum();
    if bytes > source_bytes || bytes > sink.len() {
        return Err(PlanError::Exhausted { bytes, source_bytes, sink_bytes: sink.len() });
    }
    let mut writes: VecDeque<Write> = VecDeque::new();
    let (mut parts, mut part, mut left) = (parts.iter(), 0, bytes);
    for fragment in &sink.fragments {
        let mut rest = u64::from(fragment.len).min(left);
        let mut addr = fragment.addr;
        let mut is_new = true;
        left -= rest;
        while rest > 0 {
            if part == 0 {
                part = parts.next().copied().unwrap_or(0);
                continue;
            }
            let piece = (part as u64).min(rest);
            let count = writes.len();
            match writes.back_mut().filter(|write| !is_new && write.pieces.len() < most_pieces) {
                Some(write) => write.pieces.push(piece as usize),
                None if count == usize::from(max_fragments) => {
                    return Err(PlanError::TooManyFragments(max_fragments));
                }
                None => writes.push_back(Write { addr, pieces: vec![piece as usize] }),
            }
            is_new = false;
            addr = addr.wrapping_add(piece);
            rest -= piece;
            part -= piece as usize;
        }
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Fragment;

    proptest! {
        /// Carries out a plan by copies, and compares.
        #[test]
        fn every_byte_goes_to_its_place_once(
            parts in proptest::collection::vec(1usize..40, 1..20),
            fragments in proptest::collection::vec(0u32..60, 1..20),
            most_pieces in 1usize..6,
            share in 0.0f64..1.0,
        ) {
            let mut next = 0;
            let fragments: Vec<_> = fragments.iter().map(|&len| {
                let addr = next;
                next += u64::from(len) + 7;
                Fragment { len, addr }
            }).collect();
            let sink = RdmaDescriptor { key: 1, fragments };
            let source: Vec<u8> = (0..parts.iter().sum::<usize>()).map(|byte| byte as u8 | 1).collect();
            let bytes = ((source.len() as u64).min(sink.len()) as f64 * share) as u64;
            let writes = plan(&parts, &sink, bytes, most_pieces, u16::MAX).unwrap();
            let (mut memory, mut at, mut of_part, mut part) = (vec![0u8; next as usize], 0, 0, parts.iter());
            for write in &writes {
                prop_assert!(!write.pieces.is_empty() && write.pieces.len() <= most_pieces);
                let mut addr = write.addr as usize;
                for &piece in &write.pieces {
                    if of_part == 0 { of_part = *part.next().unwrap(); }
                    prop_assert!(piece > 0 && piece <= of_part, "a piece of two buffers");
                    of_part -= piece;
                    memory[addr..addr + piece].copy_from_slice(&source[at..at + piece]);
                    addr += piece;
                    at += piece;
                }
            }
            prop_assert_eq!(at as u64, bytes);
            let gathered: Vec<u8> = sink.fragments.iter().flat_map(|fragment| {
                memory[fragment.addr as usize..][..fragment.len as usize].to_vec()
            }).collect();
            prop_assert_eq!(&gathered[..at], &source[..at]);
            prop_assert!(memory.iter().filter(|&&byte| byte != 0).count() == at, "bytes elsewhere");
        }
    }

    #[test]
    fn memory_that_is_too_short_and_fragments_that_are_too_many_are_refused() {
        let sink = |lens: &[u32]| RdmaDescriptor {
            key: 1,
            fragments: lens.iter().map(|&len| Fragment { len, addr: 0 }).collect(),
        };
        assert!(matches!(plan(&[10], &sink(&[9]), 10, 4, 9), Err(PlanError::Exhausted { sink_bytes: 9, .. })));
        assert!(matches!(plan(&[9], &sink(&[10]), 10, 4, 9), Err(PlanError::Exhausted { source_bytes: 9, .. })));
        assert_eq!(plan(&[9], &sink(&[3, 3, 3]), 9, 4, 2), Err(PlanError::TooManyFragments(2)));
        assert_eq!(plan(&[1; 256], &sink(&[256]), 256, 14, 257).unwrap().len(), 19);
        // Lengths whose sum is beyond 32 bits.
        assert!(plan(&[9], &sink(&[u32::MAX; 5]), 9, 4, 2).is_ok());
    }
}
