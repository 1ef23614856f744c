//! aarch64, whose order of loads and stores is weak: uar's tests run there, each barrier is the instruction its page
//! promises, and the driver compiles. The compiler is Debian's, the processor QEMU's.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::TestResult;
use mlx5_lab::Aarch64;

/// Barrier; the instruction its page promises.
const BARRIERS: [(&str, &str); 7] = [
    ("to_device", "dmb oshst"),
    ("order_writes", "dmb oshst"),
    ("before_doorbell", "dmb oshst"),
    ("before_wc", "dsb st"),
    ("flush_wc", "dsb st"),
    ("from_device", "dmb oshld"),
    ("before_reuse", "dmb oshld"),
];

/// What a program prints; its error output is part of the failure.
fn printed(command: &mut Command) -> Result<String, Box<dyn std::error::Error>> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn the_doorbells_tests_pass_there() -> TestResult {
    let aarch64 = Aarch64::ready()?;
    let said = printed(aarch64.cargo("test").args(["--package", "uar", "--lib"]))?;
    let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split_once(" passed"));
    let (count, _) = passed.ok_or_else(|| format!("no result of the tests:\n{said}"))?;
    assert!(count.parse::<u32>()? >= 9, "{said}");
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn each_barrier_is_the_instruction_it_promises() -> TestResult {
    let aarch64 = Aarch64::ready()?;
    let dir = tempfile::tempdir()?;
    write_probe(dir.path())?;
    printed(aarch64.cargo("build").args(["--release", "--manifest-path"]).arg(dir.path().join("Cargo.toml")))?;
    let text = printed(&mut aarch64.disassemble(&aarch64.release_dir().join("libbarriers.rlib")))?;
    for (barrier, promised) in BARRIERS {
        let all = instructions(&text, barrier);
        let barriers: Vec<_> = all.iter().filter(|one| one.starts_with("dmb") || one.starts_with("dsb")).collect();
        assert_eq!(barriers, [promised], "{barrier} is {all:?} in\n{text}");
    }
    Ok(())
}

/// A crate with a function for each barrier.
fn write_probe(dir: &Path) -> std::io::Result<()> {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = lab.ancestors().nth(2).unwrap_or(lab);
    let manifest = format!(
        "[package]\nname = \"barriers\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = {:?}\n\
         [dependencies]\nuar.path = {:?}\n[workspace]\n",
        lab.join("judge/barriers.rs"),
        workspace.join("uar"),
    );
    fs::write(dir.join("Cargo.toml"), manifest)?;
    fs::copy(workspace.join("Cargo.lock"), dir.join("Cargo.lock"))?;
    Ok(())
}

/// The instructions of the function called `name`, mnemonic and operands, single-spaced.
fn instructions(disassembly: &str, name: &str) -> Vec<String> {
    let lines = disassembly.lines().skip_while(|line| !line.ends_with(&format!("barriers::{name}>:")));
    let body = lines.skip(1).take_while(|line| !line.trim().is_empty());
    let instruction = |line: &str| Some(line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" "));
    body.filter_map(instruction).collect()
}

#[test]
fn instructions_are_read_from_a_disassembly() {
    let text = "0000 <barriers::other>:\n   0:\tret\n\n0000 <barriers::flush_wc>:\n   0:\tdsb\tst\n   4:\tret\n\n";
    assert_eq!(instructions(text, "flush_wc"), ["dsb st", "ret"]);
    assert_eq!(instructions(text, "none"), [""; 0]);
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn the_driver_compiles_for_it() -> TestResult {
    printed(Aarch64::ready()?.cargo("check").args(["--package", "mlx5-dv", "--lib"]))?;
    Ok(())
}
