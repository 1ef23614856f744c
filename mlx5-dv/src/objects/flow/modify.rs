//! Changes of header fields.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use mlx5_prm::cmd::{AllocModifyHeaderContextIn, DeallocModifyHeaderContextIn, WithTail};
use mlx5_prm::flow::{AddActionIn, CopyActionIn, ModifyActionType, ModifyField, SetActionIn, SetAddCopyActionInAuto};

use super::table::{Direction, properties};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::net::Mac;
use crate::objects::check::{fits, in_range};
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// Changes of header fields, in order. A field that a frame has not stays out. Checksums of IPv4, TCP and UDP are
/// adapted. That of ICMPv6, which covers IPv6 addresses, too, is not: Linux offloads no such change of its packets.
#[derive(Debug, Clone, Default)]
pub struct HeaderChanges {
    actions: Vec<SetAddCopyActionInAuto>,
    mistake: Option<Invalid>,
}

/// A field to copy from or to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderField {
    /// The first 32 bits of the source MAC address.
    SourceMacHigh,
    /// The first 32 bits of the destination MAC address.
    DestinationMacHigh,
    /// The last 16 bits of the source MAC address.
    SourceMacLow,
    /// The last 16 bits of the destination MAC address.
    DestinationMacLow,
    /// Source address of IPv4.
    Ipv4Source,
    /// Destination address of IPv4.
    Ipv4Destination,
    /// Source port of TCP.
    TcpSourcePort,
    /// Destination port of TCP.
    TcpDestinationPort,
    /// Source port of UDP.
    UdpSourcePort,
    /// Destination port of UDP.
    UdpDestinationPort,
    /// Metadata register c of that number, 0 to 7.
    Metadata(u8),
}

impl HeaderField {
    fn field(self) -> (ModifyField, u8) {
        use ModifyField as F;
        match self {
            HeaderField::SourceMacHigh => (F::OutSmac4716, 32),
            HeaderField::DestinationMacHigh => (F::OutDmac4716, 32),
            HeaderField::SourceMacLow => (F::OutSmac150, 16),
            HeaderField::DestinationMacLow => (F::OutDmac150, 16),
            HeaderField::Ipv4Source => (F::OutSipv4, 32),
            HeaderField::Ipv4Destination => (F::OutDipv4, 32),
            HeaderField::TcpSourcePort => (F::OutTcpSport, 16),
            HeaderField::TcpDestinationPort => (F::OutTcpDport, 16),
            HeaderField::UdpSourcePort => (F::OutUdpSport, 16),
            HeaderField::UdpDestinationPort => (F::OutUdpDport, 16),
            HeaderField::Metadata(number) => (metadata(number), 32),
        }
    }
}

fn metadata(number: u8) -> ModifyField {
    use ModifyField as F;
    match number {
        0 => F::MetadataRegC0,
        1 => F::MetadataRegC1,
        2 => F::MetadataRegC2,
        3 => F::MetadataRegC3,
        4 => F::MetadataRegC4,
        5 => F::MetadataRegC5,
        6 => F::MetadataRegC6,
        _ => F::MetadataRegC7,
    }
}

impl HeaderChanges {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `length` bits of a field; 0 means 32.
    fn set(mut self, field: ModifyField, length: u8, data: u32) -> Self {
        let (mut set, mut action) = (SetActionIn::default(), SetAddCopyActionInAuto::default());
        set.w().action_type(ModifyActionType::Set).field(field).length(length).data(data);
        action.w().set_action_in(&set);
        self.actions.push(action);
        self
    }

    fn add(mut self, field: ModifyField, data: u32) -> Self {
        let (mut add, mut action) = (AddActionIn::default(), SetAddCopyActionInAuto::default());
        add.w().action_type(ModifyActionType::Add).field(field).data(data);
        action.w().add_action_in(&add);
        self.actions.push(action);
        self
    }

