//! Flow meters: rates that flow rules hold frames to.

use std::sync::Arc;

use mlx5_prm::caps::{CmdHcaCap, QosCap};
use mlx5_prm::cmd::{
    CreateGeneralObjectIn, DestroyGeneralObjectIn, GeneralObjCreateParam, QueryGeneralObjectIn, QueryGeneralObjectOut,
    ReplyWithTail, WithTail,
};
use mlx5_prm::flow::{ExeAsoCtrl, ExeAsoCtrlFlowMeter, ExecuteAso};
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::{FlowMeterAsoObj, FlowMeterColor, FlowMeterMode, FlowMeterParameters, ObjType};

use crate::access::RawCommand;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::objects::check::in_range;
use crate::objects::object::Object;
use crate::objects::pd::Pd;

/// Meters of an object.
const EACH: u32 = 2;
/// Bytes of both.
pub(crate) const PAIR: usize = EACH as usize * FlowMeterParameters::SIZE;
/// What a packet counts where packets are counted, in bytes.
const PACKET: u64 = 128;
/// Nanoseconds of a second: a rate is 10^9 * mantissa / 2^exponent bytes a second.
const SECOND: u128 = 1_000_000_000;
/// Of mantissas, and of exponents.
const MOST_MANTISSA: u128 = 0xff;
const MOST_EXPONENT: u8 = 0x1f;
/// The largest burst in bytes: the card's buckets have 31 bits.
const MOST_BURST: u64 = 0x7fff_ffff;
/// Bytes of a meter's parameters that are written: its flags, and what follows the reserved bytes. The first byte's bit
/// is the highest.
const WRITTEN: u64 = 0x80ff_ffff;
/// `aso_type` of flow meters: Linux's `MLX5_EXE_ASO_FLOW_METER`.
const FLOW_METER: u8 = 2;

/// What a meter holds frames to: they are green as long as there is room in its bucket, which a committed rate fills up
/// to a burst, and red otherwise; with an excess beside it, some are yellow.
///
/// A card knows numbers of few digits: a rate or a burst is at most 1 part in 128 below what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeterRate {
    mode: FlowMeterMode,
    committed: (u64, u64),
    excess: (u64, u64),
    is_overflow: bool,
    is_both: bool,
}

impl MeterRate {
    fn of(mode: FlowMeterMode, committed: (u64, u64)) -> Self {
        MeterRate { mode, committed, excess: (0, 0), is_overflow: false, is_both: false }
    }

    /// Bytes of IP packets, with their headers: `rate` a second, and `burst` at once.
    pub fn ip_bytes(rate: u64, burst: u64) -> Self {
        Self::of(FlowMeterMode::IpLength, (rate, burst))
    }

    /// Bytes of frames, without their check sequence: `rate` a second, and `burst` at once.
    pub fn frame_bytes(rate: u64, burst: u64) -> Self {
        Self::of(FlowMeterMode::WithL2, (rate, burst))
    }

    /// Packets: `rate` a second, and `burst` at once.
    pub fn packets(rate: u64, burst: u64) -> Self {
        Self::of(FlowMeterMode::Packets, (rate, burst))
    }

    /// What the committed bucket has no room for fills a second one of `burst`, from which frames are yellow (RFC
    /// 2697).
    pub fn excess_burst(mut self, burst: u64) -> Self {
        (self.excess, self.is_overflow, self.is_both) = ((0, burst), true, false);
        self
    }

    /// A second bucket with a rate of its own, from which frames are yellow (RFC 4115).
    pub fn excess(mut self, rate: u64, burst: u64) -> Self {
        (self.excess, self.is_overflow, self.is_both) = ((rate, burst), false, false);
        self
    }

    /// A second bucket that green frames are taken out of, too, and yellow ones alone: what it has no room for is red
    /// (RFC 2698). Its `rate` is above the committed one.
    pub fn peak(mut self, rate: u64, burst: u64) -> Self {
        (self.excess, self.is_overflow, self.is_both) = ((rate, burst), false, true);
        self
    }

