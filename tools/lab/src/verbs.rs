//! C programs on libibverbs and libmlx5, for guests to run.

use std::path::Path;
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::lab::{Lab, headers};

/// Has this machine's C compiler make `program` of the C file `source`, against the libibverbs and libmlx5 that the
/// guests have.
///
/// # Errors
/// [`LabError::Compiler`] if there is no compiler, or it does not like what it reads; it says what on stderr.
pub fn verbs_program(source: &Path, program: &Path) -> Result<(), LabError> {
    let libraries = Lab::ready()?.root().join("usr/lib/x86_64-linux-gnu");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(headers()?.verbs_include)
        .arg(source)
        // Of the libraries, those that it uses.
        .arg("-Wl,--as-needed")
        .args(["libibverbs.so.1", "libmlx5.so.1"].map(|library| libraries.join(library)))
        // What the libraries need in turn is in the guest.
        .arg("-Wl,--allow-shlib-undefined")
        .arg("-o")
        .arg(program)
        .status()
        .doing("compile with `cc`, the C compiler (install gcc), ", source)?;
    if status.success() { Ok(()) } else { Err(LabError::Compiler { source_file: source.to_owned() }) }
}
