//! An arbitrary frame from the wire: the model rejects it, or decodes a packet that encodes to the same bytes.
//!
//! In every second run lengths and checksums are corrected first, as random data would never pass them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_sim::transport::{Packet, decode, icrc};

const ETHERNET: usize = 14;
const UDP: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let Some((repair, frame)) = bytes.split_first() else { return };
    let mut frame = frame.to_vec();
    if repair & 1 != 0 {
        let _ = put_right(&mut frame, repair & 2 != 0);
    }
    let is_roce = decode::is_roce(&frame);
    let Ok(read) = Packet::decode(&frame) else { return };
    assert!(is_roce, "a packet that is not taken for one: {read:?}");
    let mut sent = Vec::new();
    read.encode(&mut sent);
    assert_eq!(Packet::decode(&sent), Ok(read));
});

/// Makes it a RoCE v2 packet, IPv4 or IPv6, with correct lengths and checksums; `None` for too few bytes.
fn put_right(frame: &mut [u8], ipv4: bool) -> Option<()> {
    let header = if ipv4 { 20 } else { 40 };
    let all = frame.len().checked_sub(ETHERNET)? as u16;
    let udp = all.checked_sub(header)?;
    frame[12..14].copy_from_slice(if ipv4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    let ip = &mut frame[ETHERNET..];
    if ipv4 {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&all.to_be_bytes());
        ip[6..8].copy_from_slice(&[0x40, 0]);
        ip[9] = 17;
        ip[10..12].fill(0);
        let sum = ip[..20].chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        ip[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
    } else {
        ip[0] = 0x60 | ip[0] & 0xf;
        ip[4..6].copy_from_slice(&udp.to_be_bytes());
        ip[6] = 17;
    }
    let datagram = ip.get_mut(usize::from(header)..)?;
    datagram.get_mut(2..4)?.copy_from_slice(&4791_u16.to_be_bytes());
    datagram.get_mut(4..6)?.copy_from_slice(&udp.to_be_bytes());
    let end = ip.len().checked_sub(icrc::LEN)?;
    (end >= usize::from(header) + UDP).then_some(())?;
    let crc = icrc::compute(&ip[..end]);
    ip[end..].copy_from_slice(&crc.to_le_bytes());
    Some(())
}
