//! The kernel without its compression, which a guest would undo at each boot, on an emulated processor. It is the same
//! kernel: QEMU enters it by its PVH entry instead of by the program that unpacks it.
//!
//! Offsets: Linux, Documentation/arch/x86/boot.rst.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::root::loader;

/// The compression of Debian's kernels.
const ZSTD: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();
/// The first boot protocol that tells where the payload is.
const PROTOCOL: u16 = 0x0208;

/// Where the compressed kernel is in an image. `None`: the image is of another kind.
fn payload(image: &[u8]) -> Option<Range<usize>> {
    let at = |offset: usize| Some(u32::from_le_bytes(image.get(offset..offset + 4)?.try_into().ok()?) as usize);
    let is_image = image.get(0x202..0x206)? == b"HdrS" && at(0x206)? & 0xffff >= usize::from(PROTOCOL);
    // 0 means 4, for images older than the field.
    let sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (1 + sectors) * 512 + at(0x248)?;
    // The length of the kernel follows what is compressed, and counts as part of it.
    let end = (start + at(0x24c)?).checked_sub(4)?;
    (is_image && image.get(start..end)?.starts_with(&ZSTD)).then_some(start..end)
}

/// Writes the kernel in `image` to `unpacked`, by the tree's own zstd. An image of another kind is left as it is.
/// Returns the command that does it.
pub(super) fn unpack(root: &Path, image: &Path, unpacked: &Path) -> Result<Option<Command>, LabError> {
    let bytes = fs::read(image).doing("read", image)?;
    let Some(range) = payload(&bytes) else { return Ok(None) };
    let packed = unpacked.with_extension("zst");
    fs::write(&packed, &bytes[range]).doing("write", &packed)?;
    let mut command = loader(root, "zstd", "usr/bin/zstd");
    command.args(["--decompress", "--rm", "--quiet", "--force", "-o"]).arg(unpacked).arg(&packed);
    Ok(Some(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<u8> {
        let mut image = vec![0; 4096];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x020fu16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&104u32.to_le_bytes());
        image[1040..1044].copy_from_slice(&ZSTD);
        image
    }

    #[test]
    fn the_payload_is_where_the_header_says_without_its_length() {
        assert_eq!(payload(&image()), Some(1040..1140));
    }

    #[test]
    fn an_image_of_another_kind_has_none() {
        let changes: [(usize, u8); 4] = [(0x202, 0), (0x207, 1), (1040, 0), (0x24e, 1)];
        for (offset, byte) in changes {
            let mut other = image();
            other[offset] = byte;
            assert_eq!(payload(&other), None, "{offset:#x}");
        }
        for len in [0, 0x1f1, 0x204, 0x24d, 1100] {
            assert_eq!(payload(&image()[..len]), None, "{len} bytes");
        }
    }
}
