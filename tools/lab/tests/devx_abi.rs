//! Check of the DevX access' kernel interface, of the kernel's connection manager, and of the netlink interface that
//! lists devices: all numbers and fields of `mlx5_dv::kernel::abi`, and all numbers of `mlx5_dv::kernel::netlink`, are
//! compared, by the C compiler, with the uapi headers of two kernels: that of Debian stable's guests and the newest in
//! its backports.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use common::{Report, TestResult};
use mlx5_dv::kernel::abi::{self, Field, Number, rdma_cm, shared};
use mlx5_dv::kernel::netlink;
use mlx5_lab::{KernelHeaders, headers};

const INCLUDES: &[&str] = &[
    "stddef.h",
    "stdio.h",
    "rdma/rdma_user_ioctl_cmds.h",
    "rdma/ib_user_ioctl_cmds.h",
    "rdma/ib_user_ioctl_verbs.h",
    "rdma/ib_user_verbs.h",
    "rdma/mlx5_user_ioctl_cmds.h",
    "rdma/mlx5_user_ioctl_verbs.h",
    "rdma/mlx5-abi.h",
    "rdma/rdma_netlink.h",
    "rdma/rdma_user_cm.h",
];

/// All numbers.
fn numbers() -> impl Iterator<Item = &'static Number> {
    abi::NUMBERS.iter().chain(shared::NUMBERS).chain(rdma_cm::NUMBERS).chain(netlink::NUMBERS)
}

/// All fields.
fn fields() -> impl Iterator<Item = &'static Field> {
    abi::FIELDS.iter().chain(shared::FIELDS).chain(rdma_cm::FIELDS).chain(shared::FIRST_FIELDS)
}

/// A program that prints a line for each number and field, in the words of [`ours`].
fn program() -> String {
    let mut text: String = INCLUDES.iter().map(|name| format!("#include <{name}>\n")).collect();
    text.push_str("int main(void)\n{\n");
    for Number { name, .. } in numbers() {
        writeln!(text, "\tprintf(\"{name} %llu\\n\", (unsigned long long)({name}));").unwrap();
    }
    for field in fields() {
        let (structure, name) = (field.structure, field.name);
        match name {
            "" => writeln!(text, "\tprintf(\"{structure} %zu\\n\", sizeof(struct {structure}));"),
            _ => writeln!(
                text,
                "\tprintf(\"{structure}.{name} %zu %zu\\n\", offsetof(struct {structure}, {name}), \
                 sizeof(((struct {structure} *)0)->{name}));"
            ),
        }
        .unwrap();
    }
    text.push_str("\treturn 0;\n}\n");
    text
}

/// The expected output.
fn ours() -> Vec<String> {
    let numbers = numbers().map(|number| format!("{} {}", number.name, number.value));
    let fields = fields().map(|field| match field.name {
        "" => format!("{} {}", field.structure, field.size),
        name => format!("{}.{name} {} {}", field.structure, field.offset, field.size),
    });
    numbers.chain(fields).collect()
}

/// The output for a kernel's headers.
fn theirs(kernel: &KernelHeaders) -> Result<Vec<String>, Report> {
    let dir = tempfile::tempdir()?;
    // Only these headers are the kernel's; all others are the system's.
    symlink(kernel.include.join("uapi/rdma"), dir.path().join("rdma"))?;
    fs::write(dir.path().join("judge.c"), program())?;
    let made = Command::new("cc")
        .args(["-std=gnu11", "-O0", "-o", "judge", "-I", ".", "judge.c"])
        .current_dir(dir.path())
        .output()
        .map_err(|error| format!("a C compiler, `cc` (install gcc): {error}"))?;
    if !made.status.success() {
        return Err(format!("Linux {}: {}", kernel.release, String::from_utf8_lossy(&made.stderr)).into());
    }
    let ran = Command::new(dir.path().join("judge")).output()?;
    Ok(String::from_utf8(ran.stdout)?.lines().map(str::to_owned).collect())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn the_kernel_s_interface_is_the_headers() -> TestResult {
    let headers = headers()?;
    for kernel in [&headers.guests_kernel, &headers.newest_kernel] {
        let (ours, theirs) = (ours(), theirs(kernel)?);
        assert_eq!(ours.len(), theirs.len());
        let wrong = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs);
        let wrong: Vec<_> = wrong.map(|(ours, theirs)| format!("{ours}, the headers say {theirs}")).collect();
        assert!(wrong.is_empty(), "Linux {}:\n{}", kernel.release, wrong.join("\n"));
        println!("Linux {}: {} numbers, {} fields agree", kernel.release, numbers().count(), fields().count());
    }
    Ok(())
}
