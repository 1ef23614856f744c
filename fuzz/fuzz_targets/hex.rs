//! What stands in for hex: any text, any bytes. And what two ends tell each other as text: where queue pairs and memory
//! are, by our own programs' form and by perftest's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_dv::queue::{Peer, RemoteAddress};
use mlx5_tools::hex::{read, read_text};
use mlx5_tools::perftest::{Keys, Rates, parse_mtu, parse_version};

/// What is read is written in a form that is read as the same.
fn addresses(text: &str) {
    if let Ok(peer) = text.parse::<Peer>() {
        assert_eq!(peer.to_string().parse(), Ok(peer));
    }
    if let Ok(remote) = text.parse::<RemoteAddress>() {
        assert_eq!(remote.to_string().parse(), Ok(remote));
    }
}

fn of_perftest(bytes: &[u8]) {
    let _ = bytes.first_chunk().map(parse_version);
    let _ = bytes.first_chunk().copied().map(parse_mtu);
    let _ = bytes.first_chunk().map(|rates: &[u8; 40]| {
        Rates::parse(std::array::from_fn(|at| std::array::from_fn(|byte| rates[8 * at + byte])))
    });
    if let Ok(keys) = Keys::parse_structure(bytes) {
        assert_eq!(Keys::parse_structure(&keys.to_structure(6.24)), Ok(keys));
    }
    if let Ok(keys) = Keys::parse(bytes) {
        let written = keys.to_bytes();
        assert_eq!(Keys::parse(&written), Ok(keys));
        assert_eq!(written.first_chunk().map(Keys::length), Some(written.len()));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let found = read(bytes);
    of_perftest(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        addresses(text);
        let of_text = read_text(text);
        // Binary is taken as it is; text is read the same either way.
        assert!(found == of_text || found.as_ref().is_ok_and(|hex| hex.bytes == bytes) || found.is_err());
        // A plain dump of what was read is read as the same.
        if let Ok(hex) = of_text {
            let dump: String = hex.bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
            assert_eq!(read_text(&dump).map(|again| again.bytes), Ok(hex.bytes));
        }
    }
});
