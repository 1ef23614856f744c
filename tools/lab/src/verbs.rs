//! C programs on libibverbs and libmlx5, for guests to run.

use std::path::Path;
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::lab::{Lab, headers};

/// Compiles the C file `source` to `program` with this machine's C compiler, against the libibverbs and libmlx5 of the
/// guests.
///
/// # Errors
/// [`LabError::Compiler`] if there is no compiler, or compilation fails; its messages are on stderr.
pub fn verbs_program(source: &Path, program: &Path) -> Result<(), LabError> {
    let libraries = Lab::ready()?.root().join("usr/lib/x86_64-linux-gnu");
    let headers = headers()?;
    let status = Command::new("cc")
        .args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(&headers.verbs_include)
        // The kernel's layouts of commands, for those that give commands by themselves.
        .arg("-idirafter")
        .arg(headers.guests_kernel.include.join("linux/mlx5"))
        .arg(source)
        // Link only the libraries that are used.
        .arg("-Wl,--as-needed")
        .args(["libibverbs.so.1", "libmlx5.so.1"].map(|library| libraries.join(library)))
        // Dependencies of the libraries are in the guest.
        .arg("-Wl,--allow-shlib-undefined")
        .arg("-o")
        .arg(program)
        .status()
        .doing("compile with `cc`, the C compiler (install gcc), ", source)?;
    if status.success() { Ok(()) } else { Err(LabError::Compiler { source_file: source.to_owned() }) }
}
