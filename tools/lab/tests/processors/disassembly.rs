//! Disassembles some of uar's functions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The output of a program; its error output is part of the failure.
pub fn printed(command: &mut Command) -> Result<String, Box<dyn std::error::Error>> {
    let output = command.output().map_err(|error| format!("{command:?} (objdump is in binutils): {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The folder of the workspace.
pub fn workspace() -> &'static Path {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.ancestors().nth(2).unwrap_or(lab)
}

/// Writes a package called `name` to `dir`, whose crates are of the workspace's versions; returns its manifest's path.
pub fn write_package(dir: &Path, name: &str, rest: &str) -> std::io::Result<PathBuf> {
    let text = format!("[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n{rest}");
    let manifest = dir.join("Cargo.toml");
    fs::write(&manifest, text)?;
    fs::copy(workspace().join("Cargo.lock"), dir.join("Cargo.lock"))?;
    Ok(manifest)
}

/// Writes a crate with the functions of `judge/instructions.rs` to `dir`; returns its manifest's path.
pub fn write_probe(dir: &Path) -> std::io::Result<PathBuf> {
    let functions = Path::new(env!("CARGO_MANIFEST_DIR")).join("judge/instructions.rs");
    let uar = workspace().join("uar");
    write_package(dir, "instructions", &format!("[lib]\npath = {functions:?}\n[dependencies]\nuar.path = {uar:?}\n"))
}

/// The instructions of the function called `name`, mnemonic and operands, single-spaced.
pub fn instructions(disassembly: &str, name: &str) -> Vec<String> {
    let lines = disassembly.lines().skip_while(|line| !line.ends_with(&format!("instructions::{name}>:")));
    let body = lines.skip(1).take_while(|line| !line.trim().is_empty());
    let instruction = |line: &str| Some(line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" "));
    body.filter_map(instruction).collect()
}
