//! The PCI function: config space, MSI-X, interrupts.

use crate::profile::Profile;

/// Config space and interrupts of one function.
#[derive(Debug)]
pub struct Pci {}

impl Pci {
    /// After power-on.
    pub fn new(_profile: &Profile) -> Self {
        Pci {}
    }

    /// Raises MSI-X vector `vector`: signals the client's eventfd if enabled and unmasked, else stays pending.
    pub fn interrupt(&mut self, _vector: u16) {}
}
