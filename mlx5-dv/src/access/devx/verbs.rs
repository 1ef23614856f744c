//! Objects of the kernel's own making: protection domains, regions and device memory, which other processes may import.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use mlx5_prm::caps::DeviceMemCap;
use mlx5_prm::cmd::{MemicOperation, Opcode};
use zerocopy::IntoBytes;

use super::call::{Call, Done, not_registered};
use super::{Devx, UMEM_PAGES};
use crate::access::{
    Advice, CardMemory, KernelObjectKind, KernelRegion, KernelVerbs, KernelXrc, MemicHandle, ObjectHandle, UmemHandle,
};
use crate::error::{CommandError, CommandErrorKind, Error, Invalid};
use crate::kernel::abi::shared::*;
use crate::kernel::abi::*;
use crate::memory::HostMemory;

/// Offset in the device file of page `index` of device memory.
fn page_offset(index: u16) -> u64 {
    let index = u64::from(index);
    let page = index & 0xff | MLX5_IB_MMAP_DEVICE_MEM << 8 | index >> 8 << 16;
    page * rustix::param::page_size() as u64
}

impl Devx {
    /// The error for a query of `kind` by `handle` that failed: a handle that is none, or not the context's.
    fn not_found(&self, kind: KernelObjectKind, handle: ObjectHandle, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINVAL | libc::EBADF) => {
                let (what, given) = ("handle of an object of this context", format!("{} ({kind})", handle.0));
                let mend = "take it from the process that has the object, with a descriptor of the same context";
                Invalid::NotA { what, given, mend: Some(mend) }.into()
            }
            _ => Error::io(format!("querying the kernel for a {kind}"), error),
        }
    }

    /// Maps `len` bytes of device memory that start `offset` bytes into page `index`.
    fn map_memic(&self, index: u16, offset: u64, len: u32, handle: ObjectHandle) -> Result<MemicHandle, Error> {
        let page = rustix::param::page_size();
        // The kernel gives the offset in the page; older ones the address in the BAR.
        let offset = offset as usize % page;
        let room = (offset + len as usize).next_multiple_of(page);
        let mapping = u32::try_from(room).map_err(io::Error::other).and_then(|room| self.map(page_offset(index), room));
        let mapping = mapping.map_err(|error| Error::io("mapping device memory", error))?;
        Ok(MemicHandle::of_kernel(handle, len, (mapping, offset)))
    }

    fn alloc_dm(&self, len: u32) -> io::Result<(ObjectHandle, u16, u64)> {
        let (mut offset, mut index) = (0u64, 0u16);
        let done = Call::new(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC)
            .fresh(UVERBS_ATTR_ALLOC_DM_HANDLE)?
            .number(UVERBS_ATTR_ALLOC_DM_LENGTH, len.into())?
            .input(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, 0u32.as_bytes())?
            .output(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, offset.as_mut_bytes())?
            .output(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, index.as_mut_bytes())?
            .run(self.file())?;
        Ok((done.handle(UVERBS_ATTR_ALLOC_DM_HANDLE)?, index, offset))
    }

    /// Destroys an object by a call of the older interface.
    fn end_by(&self, command: u64, input: &[u8], output: &mut [u8]) -> Result<(), CommandErrorKind> {
        let called = Call::write(command, input, output).and_then(|call| call.run(self.file()));
        self.ended(called).map_err(|error| self.failed(error))
    }

    fn send_reg_dm_mr(&self, call: DmRegion, lkey: &mut u32, rkey: &mut u32) -> io::Result<Done> {
        Call::new(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG)
            .fresh(UVERBS_ATTR_REG_DM_MR_HANDLE)?
            .number(UVERBS_ATTR_REG_DM_MR_OFFSET, call.offset)?
            .number(UVERBS_ATTR_REG_DM_MR_LENGTH, call.len)?
            .handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, call.pd)?
            .number(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, (call.access | IB_UVERBS_ACCESS_ZERO_BASED).into())?
            .handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, call.memory)?
            .output(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, lkey.as_mut_bytes())?
            .output(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, rkey.as_mut_bytes())?
            .run(self.file())
    }
}

/// Bytes of device memory to register.
#[derive(Debug, Clone, Copy)]
struct DmRegion {
    pd: ObjectHandle,
    memory: ObjectHandle,
    offset: u64,
    len: u64,
    access: u32,
}

