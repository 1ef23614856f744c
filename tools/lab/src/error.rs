//! Errors of setting the lab up.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Why the lab could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The packages are for another architecture.
    #[error("the lab's guests need an x86_64 host, this one is {arch}")]
    Host {
        /// This host's architecture.
        arch: &'static str,
    },
    /// A program of Debian is missing.
    #[error(
        "`{program}` cannot be run, and the lab is set up with apt and dpkg: \
         use a Debian-like machine, or set MLX5_LAB=skip to leave the lab's tests out"
    )]
    NoApt {
        /// The missing program.
        program: &'static str,
        /// Why it does not start.
        #[source]
        source: io::Error,
    },
    /// This machine's apt has no Debian archive.
    #[error(
        "none of this machine's apt sources is a Debian archive: \
         set MLX5_LAB_MIRROR to the URI of one that has {suite}"
    )]
    NoMirror {
        /// The Debian release of the lab.
        suite: &'static str,
    },
    /// apt failed repeatedly.
    #[error(
        "{step} failed: check that {mirror} can be reached from here (apt's own proxy \
         settings are used), then run again; what is there already is kept. \
         apt's last words, from {log}:\n{tail}",
        log = .log.display()
    )]
    Apt {
        /// What was being done.
        step: &'static str,
        /// The mirror.
        mirror: String,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A helper program failed.
    #[error("{step} failed; the end of {log}:\n{tail}", log = .log.display())]
    Step {
        /// What was being done.
        step: &'static str,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// No progress for too long.
    #[error("{step} made no progress for {} s and was stopped; see {}", .quiet.as_secs(), .log.display())]
    Stalled {
        /// What was being done.
        step: &'static str,
        /// For how long.
        quiet: Duration,
        /// The log file.
        log: PathBuf,
    },
    /// Another process keeps the lab locked.
    #[error("{} stayed locked by another process for {} s", .path.display(), .waited.as_secs())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited.
        waited: Duration,
    },
    /// The packages do not have the expected content.
    #[error("the packages fetched hold no {what}")]
    Missing {
        /// What is missing.
        what: String,
    },
    /// The C compiler failed; its messages are on stderr.
    #[error("`cc` does not compile {}, see above", .source_file.display())]
    Compiler {
        /// The program.
        source_file: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Adds a description to an [`io::Error`].
pub(crate) trait IoContext<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, LabError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, LabError> {
        self.map_err(|source| LabError::Io { doing, path: path.to_owned(), source })
    }
}
