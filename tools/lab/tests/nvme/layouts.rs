//! The C compiler compares each structure and number of mlx5-nvme with the kernel's nvme.h and nvme-rdma.h.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use mlx5_lab::KernelHeaders;
use mlx5_nvme::wire::{CONSTANTS, LAYOUTS, Layout, Member};

use crate::common::TestResult;

/// What the headers include, and need of it.
const INCLUDED: &[(&str, &str)] =
    &[("linux/bits.h", ""), ("linux/types.h", ""), ("linux/uuid.h", "typedef struct { unsigned char b[16]; } uuid_t;")];

/// A statement for the compiler: a number of the headers is ours.
fn equal(statements: &mut String, theirs: &str, ours: u64, what: &str) {
    let _ = writeln!(statements, "_Static_assert({theirs} == {ours}ull, \"{what}\");");
}

fn of_member(statements: &mut String, c_name: &str, member: &Member) {
    let what = format!("{c_name}.{}", member.c_name);
    equal(statements, &format!("offsetof(struct {c_name}, {})", member.c_name), member.offset as u64, &what);
    if !member.name.starts_with("reserved") {
        let theirs = format!("sizeof(((struct {c_name} *)0)->{})", member.c_name);
        equal(statements, &theirs, member.size as u64, &format!("size of {what}"));
    }
}

fn of_layout(statements: &mut String, layout: &Layout) {
    let theirs = format!("sizeof(struct {})", layout.c_name);
    equal(statements, &theirs, layout.size as u64, &format!("size of {}", layout.c_name));
    layout.members.iter().for_each(|member| of_member(statements, layout.c_name, member));
}

/// Compiles `statements` behind the headers of `kernel`. Errors: what the compiler said.
fn compile(kernel: &KernelHeaders, statements: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in INCLUDED {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
        fs::write(path, format!("#pragma once\n{text}\n")).expect("write a header");
    }
    let source = dir.path().join("judge.c");
    let text = format!("#include <linux/nvme.h>\n#include <linux/nvme-rdma.h>\n{statements}");
    fs::write(&source, text).expect("write the C program");
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("judge/kernel.h");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-fsyntax-only", "-include"]).arg(judge).arg("-I").arg(dir.path());
    let output = cc.arg("-I").arg(&kernel.include).arg(&source).env("LC_ALL", "C").output();
    let output = output.expect("a C compiler, `cc`: install gcc");
    let said = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<_> = said.lines().filter(|line| line.contains("error: ")).collect();
    if output.status.success() { Ok(()) } else { Err(format!("Linux {}:\n{}", kernel.release, errors.join("\n"))) }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn structures_and_numbers_of_nvme_are_the_kernel_s() -> TestResult {
    let mut statements = String::new();
    LAYOUTS.iter().for_each(|layout| of_layout(&mut statements, layout));
    let constants = CONSTANTS.iter().copied().flatten();
    for (c_name, number) in constants.filter(|(c_name, _)| *c_name != "-") {
        equal(&mut statements, &format!("(unsigned long long)({c_name})"), *number, c_name);
    }
    let headers = mlx5_lab::headers()?;
    compile(&headers.guests_kernel, &statements)?;
    // The judge finds what is wrong.
    equal(&mut statements, "sizeof(struct nvme_completion)", 17, "a wrong size");
    let refused = compile(&headers.guests_kernel, &statements).unwrap_err();
    assert!(refused.contains("a wrong size"), "{refused}");
    Ok(())
}
