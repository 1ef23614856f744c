//! Flow meters: buckets of tokens, by which a frame is green, yellow or red. PRM "Flow Meter ASO".
//!
//! The rules are those of RFC 2697 (what the first bucket has no room for falls into the second), 2698 (a green frame
//! is taken out of both) and 4115 (two buckets by themselves). A bucket is full when its meter was written.

use std::time::Instant;

use mlx5_prm::layout::Layout;
use mlx5_prm::obj::{FlowMeterColor, FlowMeterMode, FlowMeterParameters};

use crate::ethernet::Headers;

/// Bytes of both meters of an object.
pub(crate) const BYTES: usize = 2 * FlowMeterParameters::SIZE;
/// What a packet counts where packets are counted, in bytes: the unit of Linux's and DPDK's rates.
const PACKET: usize = 128;
/// Preamble, check sequence and gap of a frame on the wire.
const GAP: usize = 8 + 4 + 12;
/// Tokens are bytes times 2 to this power, so that the slowest rate adds whole ones each nanosecond.
const SCALE: u32 = 31;

/// Which meter an entry runs, and where it leaves the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metering {
    /// The object.
    pub object: u32,
    /// The second meter of it.
    pub is_second: bool,
    /// Colour that frames come with.
    pub entered: FlowMeterColor,
    /// Number of the metadata register c that has the colour afterwards.
    pub register: usize,
}

/// An object of two meters.
#[derive(Debug, Clone)]
pub struct MeterPair {
    /// The send queues that may write it are of this protection domain.
    pub access_pd: u32,
    meters: [Meter; 2],
}

#[derive(Debug, Clone, Default)]
struct Meter {
    parameters: FlowMeterParameters,
    /// Tokens of the first bucket and of the second.
    tokens: [u128; 2],
    /// When they were counted; `None`: both are full.
    at: Option<Instant>,
}

impl MeterPair {
    /// Meters without parameters: frames keep their colour.
    pub fn new(access_pd: u32) -> Self {
        MeterPair { access_pd, meters: [Meter::default(), Meter::default()] }
    }

    /// The parameters of both.
    pub fn parameters(&self) -> [FlowMeterParameters; 2] {
        [self.meters[0].parameters, self.meters[1].parameters]
    }

    /// Writes those bytes that `mask` has, the first byte's bit being the highest. Buckets of a meter that is written
    /// are full.
    pub(crate) fn write(&mut self, data: &[u8; BYTES], mask: u64) {
        for (number, meter) in self.meters.iter_mut().enumerate() {
            let start = number * FlowMeterParameters::SIZE;
            let is_written = |byte: usize| mask >> (BYTES - 1 - start - byte) & 1 != 0;
            if !(0..FlowMeterParameters::SIZE).any(is_written) {
                continue;
            }
            let before = meter.parameters;
            let old = Layout::as_bytes(&before).iter().zip(&data[start..]).enumerate();
            let bytes: Vec<u8> = old.map(|(at, (old, new))| if is_written(at) { *new } else { *old }).collect();
            *meter = Meter { parameters: FlowMeterParameters::read(&bytes).unwrap_or_default(), ..Meter::default() };
        }
    }

    /// The colour of a frame that goes through one of them.
    pub(super) fn color(&mut self, metering: &Metering, frame: &[u8], now: Instant) -> FlowMeterColor {
        self.meters[usize::from(metering.is_second)].color(metering.entered, frame, now)
    }
}

impl Meter {
    fn color(&mut self, entered: FlowMeterColor, frame: &[u8], now: Instant) -> FlowMeterColor {
        let parameters = self.parameters;
        let entered = match entered {
            FlowMeterColor::Undefined => parameters.start_color(),
            entered => entered,
        };
        if !parameters.valid() {
            return entered;
        }
        self.fill(now);
        let cost = (size(&parameters, frame) as u128) << SCALE;
        let [committed, excess] = self.tokens.map(|tokens| tokens >= cost);
        let is_both = parameters.both_buckets_on_green();
        let (color, [first, second]) = match entered {
            FlowMeterColor::Red => (FlowMeterColor::Red, [0, 0]),
            FlowMeterColor::Green if committed && !is_both => (FlowMeterColor::Green, [cost, 0]),
            FlowMeterColor::Green if committed && excess => (FlowMeterColor::Green, [cost, cost]),
            _ if excess => (FlowMeterColor::Yellow, [0, cost]),
            _ => (FlowMeterColor::Red, [0, 0]),
        };
        self.tokens = [self.tokens[0] - first, self.tokens[1] - second];
        color
    }

    /// Adds the tokens of the time since they were counted.
    fn fill(&mut self, now: Instant) {
        let with = &self.parameters;
        let sizes = [(with.cbs_mantissa(), with.cbs_exponent()), (with.ebs_mantissa(), with.ebs_exponent())];
        let most = sizes.map(|(mantissa, exponent)| u128::from(mantissa) << exponent << SCALE);
        let Some(at) = self.at.replace(now) else {
            self.tokens = most;
            return;
        };
        let nanoseconds = now.saturating_duration_since(at).as_nanos().min(u64::MAX.into());
        let rates = [(with.cir_mantissa(), with.cir_exponent()), (with.eir_mantissa(), with.eir_exponent())];
        let more =
            rates.map(|(mantissa, exponent)| (nanoseconds * u128::from(mantissa)) << (SCALE - u32::from(exponent)));
        let committed = self.tokens[0] + more[0];
        let over = if with.bucket_overflow() { committed.saturating_sub(most[0]) } else { 0 };
        self.tokens = [committed.min(most[0]), (self.tokens[1] + more[1] + over).min(most[1])];
    }
}

