//! General objects, of which there are four types: numbers of queue pairs that none will get, for who connects by the
//! connection manager and needs a number of its own for each connection (`mlx5dv_reserved_qpn_alloc`); options of
//! GENEVE, by whose data flow entries match; flow meters; and flow samplers. PRM "General Objects".

use mlx5_prm::cmd::*;
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::{FlowMeterAsoObj, GeneveTlvOption, ObjType, SamplerObj};

use super::answer::Answer;
use super::flow::{check_ahead, own, properties};
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::ReservedQpns;
use crate::steering::{GeneveOption, MeterPair, Sampler, Steering, Use, most_samplers};

/// `CREATE_GENERAL_OBJECT`.
pub(super) fn create(
    f: &mut Function,
    command: &CreateGeneralObjectIn,
    context: &[u8],
) -> Answer<CreateGeneralObjectOut> {
    if command.op_param().alias_object() {
        return Err(Syndrome::Alias.into());
    }
    check_type(f, command.obj_type())?;
    let log_obj_range = command.op_param().log_obj_range();
    let number = match command.obj_type() {
        ObjType::GeneveTlvOpt => create_option(f, log_obj_range, context)?,
        ObjType::FlowMeterAso => create_meters(f, log_obj_range, context)?,
        ObjType::Sampler => create_sampler(f, log_obj_range, context)?,
        _ => reserve(f, log_obj_range, context)?,
    };
    let mut output = CreateGeneralObjectOut::ZERO;
    output.w().obj_id(number);
    Ok(output)
}

/// Reserves numbers. That of the object is the first of them.
fn reserve(f: &mut Function, log_obj_range: u8, context: &[u8]) -> Answer<u32> {
    if log_obj_range != log_run(f) {
        return Err(Syndrome::ReservedQpnRange.into());
    }
    if context.iter().any(|byte| *byte != 0) {
        return Err(Syndrome::ReservedSet.into());
    }
    f.queues.reserved.next_number().ok_or(Syndrome::TooManyReservedQpns)?;
    pages::reserve(f, Context::ReservedQpns)?;
    let run = f.queues.reserved.insert(ReservedQpns).map_err(|_| Syndrome::TooManyReservedQpns)?;
    Ok(run << log_run(f))
}

/// Makes an option of GENEVE.
fn create_option(f: &mut Function, log_obj_range: u8, context: &[u8]) -> Answer<u32> {
    if log_obj_range != 0 {
        return Err(Syndrome::ObjectRange.into());
    }
    let (own, rest) = context.split_at_checked(GeneveTlvOption::SIZE).ok_or(Syndrome::InputTooShort)?;
    let asked = GeneveTlvOption::read(own).ok_or(Syndrome::InputTooShort)?;
    let option =
        GeneveOption { class: asked.option_class(), kind: asked.option_type(), words: asked.option_data_length() };
    if own != Layout::as_bytes(&written(option)) || rest.iter().any(|byte| *byte != 0) {
        return Err(Syndrome::ReservedSet.into());
    }
    if option.words == 0 {
        return Err(Syndrome::GeneveOptionEmpty.into());
    }
    if option.words > f.nic.firmware.caps.general().max_geneve_tlv_option_data_len() {
        return Err(Syndrome::GeneveOptionLength.into());
    }
    f.nic.objects.steering.geneve_options.next_number().ok_or(Syndrome::TooManyGeneveOptions)?;
    pages::reserve(f, Context::GeneveOption)?;
    let options = &mut f.nic.objects.steering.geneve_options;
    Ok(options.insert(option).map_err(|_| Syndrome::TooManyGeneveOptions)?)
}

/// Makes flow meters. Work requests give them their parameters.
fn create_meters(f: &mut Function, log_obj_range: u8, context: &[u8]) -> Answer<u32> {
    let caps = f.nic.firmware.caps.qos();
    if !(caps.log_meter_aso_granularity()..=caps.log_meter_aso_max_alloc()).contains(&log_obj_range) {
        return Err(Syndrome::FlowMeterRange.into());
    }
    let asked = FlowMeterAsoObj::read(context).ok_or(Syndrome::InputTooShort)?;
    let pd = asked.meter_aso_access_pd();
    let mut plain = FlowMeterAsoObj::ZERO;
    plain.w().meter_aso_access_pd(pd);
    if context.get(..FlowMeterAsoObj::SIZE) != Some(Layout::as_bytes(&plain)) {
        return Err(Syndrome::ReservedSet.into());
    }
    f.nic.objects.pds.get(pd).ok_or(Syndrome::NoSuchPd)?;
    pages::reserve(f, Context::FlowMeters)?;
    let (count, steering) = (1 << log_obj_range, &mut f.nic.objects.steering);
    let Some(first) = steering.meters.insert_run(count, count, || MeterPair::new(pd)) else {
        pages::release(f, Context::FlowMeters);
        return Err(Syndrome::TooManyFlowMeters.into());
    };
    steering.meter_runs.insert(first, count);
    if let Some(pd) = f.nic.objects.pds.get_mut(pd) {
        pd.users += 1;
    }
    Ok(first)
}

