//! Which card the function is: identity and limits. Firmware answers capability queries from it.

/// A card.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name, such as `connectx5`.
    pub name: &'static str,
    /// PCI device id.
    pub device_id: u16,
    /// PCI subsystem id.
    pub subsystem_id: u16,
    /// log2 of BAR 0's bytes.
    pub log_bar_size: u32,
    /// MSI-X vectors.
    pub msix_vectors: u16,
}

impl Profile {
    /// A ConnectX-5.
    pub fn connectx5() -> Self {
        Profile { name: "connectx5", device_id: 0x1017, subsystem_id: 0x0006, log_bar_size: 25, msix_vectors: 64 }
    }

    /// A ConnectX-6 Dx.
    pub fn connectx6dx() -> Self {
        Profile { name: "connectx6dx", device_id: 0x101d, subsystem_id: 0x0001, ..Self::connectx5() }
    }

    /// A ConnectX-7.
    pub fn connectx7() -> Self {
        Profile { name: "connectx7", device_id: 0x1021, subsystem_id: 0x0026, ..Self::connectx5() }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::connectx5()
    }
}
