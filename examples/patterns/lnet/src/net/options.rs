//! What a node is, and how it waits.

use std::time::Duration;

use mlx5_cm::Route;

use super::failure::LnetError;
use crate::keys::KeyKind;
use crate::nid::Nid;
use crate::wire::{ByteOrder, MAX_FRAGMENTS, VERSION_1, VERSION_2};

/// `service` of `o2iblnd_modparams.c`: the port that nodes listen on.
pub const PORT: u16 = 987;
/// `IBLND_CREDITS_MAX` of `o2iblnd.h`.
const DEEPEST: u16 = 255;

/// Options of a node. Defaults are those of `lnet/klnds/o2iblnd/o2iblnd_modparams.c`, where it has them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Its NID.
    pub nid: Nid,
    /// The port to listen on, and to connect to. Default: [`PORT`].
    pub port: u16,
    /// Messages under way in each direction on a connection, 2 to 255 (`peer_credits`). Default: 8.
    pub queue_depth: u16,
    /// Fragments of a transfer that it offers and accepts. Default: [`MAX_FRAGMENTS`].
    pub max_fragments: u16,
    /// Messages of ours that may be on their way on a connection (`concurrent_sends`). Default: the queue depth.
    pub concurrent_sends: Option<u16>,
    /// The version to begin with. Default: 0x12; 0x11 is an old node's.
    pub version: u16,
    /// Byte order of its messages. Default: low byte first.
    pub byte_order: ByteOrder,
    /// Whether its messages have checksums (`cksum`). Those that come are checked. Default: no.
    pub checksums: bool,
    /// How long a message or its answer may take, before the connection is given up (`timeout`). Default: 50 s.
    pub timeout: Duration,
    /// After how long without a message it sends one (`keepalive`). Default: 100 s.
    pub keepalive: Duration,
    /// Which keys it registers transfers by. Default: any.
    pub keys: KeyKind,
    /// Keys of each kind: transfers that others write to at once. Default: 64.
    pub key_count: usize,
    /// Connections at most. Default: 1024.
    pub connections: usize,
    /// Path and retries of its connections (`retry_count`, `rnr_retry_count`).
    pub route: Route,
}

impl Options {
    /// Of node `nid`; everything else is default.
    pub fn new(nid: Nid) -> Self {
        let route = Route { retry_count: 5, ..Route::default() };
        Options {
            nid,
            port: PORT,
            queue_depth: 8,
            max_fragments: MAX_FRAGMENTS,
            concurrent_sends: None,
            version: VERSION_2,
            byte_order: ByteOrder::Little,
            checksums: false,
            timeout: Duration::from_secs(50),
            keepalive: Duration::from_secs(100),
            keys: KeyKind::Any,
            key_count: 64,
            connections: 1024,
            route,
        }
    }

    pub(super) fn check(&self) -> Result<(), LnetError> {
        let within = |what, given: u64, least: u64, most: u64| match (least..=most).contains(&given) {
            true => Ok(()),
            false => Err(LnetError::Option { what, given, least, most }),
        };
        within("queue_depth", self.queue_depth.into(), 2, DEEPEST.into())?;
        within("max_fragments", self.max_fragments.into(), 1, MAX_FRAGMENTS.into())?;
        within("key_count", self.key_count as u64, 1, 1 << 16)?;
        within("connections", self.connections as u64, 1, 1 << 14)?;
        within("version", self.version.into(), VERSION_1.into(), VERSION_2.into())
    }
}
