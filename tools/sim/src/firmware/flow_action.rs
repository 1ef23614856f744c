//! Modify header and packet reformat contexts: what flow entries do with frames. PRM "ALLOC_MODIFY_HEADER_CONTEXT",
//! "ALLOC_PACKET_REFORMAT_CONTEXT".

use mlx5_prm::cmd::*;
use mlx5_prm::flow::{PacketReformatContextIn, ReformatType, SetAddCopyActionInAuto};
use mlx5_prm::layout::Layout;

use super::answer::Answer;
use super::flow::{can_reformat, own, properties};
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::steering::{ModifyHeader, Reformat, ReformatKind, Use};

/// `ALLOC_MODIFY_HEADER_CONTEXT`.
pub(super) fn alloc_modify_header(
    f: &mut Function,
    command: &AllocModifyHeaderContextIn,
    list: &[u8],
) -> Answer<AllocModifyHeaderContextOut> {
    own(command.table_type(), false, 0)?;
    let (most, count) =
        (properties(&f.nic.firmware.caps, command.table_type()).max_modify_header_actions(), command.num_of_actions());
    if count == 0 || count > most {
        return Err(Syndrome::ModifyHeaderCount.into());
    }
    let (items, _) = list.as_chunks::<{ SetAddCopyActionInAuto::SIZE }>();
    let items = items.get(..usize::from(count)).ok_or(Syndrome::InputListLength)?;
    let actions: Vec<_> = items.iter().filter_map(|item| SetAddCopyActionInAuto::read(item)).collect();
    let header = ModifyHeader::parse(command.table_type(), &actions).ok_or(Syndrome::ModifyHeaderAction)?;
    f.nic.objects.steering.modify_headers.next_number().ok_or(Syndrome::TooManyModifyHeaders)?;
    pages::reserve(f, Context::FlowEntry)?;
    let number = f.nic.objects.steering.modify_headers.insert(header).map_err(|_| Syndrome::TooManyModifyHeaders)?;
    let mut output = AllocModifyHeaderContextOut::ZERO;
    output.w().modify_header_id(number);
    Ok(output)
}

/// `DEALLOC_MODIFY_HEADER_CONTEXT`.
pub(super) fn dealloc_modify_header(
    f: &mut Function,
    command: &DeallocModifyHeaderContextIn,
) -> Answer<DeallocModifyHeaderContextOut> {
    let number = command.modify_header_id();
    let steering = &mut f.nic.objects.steering;
    steering.modify_headers.get(number).ok_or(Syndrome::NoSuchModifyHeader)?;
    if steering.is_used(Use::ModifyHeader(number)) {
        return Err(Syndrome::ModifyHeaderInUse.into());
    }
    steering.modify_headers.remove(number);
    pages::release(f, Context::FlowEntry);
    Ok(DeallocModifyHeaderContextOut::ZERO)
}

/// Sizes of the header that takes a tunnel's place: an Ethernet header, or one with a VLAN tag.
const L2_HEADERS: [u16; 2] = [14, 18];

/// `ALLOC_PACKET_REFORMAT_CONTEXT`: tunnels of frames and of packets.
pub(super) fn alloc_packet_reformat(
    f: &mut Function,
    command: &AllocPacketReformatContextIn,
    list: &[u8],
) -> Answer<AllocPacketReformatContextOut> {
    let context = command.packet_reformat_context();
    let kind = match context.reformat_type() {
        ReformatType::L2ToVxlan | ReformatType::L2ToNvgre | ReformatType::L2ToL2Tunnel => ReformatKind::L2Tunnel,
        ReformatType::L2ToL3Tunnel => ReformatKind::L3Tunnel,
        ReformatType::L3TunnelToL2 => ReformatKind::Leave,
        _ => return Err(Syndrome::ReformatType.into()),
    };
    let caps = f.nic.firmware.caps.flow_table();
    let is_announced = match kind {
        ReformatKind::L2Tunnel => caps.encap_general_header(),
        kind => [caps.flow_table_properties_nic_receive(), caps.flow_table_properties_nic_transmit()]
            .iter()
            .any(|tables| can_reformat(tables, kind)),
    };
    if !is_announced {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let size = context.reformat_data_size();
    let fits = match kind {
        ReformatKind::Leave => L2_HEADERS.contains(&size),
        _ => size > 0 && size <= caps.max_encap_header_size(),
    };
    if !fits {
        return Err(Syndrome::ReformatSize.into());
    }
    let header = [&context.reformat_data()[..], list].concat();
    let header = header.get(..usize::from(size)).ok_or(Syndrome::InputListLength)?.to_vec();
    f.nic.objects.steering.reformats.next_number().ok_or(Syndrome::TooManyPacketReformats)?;
    pages::reserve(f, Context::FlowEntry)?;
    let number =
        f.nic.objects.steering.reformats.insert(Reformat { kind, reformat_type: context.reformat_type(), header });
    let number = number.map_err(|_| Syndrome::TooManyPacketReformats)?;
    let mut output = AllocPacketReformatContextOut::ZERO;
    output.w().packet_reformat_id(number);
    Ok(output)
}

/// `QUERY_PACKET_REFORMAT_CONTEXT`: the context, whose header goes on behind it, as far as there is room.
pub(super) fn query_packet_reformat(
    f: &mut Function,
    command: &QueryPacketReformatContextIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryPacketReformatContextOut, Vec<u8>)> {
    let number = command.packet_reformat_id();
    let reformat = f.nic.objects.steering.reformats.get(number).ok_or(Syndrome::NoSuchPacketReformat)?;
    let byte = |at: usize| reformat.header.get(at).copied().unwrap_or(0);
    let mut context = PacketReformatContextIn::ZERO;
    context
        .w()
        .reformat_type(reformat.reformat_type)
        .reformat_data_size(reformat.header.len() as u16)
        .reformat_data(&[byte(0), byte(1)]);
    let mut list = [Layout::as_bytes(&context), reformat.header.get(2..).unwrap_or_default()].concat();
    list.truncate(room);
    Ok((QueryPacketReformatContextOut::ZERO, list))
}

/// `DEALLOC_PACKET_REFORMAT_CONTEXT`.
pub(super) fn dealloc_packet_reformat(
    f: &mut Function,
    command: &DeallocPacketReformatContextIn,
) -> Answer<DeallocPacketReformatContextOut> {
    let number = command.packet_reformat_id();
    let steering = &mut f.nic.objects.steering;
    steering.reformats.get(number).ok_or(Syndrome::NoSuchPacketReformat)?;
    if steering.is_used(Use::Reformat(number)) {
        return Err(Syndrome::PacketReformatInUse.into());
    }
    steering.reformats.remove(number);
    pages::release(f, Context::FlowEntry);
    Ok(DeallocPacketReformatContextOut::ZERO)
}
