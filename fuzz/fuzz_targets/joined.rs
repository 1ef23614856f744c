//! Headers of frames that large receive offload joined: what the wire sent, with lengths that lie. Nothing is written
//! where there are no headers of TCP, and a second time changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_dv::queue::ethernet::JoinedSegments;

/// Makes the first bytes those of TCP over IP, behind as many VLAN tags, as random data would rarely be.
fn dressed(frame: &mut [u8], tags: usize, is_v4: bool) -> Option<()> {
    for tag in 0..tags {
        frame.get_mut(12 + 4 * tag..14 + 4 * tag)?.copy_from_slice(&[0x81, 0x00]);
    }
    let ip = 14 + 4 * tags;
    frame.get_mut(ip - 2..ip)?.copy_from_slice(if is_v4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    let (version, protocol) = if is_v4 { (0x40, ip + 9) } else { (0x60, ip + 6) };
    let first = frame.get_mut(ip)?;
    *first = version | *first & 0xf;
    *frame.get_mut(protocol)? = 6;
    Some(())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[how, segments, least_ttl, len_high, len_low, a, b, c], frame)) = bytes.split_first_chunk() else {
        return;
    };
    let mut frame = frame.to_vec();
    if how & 1 != 0 {
        let _ = dressed(&mut frame, usize::from(how >> 1 & 3), how & 8 != 0);
    }
    let joined = JoinedSegments {
        segments,
        is_pushed: how & 16 != 0,
        least_ttl,
        ack: (how & 32 != 0).then_some((u32::from_be_bytes([a, b, c, how]), u16::from_be_bytes([b, c]))),
        timestamp: (how & 64 != 0).then_some((u32::from_be_bytes([c, b, a, how]), a.into())),
        data_sum: u16::from_be_bytes([a, b]),
    };
    let len = if how & 128 != 0 { frame.len() } else { usize::from(u16::from_be_bytes([len_high, len_low])) };
    let before = frame.clone();
    if joined.update_headers(&mut frame, len) {
        let once = frame.clone();
        assert!(joined.update_headers(&mut frame, len) && frame == once);
    } else {
        assert_eq!(frame, before);
    }
});
