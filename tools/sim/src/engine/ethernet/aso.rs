//! Work requests that change objects of steering with a state of their own: flow meters. PRM "ASO Control Segment".

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::ObjType;
use mlx5_prm::wqe::{AsoCondition, AsoCtrlSeg, AsoDataMask, AsoOpmod, CtrlSeg, SEGMENT};

use crate::function::Nic;
use crate::objects::{Failure, Sq};
use crate::strict::rules;

/// Writes the bytes that the mask has, as Linux and DPDK do: on no condition, without reading what was there.
pub(super) fn access(sq: &Sq, nic: &mut Nic, ctrl: &CtrlSeg, wqe: &[u8]) -> Result<(), Failure> {
    let done = write(sq, nic, ctrl, wqe.get(SEGMENT..).unwrap_or_default());
    done.map_err(|reason| {
        nic.strict
            .report(rules::WQE_OPCODE, || format!("SQ {:#x}, WQE {:#x}: ACCESS_ASO {reason}", sq.sqn, sq.fetched));
        Failure::new(CqeSyndrome::LocalQpOperation)
    })
}

fn write(sq: &Sq, nic: &mut Nic, ctrl: &CtrlSeg, request: &[u8]) -> Result<(), &'static str> {
    let announced = nic.firmware.caps.general().general_obj_types() >> ObjType::FlowMeterAso.number() & 1 != 0;
    if !announced || AsoOpmod::from_number(ctrl.opmod().into()) != AsoOpmod::FlowMeter {
        return Err("of an object that is not announced (general_obj_types)");
    }
    let control = AsoCtrlSeg::read(request).ok_or("is too short")?;
    let data = request.get(AsoCtrlSeg::SIZE..).and_then(<[u8]>::first_chunk).ok_or("has no data")?;
    let conditions = [control.condition_0_operand(), control.condition_1_operand()];
    let is_plain = conditions.iter().all(|one| AsoCondition::from_number((*one).into()) == AsoCondition::AlwaysTrue);
    if !is_plain || control.read_enable() {
        return Err("with a condition, or that reads: no driver has shown how flow meters do that");
    }
    if AsoDataMask::from_number(control.data_mask_mode().into()) != AsoDataMask::Bytewise64Byte {
        return Err("that is not masked by byte");
    }
    let pair = nic.objects.steering.meters.get_mut(ctrl.imm()).ok_or("of no object")?;
    if pair.access_pd != sq.pd {
        return Err("of an object of another protection domain");
    }
    pair.write(data, control.data_mask());
    Ok(())
}
