//! Modify header contexts: lists of actions that write, add to or copy fields of a frame. PRM
//! "ALLOC_MODIFY_HEADER_CONTEXT".

use mlx5_prm::flow::{FlowTableType, ModifyActionType, ModifyField, SetAddCopyActionInAuto};

use crate::ethernet::{Headers, checksum};

/// Bytes of both MAC addresses.
const MACS: usize = 12;
/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// Metadata registers of a frame on its way through the tables. PRM `metadata_reg_c_0` and the following.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    /// c0 to c7.
    pub c: [u32; 8],
    /// a: what the work request of a frame that is sent gave it.
    pub a: u32,
}

impl Registers {
    /// The register of a field.
    fn of(&mut self, field: ModifyField) -> Option<&mut u32> {
        use ModifyField as F;
        let c = [
            F::MetadataRegC0,
            F::MetadataRegC1,
            F::MetadataRegC2,
            F::MetadataRegC3,
            F::MetadataRegC4,
            F::MetadataRegC5,
            F::MetadataRegC6,
            F::MetadataRegC7,
        ];
        match field {
            F::MetadataRegA => Some(&mut self.a),
            field => c.into_iter().position(|register| register == field).map(|number| &mut self.c[number]),
        }
    }
}

/// A field, or part of one, of up to 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bits {
    field: ModifyField,
    /// Lowest bit.
    offset: u32,
    /// Number of bits.
    len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Set(Bits, u32),
    Add(Bits, u32),
    Copy { from: Bits, to: Bits },
}

/// A modify header context.
#[derive(Debug, Clone)]
pub struct ModifyHeader {
    /// Type of the tables whose entries may use it.
    pub table_type: FlowTableType,
    actions: Vec<Action>,
}

impl ModifyHeader {
    /// The context of a list of actions. `None` if one is unknown, names an unknown field, or bits outside it.
    pub(crate) fn parse(table_type: FlowTableType, list: &[SetAddCopyActionInAuto]) -> Option<Self> {
        Some(ModifyHeader { table_type, actions: list.iter().map(action).collect::<Option<_>>()? })
    }

    /// Changes a frame. A field that the frame has not is left out; IPv4's, TCP's and UDP's checksums are adapted.
    pub(crate) fn apply(&self, frame: &mut [u8], registers: &mut Registers) {
        let (before, headers) = (frame.to_vec(), Headers::of(frame));
        for action in &self.actions {
            match *action {
                Action::Set(bits, value) => write(frame, &headers, registers, bits, value),
                Action::Add(bits, value) => {
                    if let Some(old) = read(frame, &headers, registers, bits) {
                        write(frame, &headers, registers, bits, old.wrapping_add(value));
                    }
                }
                Action::Copy { from, to } => {
                    if let Some(value) = read(frame, &headers, registers, from) {
                        write(frame, &headers, registers, to, value);
                    }
                }
            }
        }
        checksum::adapt(&before, frame, &headers);
    }
}

fn action(item: &SetAddCopyActionInAuto) -> Option<Action> {
    let part = |field: ModifyField, offset: u8, len: u8| {
        let (offset, len) = (u32::from(offset), if len == 0 { 32 } else { u32::from(len) });
        (offset + len <= width(field)?).then_some(Bits { field, offset, len })
    };
    match item.set_action_in().action_type() {
        ModifyActionType::Set => {
            let set = item.set_action_in();
            Some(Action::Set(part(set.field(), set.offset(), set.length())?, set.data()))
        }
        ModifyActionType::Add => {
            let add = item.add_action_in();
            let len = width(add.field())?;
            Some(Action::Add(Bits { field: add.field(), offset: 0, len }, add.data()))
        }
        ModifyActionType::Copy => {
            let copy = item.copy_action_in();
            let from = part(copy.src_field(), copy.src_offset(), copy.length())?;
            Some(Action::Copy { from, to: part(copy.dst_field(), copy.dst_offset(), copy.length())? })
        }
        _ => None,
    }
}

