//! Credits of a connection: how many messages may be sent so that the other end has a receive for each.
//!
//! Each end posts twice the queue depth of receives, and two more (`IBLND_RX_MSGS` of `o2iblnd.h`). A message that
//! asks for something, or carries data, takes a credit; the receiver returns it in any message once it has posted the
//! receive again. What answers takes none: its receive is one that the sender of the request reserved.

use crate::wire::VERSION_1;

/// `IBLND_CREDIT_HIGHWATER_V1` of `o2iblnd.h`.
const HIGH_WATER_V1: u16 = 7;
/// `IBLND_OOB_MSGS` of `o2iblnd.h`: NOOPs without a credit that may be under way.
const FREE_NOOPS: u16 = 2;

/// What a message costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    Nothing,
    Credit,
}

/// Whose a receive is that was posted again: `IBLND_POSTRX_*` of `o2iblnd.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repost {
    NoCredit,
    /// The other end gets a credit back.
    PeerCredit,
    /// Another request of ours may be sent, for whose answer it is.
    Reserved,
}

/// The other end does not keep the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreditError {
    /// It returns more credits than it can have.
    #[error("{given} credits came back where {have} of {depth} are there")]
    TooMany {
        /// Credits in the message.
        given: u8,
        /// Credits before.
        have: u16,
        /// The queue depth.
        depth: u16,
    },
    /// It sends without a credit.
    #[error("a message without a credit: all {0} were used")]
    Overdrawn(u16),
}

/// The credits of one end, in both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credits {
    is_v1: bool,
    depth: u16,
    /// Messages that may be sent.
    credits: u16,
    /// Credits to return.
    outstanding: u16,
    /// Requests that may be sent.
    reserved: u16,
    /// Messages that the other end may send, at least.
    peer: u16,
    sends: u16,
    most_sends: u16,
    noops: u16,
}

impl Credits {
    pub(crate) fn new(version: u16, depth: u16, most_sends: u16) -> Self {
        let (is_v1, most_sends) = (version == VERSION_1, most_sends.max(1));
        let (credits, reserved, peer) = (depth, depth, depth);
        Credits { is_v1, depth, credits, outstanding: 0, reserved, peer, sends: 0, most_sends, noops: 0 }
    }

    /// Receives to post.
    pub(crate) fn receives(version: u16, depth: u16) -> u32 {
        u32::from(depth) * 2 + if version == VERSION_1 { 0 } else { u32::from(FREE_NOOPS) }
    }

    pub(crate) fn is_v1(&self) -> bool {
        self.is_v1
    }

    /// Credits to return.
    pub(crate) fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// What a NOOP costs.
    pub(crate) fn noop_cost(&self) -> Cost {
        if self.is_v1 { Cost::Credit } else { Cost::Nothing }
    }

    /// Whether a message may be sent now. `kiblnd_post_tx_locked` of `o2iblnd_cb.c`.
    pub(crate) fn may_send(&self, cost: Cost, is_noop: bool) -> bool {
        if self.sends >= self.most_sends {
            return false;
        }
        match cost {
            Cost::Nothing => !is_noop || self.noops < FREE_NOOPS,
            // The last one is for a NOOP, or both ends could wait for each other's credits.
            Cost::Credit => self.credits > u16::from(self.is_v1 && !is_noop),
        }
    }

    /// A message is sent; returns the credits that it carries.
    pub(crate) fn send(&mut self, cost: Cost, is_noop: bool) -> u8 {
        self.credits -= u16::from(cost == Cost::Credit);
        self.sends += 1;
        self.noops += u16::from(is_noop);
        // A message's field has room for the deepest queue's: `Options::check`.
        let returned = u8::try_from(self.outstanding).unwrap_or(u8::MAX);
        self.outstanding -= u16::from(returned);
        self.peer += u16::from(returned);
        returned
    }

    /// A message has been sent.
    pub(crate) fn sent(&mut self, is_noop: bool) {
        self.sends = self.sends.saturating_sub(1);
        self.noops = self.noops.saturating_sub(u16::from(is_noop));
    }

    /// A message came that carries `returned` credits. `kiblnd_handle_rx` of `o2iblnd_cb.c`.
    pub(crate) fn receive(&mut self, returned: u8, cost: Cost, is_noop: bool) -> Result<(), CreditError> {
        let all = self.credits + u16::from(returned);
        if all > self.depth {
            return Err(CreditError::TooMany { given: returned, have: self.credits, depth: self.depth });
        }
        self.credits = all;
        if cost == Cost::Credit {
            self.peer = self.peer.checked_sub(1).ok_or(CreditError::Overdrawn(self.depth))?;
        }
        // The credit of the NOOP itself.
        self.outstanding += u16::from(self.is_v1 && is_noop && returned > 0);
        Ok(())
    }

    /// How the receive of a NOOP with `returned` credits is posted again.
    pub(crate) fn repost_of_noop(&self, returned: u8) -> Repost {
        if self.is_v1 && returned == 0 { Repost::PeerCredit } else { Repost::NoCredit }
    }

    pub(crate) fn reposted(&mut self, whose: Repost) {
        match whose {
            Repost::NoCredit => {}
            Repost::PeerCredit => self.outstanding = (self.outstanding + 1).min(self.depth),
            Repost::Reserved => self.reserved = (self.reserved + 1).min(self.depth),
        }
    }

