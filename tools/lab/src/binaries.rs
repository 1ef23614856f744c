//! Our own programs, built for guests.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use thiserror::Error;

use crate::folder::workspace;
use crate::progress::say;

/// Why our programs could not be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BinariesError {
    /// cargo does not start.
    #[error("cannot run cargo")]
    Cargo(#[source] io::Error),
    /// cargo failed; its messages are on stderr.
    #[error("`cargo build {arguments}` failed, see above")]
    Build {
        /// Arguments of cargo.
        arguments: String,
    },
    /// cargo built another program.
    #[error("cargo built no program `{name}`")]
    Missing {
        /// The program's name.
        name: String,
    },
}

/// Builds of our programs.
#[derive(Clone, Debug)]
pub struct Build {
    programs: BTreeMap<String, PathBuf>,
    folders: Vec<PathBuf>,
}

impl Build {
    /// Builds programs of this workspace in the dev profile, as `cargo test` has done already. May be called from a
    /// test: cargo holds no lock while tests run.
    pub fn dev(binaries: &[&str], examples: &[&str]) -> Result<Self, BinariesError> {
        Self::of("dev", binaries, examples)
    }

    /// Builds programs of this workspace in release, for what is measured.
    pub fn release(binaries: &[&str], examples: &[&str]) -> Result<Self, BinariesError> {
        Self::of("release", binaries, examples)
    }

    fn of(profile: &str, binaries: &[&str], examples: &[&str]) -> Result<Self, BinariesError> {
        let mut arguments = vec!["build", "--profile", profile, "--workspace"];
        let binary = binaries.iter().flat_map(|name| ["--bin", name]);
        let example = examples.iter().flat_map(|name| ["--example", name]);
        arguments.extend(binary.chain(example));
        say(&format!("cargo {}", arguments.join(" ")));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(&arguments)
            .arg("--message-format=json-render-diagnostics")
            .current_dir(workspace())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(BinariesError::Cargo)?;
        if !output.status.success() {
            return Err(BinariesError::Build { arguments: arguments[1..].join(" ") });
        }
        let programs = executables(&String::from_utf8_lossy(&output.stdout));
        let folder = |names: &[&str]| -> Result<Option<PathBuf>, BinariesError> {
            let mut folder = None;
            for &name in names {
                let path = programs.get(name).ok_or_else(|| BinariesError::Missing { name: name.to_owned() })?;
                folder = path.parent().map(Path::to_path_buf);
            }
            Ok(folder)
        };
        let folders = folder(binaries)?.into_iter().chain(folder(examples)?);
        let folders = folders.collect();
        Ok(Self { folders, programs })
    }

    /// The host path of a program.
    pub fn program(&self, name: &str) -> Result<&Path, BinariesError> {
        let path = self.programs.get(name);
        path.map(PathBuf::as_path).ok_or_else(|| BinariesError::Missing { name: name.to_owned() })
    }

    /// The folders of the programs: one for binaries, one for examples.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

/// The programs in cargo's messages.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let path = PathBuf::from(message.get("executable")?.as_str()?);
            let name = message.get("target")?.get("name")?.as_str()?;
            Some((name.to_owned(), path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cargo() {
        let text = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"mlx5\"},\"executable\":\"/t/release/mlx5\"}\n\
                    {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"uar\"},\"executable\":null}\nnoise\n";
        assert_eq!(executables(text), BTreeMap::from([("mlx5".to_owned(), PathBuf::from("/t/release/mlx5"))]));
    }
}