/// Bits of a field; `None` for one that cannot be changed.
fn width(field: ModifyField) -> Option<u32> {
    use ModifyField as F;
    Some(match field {
        F::OutIpDscp => 6,
        F::OutIpTtl | F::OutIpv6Hoplimit => 8,
        F::OutTcpFlags => 9,
        F::OutFirstVid => 12,
        F::OutSmac150
        | F::OutDmac150
        | F::OutEthertype
        | F::OutTcpSport
        | F::OutTcpDport
        | F::OutUdpSport
        | F::OutUdpDport => 16,
        F::OutSmac4716
        | F::OutDmac4716
        | F::OutSipv612796
        | F::OutSipv69564
        | F::OutSipv66332
        | F::OutSipv6310
        | F::OutDipv612796
        | F::OutDipv69564
        | F::OutDipv66332
        | F::OutDipv6310
        | F::OutSipv4
        | F::OutDipv4
        | F::OutTcpSeqNum
        | F::OutTcpAckNum => 32,
        field => return Registers::default().of(field).map(|_| 32),
    })
}

/// Where a field is in the frame: the first of its four or fewer bytes, their number, and its lowest bit in them.
fn place(headers: &Headers, field: ModifyField) -> Option<(usize, usize, u32)> {
    use ModifyField as F;
    let tags = [headers.tag, headers.second_tag].iter().flatten().count();
    let v4 = || headers.ip.filter(|ip| ip.is_v4).map(|ip| ip.at);
    let v6 = || headers.ip.filter(|ip| !ip.is_v4).map(|ip| ip.at);
    let tcp = || headers.l4.filter(|l4| l4.is_tcp).map(|l4| l4.at);
    let udp = || headers.l4.filter(|l4| !l4.is_tcp).map(|l4| l4.at);
    Some(match field {
        F::OutDmac4716 => (0, 4, 0),
        F::OutDmac150 => (4, 2, 0),
        F::OutSmac4716 => (6, 4, 0),
        F::OutSmac150 => (10, 2, 0),
        F::OutEthertype => (MACS + TAG * tags, 2, 0),
        F::OutFirstVid => headers.tag.map(|_| (MACS + 2, 2, 0))?,
        F::OutIpDscp => match v4() {
            Some(at) => (at + 1, 1, 2),
            None => (v6()?, 2, 6),
        },
        F::OutIpTtl => (v4()? + 8, 1, 0),
        F::OutIpv6Hoplimit => (v6()? + 7, 1, 0),
        F::OutSipv4 => (v4()? + 12, 4, 0),
        F::OutDipv4 => (v4()? + 16, 4, 0),
        F::OutSipv612796 => (v6()? + 8, 4, 0),
        F::OutSipv69564 => (v6()? + 12, 4, 0),
        F::OutSipv66332 => (v6()? + 16, 4, 0),
        F::OutSipv6310 => (v6()? + 20, 4, 0),
        F::OutDipv612796 => (v6()? + 24, 4, 0),
        F::OutDipv69564 => (v6()? + 28, 4, 0),
        F::OutDipv66332 => (v6()? + 32, 4, 0),
        F::OutDipv6310 => (v6()? + 36, 4, 0),
        F::OutTcpSport => (tcp()?, 2, 0),
        F::OutTcpDport => (tcp()? + 2, 2, 0),
        F::OutTcpSeqNum => (tcp()? + 4, 4, 0),
        F::OutTcpAckNum => (tcp()? + 8, 4, 0),
        F::OutTcpFlags => (tcp()? + 12, 2, 0),
        F::OutUdpSport => (udp()?, 2, 0),
        F::OutUdpDport => (udp()? + 2, 2, 0),
        _ => return None,
    })
}

fn ones(len: u32) -> u32 {
    u32::MAX >> (32 - len.clamp(1, 32))
}

fn read(frame: &[u8], headers: &Headers, registers: &mut Registers, bits: Bits) -> Option<u32> {
    let (value, low) = match registers.of(bits.field) {
        Some(register) => (*register, 0),
        None => {
            let (at, len, low) = place(headers, bits.field)?;
            (frame.get(at..at + len)?.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)), low)
        }
    };
    Some(value >> (low + bits.offset) & ones(bits.len))
}

fn write(frame: &mut [u8], headers: &Headers, registers: &mut Registers, bits: Bits, value: u32) {
    let merge = |old: u32, low: u32| {
        let shift = low + bits.offset;
        old & !(ones(bits.len) << shift) | (value & ones(bits.len)) << shift
    };
    if let Some(register) = registers.of(bits.field) {
        *register = merge(*register, 0);
        return;
    }
    let Some((at, len, low)) = place(headers, bits.field) else { return };
    let Some(bytes) = frame.get_mut(at..at + len) else { return };
    let old = bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
    bytes.copy_from_slice(&merge(old, low).to_be_bytes()[size_of::<u32>() - len..]);
}
