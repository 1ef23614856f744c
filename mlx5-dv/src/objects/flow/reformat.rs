//! Tunnels that flow rules put frames into, and take packets out of.

use std::net::Ipv4Addr;
use std::sync::Arc;

use mlx5_prm::caps::{FlowTableNicCap, FlowTablePropLayout};
use mlx5_prm::cmd::{
    AllocPacketReformatContextIn, DeallocPacketReformatContextIn, QueryPacketReformatContextIn, WithTail,
};
use mlx5_prm::flow::{PacketReformatContextIn, ReformatType};
use mlx5_prm::layout::Layout;

use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{Error, Invalid};
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

/// Bytes of an Ethernet header, and of one with a VLAN tag.
const L2_HEADERS: [usize; 2] = [14, 18];

/// What a reformat is used for by rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// Frames are put into one.
    OfFrames,
    /// The packets in frames are put into one.
    OfPackets,
    /// Packets are taken out of one.
    Left,
}

impl Tunnel {
    /// Error unless tables can do it, one of `tables` at least.
    pub(super) fn check(self, tables: &[&FlowTablePropLayout]) -> Result<(), Error> {
        let (has, what, capability): (fn(&FlowTablePropLayout) -> bool, _, _) = match self {
            Tunnel::OfFrames => (FlowTablePropLayout::reformat, "put frames into tunnels", "reformat"),
            Tunnel::OfPackets => {
                (FlowTablePropLayout::reformat_l2_to_l3_tunnel, "put packets into tunnels", "reformat_l2_to_l3_tunnel")
            }
            Tunnel::Left => (
                FlowTablePropLayout::reformat_l3_tunnel_to_l2,
                "take packets out of tunnels",
                "reformat_l3_tunnel_to_l2",
            ),
        };
        if tables.iter().any(|table| has(table)) {
            return Ok(());
        }
        Err(Error::Unsupported { what: format!("flow rules that {what}"), capability })
    }
}

/// Headers that flow rules put before frames and packets. PRM "ALLOC_PACKET_REFORMAT_CONTEXT".
#[derive(Debug)]
pub struct PacketReformat {
    packet_reformat_id: u32,
    tunnel: Tunnel,
    header_len: usize,
    object: Object,
}

impl PacketReformat {
    /// Puts frames into a VXLAN tunnel.
    ///
    /// # Errors
    /// As for [`tunnel`](Self::tunnel).
    pub fn vxlan(device: &Arc<Device>, tunnel: &VxlanTunnel) -> Result<Arc<Self>, Error> {
        fits("VXLAN network", tunnel.vni, 24)?;
        Self::create(device, ReformatType::L2ToVxlan, Tunnel::OfFrames, &tunnel.header())
    }

    /// Puts frames behind `header`, which begins with an Ethernet header. The card fills in lengths of IP and UDP and
    /// the checksum of IPv4.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that cannot; [`Error::Invalid`] for a header without bytes or of more than
    /// `max_encap_header_size`; [`Error::Command`].
    pub fn tunnel(device: &Arc<Device>, header: &[u8]) -> Result<Arc<Self>, Error> {
        Self::create(device, ReformatType::L2ToL2Tunnel, Tunnel::OfFrames, header)
    }

    /// Puts packets of IP behind `header`, in place of their frames' Ethernet header and VLAN tags: for tunnels of
    /// packets, such as GRE and IP in IP. `header` begins with an Ethernet header of its own; the card fills in what it
    /// does for [`tunnel`](Self::tunnel). Frames without a packet of IP are dropped. Used by
    /// [`FlowActions::encap`](super::actions::FlowActions::encap), on the cards that are known in tables of
    /// [`Direction::Transmit`](super::table::Direction::Transmit).
    ///
    /// # Errors
    /// As for [`tunnel`](Self::tunnel); [`Error::Invalid`] for a header that is shorter than that of Ethernet.
    pub fn l2_to_l3_tunnel(device: &Arc<Device>, header: &[u8]) -> Result<Arc<Self>, Error> {
        Self::create(device, ReformatType::L2ToL3Tunnel, Tunnel::OfPackets, header)
    }

    /// Takes packets of IP out of their tunnel, and puts them behind `header`: an Ethernet header, which may have a
    /// VLAN tag. For tunnels of packets, which have no Ethernet header inside, such as GRE and IP in IP; that of a
    /// frame in a tunnel is replaced. Frames in no tunnel are dropped. Used by
    /// [`FlowActions::decap_l3`](super::actions::FlowActions::decap_l3), on the cards that are known in tables of
    /// [`Direction::Receive`](super::table::Direction::Receive).
    ///
    /// The EtherType in `header` is that of all packets: have a rule for each version of IP.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that cannot; [`Error::Invalid`] for a header that has neither 14 bytes nor 18;
    /// [`Error::Command`].
    pub fn l3_tunnel_to_l2(device: &Arc<Device>, header: &[u8]) -> Result<Arc<Self>, Error> {
        Self::create(device, ReformatType::L3TunnelToL2, Tunnel::Left, header)
    }

    fn create(device: &Arc<Device>, kind: ReformatType, tunnel: Tunnel, header: &[u8]) -> Result<Arc<Self>, Error> {
        let caps: FlowTableNicCap = device.caps().current(CapPage::FlowTable).unwrap_or_default();
        if tunnel == Tunnel::OfFrames && !caps.encap_general_header() {
            let (what, capability) = ("flow rules that put frames into tunnels".into(), "encap_general_header");
            return Err(Error::Unsupported { what, capability });
        }
        tunnel.check(&[caps.flow_table_properties_nic_receive(), caps.flow_table_properties_nic_transmit()])?;
        if tunnel == Tunnel::Left && !L2_HEADERS.contains(&header.len()) {
            let (what, requires) = ("taking packets out of a tunnel".into(), "an Ethernet header of 14 or 18 bytes");
            return Err(Invalid::Requires { what, requires }.into());
        }
        let least = if tunnel == Tunnel::OfFrames { 1 } else { L2_HEADERS[0] as u64 };
        in_range("header", header.len() as u64, least..=caps.max_encap_header_size().into(), "max_encap_header_size")?;
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
        let packet_reformat_id = out.reply.packet_reformat_id();
        Ok(Arc::new(PacketReformat { packet_reformat_id, tunnel, header_len: header.len(), object }))
    }

    /// What it is for.
    pub(super) fn tunnel_use(&self) -> Tunnel {
        self.tunnel
    }

    /// Asks the card for what it does, and the header. PRM "QUERY_PACKET_REFORMAT_CONTEXT". Errors:
    /// [`Error::Command`].
    pub fn query(&self) -> Result<(ReformatType, Vec<u8>), Error> {
        let mut query = QueryPacketReformatContextIn::default();
        query.w().packet_reformat_id(self.packet_reformat_id);
        let mut query = WithTail::<_, u8>::new(query, vec![]);
        // The first two bytes of a header are in the context. Commands are of whole dwords.
        let room = PacketReformatContextIn::SIZE + self.header_len.saturating_sub(2);
        query.out_tail = room.next_multiple_of(size_of::<u32>());
        let tail = self.object.query(&query)?.tail;
        let context = PacketReformatContextIn::read(&tail).unwrap_or_default();
        let rest = tail.get(PacketReformatContextIn::SIZE..).unwrap_or_default();
        let mut header = [context.reformat_data(), rest].concat();
        header.truncate(context.reformat_data_size().into());
        Ok((context.reformat_type(), header))
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
