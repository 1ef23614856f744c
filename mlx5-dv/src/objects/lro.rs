//! Large receive offload (LRO): what of TCP the card joins. PRM "Transport Interface Receive".

use mlx5_prm::caps::{LroMaxMsgSzMode, PerProtocolNetworkingOffloadCaps};
use mlx5_prm::ctx::{LRO_SIZE_UNIT, MERGE_IPV4_LRO, MERGE_IPV6_LRO, Tirc};

use super::check::in_range;
use super::raw_queue::ethernet_caps;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::setters::setters;

/// Most bytes in front of a TCP header: those of Ethernet, of two VLAN tags, of IPv6.
const BEFORE_TCP: u32 = 14 + 2 * 4 + 40;
/// Most units of a TIR, whose field has eight bits.
const MOST_UNITS: u32 = 0xff;
/// Microseconds that packets are held at least where nothing else is asked for: what Linux asks for.
const USUAL: u16 = 32;

/// Large receive offload: TCP segments of a flow that arrive one after another become one frame in memory, with the
/// headers of the first ([`FrameCompletion::joined`](crate::queue::ethernet::FrameCompletion::joined)). Segments wait
/// for more until one comes that cannot be joined, the frame is as large as may be, or the time is up. Segments with
/// less data than `lro_min_mss_size` of the card are not joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LroOptions {
    /// Most bytes of a joined frame. Every receive must have room for as many. Default: [`MOST`](Self::MOST).
    pub frame_bytes: u32,
    /// Microseconds that segments wait at most: one of the card's `lro_timer_supported_periods`. Default: its shortest
    /// of at least 32, as in Linux.
    pub timeout_usecs: Option<u16>,
    /// Whether TCP over IPv4 is joined. Default: yes.
    pub ipv4: bool,
    /// Whether TCP over IPv6 is joined. Default: yes.
    pub ipv6: bool,
}

setters! {
    LroOptions {
        frame_bytes: u32;
        timeout_usecs: Some(u16);
        ipv4: bool;
        ipv6: bool;
    }
}

impl Default for LroOptions {
    fn default() -> Self {
        LroOptions { frame_bytes: Self::MOST, timeout_usecs: None, ipv4: true, ipv6: true }
    }
}

impl LroOptions {
    /// The largest joined frame that a TIR can allow.
    pub const MOST: u32 = MOST_UNITS * LRO_SIZE_UNIT + BEFORE_TCP;

    /// Puts it into the context of a TIR.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without LRO (`lro_cap`); [`Error::Invalid`] for a size that it cannot have, or
    /// for a time that the card has not (`lro_timer_supported_periods`).
    pub(super) fn write(&self, device: &Device, context: &mut Tirc) -> Result<(), Error> {
        let (_, has) = ethernet_caps(device.caps())?;
        if !has.lro_cap() {
            return Err(Error::Unsupported { what: "large receive offload".into(), capability: "lro_cap" });
        }
        let mask = if self.ipv4 { MERGE_IPV4_LRO } else { 0 } | if self.ipv6 { MERGE_IPV6_LRO } else { 0 };
        if mask == 0 {
            return Err(Invalid::Empty { what: "large receive offload", lacks: "a kind of IP" }.into());
        }
        context
            .w()
            .packet_merge_mask(mask)
            .lro_max_ip_payload_size(self.units(&has)?)
            .lro_timeout_period_usecs(self.period(&has)?);
        Ok(())
    }

    /// `lro_max_ip_payload_size`, which counts from the header on that the card says.
    fn units(&self, has: &PerProtocolNetworkingOffloadCaps) -> Result<u8, Invalid> {
        let before = if has.lro_max_msg_sz_mode() == LroMaxMsgSzMode::FromL2 { 0 } else { BEFORE_TCP };
        let limit = LRO_SIZE_UNIT + before..=MOST_UNITS * LRO_SIZE_UNIT + before;
        let limit = u64::from(*limit.start())..=u64::from(*limit.end());
        in_range("frame_bytes", self.frame_bytes.into(), limit, "lro_max_msg_sz_mode")?;
        // At most 255, by the limit.
        Ok(((self.frame_bytes - before) / LRO_SIZE_UNIT) as u8)
    }

    fn period(&self, has: &PerProtocolNetworkingOffloadCaps) -> Result<u16, Invalid> {
        let mut periods: Vec<u16> =
            has.lro_timer_supported_periods().iter().filter_map(|period| u16::try_from(period.get()).ok()).collect();
        periods.retain(|period| *period != 0);
        periods.sort_unstable();
        let longest = periods.last().copied().unwrap_or(USUAL);
        match self.timeout_usecs {
            None => Ok(periods.into_iter().find(|period| *period >= USUAL).unwrap_or(longest)),
            Some(wanted) if periods.contains(&wanted) => Ok(wanted),
            Some(wanted) => Err(Invalid::NotA {
                what: "period of this card's lro_timer_supported_periods",
                given: format!("{wanted}, which has {periods:?}"),
                mend: Some("choose one of them, or none for the usual one"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::layout::Be32;

    fn card(mode: LroMaxMsgSzMode, periods: [u32; 4]) -> PerProtocolNetworkingOffloadCaps {
        let mut caps = PerProtocolNetworkingOffloadCaps::ZERO;
        caps.w().lro_max_msg_sz_mode(mode).lro_timer_supported_periods(&periods.map(Be32::new));
        caps
    }

    #[test]
    fn the_size_is_counted_from_the_header_that_the_card_says() {
        for (mode, least, most) in [(LroMaxMsgSzMode::FromL4, 318, 65_342), (LroMaxMsgSzMode::FromL2, 256, 65_280)] {
            let units = |bytes| LroOptions::default().frame_bytes(bytes).units(&card(mode, [8, 0, 0, 0]));
            assert_eq!((units(least), units(most), units(least + 255)), (Ok(1), Ok(255), Ok(1)), "{mode:?}");
            for wrong in [0, least - 1, most + 1] {
                let text = units(wrong).unwrap_err().to_string();
                assert!(text.contains("frame_bytes") && text.contains("lro_max_msg_sz_mode"), "{text}");
            }
        }
    }

    #[test]
    fn the_time_is_one_of_the_cards() {
        let period = |options: LroOptions, periods| options.period(&card(LroMaxMsgSzMode::FromL4, periods));
        let default = LroOptions::default();
        assert_eq!(period(default, [8, 16, 32, 1024]), Ok(32));
        assert_eq!(period(default, [1024, 16, 8, 64]), Ok(64), "in any order");
        assert_eq!(period(default, [8, 16, 0, 0]), Ok(16), "the longest, where all are shorter");
        assert_eq!(period(default.timeout_usecs(8), [8, 16, 32, 1024]), Ok(8));
        let text = period(default.timeout_usecs(33), [8, 16, 32, 1024]).unwrap_err().to_string();
        assert!(text.contains("lro_timer_supported_periods") && text.contains("[8, 16, 32, 1024]"), "{text}");
    }
}
