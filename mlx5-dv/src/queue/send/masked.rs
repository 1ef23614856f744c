//! Masked atomics ("extended atomics"), which verbs do not have: of a number's bits, any are compared, swapped or added
//! to. Layout: PRM "Extended Atomic Segment"; meaning: MLNX_OFED manual, "Advanced Transport".

use mlx5_prm::wqe::{SEGMENT, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ring::Room;
use super::service::Service;
use super::wqe::{Head, Request, WrFlags};
use crate::caps::AtomicOrder;
use crate::memory::{DataSegment, RemoteAddress};
use crate::queue::error::PostError;

/// Bytes of the longest number.
pub(in crate::queue) const LONGEST_NUMBER: usize = 32;

pub(in crate::queue) mod sealed {
    use crate::caps::AtomicOrder;

    pub trait Sealed {
        /// Stores the number at the start of `room`, as a WQE has it.
        fn put(self, room: &mut [u8]);
        /// The number at the start of `room`, as the card writes what an atomic found.
        fn get(room: &[u8; super::LONGEST_NUMBER], order: AtomicOrder) -> Self;
    }
}
use sealed::Sealed;

/// What a masked atomic works on: `u32`, `u64`, or two or four `u64` that change together; the atomics of verbs work on
/// a `u64`. The remote's memory has them in its host's byte order, one after the other.
pub trait MaskedNumber: Sealed + Copy {
    /// Their bytes: 4, 8, 16 or 32. The remote address must be a multiple of them.
    const BYTES: usize;
    /// What an atomic found, from a copy of the element that it was written to: not always the order of the host.
    /// `order` is [`Caps::atomic_order`](crate::Caps::atomic_order). `None` for an element of another length.
    ///
    /// Where the element is, [`MemoryRegion::found`](crate::objects::MemoryRegion::found),
    /// [`Buffer::found`](crate::objects::Buffer::found) and [`Done::found`](crate::queue::Done::found) know the order.
    fn found(element: &[u8], order: AtomicOrder) -> Option<Self> {
        let mut room = [0; LONGEST_NUMBER];
        (element.len() == Self::BYTES).then(|| {
            room[..Self::BYTES].copy_from_slice(element);
            Self::get(&room, order)
        })
    }
}

impl Sealed for u32 {
    #[inline(always)]
    fn put(self, room: &mut [u8]) {
        room[..4].copy_from_slice(&self.to_be_bytes());
    }

    #[inline]
    fn get(room: &[u8; LONGEST_NUMBER], _: AtomicOrder) -> Self {
        let [a, b, c, d, ..] = *room;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl MaskedNumber for u32 {
    const BYTES: usize = 4;
}

impl Sealed for u64 {
    #[inline(always)]
    fn put(self, room: &mut [u8]) {
        room[..8].copy_from_slice(&self.to_be_bytes());
    }

    // The only ones whose order a driver can choose: `atomic_req_8B_endianness_mode`.
    #[inline]
    fn get(room: &[u8; LONGEST_NUMBER], order: AtomicOrder) -> Self {
        order.number(room.as_chunks().0[0])
    }
}

impl MaskedNumber for u64 {
    const BYTES: usize = 8;
}

macro_rules! several {
    ($count:literal) => {
        impl Sealed for [u64; $count] {
            #[inline(always)]
            fn put(self, room: &mut [u8]) {
                for (room, number) in room.chunks_exact_mut(8).zip(self) {
                    room.copy_from_slice(&number.to_be_bytes());
                }
            }

            #[inline]
            fn get(room: &[u8; LONGEST_NUMBER], _: AtomicOrder) -> Self {
                std::array::from_fn(|i| u64::from_be_bytes(room.as_chunks().0[i]))
            }
        }

        impl MaskedNumber for [u64; $count] {
            const BYTES: usize = 8 * $count;
        }
    };
}
several!(2);
several!(4);

/// A masked compare and swap: if the bits of `compare_mask` equal those of `compare`, then the bits of `swap_mask`
/// become those of `swap`. All numbers are swapped, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedSwap<N> {
    /// What must be there.
    pub compare: N,
    /// The bits that are compared.
    pub compare_mask: N,
    /// What is to be there.
    pub swap: N,
    /// The bits that are replaced.
    pub swap_mask: N,
}

/// A masked fetch and add: adds to several fields at once, each modulo its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedAdd<N> {
    /// What is added.
    pub add: N,
    /// The highest bit of each field: no carry leaves it. 0: each number is one field.
    pub boundaries: N,
}

/// Bytes of the longest operands.
const LONGEST: usize = 4 * LONGEST_NUMBER;

/// `opmod` of a masked atomic of `bytes`.
const fn opmod(bytes: usize) -> u8 {
    const MASKED: u8 = 1 << 3;
    MASKED | (bytes.trailing_zeros() as u8 - 2)
}

/// Stores operands of `bytes` bytes from segment `at` on.
#[inline(always)]
fn store(room: &mut Room<'_>, at: usize, operands: &[u8; LONGEST], bytes: usize) {
    for (i, segment) in operands.as_chunks::<SEGMENT>().0.iter().take(bytes.div_ceil(SEGMENT)).enumerate() {
        room.store(at + i, zerocopy::transmute!(*segment));
    }
}

/// `[ swap | compare | swap mask | compare mask ]`.
impl<N: MaskedNumber> Head for MaskedSwap<N> {
    const LONG: bool = true;
    const OPMOD: u8 = opmod(N::BYTES);

    #[inline(always)]
    fn segments(&self) -> usize {
        4 * N::BYTES / SEGMENT
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut operands = [0; LONGEST];
        for (i, operand) in [self.swap, self.compare, self.swap_mask, self.compare_mask].into_iter().enumerate() {
            operand.put(&mut operands[i * N::BYTES..(i + 1) * N::BYTES]);
        }
        store(room, at, &operands, 4 * N::BYTES);
    }
}

/// `[ add | boundaries ]`, padded to a segment.
impl<N: MaskedNumber> Head for MaskedAdd<N> {
    const LONG: bool = true;
    const OPMOD: u8 = opmod(N::BYTES);

    #[inline(always)]
    fn segments(&self) -> usize {
        (2 * N::BYTES).div_ceil(SEGMENT)
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut operands = [0; LONGEST];
        self.add.put(&mut operands[..N::BYTES]);
        self.boundaries.put(&mut operands[N::BYTES..2 * N::BYTES]);
        store(room, at, &operands, 2 * N::BYTES);
    }
}

impl<D: SendDoorbell> SendBatch<'_, D> {
    /// Masked ATOMIC compare and swap of the numbers at `remote`, which is a multiple of [`MaskedNumber::BYTES`]. What
    /// was there is written to `element`, of as many bytes: see [`MaskedNumber::found`]. Otherwise as
    /// [`compare_swap`](Self::compare_swap). The remote's queue pair allows it if its card has masked atomics, too.
    /// Errors: [`PostError`]; [`PostError::NoMaskedAtomics`] on a card without those of this size.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicMaskedCs, wr_id, flags, imm: 0 };
        self.post_masked::<N>(self.service.0.masked, request, (remote, swap), element)
    }

    /// Masked ATOMIC fetch and add to the numbers at `remote`; otherwise as
    /// [`masked_compare_swap`](Self::masked_compare_swap).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicMaskedFa, wr_id, flags, imm: 0 };
        self.post_masked::<N>(self.service.0.masked, request, (remote, add), element)
    }
}

