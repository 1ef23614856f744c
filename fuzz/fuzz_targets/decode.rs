//! Decodes bytes as a layout, as a command's input and output, as an event and as a completion.
//!
//! The first two bytes select layout and command, so that no run is wasted on guessing an opcode.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_prm::cmd::{self, Opcode};
use mlx5_prm::decode::{self, Dump};
use mlx5_prm::layout::Info;
use mlx5_prm::registry::LAYOUTS;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first_chunk() else { return };
    let choice = usize::from(u16::from_be_bytes(*choice));
    as_layout(LAYOUTS[choice % LAYOUTS.len()], bytes);
    let commands: Vec<_> = cmd::all().collect();
    as_command(commands[choice % commands.len()].opcode, bytes);
    let _ = decode::event(bytes).map(|dump| dump.to_string());
    let _ = decode::completion(bytes).map(|dump| dump.to_string());
});

fn as_layout(info: &'static Info, bytes: &[u8]) {
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
}

/// The bytes unchanged, and with the selected opcode.
fn as_command(opcode: Opcode, bytes: &[u8]) {
    let mut input = bytes.to_vec();
    let _ = decode::command_input(&input).map(|dump| dump.to_string());
    if let Some(first) = input.first_chunk_mut() {
        *first = (opcode.number() as u16).to_be_bytes();
    }
    let _ = decode::command_input(&input).map(|dump| dump.to_string());
    if let [_, _, _, _, _, _, high, low, output @ ..] = bytes {
        let op_mod = u16::from_be_bytes([*high, *low]);
        let _ = decode::command_output(opcode, op_mod, output).map(|dump| dump.to_string());
    }
}
