//! CRCs of Ceph (`src/common/crc32c.h`).

use crc32c::crc32c_append;

/// Ceph's CRC-32C of `bytes`, which goes on from `seed`: not inverted, before or after.
pub(super) fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c_append(!seed, bytes)
}

/// CRC of a segment.
pub(super) fn segment_crc(bytes: &[u8]) -> u32 {
    crc(!0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32C, and Ceph's own test vectors (`src/test/common/test_crc32c.cc`).
    #[test]
    fn the_crc_is_ceph_s() {
        assert_eq!(crc(!0, b"123456789"), !0xe306_9283);
        assert_eq!(crc(0, b"foo bar baz"), 4_119_623_852);
        assert_eq!(crc(1234, b"foo bar baz"), 881_700_046);
        assert_eq!(crc(0, b"whiz bang boom"), 2_360_230_088);
        assert_eq!(crc(5678, b"whiz bang boom"), 3_743_019_208);
    }
}