    /// As a card has it.
    fn parameters(&self) -> Result<FlowMeterParameters, Invalid> {
        let unit = if self.mode == FlowMeterMode::Packets { PACKET } else { 1 };
        let (committed, size) = (rate(self.committed.0, unit)?, burst(self.committed.1, unit)?);
        let has_excess = self.excess != (0, 0);
        let second = match has_excess {
            true => (rate_or_none(self.excess.0, unit)?, burst(self.excess.1, unit)?),
            false => ((0, 0), (0, 0)),
        };
        let mut parameters = FlowMeterParameters::ZERO;
        parameters
            .w()
            .valid(true)
            .start_color(FlowMeterColor::Green)
            .meter_mode(self.mode)
            .bucket_overflow(self.is_overflow)
            .both_buckets_on_green(self.is_both)
            .cir_mantissa(committed.0)
            .cir_exponent(committed.1)
            .cbs_mantissa(size.0)
            .cbs_exponent(size.1)
            .eir_mantissa(second.0.0)
            .eir_exponent(second.0.1)
            .ebs_mantissa(second.1.0)
            .ebs_exponent(second.1.1);
        Ok(parameters)
    }
}

/// Mantissa and exponent of the nearest rate that is not above `given` units a second.
fn rate(given: u64, unit: u64) -> Result<(u8, u8), Invalid> {
    let most = (SECOND * MOST_MANTISSA) as u64 / unit;
    if !(1..=most).contains(&given) {
        return Err(Invalid::out_of_range("rate of a flow meter", given, 1..=most, "a flow meter"));
    }
    let wanted = u128::from(given) * u128::from(unit);
    // The largest exponent that leaves the mantissa eight bits has the most digits.
    let mantissa = |exponent: u8| (wanted << exponent) / SECOND;
    let exponent = (0..=MOST_EXPONENT).rev().find(|exponent| mantissa(*exponent) <= MOST_MANTISSA).unwrap_or(0);
    match mantissa(exponent) {
        0 => Err(Invalid::out_of_range("rate of a flow meter", given, 1..=most, "a flow meter")),
        mantissa => Ok((mantissa as u8, exponent)),
    }
}

fn rate_or_none(given: u64, unit: u64) -> Result<(u8, u8), Invalid> {
    if given == 0 { Ok((0, 0)) } else { rate(given, unit) }
}

/// The same of a burst.
fn burst(given: u64, unit: u64) -> Result<(u8, u8), Invalid> {
    let most = MOST_BURST / unit;
    if !(1..=most).contains(&given) {
        return Err(Invalid::out_of_range("burst of a flow meter", given, 1..=most, "a flow meter"));
    }
    let wanted = given * unit;
    let exponent = (u64::BITS - wanted.leading_zeros()).saturating_sub(u8::BITS) as u8;
    Ok(((wanted >> exponent) as u8, exponent))
}

/// Flow meters, as many as the card makes at once. Rules name one each, by [`FlowActions::meter`]; a rule of a later
/// table does with frames what is due to their colour. PRM "Flow Meter ASO".
///
/// ```no_run
/// # use std::sync::Arc;
/// # use mlx5_dv::objects::*;
/// # fn f(pd: &Arc<Pd>, rules: &FlowRules, later: &Arc<FlowTable>, tir: &Arc<Tir>) -> Result<(), mlx5_dv::Error> {
/// use mlx5_dv::objects::{FlowMeterColor, FlowMeters, MeterRate};
/// use mlx5_dv::queue::ethernet::MeterWriter;
/// let meters = FlowMeters::create(pd)?;
/// let meter = meters.meter(0)?;
/// MeterWriter::new(pd)?.set(&meter, MeterRate::ip_bytes(125_000_000, 1 << 20))?; // 1 Gbit/s
/// let video = FlowMatch::new().udp_destination_port(5004);
/// let _metered = rules.add(0, &video, FlowActions::table(later).meter(&meter, 0))?;
/// let (red, rest) = (FlowMatch::new().color(0, FlowMeterColor::Red), FlowMatch::new());
/// let _red = FlowRule::create(&FlowGroup::create(later, 0..1, &red)?, &red, FlowActions::drop())?;
/// let _rest = FlowRule::create(&FlowGroup::create(later, 1..2, &rest)?, &rest, tir)?;
/// # Ok(())
/// # }
/// ```
///
/// [`FlowActions::meter`]: super::actions::FlowActions::meter
#[derive(Debug)]
pub struct FlowMeters {
    first: u32,
    count: u32,
    object: Object,
    pd: Arc<Pd>,
}