    fn set_mac(self, high: ModifyField, low: ModifyField, mac: Mac) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        self.set(high, 0, u32::from_be_bytes([a, b, c, d])).set(low, 16, u16::from_be_bytes([e, f]).into())
    }

    /// Source MAC address.
    pub fn source_mac(self, mac: Mac) -> Self {
        self.set_mac(ModifyField::OutSmac4716, ModifyField::OutSmac150, mac)
    }

    /// Destination MAC address.
    pub fn destination_mac(self, mac: Mac) -> Self {
        self.set_mac(ModifyField::OutDmac4716, ModifyField::OutDmac150, mac)
    }

    /// VLAN of the outer tag, 12 bits.
    pub fn vlan(mut self, vlan: u16) -> Self {
        if let Err(mistake) = fits("VLAN", vlan.into(), 12) {
            self.mistake.get_or_insert(mistake);
        }
        self.set(ModifyField::OutFirstVid, 12, (vlan & 0xfff).into())
    }

    /// Source address of IPv4.
    pub fn ipv4_source(self, address: Ipv4Addr) -> Self {
        self.set(ModifyField::OutSipv4, 0, address.into())
    }

    /// Destination address of IPv4.
    pub fn ipv4_destination(self, address: Ipv4Addr) -> Self {
        self.set(ModifyField::OutDipv4, 0, address.into())
    }

    /// Source address of IPv6.
    pub fn ipv6_source(self, address: Ipv6Addr) -> Self {
        use ModifyField as F;
        self.set_ipv6([F::OutSipv612796, F::OutSipv69564, F::OutSipv66332, F::OutSipv6310], address)
    }

    /// Destination address of IPv6.
    pub fn ipv6_destination(self, address: Ipv6Addr) -> Self {
        use ModifyField as F;
        self.set_ipv6([F::OutDipv612796, F::OutDipv69564, F::OutDipv66332, F::OutDipv6310], address)
    }

    fn set_ipv6(self, fields: [ModifyField; 4], address: Ipv6Addr) -> Self {
        let bits = u128::from(address);
        let words = [96, 64, 32, 0].map(|shift| (bits >> shift) as u32);
        fields.into_iter().zip(words).fold(self, |changes, (field, word)| changes.set(field, 0, word))
    }

    /// Differentiated services code point, 6 bits.
    pub fn dscp(mut self, dscp: u8) -> Self {
        if let Err(mistake) = fits("DSCP", dscp.into(), 6) {
            self.mistake.get_or_insert(mistake);
        }
        self.set(ModifyField::OutIpDscp, 6, (dscp & 0x3f).into())
    }

    /// Time to live of IPv4.
    pub fn ttl(self, ttl: u8) -> Self {
        self.set(ModifyField::OutIpTtl, 8, ttl.into())
    }

    /// Time to live of IPv4, less one.
    pub fn decrement_ttl(self) -> Self {
        self.add(ModifyField::OutIpTtl, u32::MAX)
    }

    /// Hop limit of IPv6.
    pub fn hop_limit(self, hops: u8) -> Self {
        self.set(ModifyField::OutIpv6Hoplimit, 8, hops.into())
    }

    /// Hop limit of IPv6, less one.
    pub fn decrement_hop_limit(self) -> Self {
        self.add(ModifyField::OutIpv6Hoplimit, u32::MAX)
    }

    /// Source port of TCP.
    pub fn tcp_source_port(self, port: u16) -> Self {
        self.set(ModifyField::OutTcpSport, 16, port.into())
    }

    /// Destination port of TCP.
    pub fn tcp_destination_port(self, port: u16) -> Self {
        self.set(ModifyField::OutTcpDport, 16, port.into())
    }

    /// Source port of UDP.
    pub fn udp_source_port(self, port: u16) -> Self {
        self.set(ModifyField::OutUdpSport, 16, port.into())
    }

    /// Destination port of UDP.
    pub fn udp_destination_port(self, port: u16) -> Self {
        self.set(ModifyField::OutUdpDport, 16, port.into())
    }

    /// Adds to the sequence number of TCP, modulo 2^32.
    pub fn add_tcp_sequence(self, difference: u32) -> Self {
        self.add(ModifyField::OutTcpSeqNum, difference)
    }

    /// Adds to the acknowledgement number of TCP, modulo 2^32.
    pub fn add_tcp_acknowledgement(self, difference: u32) -> Self {
        self.add(ModifyField::OutTcpAckNum, difference)
    }

    /// Metadata register c of number 0 to 7, which rules of later tables can match.
    pub fn metadata(mut self, register: u8, value: u32) -> Self {
        self.check_register(register);
        self.set(metadata(register), 0, value)
    }

    /// Copies the lower bits of a field into another: as many as both have.
    pub fn copy(mut self, from: HeaderField, to: HeaderField) -> Self {
        for field in [from, to] {
            if let HeaderField::Metadata(register) = field {
                self.check_register(register);
            }
        }
        let ((from, have), (to, room)) = (from.field(), to.field());
        let (mut copy, mut action) = (CopyActionIn::default(), SetAddCopyActionInAuto::default());
        // 0 stands for 32.
        let length = have.min(room) % 32;
        copy.w().action_type(ModifyActionType::Copy).src_field(from).dst_field(to).length(length);
        action.w().copy_action_in(&copy);
        self.actions.push(action);
        self
    }

    fn check_register(&mut self, register: u8) {
        if register > 7 {
            let mistake = Invalid::out_of_range("metadata register", register.into(), 0..=7, "a card");
            self.mistake.get_or_insert(mistake);
        }
    }
}

/// Changes of header fields that flow rules use. PRM "ALLOC_MODIFY_HEADER_CONTEXT".
#[derive(Debug)]
pub struct ModifyHeader {
    modify_header_id: u32,
    direction: Direction,
    object: Object,
}

impl ModifyHeader {
    /// Makes `changes` usable by rules of tables of `direction`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no changes, values that a field has not, and for more changes than
    /// `max_modify_header_actions`: a MAC address takes two, an IPv6 address four; [`Error::Command`] for fields that
    /// the card cannot change.
    pub fn create(device: &Arc<Device>, direction: Direction, changes: &HeaderChanges) -> Result<Arc<Self>, Error> {
        if let Some(mistake) = &changes.mistake {
            return Err(mistake.clone().into());
        }
        if changes.actions.is_empty() {
            return Err(Invalid::Empty { what: "a modify header context", lacks: "changes" }.into());
        }
        let most = properties(device, direction)?.max_modify_header_actions();
        let count = changes.actions.len();
        in_range("changes", count as u64, 1..=most.into(), "max_modify_header_actions")?;
        let mut create = AllocModifyHeaderContextIn::default();
        create.w().table_type(direction.table_type()).num_of_actions(count as u8);
        let create = WithTail::new(create, changes.actions.clone());
        let (object, out) = Object::create(device, &create, "a modify header context", |out| {
            let mut end = DeallocModifyHeaderContextIn::default();
            end.w().modify_header_id(out.reply.modify_header_id());
            (end, format!("modify header context {:#x}", out.reply.modify_header_id()))
        })?;
        Ok(Arc::new(ModifyHeader { modify_header_id: out.reply.modify_header_id(), direction, object }))
    }

    /// `modify_header_id`.
    pub fn modify_header_id(&self) -> u32 {
        self.modify_header_id
    }

    /// Of which tables.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Destroys it. Rules that use it must be deleted first. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |modify| modify.object.destroy())
    }
}
