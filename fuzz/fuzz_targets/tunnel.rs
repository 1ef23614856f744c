//! Headers of frames in tunnels, with lengths that lie: the driver looks for them where its user's frames begin, the
//! software card where a frame of the wire does. Neither panics, and a header that both find is at the same place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_dv::objects::TunnelHeaders;
use mlx5_sim::ethernet;

const ETHERNET: usize = 14;

/// Makes it a frame in a tunnel of a kind, as random data would rarely be: IP around, the tunnel's header, IP inside.
fn dressed(frame: &mut [u8], kind: u8, is_v4: bool) -> Option<()> {
    frame.get_mut(12..14)?.copy_from_slice(if is_v4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    let (protocol, port) = match kind & 3 {
        0 => (17, 4789_u16),
        1 => (17, 6081),
        2 => (47, 0),
        _ => (4, 0),
    };
    let len = (frame.len() - ETHERNET) as u16;
    let ip = frame.get_mut(ETHERNET..)?;
    let next = if is_v4 { 20 } else { 40 };
    *ip.first_mut()? = if is_v4 { 0x45 } else { 0x60 };
    if is_v4 {
        ip.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
        ip.get_mut(6..8)?.fill(0);
        *ip.get_mut(9)? = protocol;
    } else {
        ip.get_mut(4..6)?.copy_from_slice(&len.saturating_sub(40).to_be_bytes());
        *ip.get_mut(6)? = protocol;
    }
    let rest = ip.get_mut(next..)?;
    match kind & 3 {
        2 => rest.get_mut(..4)?.copy_from_slice(&[0, 0, 8, 0]),
        3 => {}
        _ => {
            rest.get_mut(2..4)?.copy_from_slice(&port.to_be_bytes());
            let len = rest.len() as u16;
            rest.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
            rest.get_mut(8..12)?.copy_from_slice(if port == 4789 { &[8, 0, 0, 0] } else { &[0, 0, 8, 0] });
        }
    }
    Some(())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, frame)) = bytes.split_first() else { return };
    let mut frame = frame.to_vec();
    if how & 1 != 0 && frame.len() >= ETHERNET {
        let _ = dressed(&mut frame, how >> 1, how & 8 != 0);
    }
    let card = ethernet::tunnel_offsets(&frame);
    let Some(found) = TunnelHeaders::of(&frame) else { return };
    assert!(found.len() <= frame.len());
    assert_eq!(TunnelHeaders::of(&frame[..found.len()]), Some(found), "what follows the headers does not matter");
    // The card leaves out what the packet's length leaves no room for. The driver asks for no offload of a transport
    // header behind a fragment header, even if the packet is whole (RFC 6946).
    for (at, card) in found.offsets().into_iter().zip(card.unwrap_or_default()) {
        assert!(at == 0 || card == 0 || at == card, "{found:?}, the card's {card}");
    }
});
