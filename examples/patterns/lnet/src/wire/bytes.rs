//! Numbers in the byte order of the sender.

use super::error::WireError;

/// A byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// Low byte first: x86, and most others.
    #[default]
    Little,
    /// High byte first.
    Big,
}

/// Reads fields off the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    pub(super) order: ByteOrder,
}

/// Puts fields behind each other into some bytes, which have room for them.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
    order: ByteOrder,
}

macro_rules! numbers {
    ($($read:ident: $type:ty),*) => {
        impl Reader<'_> {
            $(
                pub(super) fn $read(&mut self) -> Result<$type, WireError> {
                    let bytes = self.array()?;
                    Ok(match self.order {
                        ByteOrder::Little => <$type>::from_le_bytes(bytes),
                        ByteOrder::Big => <$type>::from_be_bytes(bytes),
                    })
                }
            )*
        }

        impl Writer<'_> {
            $(
                pub(super) fn $read(&mut self, value: $type) {
                    match self.order {
                        ByteOrder::Little => self.bytes(&value.to_le_bytes()),
                        ByteOrder::Big => self.bytes(&value.to_be_bytes()),
                    }
                }
            )*
        }
    };
}

numbers! { u8: u8, u16: u16, u32: u32, u64: u64, i32: i32 }

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Reader { rest: bytes, order }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) =
            self.rest.split_first_chunk().ok_or(WireError::Short { given: self.rest.len(), wanted: N })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut [u8], order: ByteOrder) -> Self {
        Writer { bytes, at: 0, order }
    }

    /// Panics where there is no room: buffers are as long as the longest message.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }
}