impl Devx {
    /// Registers `len` bytes at `addr`, whose key counts from `start`.
    fn send_reg_mr(
        &self,
        pd: ObjectHandle,
        addr: u64,
        len: u64,
        start: u64,
        access: u32,
    ) -> Result<KernelRegion, Error> {
        let input =
            RegMr { response: 0, start: addr, length: len, hca_va: start, pd_handle: pd.0, access_flags: access };
        let mut output = RegMrResp::default();
        Call::write(IB_USER_VERBS_CMD_REG_MR, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.run(self.file()))
            .map_err(|source| not_registered(format!("{len} bytes of memory"), source))?;
        let (handle, lkey, rkey) = (ObjectHandle(output.mr_handle), output.lkey, output.rkey);
        Ok(KernelRegion { handle, addr: start, len, lkey, rkey })
    }
}

impl KernelVerbs for Devx {
    fn xrc(&self) -> &dyn KernelXrc {
        self
    }

    fn context(&self) -> Result<OwnedFd, Error> {
        self.file().try_clone_to_owned().map_err(|error| Error::io("duplicating the context's descriptor", error))
    }

    fn alloc_pd(&self) -> Result<(ObjectHandle, u32), CommandError> {
        let (opcode, object) = (Opcode::AllocPd, String::new());
        let failed = |kind| CommandError { opcode, op_mod: 0, object, kind };
        if let Err(death) = self.liveness.check() {
            return Err(failed(CommandErrorKind::Dead(death)));
        }
        let (input, mut output, mut number) =
            (AllocPd::default(), AllocPdResp::default(), AllocPdDriverResp::default());
        let called = Call::write(IB_USER_VERBS_CMD_ALLOC_PD, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.output(UVERBS_ATTR_UHW_OUT, number.as_mut_bytes()))
            .and_then(|call| call.run(self.file()));
        called.map_err(|error| failed(self.failed(error)))?;
        Ok((ObjectHandle(output.pd_handle), number.pdn))
    }

