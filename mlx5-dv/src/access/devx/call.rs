//! One uverbs ioctl: a method of an object, with its attributes.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use zerocopy::IntoBytes;

use crate::access::ObjectHandle;
use crate::error::Error;
use crate::kernel::abi::shared::{CreateCompChannel, CreateCompChannelResp, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL};
use crate::kernel::abi::*;

/// Inputs up to this length travel in the attribute itself.
const INLINE: usize = size_of::<u64>();

/// A call under construction. It borrows the buffers that the kernel reads and writes.
#[derive(Debug)]
pub struct Call<'a> {
    object: u16,
    method: u16,
    attributes: Vec<Attribute>,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// The attributes of a call that succeeded.
#[derive(Debug)]
pub struct Done(Vec<Attribute>);

impl<'a> Call<'a> {
    /// A call of `method` on `object`, without attributes yet.
    pub fn new(object: u16, method: u16) -> Self {
        Call { object, method, attributes: Vec::new(), borrowed: PhantomData }
    }

    /// A call of the older interface, with its input and the buffer of its output, which may be empty.
    pub fn write(command: u64, input: &'a [u8], output: &'a mut [u8]) -> io::Result<Self> {
        let call = Call::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
            .number(UVERBS_ATTR_WRITE_CMD, command)?
            .input(UVERBS_ATTR_CORE_IN, input)?;
        if output.is_empty() { Ok(call) } else { call.output(UVERBS_ATTR_CORE_OUT, output) }
    }

    fn with(mut self, attr_id: u16, len: usize, data: u64) -> io::Result<Self> {
        let len = u16::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
        self.attributes.push(Attribute { attr_id, len, flags: UVERBS_ATTR_F_MANDATORY, attr_data: 0, data });
        Ok(self)
    }

    /// Adds an input buffer. Errors: more than 65535 bytes, the most an attribute can state.
    pub fn input(self, attr_id: u16, bytes: &'a [u8]) -> io::Result<Self> {
        let mut inline = [0; INLINE];
        match inline.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.with(attr_id, bytes.len(), u64::from_ne_bytes(inline))
            }
            None => self.with(attr_id, bytes.len(), bytes.as_ptr() as u64),
        }
    }

    /// Adds an input buffer of a kind, `kind`. Errors: as for [`input`](Self::input).
    pub fn choice(self, attr_id: u16, kind: u16, bytes: &'a [u8]) -> io::Result<Self> {
        let mut call = self.input(attr_id, bytes)?;
        if let Some(attribute) = call.attributes.last_mut() {
            // `elem_id` is the lower byte: the first in memory.
            attribute.attr_data = kind.to_le();
        }
        Ok(call)
    }

    /// Adds an output buffer. Errors: as for [`input`](Self::input).
    pub fn output(self, attr_id: u16, bytes: &'a mut [u8]) -> io::Result<Self> {
        self.with(attr_id, bytes.len(), bytes.as_mut_ptr() as u64)
    }

    /// Adds an eight-byte number.
    pub fn number(self, attr_id: u16, number: u64) -> io::Result<Self> {
        self.with(attr_id, INLINE, number)
    }

    /// Makes the last attribute optional: a kernel too old to know it ignores it.
    pub fn optional(mut self) -> Self {
        if let Some(attribute) = self.attributes.last_mut() {
            attribute.flags &= !UVERBS_ATTR_F_MANDATORY;
        }
        self
    }

    /// Adds the handle of an existing kernel object.
    pub fn handle(self, attr_id: u16, handle: ObjectHandle) -> io::Result<Self> {
        self.with(attr_id, 0, handle.0.into())
    }

    /// Adds a file descriptor that the kernel made.
    pub fn descriptor(self, attr_id: u16, fd: BorrowedFd<'a>) -> io::Result<Self> {
        self.with(attr_id, 0, fd.as_raw_fd() as u64)
    }

    /// Adds a handle for the kernel to fill in; [`Done::handle`] returns it.
    pub fn fresh(self, attr_id: u16) -> io::Result<Self> {
        self.with(attr_id, 0, 0)
    }

    /// Makes the call. Its object must be a channel: the kernel returns a new descriptor in attribute `attr_id`.
    pub fn open(self, device: BorrowedFd<'_>, attr_id: u16) -> io::Result<OwnedFd> {
        let fd = self.fresh(attr_id)?.run(device)?.data(attr_id)? as i32;
        // SAFETY: callers use this for channels alone, for which the kernel puts a new descriptor of this process into
        // the attribute. It was made for this call, so nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Opens a channel of completion events, whose reads do not block.
    pub fn open_completion_channel(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (input, mut output) = (CreateCompChannel::default(), CreateCompChannelResp::default());
        Call::write(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, input.as_bytes(), output.as_mut_bytes())?.run(device)?;
        // SAFETY: the kernel has put a new descriptor of this process into the output. It was made for this call, so
        // nobody else owns it.
        let channel = unsafe { OwnedFd::from_raw_fd(output.fd as i32) };
        rustix::fs::fcntl_setfl(&channel, rustix::fs::OFlags::NONBLOCK)?;
        Ok(channel)
    }

    /// Makes the call on `device`, an opened uverbs file.
    pub fn run(self, device: BorrowedFd<'_>) -> io::Result<Done> {
        let Call { object, method, mut attributes, .. } = self;
        let count = attributes.len();
        let len = size_of::<CallHeader>() + size_of::<Attribute>() * count;
        let header = CallHeader {
            length: len as u16,
            object_id: object,
            method_id: method,
            num_attrs: count as u16,
            driver_id: RDMA_DRIVER_MLX5,
            ..CallHeader::default()
        };
        // u64 words, for the alignment of the header.
        let mut words = vec![0u64; len / size_of::<u64>()];
        let (head, tail) = words.as_mut_bytes().split_at_mut(size_of::<CallHeader>());
        head.copy_from_slice(header.as_bytes());
        tail.copy_from_slice(attributes.as_bytes());
        // SAFETY: `words` holds a header that states its full length and the number of attributes that follow. Each
        // address comes from a slice borrowed for 'a (shared for inputs, exclusive for outputs), with the slice's
        // length. `self` is consumed here, so the borrows last until the call returns.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), RDMA_VERBS_IOCTL as _, words.as_mut_ptr()) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        attributes.as_mut_bytes().copy_from_slice(&words.as_bytes()[size_of::<CallHeader>()..]);
        Ok(Done(attributes))
    }
}

