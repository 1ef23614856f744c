//! The QEMU process of a guest.

use std::process::Child;
use std::time::Duration;

use crate::process::{kill, wait};

/// A running QEMU; dropping it kills the process.
#[derive(Debug)]
pub(super) struct Qemu(pub(super) Child);

impl Qemu {
    pub(super) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Whether it ends by itself within `patience`.
    pub(super) fn ends_within(&mut self, patience: Duration) -> bool {
        matches!(wait(&mut self.0, patience), Ok(Some(_)))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        kill(&mut self.0);
    }
}
