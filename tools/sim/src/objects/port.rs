//! Port settings made by commands: GID table and NIC vport context.

use mlx5_prm::ctx::{MacAddressLayout, NicVportContext, RoceAddrLayout};

/// One entry of the GID table, set by `SET_ROCE_ADDRESS`. IBTA A17.4.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoceAddress {
    /// The GID: an IPv6 address, or an IPv4-mapped one. IBTA A17.4.1.1.
    pub gid: [u8; 16],
    /// Source MAC of its packets.
    pub mac: [u8; 6],
    /// VLAN of its packets.
    pub vlan: Option<u16>,
    /// Its packets are IPv4, not IPv6.
    pub ipv4: bool,
    /// The entry as it was given, for `QUERY_ROCE_ADDRESS`.
    pub layout: RoceAddrLayout,
}

/// The GID table.
#[derive(Debug, Clone)]
pub struct GidTable(Vec<Option<RoceAddress>>);

impl GidTable {
    /// An empty table of `size` entries.
    pub fn new(size: u16) -> Self {
        GidTable(vec![None; usize::from(size)])
    }

    /// Number of entries, including empty ones.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// The entry at `index`; `None` if it is empty or past the end.
    pub fn get(&self, index: u16) -> Option<&RoceAddress> {
        self.0.get(usize::from(index))?.as_ref()
    }

    /// Sets or clears the entry at `index`. False if that is past the end.
    pub fn set(&mut self, index: u16, entry: Option<RoceAddress>) -> bool {
        let Some(place) = self.0.get_mut(usize::from(index)) else { return false };
        *place = entry;
        true
    }

    /// The entry with this GID.
    pub fn find(&self, gid: &[u8; 16]) -> Option<(u16, &RoceAddress)> {
        self.iter().find(|(_, entry)| entry.gid == *gid)
    }

    /// Index and entry of each entry in use.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &RoceAddress)> {
        self.0.iter().enumerate().filter_map(|(index, entry)| Some((index as u16, entry.as_ref()?)))
    }
}

/// The function's own vport.
#[derive(Debug, Clone)]
pub struct Vport {
    /// The context, for `QUERY_NIC_VPORT_CONTEXT`; holds the current MAC and MTU.
    pub context: NicVportContext,
    /// Unicast MACs to receive.
    pub unicast: Vec<[u8; 6]>,
    /// Multicast MACs to receive, including the broadcast address.
    pub multicast: Vec<[u8; 6]>,
    /// VLANs to receive.
    pub vlans: Vec<u16>,
    /// Administrative state: 0 down, 1 up, 2 follows the port.
    pub admin_state: u8,
    /// Whether software wants the physical port up (`PAOS`).
    pub port_up: bool,
}

impl Vport {
    /// The vport of a function with this MAC and GUID.
    pub fn new(mac: [u8; 6], guid: u64) -> Self {
        let mut context = NicVportContext::ZERO;
        context.w().mtu(1522).system_image_guid(guid).port_guid(guid).node_guid(guid);
        let mut vport = Vport {
            unicast: Vec::new(),
            multicast: Vec::new(),
            vlans: Vec::new(),
            admin_state: 2,
            port_up: true,
            context,
        };
        vport.set_mac(mac);
        vport
    }

    /// The function's current MAC.
    pub fn mac(&self) -> [u8; 6] {
        mac_in(self.context.permanent_address())
    }

    /// Sets the function's current MAC.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.context.w().permanent_address(&layout_of(mac));
    }

    /// A datagram had a wrong Q_Key. The counter stays at its maximum. IBTA 14.2.5.6, `Q_KeyViolations`.
    pub(crate) fn count_qkey_violation(&mut self) {
        let count = self.context.qkey_violation_counter();
        self.context.w().qkey_violation_counter(count.saturating_add(1));
    }

    /// Whether it receives unicast frames to any address.
    pub fn is_promiscuous(&self) -> bool {
        self.context.promisc_uc() || self.context.promisc_all()
    }

    /// Whether it receives frames to this multicast address.
    pub fn hears_group(&self, group: [u8; 6]) -> bool {
        self.context.promisc_mc() || self.context.promisc_all() || self.multicast.contains(&group)
    }

    /// Whether `roce_en` is set: queue pairs can be used.
    pub fn roce_enabled(&self) -> bool {
        self.context.roce_en()
    }
}

/// The MAC in a layout.
pub(crate) fn mac_in(layout: &MacAddressLayout) -> [u8; 6] {
    let (high, low) = (layout.mac_addr_47_32().to_be_bytes(), layout.mac_addr_31_0().to_be_bytes());
    [high[0], high[1], low[0], low[1], low[2], low[3]]
}

/// A MAC as a layout.
pub(crate) fn layout_of([a, b, c, d, e, f]: [u8; 6]) -> MacAddressLayout {
    let mut layout = MacAddressLayout::ZERO;
    layout.w().mac_addr_47_32(u16::from_be_bytes([a, b])).mac_addr_31_0(u32::from_be_bytes([c, d, e, f]));
    layout
}