impl Done {
    fn data(&self, attr_id: u16) -> io::Result<u64> {
        let attribute = self.0.iter().find(|attribute| attribute.attr_id == attr_id);
        attribute.map(|attribute| attribute.data).ok_or_else(|| io::Error::other("no such attribute in the call"))
    }

    /// Handle of the object that the kernel made for a [`fresh`](Call::fresh) attribute.
    pub fn handle(&self, attr_id: u16) -> io::Result<ObjectHandle> {
        Ok(ObjectHandle(self.data(attr_id)? as u32))
    }
}

/// The error for a kernel that refused to register `what`.
pub fn not_registered(what: String, source: io::Error) -> Error {
    let fix = match source.raw_os_error() {
        Some(libc::ENOMEM) => {
            Some("raise the limit of locked memory: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in a unit".into())
        }
        _ => None,
    };
    Error::Memory { reason: format!("the kernel refused to register {what}"), fix, source: Some(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_inputs_travel_in_the_attribute_and_long_ones_by_address() {
        let (short, long) = ([1, 2, 3], [7; 9]);
        let mut output = [0; 4];
        let place = output.as_ptr() as u64;
        let call = Call::new(0, 0).input(1, &short).unwrap().input(2, &long).unwrap().output(3, &mut output).unwrap();
        let [first, second, third] = &call.attributes[..] else { panic!("three attributes") };
        assert_eq!((first.len, first.data.to_ne_bytes()), (3, [1, 2, 3, 0, 0, 0, 0, 0]));
        assert_eq!((second.len, second.data), (9, long.as_ptr() as u64));
        assert_eq!((third.len, third.data), (4, place));
        assert!(call.attributes.iter().all(|attribute| attribute.flags == UVERBS_ATTR_F_MANDATORY));
    }

    #[test]
    fn what_no_attribute_can_state_and_what_is_no_uverbs_file_are_errors() {
        let error = Call::new(0, 0).input(1, &[0; 1 << 16]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
        let file = tempfile::tempfile().unwrap();
        use std::os::fd::AsFd;
        assert_eq!(Call::new(0, 0).run(file.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