    /// Takes a receive for the answer to a request, if there is one.
    pub(crate) fn reserve(&mut self) -> bool {
        let there_is = self.reserved > 0;
        self.reserved -= u16::from(there_is);
        there_is
    }

    fn high_water(&self) -> u16 {
        // `peer_credits_hiw` is half of `peer_credits` by default (`kiblnd_tunables_setup` of `o2iblnd_modparams.c`).
        if self.is_v1 { HIGH_WATER_V1.min(self.depth.saturating_sub(1)) } else { self.depth / 2 }.max(1)
    }

    /// Whether a NOOP is due: to return credits, or to show that the connection lives. `queued` says whether messages
    /// wait that cost a credit. None is due where another message goes that carries the credits. `kiblnd_need_noop` of
    /// `o2iblnd.h`.
    pub(crate) fn needs_noop(&self, queued: bool, other_goes: bool, is_idle: bool) -> bool {
        if other_goes || (self.outstanding < self.high_water() && !is_idle) {
            return false;
        }
        if !self.is_v1 {
            return !queued || self.credits == 0;
        }
        let cannot = self.credits == 0 || (self.credits == 1 && self.outstanding == 0);
        !cannot && (!queued || self.credits == 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::VERSION_2;

    /// What is under way from one end to the other: cost, whether it is a NOOP, and credits.
    type Way = std::collections::VecDeque<(Cost, bool, u8)>;

    struct End {
        credits: Credits,
        /// Messages that wait to be sent.
        queued: u32,
        /// Receives that the program has not given back.
        held: u32,
    }

    impl End {
        fn pump(&mut self, to: &mut Way) {
            loop {
                let noop = self.credits.needs_noop(self.queued > 0, false, false);
                let (cost, is_noop) = if noop { (self.credits.noop_cost(), true) } else { (Cost::Credit, false) };
                if (!noop && self.queued == 0) || !self.credits.may_send(cost, is_noop) {
                    break;
                }
                self.queued -= u32::from(!is_noop);
                let returned = self.credits.send(cost, is_noop);
                to.push_back((cost, is_noop, returned));
                self.credits.sent(is_noop);
            }
        }

        fn take(&mut self, (cost, is_noop, returned): (Cost, bool, u8)) {
            self.credits.receive(returned, cost, is_noop).unwrap();
            if is_noop {
                let whose = self.credits.repost_of_noop(returned);
                self.credits.reposted(whose);
            } else {
                self.held += 1;
            }
        }
    }

    proptest! {
        /// Both ends send many messages, in any order, and give receives back late: all arrive.
        #[test]
        fn no_order_of_events_starves_either_end(
            is_v1: bool,
            depth in 2u16..20,
            order in proptest::collection::vec(0usize..6, 0..400),
        ) {
            // Version 0x11 knows no other depth.
            let (version, depth) = if is_v1 { (VERSION_1, 8) } else { (VERSION_2, depth) };
            let end = || End { credits: Credits::new(version, depth, depth), queued: 50, held: 0 };
            let (mut ends, mut ways) = ([end(), end()], [Way::new(), Way::new()]);
            let mut step = |what: usize| {
                let (this, other) = (what % 2, 1 - what % 2);
                match what / 2 {
                    0 => ends[this].pump(&mut ways[other]),
                    1 => if let Some(message) = ways[this].pop_front() { ends[this].take(message) },
                    _ => if ends[this].held > 0 {
                        ends[this].held -= 1;
                        ends[this].credits.reposted(Repost::PeerCredit);
                    }
                }
                prop_assert!(ways[this].len() <= Credits::receives(version, depth) as usize);
                Ok(ends.iter().map(|end| end.queued + end.held).sum::<u32>() + ways.iter().map(Way::len).sum::<usize>() as u32)
            };
            for what in order {
                step(what)?;
            }
            let mut left = u32::MAX;
            for what in 0..20_000 {
                left = step(what % 6)?;
                if left == 0 { break; }
            }
            prop_assert_eq!(left, 0);
        }
    }

    #[test]
    fn credits_that_cannot_be_are_refused() {
        let mut credits = Credits::new(VERSION_2, 4, 4);
        assert_eq!(credits.receive(1, Cost::Nothing, true), Err(CreditError::TooMany { given: 1, have: 4, depth: 4 }));
        for _ in 0..4 {
            credits.receive(0, Cost::Credit, false).unwrap();
        }
        assert_eq!(credits.receive(0, Cost::Credit, false), Err(CreditError::Overdrawn(4)));
    }

    #[test]
    fn version_1_keeps_its_last_credit_for_a_noop() {
        let mut credits = Credits::new(VERSION_1, 2, 8);
        credits.send(Cost::Credit, false);
        assert!(!credits.may_send(Cost::Credit, false) && credits.may_send(Cost::Credit, true));
        credits.receive(0, Cost::Credit, false).unwrap();
        assert!(!credits.needs_noop(true, false, false), "nothing to return");
        credits.reposted(Repost::PeerCredit);
        assert!(credits.needs_noop(true, false, false));
        assert_eq!(credits.send(credits.noop_cost(), true), 1);
        assert!(!credits.may_send(Cost::Credit, true));
    }
}
