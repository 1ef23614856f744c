//! Memory of a queue: its ring or rings, followed by the doorbell record.

use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_prm::ctx::{Wq, WqType};
use mlx5_prm::layout::Be64;
use mlx5_prm::wqe::{SEGMENT, WQEBB};

use super::check::within;
use super::pd::Pd;
use super::umem::Umem;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::memory::DmaBuffer;

/// A umem: `[ ring bytes | doorbell record ]`. The record has its own cache line.
#[derive(Debug)]
pub(super) struct RingMemory {
    umem: Umem,
    ring_len: usize,
}

/// Requirements of a send ring.
pub(super) struct WantedSendRing {
    /// The option that sets the number of WQEs, with its unit, for errors.
    pub(super) wqes_name: &'static str,
    /// Number of WQEs of the largest kind that must fit.
    pub(super) wqes: u32,
    /// Segments of such a WQE.
    pub(super) segments: u64,
    /// The option that sets `segments`, for errors.
    pub(super) sges_name: &'static str,
    pub(super) sges: u16,
    pub(super) inline_bytes: u16,
}

/// The largest number of segments in `ds`.
const MAX_SEGMENTS: u64 = 63;
/// Log of the largest ring in WQEBBs: a 16-bit index must distinguish a full ring from an empty one.
const LOG_MAX_WQEBBS: u8 = 15;

impl WantedSendRing {
    /// Log of the number of WQEBBs; the limit is `1 << log_most`, from `capability`.
    pub(super) fn log_size(&self, caps: &Caps, capability: &'static str, log_most: u8) -> Result<u32, Invalid> {
        let WantedSendRing { segments, sges, inline_bytes, .. } = *self;
        let most = (u64::from(caps.max_wqe_sz_sq) / SEGMENT as u64).min(MAX_SEGMENTS);
        if segments > most {
            let [needed, most] = [segments, most].map(|segments| segments * SEGMENT as u64);
            let (inline_bytes, capability) = (Some(inline_bytes), "max_wqe_sz_sq");
            return Err(Invalid::WqeTooLong { what: self.sges_name, sges, inline_bytes, needed, most, capability });
        }
        let wqebbs = segments.div_ceil((WQEBB / SEGMENT) as u64) * u64::from(self.wqes);
        let wqebbs = wqebbs.next_power_of_two();
        within(self.wqes_name, wqebbs, capability, log_most.min(LOG_MAX_WQEBBS))?;
        Ok(wqebbs.trailing_zeros())
    }
}

/// The smallest page of the card's.
const PAGE: usize = 4096;
/// Bytes kept for a doorbell record.
const RECORD: usize = 64;

impl RingMemory {
    /// Allocates `ring_len` bytes of rings, a multiple of 64, filled with `fill`, and a zeroed record, in memory of
    /// `pd`.
    pub(super) fn new(pd: &Pd, ring_len: usize, fill: u8) -> Result<Self, Error> {
        Self::of(pd.device(), pd.alloc_ring(ring_len + RECORD)?, ring_len, fill)
    }

    /// As [`new`](Self::new), for queues that need no protection domain and may have one.
    pub(super) fn in_domain(
        device: &Arc<Device>,
        pd: Option<&Arc<Pd>>,
        ring_len: usize,
        fill: u8,
    ) -> Result<Self, Error> {
        match pd {
            Some(pd) => Self::new(pd, ring_len, fill),
            None => Self::of(device, Arc::clone(device.access()).alloc_dma(ring_len + RECORD)?, ring_len, fill),
        }
    }

    fn of(device: &Arc<Device>, memory: DmaBuffer, ring_len: usize, fill: u8) -> Result<Self, Error> {
        memory.fill(0, ring_len, fill);
        memory.zero(ring_len, RECORD);
        Ok(RingMemory { umem: Umem::register(device, memory)?, ring_len })
    }

    /// `umem_id` for contexts, of rings and record.
    pub(super) fn umem_id(&self) -> u32 {
        self.umem.id()
    }

    /// Offset of the record in the umem.
    pub(super) fn record_offset(&self) -> u64 {
        self.ring_len as u64
    }

    /// The `wq` context of the single ring in this memory: `1 << log_size` entries of `1 << log_stride` bytes.
    pub(super) fn wq(&self, wq_type: WqType, pdn: u32, log_size: u32, log_stride: u32) -> Wq {
        let mut wq = Wq::default();
        wq.w()
            .wq_type(wq_type)
            .pd(pdn)
            .dbr_addr(self.record_offset())
            .dbr_umem_valid(true)
            .dbr_umem_id(self.umem_id())
            .wq_umem_valid(true)
            .wq_umem_id(self.umem_id())
            .log_wq_stride(log_stride as u8)
            .log_wq_sz(log_size as u8);
        wq
    }

    /// The pages of 4 KiB from the first on, and the record, by the addresses that the card has for them; nothing where
    /// the memory is gone. For contexts that name no umem.
    pub(super) fn pages(&self) -> (Vec<Be64>, u64) {
        let Some(memory) = self.umem.memory() else { return (vec![], 0) };
        let (first, last) = (memory.iova().0, memory.iova().0 + self.ring_len as u64);
        ((first..last).step_by(PAGE).map(Be64::new).collect(), last)
    }

    /// Byte `offset` of the rings in this process.
    pub(super) fn at(&self, offset: usize) -> Result<NonNull<u8>, Error> {
        let memory = self.umem.memory().filter(|memory| offset < memory.len());
        let address = memory.map(|memory| memory.as_ptr().wrapping_add(offset));
        address.and_then(NonNull::new).ok_or(Error::Invalid(Invalid::Empty { what: "a queue", lacks: "memory" }))
    }

    /// Address of the record in this process.
    pub(super) fn record(&self) -> Result<NonNull<u8>, Error> {
        self.at(self.ring_len)
    }

    /// Fills rings and record as when they were new.
    pub(super) fn clear(&self) {
        if let Some(memory) = self.umem.memory() {
            DmaBuffer::zero(memory, 0, self.ring_len + RECORD);
        }
    }

    /// Copies from byte `offset` of the rings; does nothing if the memory is gone.
    pub(super) fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        if let Some(memory) = self.umem.memory() {
            memory.copy_out(offset, bytes);
        }
    }

    /// Copies `bytes` to byte `offset` of the rings; nothing where the memory is gone.
    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        if let Some(memory) = self.umem.memory() {
            memory.copy_in(offset, bytes);
        }
    }

    /// The big-endian dword at byte `offset` of the rings; what the card wrote before it is visible afterwards.
    pub(super) fn load(&self, offset: usize) -> u32 {
        self.umem.memory().map_or(0, |memory| memory.load_be32(offset))
    }

    /// Consumer index of a completion queue, modulo 2^24, from its record. 0 if the memory is gone.
    pub(super) fn consumed(&self) -> u32 {
        // SAFETY: the record is behind the ring, aligned to 64, in memory that this value keeps. While a queue is
        // leased only its `CqRecord` stores there; `new` stored before that, and `clear` is used only for rings of work
        // requests.
        self.record().map_or(0, |record| unsafe { uar::CqRecord::consumed(record) })
    }

    /// Receives posted, modulo 2^16, as the record says. 0 where the memory is gone.
    pub(super) fn posted(&self) -> u32 {
        self.load(self.ring_len) & 0xffff
    }

    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        self.umem.destroy()
    }

    /// Leaks the memory on purpose: the queue could not be destroyed, and the card may still write it.
    pub(super) fn leak(&mut self) {
        self.umem.leak();
    }
}