impl FlowMeters {
    /// Makes meters, which let everything pass as green until a [`MeterWriter`](crate::queue::ethernet::MeterWriter) of
    /// the same protection domain sets them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without flow meters (`general_obj_types`, `log_max_num_meter_aso`);
    /// [`Error::Command`] if all are in use; [`Error::Memory`], [`Error::Io`].
    pub fn create(pd: &Arc<Pd>) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        let log_count = log_granularity(device)?;
        let (mut range, mut context) = (GeneralObjCreateParam::ZERO, FlowMeterAsoObj::ZERO);
        range.w().log_obj_range(log_count);
        context.w().meter_aso_access_pd(pd.pdn());
        let mut create = CreateGeneralObjectIn::default();
        create.w().obj_type(ObjType::FlowMeterAso).op_param(&range);
        let create = WithTail::new(create, Layout::as_bytes(&context).to_vec());
        // SAFETY: an object of this type is a state of the card's own, and the command names no memory.
        let created = unsafe {
            Object::create_over_memory(device, &create, "flow meters", |out| {
                let mut destroy = DestroyGeneralObjectIn::default();
                destroy.w().obj_type(ObjType::FlowMeterAso).obj_id(out.reply.obj_id());
                (destroy, format!("flow meters from object {:#x} on", out.reply.obj_id()))
            })
        };
        let (object, out) = created?;
        let count = EACH << log_count;
        Ok(Arc::new(FlowMeters { first: out.reply.obj_id(), count, object, pd: Arc::clone(pd) }))
    }

    /// Number of meters.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The meter `index`. Errors: [`Error::Invalid`] from [`count`](Self::count) on.
    pub fn meter(self: &Arc<Self>, index: u32) -> Result<FlowMeter, Error> {
        in_range("meter", index.into(), 0..=u64::from(self.count - 1), "log_meter_aso_granularity")?;
        Ok(FlowMeter { index, meters: Arc::clone(self) })
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }
}

/// A pair of meters, and which bytes of it are written: the first one's bit is the highest.
pub(crate) struct MeterWriting {
    pub(crate) object: u32,
    pub(crate) data: [u8; PAIR],
    pub(crate) mask: u64,
}

/// One of [`FlowMeters`], which it keeps.
#[derive(Debug, Clone)]
pub struct FlowMeter {
    index: u32,
    meters: Arc<FlowMeters>,
}

impl FlowMeter {
    /// What a work request writes to have it hold frames to `rate`.
    pub(crate) fn writing(&self, rate: &MeterRate) -> Result<MeterWriting, Invalid> {
        let (place, mut data) = ((self.index % EACH) as usize * FlowMeterParameters::SIZE, [0; PAIR]);
        data[place..][..FlowMeterParameters::SIZE].copy_from_slice(Layout::as_bytes(&rate.parameters()?));
        let mask = WRITTEN << (u64::BITS as usize - FlowMeterParameters::SIZE - place);
        Ok(MeterWriting { object: self.object_id(), data, mask })
    }