/// What a frame counts.
fn size(parameters: &FlowMeterParameters, frame: &[u8]) -> usize {
    match parameters.meter_mode() {
        FlowMeterMode::WithL2 => frame.len(),
        FlowMeterMode::WithL2Ipg => frame.len() + GAP,
        FlowMeterMode::Packets => PACKET,
        _ => {
            let headers = Headers::of(frame);
            headers.ip.map_or(frame.len().saturating_sub(headers.payload_at), |ip| ip.len)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use FlowMeterColor::{Green, Red, Yellow};

    use super::*;

    const FIRST: Metering = Metering { object: 0, is_second: false, entered: Green, register: 0 };

    /// Bytes of a frame of the tests: it takes a millisecond at a million bytes a second.
    const FRAME: [u8; 1000] = [0xff; 1000];

    /// A meter of frames' bytes: buckets of 4 and 2 frames, the first filled by a frame each millisecond.
    fn meter(fill: impl FnOnce(&mut FlowMeterParameters)) -> MeterPair {
        let mut parameters = FlowMeterParameters::ZERO;
        // 10^9 * 131 / 2^17: 999 451 bytes a second.
        parameters
            .w()
            .valid(true)
            .start_color(Green)
            .meter_mode(FlowMeterMode::WithL2)
            .cir_mantissa(131)
            .cir_exponent(17);
        parameters.w().cbs_mantissa(125).cbs_exponent(5).ebs_mantissa(125).ebs_exponent(4);
        fill(&mut parameters);
        let mut pair = MeterPair::new(0);
        let mut data = [0; BYTES];
        data[..FlowMeterParameters::SIZE].copy_from_slice(Layout::as_bytes(&parameters));
        pair.write(&data, 0x80ff_ffff << 32);
        pair
    }

    fn colors(pair: &mut MeterPair, with: Metering, now: Instant, count: usize) -> Vec<FlowMeterColor> {
        (0..count).map(|_| pair.color(&with, &FRAME, now)).collect()
    }

    #[test]
    fn each_rfc_s_buckets_are_emptied_and_filled() {
        let start = Instant::now();
        let later = start + Duration::from_millis(10);
        // By themselves (RFC 4115): the second has no rate here.
        let mut own = meter(|_| {});
        assert_eq!(colors(&mut own, FIRST, start, 8), [Green, Green, Green, Green, Yellow, Yellow, Red, Red]);
        assert_eq!(colors(&mut own, FIRST, later, 6), [Green, Green, Green, Green, Red, Red]);
        // What the first has no room for falls into the second (RFC 2697).
        let mut overflow = meter(|with| _ = with.w().bucket_overflow(true));
        colors(&mut overflow, FIRST, start, 8);
        assert_eq!(colors(&mut overflow, FIRST, later, 7), [Green, Green, Green, Green, Yellow, Yellow, Red]);
        // Out of both (RFC 2698): the second one bounds all.
        let mut both = meter(|with| _ = with.w().both_buckets_on_green(true));
        assert_eq!(colors(&mut both, FIRST, start, 4), [Green, Green, Red, Red]);
    }

    #[test]
    fn tokens_come_at_the_rate_to_the_byte() {
        let start = Instant::now();
        let mut pair = meter(|with| _ = with.w().ebs_mantissa(0));
        colors(&mut pair, FIRST, start, 4);
        // 1000 bytes at 10^9 * 131 / 2^17 a second take 1 000 549.6 ns.
        let before = start + Duration::from_nanos(1_000_549);
        assert_eq!(colors(&mut pair, FIRST, before, 1), [Red]);
        assert_eq!(colors(&mut pair, FIRST, before + Duration::from_nanos(1), 2), [Green, Red]);
    }

    #[test]
    fn frames_keep_a_worse_colour_that_they_come_with() {
        let start = Instant::now();
        let mut pair = meter(|_| {});
        let entered = |entered| Metering { entered, ..FIRST };
        assert_eq!(colors(&mut pair, entered(Red), start, 1), [Red]);
        assert_eq!(colors(&mut pair, entered(Yellow), start, 3), [Yellow, Yellow, Red]);
        assert_eq!(colors(&mut pair, entered(FlowMeterColor::Undefined), start, 1), [Green]);
        // The other meter of the object was not written.
        assert_eq!(colors(&mut pair, Metering { is_second: true, ..FIRST }, start, 9), [Green; 9]);
    }

    #[test]
    fn a_frame_counts_as_the_mode_says() {
        let mut ip = vec![0xff; 14];
        ip.extend([0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        ip[12..14].copy_from_slice(&[8, 0]);
        // Padded.
        ip.resize(60, 0);
        for (mode, expected) in [
            (FlowMeterMode::IpLength, 30),
            (FlowMeterMode::WithL2, 60),
            (FlowMeterMode::WithL2Ipg, 84),
            (FlowMeterMode::Packets, 128),
        ] {
            let mut parameters = FlowMeterParameters::ZERO;
            parameters.w().meter_mode(mode);
            assert_eq!(size(&parameters, &ip), expected, "{mode}");
        }
    }
}
