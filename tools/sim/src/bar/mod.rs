//! BAR 0: init segment, MSI-X table, UAR pages.

use crate::profile::Profile;

/// log2 of a UAR page's bytes.
pub const LOG_PAGE: u32 = 12;

/// The first UAR page that firmware gives out. Those below hold the init segment, the MSI-X table and its pending bits.
pub const FIRST_UAR: u32 = 16;

/// BAR 0 of one function.
#[derive(Debug)]
pub struct Bar {}

impl Bar {
    /// After power-on.
    pub fn new(_profile: &Profile) -> Self {
        Bar {}
    }
}