    /// The protection domain of those who may set it.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.meters.pd
    }

    /// Asks the card what it holds frames to. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<FlowMeterParameters, Error> {
        let mut query = QueryGeneralObjectIn::default();
        query.w().obj_type(ObjType::FlowMeterAso).obj_id(self.object_id());
        let mut query = WithTail::<_, u8>::new(query, Vec::new());
        query.out_tail = FlowMeterAsoObj::SIZE;
        let object = &self.meters.object;
        let raw = RawCommand::new(&query, object.name());
        // SAFETY: the query changes nothing and names no memory.
        let output = unsafe { self.device().access().query(object.handle(), raw.clone()) };
        let reply: ReplyWithTail<QueryGeneralObjectOut> = raw.reply(&output?)?;
        let pair = FlowMeterAsoObj::read(&reply.tail).unwrap_or_default();
        Ok(pair.flow_meter_parameters()[(self.index % EACH) as usize])
    }

    /// Which of the meters it is.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.meters.device()
    }

    fn object_id(&self) -> u32 {
        self.meters.first + self.index / EACH
    }

    /// What an entry has that runs it on green frames, and leaves their colour in metadata register c of that number.
    pub(super) fn execution(&self, register: u8) -> ExecuteAso {
        let (mut meter, mut control, mut execute) = (ExeAsoCtrlFlowMeter::ZERO, ExeAsoCtrl::ZERO, ExecuteAso::ZERO);
        meter
            .w()
            .return_reg_id(register)
            .aso_type(FLOW_METER)
            .init_color(FlowMeterColor::Green.number() as u8)
            .meter_id(!self.index.is_multiple_of(EACH));
        control.w().exe_aso_ctrl_flow_meter(&meter);
        execute.w().valid(true).aso_object_id(self.object_id()).exe_aso_ctrl(&control);
        execute
    }
}

/// log2 of the objects that the card makes at once.
fn log_granularity(device: &Device) -> Result<u8, Error> {
    let general: CmdHcaCap = device.caps().current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
    let qos: QosCap = device.caps().current(CapPage::Qos).unwrap_or(QosCap::ZERO);
    let has = general.general_obj_types() >> ObjType::FlowMeterAso.number() & 1 != 0;
    let lacking =
        [("general_obj_types (FLOW_METER_ASO)", !has), ("log_max_num_meter_aso", qos.log_max_num_meter_aso() == 0)];
    match lacking.into_iter().find(|(_, lacks)| *lacks) {
        Some((capability, _)) => Err(Error::Unsupported { what: "flow meters".into(), capability }),
        None => Ok(qos.log_meter_aso_granularity()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux's and DPDK's formulas make of a mantissa and an exponent.
    fn bytes_a_second((mantissa, exponent): (u8, u8)) -> u128 {
        (SECOND * u128::from(mantissa)) >> exponent
    }

    #[test]
    fn rates_and_bursts_are_the_nearest_that_are_not_above() {
        for given in [1, 2, 9, 1000, 125_000_000, 999_999_999, 12_500_000_000, 255_000_000_000] {
            let found = bytes_a_second(rate(given, 1).unwrap());
            let given = u128::from(given);
            assert!(found <= given && (given - found) * 128 <= given + 127, "{given}: {found}");
        }
        assert_eq!(bytes_a_second(rate(1_000_000_000, 1).unwrap()), SECOND);
        for given in [1, 255, 256, 1000, 65_535, 1 << 20, MOST_BURST] {
            let (mantissa, exponent) = burst(given, 1).unwrap();
            let found = u64::from(mantissa) << exponent;
            assert!(found <= given && (given - found) * 128 <= given, "{given}: {found}");
        }
        // A packet counts 128 bytes.
        assert_eq!(burst(2, PACKET), burst(256, 1));
        assert_eq!(rate(1_000_000, PACKET), rate(128_000_000, 1));
    }

    #[test]
    fn what_no_meter_has_is_refused() {
        for wrong in [
            MeterRate::ip_bytes(0, 1000),
            MeterRate::ip_bytes(1000, 0),
            MeterRate::frame_bytes(255_000_000_001, 1000),
            MeterRate::frame_bytes(1000, 1 << 31),
            MeterRate::packets(2_000_000_000, 1),
            MeterRate::ip_bytes(1000, 1000).excess(1000, 0),
        ] {
            let text = wrong.parameters().unwrap_err().to_string();
            assert!(text.contains("of a flow meter"), "{text}");
        }
    }
}