impl<D: SendDoorbell, S: Service> SendBatch<'_, D, S> {
    /// Posts a masked atomic on a card that has those whose bytes add up to `sizes`.
    #[inline(always)]
    pub(super) fn post_masked<N: MaskedNumber>(
        &mut self,
        sizes: u16,
        request: Request,
        head: impl Head,
        element: DataSegment,
    ) -> Result<(), PostError> {
        if usize::from(sizes) & N::BYTES == 0 {
            return Err(PostError::NoMaskedAtomics { bytes: N::BYTES });
        }
        if element.len as usize != N::BYTES {
            return Err(PostError::MaskedAtomicLength { given: element.len, needed: N::BYTES });
        }
        let (given, most) = ((2 + head.segments()).div_ceil(4), self.ring.capacity());
        if given > most {
            return Err(PostError::WqeTooLong { given, most });
        }
        self.post_one(request, head, &element)
    }
}

#[cfg(test)]
mod tests {
    use mlx5_prm::layout::Layout;
    use mlx5_prm::wqe::MaskedAtomicSeg;

    use super::*;

    /// The operands of a head, as they stand in a WQE.
    fn operands(put: impl Fn(&mut [u8; LONGEST])) -> Vec<u8> {
        let mut bytes = [0; LONGEST];
        put(&mut bytes);
        bytes.to_vec()
    }

    #[test]
    fn numbers_of_eight_bytes_are_the_kernels_segment() {
        let bytes =
            operands(|room| (0..4).for_each(|i| (0x0101_0101_0101_0101u64 * (i + 1)).put(&mut room[8 * i as usize..])));
        let segment = MaskedAtomicSeg::read(&bytes).unwrap();
        assert_eq!([segment.swap_add(), segment.compare()], [1, 2].map(|i| 0x0101_0101_0101_0101u64 * i));
        assert_eq!([segment.swap_add_mask(), segment.compare_mask()], [3, 4].map(|i| 0x0101_0101_0101_0101u64 * i));
    }

    #[test]
    fn the_size_is_in_opmod() {
        assert_eq!([4, 8, 16, 32].map(opmod), [8, 9, 10, 11], "as UCX has it");
        let swap = MaskedSwap { compare: 0u32, compare_mask: 0, swap: 0, swap_mask: 0 };
        assert_eq!((swap.segments(), MaskedAdd { add: 0u32, boundaries: 0 }.segments()), (1, 1));
        let swap = MaskedSwap { compare: [0u64; 4], compare_mask: [0; 4], swap: [0; 4], swap_mask: [0; 4] };
        assert_eq!((swap.segments(), MaskedAdd { add: [0u64; 4], boundaries: [0; 4] }.segments()), (8, 4));
    }
}
