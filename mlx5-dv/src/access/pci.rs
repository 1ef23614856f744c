//! The command register of PCI config space, for all ways to reach a function.

use std::io;

/// Offset in config space; 2 bytes, little-endian.
pub const COMMAND: u64 = 4;
/// Memory space enable: the function decodes its BARs.
const MEMORY: u16 = 1 << 1;
/// Bus master enable: the function may issue DMA.
const BUS_MASTER: u16 = 1 << 2;

/// Enables or disables DMA in the command register, which `read` and `write` access.
///
/// # Errors
/// An access fails, the register reads as all ones, or the bit does not stay as written.
pub fn set_bus_master(
    enabled: bool,
    read: impl Fn() -> io::Result<[u8; 2]>,
    write: impl FnOnce([u8; 2]) -> io::Result<()>,
) -> io::Result<()> {
    let read = || match u16::from_le_bytes(read()?) {
        u16::MAX => Err(io::Error::new(io::ErrorKind::NotConnected, "its config space reads as all ones")),
        command => Ok(command),
    };
    let command = read()?;
    let command = if enabled { command | MEMORY | BUS_MASTER } else { command & !BUS_MASTER };
    write(command.to_le_bytes())?;
    // Memory is freed based on this bit. The read also flushes writes that the card posted before.
    if (read()? & BUS_MASTER != 0) == enabled {
        return Ok(());
    }
    Err(io::Error::other("the bus master bit of the command register does not stay as written"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn other_bits_stay_and_a_bit_that_does_not_stick_is_an_error() {
        let register = Cell::new(0x0400u16);
        let read = || Ok(register.get().to_le_bytes());
        let write = |bytes| {
            register.set(u16::from_le_bytes(bytes));
            Ok(())
        };
        set_bus_master(true, read, write).unwrap();
        assert_eq!(register.get(), 0x0406);
        set_bus_master(false, read, write).unwrap();
        assert_eq!(register.get(), 0x0402);
        assert!(set_bus_master(true, read, |_| Ok(())).unwrap_err().to_string().contains("does not stay"));
        let gone = || Ok([0xff; 2]);
        assert_eq!(set_bus_master(true, gone, write).unwrap_err().kind(), io::ErrorKind::NotConnected);
    }
}
