//! Keys for transfers: one for each that is under way with a remote that writes.

use std::sync::Arc;

use mlx5_dv::Error;
use mlx5_dv::objects::{Pd, UmrKeyOptions};
use mlx5_dv::queue::FastKey;

use crate::payload::Payload;
use crate::wire::MAX_FRAGMENTS;

/// Log of the bytes of a page of a direct list: the fragments of LNet.
const LOG_PAGE: u8 = 12;

/// Which keys transfers are registered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyKind {
    /// Direct lists where buffers lie behind each other in pages, indirect keys where there are gaps.
    #[default]
    Any,
    /// Direct lists alone: payloads with gaps are refused.
    Direct,
    /// Indirect keys alone.
    Indirect,
}

/// Free keys.
#[derive(Debug)]
pub(crate) struct Keys {
    direct: Option<Vec<FastKey>>,
    indirect: Option<Vec<FastKey>>,
}

/// Why a payload has no key.
#[derive(Debug)]
pub(crate) enum NoKey {
    /// All keys are in use.
    Wait(Payload),
    /// No key of this card, or of these options, can hold it.
    Never(Payload),
}

impl Keys {
    /// `count` keys of each kind that the card has.
    pub(crate) fn new(pd: &Arc<Pd>, kind: KeyKind, count: usize) -> Result<Self, Error> {
        let entries = UmrKeyOptions::default().entries(MAX_FRAGMENTS.into());
        let pool = |options: UmrKeyOptions| FastKey::pool(pd, count, options.remote_invalidate(false));
        // Where the kernel has the function, it keeps the addresses of pages to itself.
        let direct = if kind == KeyKind::Indirect { None } else { Some(pool(entries.pages(LOG_PAGE))) };
        let indirect = if kind == KeyKind::Direct { None } else { Some(pool(entries)) };
        match (direct, indirect) {
            (Some(Err(error)), None | Some(Err(_))) | (None, Some(Err(error))) => Err(error),
            (direct, indirect) => {
                Ok(Keys { direct: direct.and_then(Result::ok), indirect: indirect.and_then(Result::ok) })
            }
        }
    }

    /// Free keys.
    pub(crate) fn free(&self) -> usize {
        [&self.direct, &self.indirect].into_iter().flatten().map(Vec::len).sum()
    }

    /// A key that holds the buffers of `payload`, and whether it is a direct list.
    pub(crate) fn take(&mut self, payload: Payload) -> Result<(FastKey, bool), NoKey> {
        let mut payload = payload;
        let mut waits = false;
        for (pool, is_direct) in [(&mut self.direct, true), (&mut self.indirect, false)] {
            let Some(pool) = pool else { continue };
            let Some(mut key) = pool.pop() else {
                // Perhaps it would fit, perhaps not: only a key can say.
                waits = true;
                continue;
            };
            match fill(&mut key, payload) {
                Ok(()) => return Ok((key, is_direct)),
                Err(back) => {
                    payload = back;
                    pool.push(key);
                }
            }
        }
        Err(if waits { NoKey::Wait(payload) } else { NoKey::Never(payload) })
    }

    /// Takes back a free key without buffers.
    pub(crate) fn put(&mut self, key: FastKey, is_direct: bool) {
        let pool = if is_direct { &mut self.direct } else { &mut self.indirect };
        pool.get_or_insert_default().push(key);
    }
}

/// Puts the buffers of `payload` into `key`; gives them back where one is refused.
fn fill(key: &mut FastKey, payload: Payload) -> Result<(), Payload> {
    let mut parts = payload.into_parts().into_iter();
    while let Some(part) = parts.next() {
        if let Err(refused) = key.push(part) {
            let all: Vec<_> = key.parts().chain([refused]).chain(parts).collect();
            return Err(Payload::new(all).unwrap_or_default());
        }
    }
    Ok(())
}
