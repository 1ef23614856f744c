//! C programs on libibverbs and libmlx5, for guests to run.

use std::path::{Path, PathBuf};
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
    let libraries = ["libibverbs.so.1", "libmlx5.so.1"].map(|library| libraries.join(library));
    compile(source, program, &libraries, |compiler| {
        compiler.arg("-I").arg(&headers.verbs_include);
        // The kernel's layouts of commands, for those that give commands by themselves.
        compiler.arg("-idirafter").arg(headers.guests_kernel.include.join("linux/mlx5"));
    })
}

/// Compiles `source` to `program`, linked with those of `libraries` that it uses; `includes` names folders of headers.
pub(crate) fn compile(
    source: &Path,
    program: &Path,
    libraries: &[PathBuf],
    includes: impl FnOnce(&mut Command),
) -> Result<(), LabError> {
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror"]);
    includes(&mut compiler);
    compiler.arg(source).arg("-Wl,--as-needed").args(libraries);
    // Dependencies of the libraries are in the guest.
    compiler.arg("-Wl,--allow-shlib-undefined").arg("-o").arg(program);
    let status = compiler.status().doing("compile with `cc`, the C compiler (install gcc), ", source)?;
    if status.success() { Ok(()) } else { Err(LabError::Compiler { source_file: source.to_owned() }) }
}
