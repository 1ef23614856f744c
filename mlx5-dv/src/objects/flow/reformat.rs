//! Tunnels that flow rules put frames into.

use std::net::Ipv4Addr;
use std::sync::Arc;

use mlx5_prm::caps::FlowTableNicCap;
use mlx5_prm::cmd::{AllocPacketReformatContextIn, DeallocPacketReformatContextIn, WithTail};
use mlx5_prm::flow::{PacketReformatContextIn, ReformatType};

use super::table::no_tables;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::Error;
use crate::net::Mac;
use crate::objects::check::{fits, in_range};
use crate::objects::object::{DestroyError, Object, destroy_sole};
use crate::objects::tunnel::VXLAN_PORT;

/// A VXLAN tunnel over IPv4. RFC 7348.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VxlanTunnel {
    /// Outer source MAC address.
    pub source_mac: Mac,
    /// Outer destination MAC address: that of the next hop.
    pub destination_mac: Mac,
    /// Outer source address.
    pub source: Ipv4Addr,
    /// Outer destination address: that of the tunnel's end.
    pub destination: Ipv4Addr,
    /// Source port of UDP.
    pub source_port: u16,
    /// Network identifier, 24 bits.
    pub vni: u32,
}

impl VxlanTunnel {
    /// Its headers. The card fills in the lengths of IPv4 and UDP, and IPv4's checksum; UDP has none.
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend(self.destination_mac.0);
        header.extend(self.source_mac.0);
        // IPv4: 20 bytes, do not fragment, 64 hops, UDP.
        header.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        header.extend(self.source.octets());
        header.extend(self.destination.octets());
        header.extend(self.source_port.to_be_bytes());
        header.extend(VXLAN_PORT.to_be_bytes());
        header.extend([0, 0, 0, 0]);
        // VXLAN: the network identifier is valid.
        header.extend([0x08, 0, 0, 0]);
        header.extend((self.vni << 8).to_be_bytes());
        header
    }
}

/// Headers that flow rules put before frames. PRM "ALLOC_PACKET_REFORMAT_CONTEXT".
#[derive(Debug)]
pub struct PacketReformat {
    packet_reformat_id: u32,
    object: Object,
}

impl PacketReformat {
    /// Puts frames into a VXLAN tunnel.
    ///
    /// # Errors
    /// As for [`tunnel`](Self::tunnel).
    pub fn vxlan(device: &Arc<Device>, tunnel: &VxlanTunnel) -> Result<Arc<Self>, Error> {
        fits("VXLAN network", tunnel.vni, 24)?;
        Self::create(device, ReformatType::L2ToVxlan, &tunnel.header())
    }

    /// Puts frames behind `header`, which begins with an Ethernet header. The card fills in lengths of IP and UDP and
    /// the checksum of IPv4.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that cannot; [`Error::Invalid`] on DevX, and for a header without bytes or of
    /// more than `max_encap_header_size`; [`Error::Command`].
    pub fn tunnel(device: &Arc<Device>, header: &[u8]) -> Result<Arc<Self>, Error> {
        Self::create(device, ReformatType::L2ToL2Tunnel, header)
    }

    fn create(device: &Arc<Device>, kind: ReformatType, header: &[u8]) -> Result<Arc<Self>, Error> {
        if !device.is_owned() {
            return Err(no_tables(device));
        }
        let caps: FlowTableNicCap = device.caps().current(CapPage::FlowTable).unwrap_or_default();
        if !caps.encap_general_header() {
            let (what, capability) = ("flow rules that put frames into tunnels".into(), "encap_general_header");
            return Err(Error::Unsupported { what, capability });
        }
        let most = caps.max_encap_header_size().into();
        in_range("header", header.len() as u64, 1..=most, "max_encap_header_size")?;
        let (mut create, mut context) = (AllocPacketReformatContextIn::default(), PacketReformatContextIn::default());
        let data = |at: usize| header.get(at).copied().unwrap_or(0);
        context.w().reformat_type(kind).reformat_data_size(header.len() as u16).reformat_data(&[data(0), data(1)]);
        create.w().packet_reformat_context(&context);
        let mut rest = header.get(2..).unwrap_or_default().to_vec();
        // A command is of whole dwords.
        rest.resize(rest.len().next_multiple_of(size_of::<u32>()), 0);
        let (object, out) = Object::create(device, &WithTail::new(create, rest), "a packet reformat context", |out| {
            let mut end = DeallocPacketReformatContextIn::default();
            end.w().packet_reformat_id(out.reply.packet_reformat_id());
            (end, format!("packet reformat context {:#x}", out.reply.packet_reformat_id()))
        })?;
        Ok(Arc::new(PacketReformat { packet_reformat_id: out.reply.packet_reformat_id(), object }))
    }

    /// `packet_reformat_id`.
    pub fn packet_reformat_id(&self) -> u32 {
        self.packet_reformat_id
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Destroys it. Rules that use it must be deleted first. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |reformat| reformat.object.destroy())
    }
}