/// Ends the meters that were made with the object `first`.
fn destroy_meters(f: &mut Function, first: u32) -> Result<(), Syndrome> {
    let objects = &mut f.nic.objects;
    let pd = objects.steering.meters.get(first).ok_or(Syndrome::NoSuchGeneralObject)?.access_pd;
    let steering = &mut objects.steering;
    let run = first..first + *steering.meter_runs.get(&first).ok_or(Syndrome::NoSuchGeneralObject)?;
    if run.clone().any(|object| steering.is_used(Use::Meter(object))) {
        return Err(Syndrome::FlowMeterInUse);
    }
    steering.meter_runs.remove(&first);
    for object in run {
        steering.meters.remove(object);
    }
    if let Some(pd) = objects.pds.get_mut(pd) {
        pd.users -= 1;
    }
    Ok(())
}

/// Makes a flow sampler.
fn create_sampler(f: &mut Function, log_obj_range: u8, context: &[u8]) -> Answer<u32> {
    if log_obj_range != 0 {
        return Err(Syndrome::ObjectRange.into());
    }
    let (own_part, rest) = context.split_at_checked(SamplerObj::SIZE).ok_or(Syndrome::InputTooShort)?;
    let asked = SamplerObj::read(own_part).ok_or(Syndrome::InputTooShort)?;
    let sampler = Sampler {
        table_type: asked.table_type(),
        level: asked.level(),
        ratio: asked.sample_ratio(),
        sample_table: asked.sample_table_id(),
        default_table: asked.default_table_id(),
    };
    check_sampler(f, &sampler, asked.ignore_flow_level())?;
    if own_part != Layout::as_bytes(&sampler_context(&sampler)) || rest.iter().any(|byte| *byte != 0) {
        return Err(Syndrome::ReservedSet.into());
    }
    pages::reserve(f, Context::Sampler)?;
    let samplers = &mut f.nic.objects.steering.samplers;
    Ok(samplers.insert(sampler).map_err(|_| Syndrome::TooManySamplers)?)
}

