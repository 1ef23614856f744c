//! Flow matchers and rules in the kernel's flow tables. They steer received frames to this process before the kernel's
//! own network device sees them, and those that this process sends.

use std::io;

use zerocopy::IntoBytes;

use super::Devx;
use super::call::Call;
use crate::access::{Flow, FlowFate, KernelSteering, Matcher, ObjectHandle};
use crate::error::Error;
use crate::kernel::abi::*;

/// The error for a kernel that refused to create `what`.
fn refused(what: &str, error: io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EPERM) => " (this needs the capability CAP_NET_RAW)",
        Some(libc::EEXIST) => " (another program has those frames)",
        Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP) => " (this kernel or card cannot steer by these fields)",
        _ => "",
    };
    Error::io(format!("creating {what} in the kernel{why}"), error)
}

impl KernelSteering for Devx {
    fn create_matcher(&self, matcher: &Matcher<'_>) -> Result<ObjectHandle, Error> {
        self.liveness.check()?;
        let (priority, enable) = (matcher.priority, [matcher.match_criteria_enable]);
        let sent = MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX;
        Call::new(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE)
            .fresh(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE)
            .and_then(|call| call.input(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, matcher.criteria))
            .and_then(|call| {
                let (attribute, kind) = (MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, MLX5_IB_FLOW_TYPE_NORMAL);
                call.choice(attribute, kind, priority.as_bytes())
            })
            .and_then(|call| call.input(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, &enable))
            .and_then(|call| match matcher.sent {
                true => call.input(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, sent.as_bytes()),
                false => Ok(call),
            })
            .and_then(|call| call.run(self.file()))
            .and_then(|done| done.handle(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE))
            .map_err(|error| refused("a flow matcher", error))
    }

    fn destroy_matcher(&self, matcher: ObjectHandle) -> Result<(), Error> {
        let (object, method) = (MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY);
        self.end_steering("a flow matcher", object, method, MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, matcher)
    }

    fn create_flow(&self, flow: &Flow<'_>) -> Result<ObjectHandle, Error> {
        self.liveness.check()?;
        let (drop, kernel) = (MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS);
        let (counters, index) = flow.counter.unwrap_or((ObjectHandle(0), 0));
        let counters = [counters.0];
        Call::new(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW)
            .fresh(MLX5_IB_ATTR_CREATE_FLOW_HANDLE)
            .and_then(|call| call.input(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, flow.value))
            .and_then(|call| match flow.fate {
                FlowFate::Forward(to) => call.handle(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, to),
                FlowFate::Send => Ok(call),
                FlowFate::Drop => call.input(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, drop.as_bytes()),
                FlowFate::Kernel => call.input(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, kernel.as_bytes()),
            })
            .and_then(|call| call.handle(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, flow.matcher))
            .and_then(|call| call.input(MLX5_IB_ATTR_CREATE_FLOW_TAG, flow.tag.as_bytes()))
            .and_then(|call| match flow.counter {
                None => Ok(call),
                Some(_) => call
                    .input(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, counters.as_bytes())?
                    .input(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, index.as_bytes()),
            })
            .and_then(|call| call.run(self.file()))
            .and_then(|done| done.handle(MLX5_IB_ATTR_CREATE_FLOW_HANDLE))
            .map_err(|error| refused("a flow rule", error))
    }

    fn destroy_flow(&self, flow: ObjectHandle) -> Result<(), Error> {
        let (object, method) = (UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW);
        self.end_steering("a flow rule", object, method, MLX5_IB_ATTR_DESTROY_FLOW_HANDLE, flow)
    }
}

impl Devx {
    fn end_steering(
        &self,
        what: &str,
        object: u16,
        method: u16,
        attribute: u16,
        handle: ObjectHandle,
    ) -> Result<(), Error> {
        let ended = self.ended(self.call_to_end(object, method, attribute, handle));
        ended.map_err(|error| Error::io(format!("destroying {what} in the kernel"), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_the_kernel_wants() {
        let text = |error: i32| refused("a flow rule", io::Error::from_raw_os_error(error)).to_string();
        assert!(text(libc::EPERM).contains("CAP_NET_RAW"));
        assert!(text(libc::EEXIST).contains("another program has those frames"));
        assert!(text(libc::EOPNOTSUPP).contains("cannot steer"));
    }
}
