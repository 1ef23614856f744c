//! The first byte chooses a layout; the rest is read as it, and as command, event and completion.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::decode::{self, Dump};
use mlx5_prm::registry::LAYOUTS;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let info = LAYOUTS[usize::from(*choice) % LAYOUTS.len()];
    let _ = Dump::new(info, bytes).with_zeros().to_string();
    let _ = decode::walk::<()>(info, bytes, &mut |found| {
        let _ = found.value_name();
        Ok(())
    });
    let _ = decode::all_uncovered(info, bytes).count();
    for field in info.fields {
        let mut copy = bytes.to_vec();
        if let Some(number) = field.number(bytes) {
            assert_eq!(field.set(&mut copy, number), Some(()));
            assert_eq!(copy, bytes);
        }
    }
    let command = decode::command_input(bytes).map(|dump| dump.to_string());
    if let (Some(_), [high, low, _, _, _, _, high_mod, low_mod, rest @ ..]) = (command, bytes) {
        let opcode = Opcode::from_number(u16::from_be_bytes([*high, *low]).into());
        let _ = decode::command_output(opcode, u16::from_be_bytes([*high_mod, *low_mod]), rest)
            .map(|dump| dump.to_string());
    }
    let _ = decode::event(bytes).map(|dump| dump.to_string());
    let _ = decode::completion(bytes).map(|dump| dump.to_string());
});
