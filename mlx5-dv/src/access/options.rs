//! How a card is opened.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::trace::{Observer, Observers};
use crate::clock::Clock;
use crate::setters::setters;

/// Options for opening a card. Start from [`Options::default`] and change what matters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Reset the function (FLR) first, to discard the state of its last driver. Default: yes.
    pub reset: bool,
    /// Longest time for firmware to start. Default: 120 s.
    pub firmware_timeout: Duration,
    /// Longest time for firmware to complete a command. Default: 60 s.
    pub command_timeout: Duration,
    /// Interval between health checks. Default: 100 ms.
    pub health_interval: Duration,
    /// How long the health counter may stand still before the card counts as dead. Default: 3 s.
    pub health_patience: Duration,
    /// Number of completion vectors (EQs with an interrupt each), limited by what the function has. Default: 1.
    pub completion_vectors: u32,
    /// Number of further completion vectors, each with an event queue for a thread of the user's own:
    /// [`EventQueue`](crate::queue::EventQueue). Default: 0.
    pub own_event_queues: u32,
    /// Have firmware sign its replies, and check token and signatures of each. Default: no, as on Linux.
    pub sign_replies: bool,
    /// Bring the port up if it is down. Default: yes.
    pub port_up: bool,
    /// The port's MTU as register `PMTU` counts it: 22 bytes (header, VLAN tag, FCS) above the MTU that `ip link`
    /// shows. Default: raised to 4214, which fits RoCE's largest path MTU, if it is lower and the port allows it. It is
    /// not restored when the card is closed, as on Linux.
    pub mtu: Option<u16>,
    /// An IP address for the port, added as a GID; on DevX one that the kernel has given to the network interface.
    /// Default: none.
    pub ip: Option<IpAddr>,
    /// The clock that all waits use. Default: the system's.
    pub clock: Clock,
    /// Observers, called for every command.
    pub observers: Observers,
}

setters! {
    Options {
        reset: bool;
        firmware_timeout: Duration;
        command_timeout: Duration;
        health_interval: Duration;
        health_patience: Duration;
        completion_vectors: u32;
        own_event_queues: u32;
        sign_replies: bool;
        port_up: bool;
        mtu: Some(u16);
        ip: Some(IpAddr);
        clock: Clock;
    }
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
            own_event_queues: 0,
            sign_replies: false,
            port_up: true,
            mtu: None,
            ip: None,
            clock: Clock::system(),
            observers: Observers::default(),
        }
    }
}

impl Options {
    /// Adds an observer. It is called for every command, from the first one on.
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }
}
