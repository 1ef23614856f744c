//! x86-64: the order of a BlueFlame ring's stores in release builds, by objdump.

use std::process::Command;

use crate::common::TestResult;
use crate::disassembly::{instructions, printed, write_probe};

#[test]
fn instructions_are_read_from_a_disassembly() {
    let text =
        "0000 <instructions::other>:\n   0:\tret\n\n0000 <instructions::flush_wc>:\n   0:\tdsb\tst\n   4:\tret\n\n";
    assert_eq!(instructions(text, "flush_wc"), ["dsb st", "ret"]);
    assert_eq!(instructions(text, "none"), [""; 0]);
}

/// Offset of a 16-byte store by `instruction`: for `movups %xmm0,0x10(%rax)` it is 0x10.
fn displacement(instruction: &str) -> Option<i64> {
    let (mnemonic, operands) = instruction.split_once(' ')?;
    let place = operands.strip_prefix("%xmm")?.split_once(',')?.1;
    let number =
        ["movups", "movaps"].contains(&mnemonic).then(|| place.split_once('(').map(|(number, _)| number))??;
    let (sign, digits) = number.strip_prefix('-').map_or((1, number), |digits| (-1, digits));
    Some(sign * i64::from_str_radix(digits.strip_prefix("0x").unwrap_or("0"), 16).ok()?)
}

#[test]
fn stores_are_read_from_instructions() {
    assert_eq!(displacement("movups %xmm0,0x10(%rax)"), Some(16));
    assert_eq!(displacement("movaps %xmm3,(%rax,%rcx,1)"), Some(0));
    assert_eq!(displacement("movaps %xmm3,-0x20(%rax)"), Some(-32));
    assert_eq!(displacement("movups 0x10(%rax),%xmm0"), None);
}

#[test]
fn blue_flame_stores_a_block_in_ascending_order() -> TestResult {
    let dir = tempfile::tempdir()?;
    let manifest = write_probe(dir.path())?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--manifest-path"]).arg(manifest).env("CARGO_TARGET_DIR", dir.path());
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    printed(&mut cargo)?;
    let library = dir.path().join("release/libinstructions.rlib");
    let text =
        printed(Command::new("objdump").args(["--disassemble", "--demangle=rust", "--no-show-raw-insn"]).arg(library))?;
    let all = instructions(&text, "blue_flame");
    let stores: Vec<i64> = all.iter().filter_map(|instruction| displacement(instruction)).collect();
    let first = stores.first().copied().unwrap_or(0);
    assert_eq!(stores, [0, 16, 32, 48].map(|offset| first + offset), "{all:?} in\n{text}");
    // Flushed behind the last: the next copy goes to the other buffer, and may overtake this one.
    let last = all.iter().rposition(|instruction| displacement(instruction).is_some());
    let flush = all.iter().rposition(|instruction| instruction.starts_with("sfence"));
    assert!(flush > last, "{all:?}");
    Ok(())
}
