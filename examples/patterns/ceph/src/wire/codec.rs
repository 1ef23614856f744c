//! Ceph's encoding of numbers, lists and versioned structures: little-endian, packed (`src/include/encoding.h`).

/// What came is shorter than what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes wanted, {left} left")]
pub struct Truncated {
    /// Bytes that the next field takes.
    pub wanted: usize,
    /// Bytes that are left.
    pub left: usize,
}

/// Reads fields off the front of some bytes.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

macro_rules! numbers {
    ($($name:ident: $type:ty),*) => {
        $(
            #[doc = concat!("A `", stringify!($type), "`, little-endian.")]
            pub fn $name(&mut self) -> Result<$type, Truncated> {
                const BYTES: usize = size_of::<$type>();
                let (head, rest) = self.0.split_first_chunk::<BYTES>().ok_or(self.short(BYTES))?;
                self.0 = rest;
                Ok(<$type>::from_le_bytes(*head))
            }
        )*
    };
}

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    fn short(&self, wanted: usize) -> Truncated {
        Truncated { wanted, left: self.0.len() }
    }

    numbers!(u8: u8, u16: u16, u32: u32, u64: u64, i32: i32, i64: i64);

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(self.short(len))?;
        self.0 = rest;
        Ok(head)
    }

    /// Bytes behind their number, of four bytes.
    pub fn counted(&mut self) -> Result<&'a [u8], Truncated> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    /// Numbers behind their number. Nothing is reserved for numbers that are not there.
    pub fn list(&mut self) -> Result<Vec<u32>, Truncated> {
        let count = self.u32()? as usize;
        let bytes = self.bytes(count.saturating_mul(4))?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    /// The content of a structure with version, oldest compatible version and length (`ENCODE_START`), and its version.
    /// What a newer version appends is skipped.
    pub fn structure(&mut self) -> Result<(u8, Reader<'a>), Truncated> {
        let (version, _compat) = (self.u8()?, self.u8()?);
        Ok((version, Reader(self.counted()?)))
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }
}

/// Appends fields.
#[derive(Debug, Clone, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends a number of two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number of four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number of eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends bytes behind their number.
    pub fn counted(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32).bytes(bytes)
    }

    /// Appends a structure of `version`, which those who know `compat` read.
    pub fn structure(&mut self, version: u8, compat: u8, content: impl FnOnce(&mut Writer)) -> &mut Self {
        let mut inner = Writer::new();
        content(&mut inner);
        self.u8(version).u8(compat).counted(&inner.0)
    }

    /// What was appended.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::new();
        writer.u8(1).u16(2).u32(3).u64(4).counted(b"five").structure(6, 5, |inner| {
            inner.u32(7).u8(8);
        });
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16(), reader.u32(), reader.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(reader.counted(), Ok(&b"five"[..]));
        let (version, mut inner) = reader.structure().unwrap();
        assert_eq!((version, inner.u32(), inner.left(), reader.left()), (6, Ok(7), 1, 0));
        assert_eq!(reader.u16(), Err(Truncated { wanted: 2, left: 0 }));
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error_and_reserves_nothing() {
        assert_eq!(Reader::new(&[0xff; 4]).list(), Err(Truncated { wanted: 0xffff_ffff * 4, left: 0 }));
        assert!(Reader::new(&[5, 0, 0, 0, 1]).counted().is_err());
        assert!(Reader::new(&[1, 1, 9, 0, 0, 0]).structure().is_err());
    }
}
