//! How a card is opened.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::trace::{Observer, Observers};
use crate::clock::Clock;

/// How to open a card. Begin with [`Options::default`] and change what matters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Reset the function (FLR) first, so that nothing of its last driver is left. Default: yes.
    pub reset: bool,
    /// How long firmware may take to start. Default: 120 s.
    pub firmware_timeout: Duration,
    /// How long firmware may take to answer a command. Default: 60 s.
    pub command_timeout: Duration,
    /// How often firmware's health is looked at. Default: 100 ms.
    pub health_interval: Duration,
    /// How long the health counter may stand still before the card counts as dead. Default: 3 s.
    pub health_patience: Duration,
    /// How many completion vectors (EQs with an interrupt each) to make, as far as the function has them. Default: 1.
    pub completion_vectors: u32,
    /// Ask firmware to sign its replies, and check tokens and signatures of each. Default: no, as Linux does.
    pub sign_replies: bool,
    /// Bring the port up if it is down. Default: yes.
    pub port_up: bool,
    /// The port's MTU, as its register `PMTU` counts frames: 22 bytes (header, VLAN tag, check sequence) above what `ip
    /// link` shows. Default: raised to 4214, where RoCE's largest path MTU fits, if it is lower and the port can. It
    /// stays so when the card is closed, as with Linux.
    pub mtu: Option<u16>,
    /// An IPv4 address for the port: it becomes a GID of its own. Default: none.
    pub ipv4: Option<Ipv4Addr>,
    /// The clock that every wait goes by. Default: the system's.
    pub clock: Clock,
    /// Who is told of every command.
    pub observers: Observers,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            reset: true,
            firmware_timeout: Duration::from_secs(120),
            command_timeout: Duration::from_secs(60),
            health_interval: Duration::from_millis(100),
            health_patience: Duration::from_secs(3),
            completion_vectors: 1,
            sign_replies: false,
            port_up: true,
            mtu: None,
            ipv4: None,
            clock: Clock::system(),
            observers: Observers::default(),
        }
    }
}

impl Options {
    /// Tells `observer` of every command, from the first.
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }
}
