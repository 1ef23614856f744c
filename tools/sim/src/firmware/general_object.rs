//! General objects, of which there is one type: numbers of queue pairs that none will get, for who connects by the
//! connection manager and needs a number of its own for each connection (`mlx5dv_reserved_qpn_alloc`). PRM "General
//! Objects".

use mlx5_prm::cmd::*;
use mlx5_prm::obj::ObjType;

use super::answer::Answer;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::ReservedQpns;

/// `CREATE_GENERAL_OBJECT`. The object's number is the first of those that it reserves.
pub(super) fn create(
    f: &mut Function,
    command: &CreateGeneralObjectIn,
    context: &[u8],
) -> Answer<CreateGeneralObjectOut> {
    check_type(f, command.obj_type())?;
    if command.op_param().alias_object() {
        return Err(Syndrome::Alias.into());
    }
    if command.op_param().log_obj_range() != log_run(f) {
        return Err(Syndrome::ReservedQpnRange.into());
    }
    if context.iter().any(|byte| *byte != 0) {
        return Err(Syndrome::ReservedSet.into());
    }
    f.queues.reserved.next_number().ok_or(Syndrome::TooManyReservedQpns)?;
    pages::reserve(f, Context::ReservedQpns)?;
    let run = f.queues.reserved.insert(ReservedQpns).map_err(|_| Syndrome::TooManyReservedQpns)?;
    let mut output = CreateGeneralObjectOut::ZERO;
    output.w().obj_id(run << log_run(f));
    Ok(output)
}

/// `QUERY_GENERAL_OBJECT`: whether the object exists. Its context has no field.
pub(super) fn query(f: &mut Function, command: &QueryGeneralObjectIn) -> Answer<QueryGeneralObjectOut> {
    check_type(f, command.obj_type())?;
    let run = run(f, command.obj_id())?;
    f.queues.reserved.get(run).ok_or(Syndrome::NoSuchGeneralObject)?;
    let mut output = QueryGeneralObjectOut::ZERO;
    output.w().obj_id(command.obj_id());
    Ok(output)
}

/// `DESTROY_GENERAL_OBJECT`.
pub(super) fn destroy(f: &mut Function, command: &DestroyGeneralObjectIn) -> Answer<DestroyGeneralObjectOut> {
    check_type(f, command.obj_type())?;
    let run = run(f, command.obj_id())?;
    f.queues.reserved.remove(run).ok_or(Syndrome::NoSuchGeneralObject)?;
    pages::release(f, Context::ReservedQpns);
    Ok(DestroyGeneralObjectOut::ZERO)
}

fn check_type(f: &Function, obj_type: ObjType) -> Result<(), Syndrome> {
    let announced = f.nic.firmware.caps.general().general_obj_types() & 1 << ObjType::ReservedQpn.number() != 0;
    if announced && obj_type == ObjType::ReservedQpn { Ok(()) } else { Err(Syndrome::ObjectType) }
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
