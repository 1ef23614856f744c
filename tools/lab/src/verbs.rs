//! C programs on libibverbs, for guests to run.

use std::path::Path;
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::lab::{Lab, headers};

/// Has this machine's C compiler make `program` of the C file `source`, against the libibverbs that the guests have.
///
/// # Errors
/// [`LabError::Compiler`] if there is no compiler, or it does not like what it reads; it says what on stderr.
pub fn verbs_program(source: &Path, program: &Path) -> Result<(), LabError> {
    let library = Lab::ready()?.root().join("usr/lib/x86_64-linux-gnu/libibverbs.so.1");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(headers()?.verbs_include)
        .arg(source)
        .arg(library)
        // What the library needs in turn is in the guest.
        .arg("-Wl,--allow-shlib-undefined")
        .arg("-o")
        .arg(program)
        .status()
        .doing("compile with `cc`, the C compiler (install gcc), ", source)?;
    if status.success() { Ok(()) } else { Err(LabError::Compiler { source_file: source.to_owned() }) }
}
