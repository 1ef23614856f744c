//! XRC domains of the kernel's, and the queues in them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use zerocopy::IntoBytes;

use super::Devx;
use super::call::{Call, not_registered};
use crate::access::{Access, KernelCq, KernelCqMade, KernelSrq, KernelXrc, ObjectHandle};
use crate::error::{Error, Invalid};
use crate::kernel::abi::shared::*;
use crate::kernel::abi::{UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT};

/// What an event of a completion queue says: one event, as an eventfd would.
const ONE_EVENT: u64 = 1;
/// User index of a queue that was given none: Linux refuses the number that means none.
const SOME_INDEX: u32 = 0;
/// The file of a domain without one.
const NO_FILE: u32 = u32::MAX;

impl KernelXrc for Devx {
    fn open_xrcd(&self, file: Option<BorrowedFd<'_>>, flags: u32) -> Result<ObjectHandle, Error> {
        self.liveness.check()?;
        let fd = file.map_or(NO_FILE, |file| file.as_raw_fd() as u32);
        let (input, mut output) = (OpenXrcd { response: 0, fd, oflags: flags }, OpenXrcdResp::default());
        let opened = Call::write(IB_USER_VERBS_CMD_OPEN_XRCD, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.run(self.file()));
        opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EAGAIN) => {
                let mend = "nobody has it open: the process that is to make it opens it first, or use JoinOrMake";
                Invalid::Unknown { what: "XRC domain", of: "this file".into(), mend }.into()
            }
            Some(libc::EINVAL) if flags & libc::O_EXCL as u32 != 0 => {
                let (what, by) = ("the XRC domain of this file".to_owned(), "another process".to_owned());
                Invalid::Taken { what, by, mend: "use Join or JoinOrMake" }.into()
            }
            _ => Error::io("opening an XRC domain in the kernel", error),
        })?;
        Ok(ObjectHandle(output.xrcd_handle))
    }

    unsafe fn create_cq(&self, cq: &KernelCq) -> Result<KernelCqMade, Error> {
        self.liveness.check()?;
        let failed = |error| Error::io(format!("creating a CQ of {} entries in the kernel", cq.entries), error);
        let events = cq.events.then(|| Call::open_completion_channel(self.file())).transpose().map_err(failed)?;
        let uar_page_index = u16::try_from(cq.uar_page).map_err(|error| failed(io::Error::other(error)))?;
        let input = CreateCq {
            user_handle: ONE_EVENT,
            cqe: cq.entries - 1,
            comp_vector: cq.vector,
            comp_channel: events.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            ..CreateCq::default()
        };
        let driver = CreateCqDriver {
            buf_addr: cq.ring,
            db_addr: cq.record,
            cqe_size: cq.entry_size,
            flags: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
            uar_page_index,
            ..CreateCqDriver::default()
        };
        let (mut output, mut number) = (CreateCqResp::default(), CreateCqDriverResp::default());
        Call::write(IB_USER_VERBS_CMD_CREATE_CQ, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.input(UVERBS_ATTR_UHW_IN, driver.as_bytes()))
            .and_then(|call| call.output(UVERBS_ATTR_UHW_OUT, number.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ENOMEM) => not_registered(format!("a CQ of {} entries", cq.entries), source),
                _ => failed(source),
            })?;
        Ok(KernelCqMade { handle: ObjectHandle(output.cq_handle), cqn: number.cqn, events })
    }

    unsafe fn create_srq(&self, srq: &KernelSrq) -> Result<(ObjectHandle, u32), Error> {
        self.liveness.check()?;
        let user_handle = self.events.new_user_handle();
        let input = CreateXsrq {
            user_handle,
            srq_type: IB_UVERBS_SRQT_XRC,
            pd_handle: srq.pd.0,
            max_wr: srq.wqes - 1,
            max_sge: srq.sges,
            xrcd_handle: srq.xrcd.0,
            cq_handle: srq.cq.0,
            ..CreateXsrq::default()
        };
        let driver = CreateSrqDriver {
            buf_addr: srq.ring,
            db_addr: srq.record,
            uidx: srq.user_index.unwrap_or(SOME_INDEX),
            ..CreateSrqDriver::default()
        };
        let (mut output, mut number) = (CreateSrqResp::default(), CreateSrqDriverResp::default());
        Call::write(IB_USER_VERBS_CMD_CREATE_XSRQ, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.input(UVERBS_ATTR_UHW_IN, driver.as_bytes()))
            .and_then(|call| call.output(UVERBS_ATTR_UHW_OUT, number.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ENOMEM) => not_registered(format!("an XRC SRQ of {} WQEs", srq.wqes), source),
                _ => Error::io(format!("creating an XRC SRQ of {} WQEs in the kernel", srq.wqes), source),
            })?;
        let handle = ObjectHandle(output.srq_handle);
        self.events.watch_srq(user_handle, handle, number.srqn);
        Ok((handle, number.srqn))
    }

    fn set_limit(&self, srq: ObjectHandle, limit: u32) -> Result<(), Error> {
        self.liveness.check()?;
        if !self.events.are_heard() {
            let what = format!("the limit of an SRQ on {}, whose context another process has created", self.name());
            let instead = "its event goes to that process: count what is posted and what completes".into();
            return Err(Error::NotImplemented { what, instead });
        }
        let input =
            ModifySrq { srq_handle: srq.0, attr_mask: srq_words::LIMIT, srq_limit: limit, ..ModifySrq::default() };
        Call::write(IB_USER_VERBS_CMD_MODIFY_SRQ, input.as_bytes(), &mut [])
            .and_then(|call| call.run(self.file()))
            .map_err(|error| Error::io("setting the limit of an SRQ in the kernel", error))?;
        Ok(())
    }

    fn create_target(&self, xrcd: ObjectHandle) -> Result<(ObjectHandle, u32), Error> {
        self.liveness.check()?;
        let input = CreateQp { pd_handle: xrcd.0, qp_type: IB_UVERBS_QPT_XRC_TGT, ..CreateQp::default() };
        let driver = CreateQpDriver { uidx: SOME_INDEX, ..CreateQpDriver::default() };
        let mut output = CreateQpResp::default();
        Call::write(IB_USER_VERBS_CMD_CREATE_QP, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.input(UVERBS_ATTR_UHW_IN, driver.as_bytes()))
            .and_then(|call| call.run(self.file()))
            .map_err(|error| Error::io("creating an XRC target in the kernel", error))?;
        Ok((ObjectHandle(output.qp_handle), output.qpn))
    }

    fn open_target(&self, xrcd: ObjectHandle, qpn: u32) -> Result<ObjectHandle, Error> {
        self.liveness.check()?;
        let input = OpenQp { pd_handle: xrcd.0, qpn, qp_type: IB_UVERBS_QPT_XRC_TGT, ..OpenQp::default() };
        let mut output = CreateQpResp::default();
        let opened = Call::write(IB_USER_VERBS_CMD_OPEN_QP, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.run(self.file()));
        opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => {
                let mend = "the process that created it, or that took it over, has destroyed it, or its domain is \
                            another";
                Invalid::Unknown { what: "XRC target", of: format!("number {qpn:#x} in this domain"), mend }.into()
            }
            _ => Error::io(format!("opening XRC target {qpn:#x} in the kernel"), error),
        })?;
        Ok(ObjectHandle(output.qp_handle))
    }

    fn modify_target(&self, changes: &ModifyQp) -> Result<(), Error> {
        self.liveness.check()?;
        Call::write(IB_USER_VERBS_CMD_MODIFY_QP, changes.as_bytes(), &mut [])
            .and_then(|call| call.run(self.file()))
            .map_err(|error| Error::io("moving an XRC target to another state in the kernel", error))?;
        Ok(())
    }

    fn query_target(&self, target: ObjectHandle) -> Result<QueryQpResp, Error> {
        self.liveness.check()?;
        let (input, mut output) = (
            QueryQp { qp_handle: target.0, attr_mask: qp_attributes::STATE, ..QueryQp::default() },
            QueryQpResp::default(),
        );
        Call::write(IB_USER_VERBS_CMD_QUERY_QP, input.as_bytes(), output.as_mut_bytes())
            .and_then(|call| call.run(self.file()))
            .map_err(|error| Error::io("querying an XRC target in the kernel", error))?;
        Ok(output)
    }
}
