//! What stands in for hex: any text, any bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_tools::hex::{read, read_text};

fuzz_target!(|bytes: &[u8]| {
    let found = read(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
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