    fn query_pd(&self, pd: ObjectHandle) -> Result<u32, Error> {
        self.liveness.check()?;
        let mut pdn = 0u32;
        Call::new(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
            .handle(MLX5_IB_ATTR_QUERY_PD_HANDLE, pd)
            .and_then(|call| call.output(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pdn.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .map_err(|error| self.not_found(KernelObjectKind::Pd, pd, error))?;
        Ok(pdn)
    }

    unsafe fn reg_mr(
        &self,
        pd: ObjectHandle,
        memory: &HostMemory,
        start: u64,
        access: u32,
    ) -> Result<KernelRegion, Error> {
        self.liveness.check()?;
        let (addr, len) = (memory.address().as_ptr() as u64 + memory.data_offset() as u64, memory.data_len() as u64);
        let page = rustix::param::page_size() as u64;
        if addr % page != start % page {
            let (what, of) = ("offset in a page of this machine's", "a memory region's first byte");
            return Err(Invalid::out_of_range(what, start % page, addr % page..=addr % page, of).into());
        }
        self.send_reg_mr(pd, addr, len, start, access)
    }

    unsafe fn reg_implicit_mr(&self, pd: ObjectHandle, access: u32) -> Result<KernelRegion, Error> {
        self.liveness.check()?;
        self.send_reg_mr(pd, 0, u64::MAX, 0, access)
    }

    fn advise_mr(
        &self,
        pd: ObjectHandle,
        lkey: u32,
        addresses: Range<u64>,
        advice: Advice,
        waits: bool,
    ) -> Result<(), Error> {
        /// Bytes of a piece: a length has 32 bits.
        const PIECE: usize = 1 << 30;
        /// Pieces of a call: an attribute has less than 64 KiB.
        const PIECES: usize = 1024;
        self.liveness.check()?;
        let advice = match advice {
            Advice::Prefetch => IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
            Advice::PrefetchWrite => IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            Advice::PrefetchPresent => IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
        };
        let flags = if waits { IB_UVERBS_ADVISE_MR_FLAG_FLUSH } else { 0 };
        let end = addresses.end;
        let pieces: Vec<Sge> = addresses
            .step_by(PIECE)
            .map(|addr| Sge { addr, length: (end - addr).min(PIECE as u64) as u32, lkey })
            .collect();
        for pieces in pieces.chunks(PIECES) {
            Call::new(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR)
                .handle(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd)
                .and_then(|call| call.number(UVERBS_ATTR_ADVISE_MR_ADVICE, advice))
                .and_then(|call| call.number(UVERBS_ATTR_ADVISE_MR_FLAGS, flags))
                .and_then(|call| call.input(UVERBS_ATTR_ADVISE_MR_SGE_LIST, pieces.as_bytes()))
                .and_then(|call| call.run(self.file()))
                .map_err(|error| Error::io("bringing pages of a region on demand", error))?;
        }
        Ok(())
    }

    fn reg_dm_mr(
        &self,
        pd: ObjectHandle,
        memory: &MemicHandle,
        offset: u64,
        len: u64,
        access: u32,
    ) -> Result<KernelRegion, Error> {
        self.liveness.check()?;
        let (mut lkey, mut rkey) = (0u32, 0u32);
        let region = DmRegion { pd, memory: memory.handle(), offset, len, access };
        let handle = self
            .send_reg_dm_mr(region, &mut lkey, &mut rkey)
            .and_then(|done| done.handle(UVERBS_ATTR_REG_DM_MR_HANDLE))
            .map_err(|source| not_registered(format!("{len} bytes of device memory"), source))?;
        Ok(KernelRegion { handle, addr: 0, len, lkey, rkey })
    }

    fn query_mr(&self, region: ObjectHandle) -> Result<KernelRegion, Error> {
        self.liveness.check()?;
        let (mut lkey, mut rkey, mut len, mut addr) = (0u32, 0u32, 0u64, 0u64);
        Call::new(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
            .handle(UVERBS_ATTR_QUERY_MR_HANDLE, region)
            .and_then(|call| call.output(UVERBS_ATTR_QUERY_MR_RESP_LKEY, lkey.as_mut_bytes()))
            .and_then(|call| call.output(UVERBS_ATTR_QUERY_MR_RESP_RKEY, rkey.as_mut_bytes()))
            .and_then(|call| call.output(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, len.as_mut_bytes()))
            .and_then(|call| call.output(UVERBS_ATTR_QUERY_MR_RESP_IOVA, addr.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .map_err(|error| self.not_found(KernelObjectKind::Region, region, error))?;
        Ok(KernelRegion { handle: region, addr, len, lkey, rkey })
    }

    fn query_dm(&self, memory: ObjectHandle) -> Result<MemicHandle, Error> {
        self.liveness.check()?;
        let (mut offset, mut index, mut len) = (0u64, 0u16, 0u64);
        Call::new(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY)
            .handle(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, memory)
            .and_then(|call| call.output(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, offset.as_mut_bytes()))
            .and_then(|call| call.output(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, index.as_mut_bytes()))
            .and_then(|call| call.output(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, len.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .map_err(|error| self.not_found(KernelObjectKind::DeviceMemory, memory, error))?;
        let len = u32::try_from(len)
            .map_err(|_| Error::response("length", len, Some(0..=u32::MAX.into()), "device memory of the kernel's"))?;
        self.map_memic(index, offset, len, memory)
    }

    fn set_rate_limit(&self, context: &[u8]) -> Result<(ObjectHandle, u16), Error> {
        self.liveness.check()?;
        let mut index = 0u16;
        let done = Call::new(MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_ALLOC)
            .fresh(MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE)
            .and_then(|call| call.input(MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX, context))
            .and_then(|call| call.input(MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS, 0u32.as_bytes()))
            .and_then(|call| call.output(MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX, index.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .and_then(|done| done.handle(MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE));
        let handle = done.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC) => {
                let (what, by) = ("the card's rate limits".to_owned(), "other rates".to_owned());
                Invalid::Taken { what, by, mend: "use a rate that another queue has" }.into()
            }
            _ => Error::io("setting a rate limit in the kernel", error),
        })?;
        Ok((handle, index))
    }

    fn register_dma_buf(&self, file: BorrowedFd<'_>, pages: Range<u64>, writable: bool) -> Result<UmemHandle, Error> {
        self.liveness.check()?;
        let rights = if writable { IB_UVERBS_ACCESS_LOCAL_WRITE } else { 0 };
        let (len, mut umem_id) = (pages.end - pages.start, 0u32);
        let called = Call::new(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG)
            .fresh(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, pages.start))
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, len))
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, rights.into()))
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, UMEM_PAGES))
            .and_then(|call| call.descriptor(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, file))
            .and_then(|call| call.output(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, umem_id.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .and_then(|done| done.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE));
        let handle = called.map_err(|source| {
            let why = match source.raw_os_error() {
                Some(libc::EINVAL) => ": the file is no dma-buf, or ends before",
                Some(libc::EOPNOTSUPP) => ": its exporter cannot pin it",
                Some(libc::EPROTONOSUPPORT) => ": this kernel is older than 6.1",
                _ => "",
            };
            not_registered(format!("bytes {} to {} of a dma-buf{why}", pages.start, pages.end), source)
        })?;
        Ok(UmemHandle::of_dma_buf(umem_id, handle))
    }

    fn destroy(&self, kind: KernelObjectKind, object: ObjectHandle) -> Result<(), CommandError> {
        let (opcode, ended) = match kind {
            KernelObjectKind::Pd => {
                let attribute = UVERBS_ATTR_DESTROY_PD_HANDLE;
                (Opcode::DeallocPd, self.end(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, attribute, object))
            }
            KernelObjectKind::Region => {
                let attribute = UVERBS_ATTR_DESTROY_MR_HANDLE;
                (Opcode::DestroyMkey, self.end(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, attribute, object))
            }
            KernelObjectKind::DeviceMemory => {
                let attribute = UVERBS_ATTR_FREE_DM_HANDLE;
                (Opcode::DeallocMemic, self.end(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, attribute, object))
            }
            KernelObjectKind::RateLimit => {
                let attribute = MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE;
                let ended = self.end(MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_DESTROY, attribute, object);
                (Opcode::SetPpRateLimit, ended)
            }
            KernelObjectKind::Xrcd => {
                let input = CloseXrcd { xrcd_handle: object.0 };
                (Opcode::DeallocXrcd, self.end_by(IB_USER_VERBS_CMD_CLOSE_XRCD, input.as_bytes(), &mut []))
            }
            KernelObjectKind::CompletionQueue => {
                let input = DestroyCq { cq_handle: object.0, ..DestroyCq::default() };
                let mut events = DestroyCqResp::default();
                let ended = self.end_by(IB_USER_VERBS_CMD_DESTROY_CQ, input.as_bytes(), events.as_mut_bytes());
                (Opcode::DestroyCq, ended)
            }
            KernelObjectKind::SharedReceiveQueue => {
                let input = DestroySrq { srq_handle: object.0, ..DestroySrq::default() };
                let mut events = DestroySrqResp::default();
                let ended = self.end_by(IB_USER_VERBS_CMD_DESTROY_SRQ, input.as_bytes(), events.as_mut_bytes());
                if ended.is_ok() {
                    self.events.forget_srq(object);
                }
                (Opcode::DestroyXrcSrq, ended)
            }
            KernelObjectKind::QueuePair => {
                let input = DestroyQp { qp_handle: object.0, ..DestroyQp::default() };
                let mut events = DestroyQpResp::default();
                let ended = self.end_by(IB_USER_VERBS_CMD_DESTROY_QP, input.as_bytes(), events.as_mut_bytes());
                (Opcode::DestroyQp, ended)
            }
        };
        let object = format!("{kind}, handle {}", object.0);
        ended.map_err(|kind| CommandError { opcode, op_mod: 0, object, kind })
    }
}

impl CardMemory for Devx {
    fn alloc(&self, len: u32, _: &DeviceMemCap) -> Result<MemicHandle, Error> {
        self.liveness.check()?;
        let (handle, index, offset) = self.alloc_dm(len).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM) => {
                let (what, by) = (format!("the card's memory for {len} bytes"), "other allocations".to_owned());
                Invalid::Taken { what, by, mend: "free some, or take less" }.into()
            }
            _ => Error::io(format!("allocating {len} bytes of device memory in the kernel"), error),
        })?;
        self.map_memic(index, offset, len, handle).inspect_err(|_| {
            if let Err(error) = self.destroy(KernelObjectKind::DeviceMemory, handle) {
                tracing::warn!(%error, "device memory lost");
            }
        })
    }

    fn map_operation(&self, memory: &MemicHandle, operation: MemicOperation) -> Result<MemicHandle, Error> {
        self.liveness.check()?;
        let (number, mut offset, mut index) = (operation.number() as u8, 0u64, 0u16);
        Call::new(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR)
            .handle(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, memory.handle())
            .and_then(|call| call.input(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, number.as_bytes()))
            .and_then(|call| call.output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, offset.as_mut_bytes()))
            .and_then(|call| call.output(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, index.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .map_err(|error| Error::io(format!("asking the kernel for the addresses of {operation}"), error))?;
        self.map_memic(index, offset, memory.len(), memory.handle())
    }

    fn unmap_operation(&self, _: &MemicHandle, _: MemicOperation) -> Result<(), CommandError> {
        // The kernel ends them when the memory is freed and nothing is mapped any more.
        Ok(())
    }

    fn free(&self, memory: &MemicHandle) -> Result<(), CommandError> {
        self.destroy(KernelObjectKind::DeviceMemory, memory.handle())
    }

    fn read(&self, memory: &MemicHandle, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let first = memory.check(offset, bytes.len())?;
        self.liveness.check()?;
        memory.load_all(first, bytes);
        Ok(())
    }

    fn write(&self, memory: &MemicHandle, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let first = memory.check(offset, bytes.len())?;
        self.liveness.check()?;
        memory.store_all(first, bytes);
        uar::barrier::to_device();
        Ok(())
    }
}