/// A sampler is between the tables that lead to it and its own: no frame comes back to where it was.
fn check_sampler(f: &Function, sampler: &Sampler, ignores_level: bool) -> Result<(), Syndrome> {
    own(sampler.table_type, false, 0)?;
    let caps = properties(&f.nic.firmware.caps, sampler.table_type);
    let most = most_samplers(caps) as usize;
    if most == 0 || ignores_level && !caps.ignore_flow_level() {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    if sampler.ratio == 0 {
        return Err(Syndrome::SampleRatio);
    }
    if sampler.level > caps.max_ft_level() {
        return Err(Syndrome::FlowTableLevel);
    }
    for table in [sampler.sample_table, sampler.default_table] {
        check_ahead(f, sampler.table_type, sampler.level, table)?;
    }
    let samplers = &f.nic.objects.steering.samplers;
    let of_type = samplers.iter().filter(|(_, other)| other.table_type == sampler.table_type).count();
    if of_type < most { Ok(()) } else { Err(Syndrome::TooManySamplers) }
}

/// The context of a sampler. It has no address in ICM: no software writes entries that would lead there.
fn sampler_context(sampler: &Sampler) -> SamplerObj {
    let mut context = SamplerObj::ZERO;
    context
        .w()
        .table_type(sampler.table_type)
        .level(sampler.level)
        .sample_ratio(sampler.ratio)
        .sample_table_id(sampler.sample_table)
        .default_table_id(sampler.default_table);
    context
}

/// Ends a sampler to which no entry leads.
fn destroy_sampler(f: &mut Function, number: u32) -> Result<(), Syndrome> {
    let steering = &mut f.nic.objects.steering;
    steering.samplers.get(number).ok_or(Syndrome::NoSuchGeneralObject)?;
    if steering.is_used(Use::Sampler(number)) {
        return Err(Syndrome::SamplerInUse);
    }
    steering.samplers.remove(number).map(drop).ok_or(Syndrome::NoSuchGeneralObject)
}

/// The object's context, as the driver writes it.
fn written(option: GeneveOption) -> GeneveTlvOption {
    let mut context = GeneveTlvOption::ZERO;
    context.w().option_class(option.class).option_type(option.kind).option_data_length(option.words);
    context
}

/// `QUERY_GENERAL_OBJECT`: the object's context. That of reserved numbers has no field.
pub(super) fn query(
    f: &mut Function,
    command: &QueryGeneralObjectIn,
    rest: &[u8],
    _room: usize,
) -> Answer<(QueryGeneralObjectOut, Vec<u8>)> {
    if rest.iter().any(|byte| *byte != 0) {
        return Err(Syndrome::InputTooLong.into());
    }
    if command.op_param().alias_object() {
        return Err(Syndrome::Alias.into());
    }
    check_type(f, command.obj_type())?;
    let context = match command.obj_type() {
        ObjType::GeneveTlvOpt => {
            let option = f.nic.objects.steering.geneve_options.get(command.obj_id());
            let mut context = written(*option.ok_or(Syndrome::NoSuchGeneralObject)?);
            context.w().geneve_option_fte_index(Steering::field_of_option(command.obj_id()));
            Layout::as_bytes(&context).to_vec()
        }
        ObjType::FlowMeterAso => {
            let pair = f.nic.objects.steering.meters.get(command.obj_id()).ok_or(Syndrome::NoSuchGeneralObject)?;
            let mut context = FlowMeterAsoObj::ZERO;
            context.w().meter_aso_access_pd(pair.access_pd).flow_meter_parameters(&pair.parameters());
            Layout::as_bytes(&context).to_vec()
        }
        ObjType::Sampler => {
            let sampler = f.nic.objects.steering.samplers.get(command.obj_id());
            Layout::as_bytes(&sampler_context(sampler.ok_or(Syndrome::NoSuchGeneralObject)?)).to_vec()
        }
        _ => {
            let run = run(f, command.obj_id())?;
            f.queues.reserved.get(run).ok_or(Syndrome::NoSuchGeneralObject)?;
            Vec::new()
        }
    };
    let mut output = QueryGeneralObjectOut::ZERO;
    output.w().obj_id(command.obj_id());
    Ok((output, context))
}

/// `DESTROY_GENERAL_OBJECT`.
pub(super) fn destroy(f: &mut Function, command: &DestroyGeneralObjectIn) -> Answer<DestroyGeneralObjectOut> {
    check_type(f, command.obj_type())?;
    let context = match command.obj_type() {
        ObjType::GeneveTlvOpt => {
            let options = &mut f.nic.objects.steering.geneve_options;
            options.remove(command.obj_id()).ok_or(Syndrome::NoSuchGeneralObject)?;
            Context::GeneveOption
        }
        ObjType::FlowMeterAso => {
            destroy_meters(f, command.obj_id())?;
            Context::FlowMeters
        }
        ObjType::Sampler => {
            destroy_sampler(f, command.obj_id())?;
            Context::Sampler
        }
        _ => {
            let run = run(f, command.obj_id())?;
            f.queues.reserved.remove(run).ok_or(Syndrome::NoSuchGeneralObject)?;
            Context::ReservedQpns
        }
    };
    pages::release(f, context);
    Ok(DestroyGeneralObjectOut::ZERO)
}

fn check_type(f: &Function, obj_type: ObjType) -> Result<(), Syndrome> {
    const KNOWN: [ObjType; 4] = [ObjType::ReservedQpn, ObjType::GeneveTlvOpt, ObjType::FlowMeterAso, ObjType::Sampler];
    let announced = f.nic.firmware.caps.general().general_obj_types();
    if KNOWN.contains(&obj_type) && announced >> obj_type.number() & 1 != 0 {
        Ok(())
    } else {
        Err(Syndrome::ObjectType)
    }
}

/// log2 of the numbers that an object reserves.
fn log_run(f: &Function) -> u8 {
    f.nic.firmware.caps.general_2().log_reserved_qpn_granularity()
}

/// The run of numbers that begins with `first`.
fn run(f: &Function, first: u32) -> Result<u32, Syndrome> {
    let log_run = log_run(f);
    let run = first >> log_run;
    if run << log_run == first { Ok(run) } else { Err(Syndrome::NoSuchGeneralObject) }
}
