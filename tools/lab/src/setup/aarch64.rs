//! The tree with a Rust compiler for aarch64: which packages it omits, and how its programs are started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::apt::Archive;
use crate::error::{IoContext, LabError};

/// Whether a package is needed: of those for aarch64 only Rust's standard library, and no C compiler.
pub(super) fn is_needed(archive: &Archive) -> bool {
    let package = archive.package();
    let compiler = ["gcc-14-x86", "cpp-14-x86"].iter().any(|name| package.starts_with(name));
    !compiler && (!package.ends_with(":arm64") || package == "libstd-rust-web-dev:arm64")
}

/// Starts a program of the tree by the tree's own loader, because the machine's libraries may be older.
const START: &str = "#!/bin/sh
root=$(dirname \"$0\")/..
run() {
    program=$1
    shift
    exec \"$root/usr/lib64/ld-linux-x86-64.so.2\" --argv0 \"$program\" --library-path \"$root/usr/lib/x86_64-linux-gnu\" \\
        \"$root/usr/bin/$program\" \"$@\"
}
";

/// Name, and what follows [`START`]. rustc assumes that a linker called `ld` must be given the C library explicitly.
const PROGRAMS: [(&str, &str); 4] = [
    ("rustc", "run rustc \"$@\"\n"),
    ("objdump", "run aarch64-linux-gnu-objdump \"$@\"\n"),
    ("qemu", "run qemu-aarch64 -L \"$root/usr/aarch64-linux-gnu\" \"$@\"\n"),
    (
        "aarch64-linux-gnu-ld",
        "libc=$root/usr/aarch64-linux-gnu/lib
libgcc=$(echo \"$root\"/usr/lib/gcc-cross/aarch64-linux-gnu/*)
run aarch64-linux-gnu-ld --sysroot=\"$root\" -dynamic-linker /lib/ld-linux-aarch64.so.1 -L\"$libc\" -L\"$libgcc\" \\
    \"$libc/Scrt1.o\" \"$libc/crti.o\" \"$libgcc/crtbeginS.o\" \"$@\" \"$libgcc/crtendS.o\" \"$libc/crtn.o\"
",
    ),
];

/// Removes unused files of the packages, and writes the start scripts.
pub(super) fn finish(tree: &Path) -> Result<(), LabError> {
    let usr_bin = tree.join("usr/bin");
    for entry in fs::read_dir(&usr_bin).doing("read", &usr_bin)?.flatten() {
        let name = entry.file_name();
        // Debian has one QEMU for each architecture, half a gigabyte in total.
        if name.to_string_lossy().starts_with("qemu-") && name != "qemu-aarch64" {
            fs::remove_file(entry.path()).doing("remove", &entry.path())?;
        }
    }
    let bin = tree.join("bin");
    fs::create_dir_all(&bin).doing("create", &bin)?;
    for (name, text) in PROGRAMS {
        let path = bin.join(name);
        fs::write(&path, format!("{START}{text}")).doing("write", &path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).doing("make executable", &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_packages_are_left_out_but_for_the_standard_library() {
        let needed = |file_name: &str| is_needed(&Archive { file_name: file_name.into(), size: 0 });
        assert!(needed("libstd-rust-web-dev_1.96.0_arm64.deb"));
        assert!(needed("libc6-dev-arm64-cross_2.41_all.deb"));
        assert!(needed("libllvm22_22.1_amd64.deb"));
        assert!(!needed("libllvm22_22.1_arm64.deb"));
        assert!(!needed("gcc-14-x86-64-linux-gnu_14.2.0_amd64.deb"));
    }
}
