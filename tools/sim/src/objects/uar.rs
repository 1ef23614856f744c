//! UAR pages and their registers. PRM "User Access Region".

/// log2 of a UAR page's bytes.
pub const LOG_PAGE: u32 = 12;

/// Bytes of a UAR page.
pub const PAGE: u64 = 1 << LOG_PAGE;

/// The first UAR page given out. Lower pages hold the initialization segment, the MSI-X table and its pending bits.
pub const FIRST_UAR: u32 = 16;

/// In a UAR page: the CQ doorbell, 8 bytes.
pub const CQ_DOORBELL: u64 = 0x20;
/// In a UAR page: the EQ doorbell that arms, 4 bytes.
pub const EQ_ARM: u64 = 0x40;
/// In a UAR page: the EQ doorbell that does not arm, 4 bytes.
pub const EQ_UPDATE: u64 = 0x48;
/// In a UAR page: the first send doorbell, the first buffer of the first BlueFlame register. PRM "BlueFlame".
pub const SEND_DOORBELL: u64 = 0x800;
/// Distance of BlueFlame buffers in bytes. A register has two buffers, a page four registers.
pub const BLUEFLAME_BUFFER: u64 = 0x100;

/// A user access region page.
#[derive(Debug)]
pub struct Uar {
    /// Objects that name it.
    pub users: u32,
}
