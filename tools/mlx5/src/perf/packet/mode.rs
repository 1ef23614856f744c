//! What an end does.

/// What this end does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Sends.
    Tx,
    /// Receives.
    Rx,
    /// Sends back what arrives.
    Forward,
    /// Sends one frame at a time, which comes back.
    Lat,
}

impl Mode {
    /// What the other end does.
    pub fn other(self) -> Self {
        match self {
            Mode::Tx => Mode::Rx,
            Mode::Rx => Mode::Tx,
            Mode::Forward => Mode::Tx,
            Mode::Lat => Mode::Forward,
        }
    }

    /// Whether it begins, and so must know the other end.
    pub fn sends_first(self) -> bool {
        matches!(self, Mode::Tx | Mode::Lat)
    }
}
