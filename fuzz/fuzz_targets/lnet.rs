//! What strangers send to a node of LNet: messages, private data of requests and refusals, answers to a ping, and the
//! names that users type. None panics, and what is read is written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_lnet::wire::{ByteOrder, Header, MAGIC, Message, Reject, VERSION_1, VERSION_2};
use mlx5_lnet::{Nid, ping};

/// `bytes` behind the start of a good message.
fn dressed(bytes: &[u8], order: ByteOrder, version: u16) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(bytes.len().max(48), 0);
    let len = all.len() as u32;
    let (magic, version, len) = match order {
        ByteOrder::Little => (MAGIC.to_le_bytes(), version.to_le_bytes(), len.to_le_bytes()),
        ByteOrder::Big => (MAGIC.to_be_bytes(), version.to_be_bytes(), len.to_be_bytes()),
    };
    all[..4].copy_from_slice(&magic);
    all[4..6].copy_from_slice(&version);
    all[8..12].copy_from_slice(&len);
    all[12..16].fill(0);
    all
}

fuzz_target!(|bytes: &[u8]| {
    let _ = (Message::decode(bytes), Reject::decode(bytes), ping::read(bytes));
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(nid) = text.parse::<Nid>()
    {
        assert_eq!(nid.to_string().parse(), Ok(nid));
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(Header::decode) {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for version in [VERSION_1, VERSION_2] {
            let all = dressed(bytes, order, version);
            let _ = Reject::decode(&all);
            let Ok((message, read)) = Message::decode(&all) else { continue };
            assert_eq!(read, order);
            if all.len() <= mlx5_lnet::wire::MESSAGE_BYTES {
                for sums in [false, true] {
                    let again = message.to_vec(order, sums);
                    assert_eq!(Message::decode(&again).map(|(message, _)| message), Ok(message.clone()));
                }
            }
        }
    }
});
