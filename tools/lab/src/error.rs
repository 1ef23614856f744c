//! What can go wrong while the lab is set up.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Why the lab could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The packages are built for another processor.
    #[error("the lab's guests need an x86_64 host, this one is {arch}")]
    Host {
        /// This host's architecture.
        arch: &'static str,
    },
    /// A program of Debian's is missing.
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
    /// No source of this machine's apt is a Debian archive.
    #[error(
        "none of this machine's apt sources is a Debian archive: \
         set MLX5_LAB_MIRROR to the URI of one that has {suite}"
    )]
    NoMirror {
        /// The release the lab is made of.
        suite: &'static str,
    },
    /// apt failed, also when asked again.
    #[error(
        "{step} failed: check that {mirror} can be reached from here (apt's own proxy \
         settings are used), then run again; what is there already is kept. \
         apt's last words, from {log}:\n{tail}",
        log = .log.display()
    )]
    Apt {
        /// What was being done.
        step: &'static str,
        /// The mirror asked.
        mirror: String,
        /// The whole log.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A helper program failed.
    #[error("{step} failed; its last words, from {log}:\n{tail}", log = .log.display())]
    Step {
        /// What was being done.
        step: &'static str,
        /// The whole log.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// Nothing happened for too long.
    #[error("{step} made no progress for {} s and was stopped; see {}", .quiet.as_secs(), .log.display())]
    Stalled {
        /// What was being done.
        step: &'static str,
        /// For how long nothing happened.
        quiet: Duration,
        /// The whole log.
        log: PathBuf,
    },
    /// Somebody else keeps the lab busy.
    #[error("{} stayed locked by another process for {} s", .path.display(), .waited.as_secs())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// The packages are not what was expected.
    #[error("the packages fetched hold no {what}")]
    Missing {
        /// What is not there.
        what: String,
    },
    /// The C compiler refused a program; it said why on stderr.
    #[error("`cc` does not compile {}, see above", .source_file.display())]
    Compiler {
        /// The program.
        source_file: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Puts words around an [`io::Error`].
pub(crate) trait IoContext<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, LabError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, LabError> {
        self.map_err(|source| LabError::Io { doing, path: path.to_owned(), source })
    }
}
