//! Data of a message.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::crc::segment_crc;

/// Bytes that are sent, maybe more than once, and never change. Their CRC is calculated when they are first sent, and
/// stays with them, as in Ceph's buffers (`buffer::raw`). A clone shares both.
#[derive(Clone, Default)]
pub struct Data(Arc<Inner>);

#[derive(Default)]
struct Inner {
    bytes: Vec<u8>,
    crc: OnceLock<u32>,
}

impl Data {
    /// The CRC of a segment of these bytes.
    pub(super) fn crc(&self) -> u32 {
        *self.0.crc.get_or_init(|| segment_crc(&self.0.bytes))
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Data(Arc::new(Inner { bytes, crc: OnceLock::new() }))
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Data {}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode_message;

    #[test]
    fn the_crc_is_calculated_once_for_all_clones() {
        let data = Data::from(b"123456789".to_vec());
        let clone = data.clone();
        assert_eq!(clone.0.crc.get(), None);
        let first = encode_message(b"header", b"front", b"", &data);
        assert_eq!(clone.0.crc.get(), Some(&!0xe306_9283));
        assert_eq!(encode_message(b"header", b"front", b"", &clone), first);
    }
}
