//! Flow meters: objects that work requests write and entries run.

use mlx5_prm::cmd::*;
use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::ctx::TimestampFormat;
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::{FlowMeterAsoObj, FlowMeterColor, FlowMeterParameters, ObjType};
use mlx5_prm::wqe::{AsoCondition, AsoCtrlSeg, AsoDataMask, AsoOpmod, CompletionMode, CtrlSeg, SEGMENT, WqeOpcode};

use super::client::Client;
use super::ethernet::Rig;
use crate::firmware::syndromes::Syndrome;
use crate::profile::Profile;
use crate::strict::rules;

/// What Linux asks for: log2 of the objects that are made at once.
const LOG_RUN: u8 = 6;

/// As Linux's en/tc/meter.c sends it.
fn create(pd: u32, log_obj_range: u8) -> WithTail<CreateGeneralObjectIn, u8> {
    let (mut range, mut context) = (GeneralObjCreateParam::ZERO, FlowMeterAsoObj::ZERO);
    range.w().log_obj_range(log_obj_range);
    context.w().meter_aso_access_pd(pd);
    let mut command = CreateGeneralObjectIn::default();
    command.w().obj_type(ObjType::FlowMeterAso).op_param(&range);
    WithTail::new(command, Layout::as_bytes(&context).to_vec())
}

fn destroy(obj_id: u32) -> DestroyGeneralObjectIn {
    let mut destroy = DestroyGeneralObjectIn::default();
    destroy.w().obj_type(ObjType::FlowMeterAso).obj_id(obj_id);
    destroy
}

fn parameters(client: &mut Client, obj_id: u32) -> [FlowMeterParameters; 2] {
    let mut query = QueryGeneralObjectIn::default();
    query.w().obj_type(ObjType::FlowMeterAso).obj_id(obj_id);
    let mut query = WithTail::<_, u8>::new(query, Vec::new());
    query.out_tail = FlowMeterAsoObj::SIZE;
    *FlowMeterAsoObj::read(&client.exec(&query).unwrap().tail).unwrap().flow_meter_parameters()
}

/// A function that has not started.
fn card() -> Client {
    Client::with(Profile::connectx6dx())
}

#[test]
fn meters_are_made_in_runs_of_the_announced_lengths() {
    let mut client = card();
    client.bring_up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let first = client.exec(&create(pd, LOG_RUN)).unwrap().reply.obj_id();
    let second = client.exec(&create(pd, LOG_RUN + 1)).unwrap().reply.obj_id();
    assert!(second >= first + (1 << LOG_RUN), "{first:#x}, {second:#x}");
    for outside in [0, LOG_RUN - 1, 11] {
        assert_eq!(client.refused(&create(pd, outside)), Syndrome::FlowMeterRange);
    }
    assert_eq!(client.refused(&create(pd + 7, LOG_RUN)), Syndrome::NoSuchPd);
    let mut filled = create(pd, LOG_RUN);
    filled.tail[FlowMeterAsoObj::SIZE - 1] = 1;
    assert_eq!(client.refused(&filled), Syndrome::ReservedSet);
    let mut end = DeallocPdIn::default();
    end.w().pd(pd);
    assert_eq!(client.refused(&end), Syndrome::PdInUse);
    // The first object of a run ends it.
    assert_eq!(client.refused(&destroy(first + 1)), Syndrome::NoSuchGeneralObject);
    client.exec(&destroy(first)).unwrap();
    assert_eq!(client.refused(&destroy(first)), Syndrome::NoSuchGeneralObject);
    client.exec(&destroy(second)).unwrap();
    client.exec(&end).unwrap();
    let mut other = Client::up();
    let pd = other.exec(&AllocPdIn::default()).unwrap().pd();
    assert_eq!(other.refused(&create(pd, LOG_RUN)), Syndrome::ObjectType);
}

/// A work request that writes a pair, before anything is wrong with it.
struct Access {
    object: u32,
    opmod: AsoOpmod,
    control: AsoCtrlSeg,
    data: [FlowMeterParameters; 2],
}

impl Access {
    /// As Linux posts it, for the second meter of `object`.
    fn of(object: u32) -> Self {
        let (mut control, mut meter) = (AsoCtrlSeg::ZERO, FlowMeterParameters::ZERO);
        let always = AsoCondition::AlwaysTrue.number() as u8;
        control
            .w()
            .data_mask_mode(AsoDataMask::Bytewise64Byte.number() as u8)
            .condition_0_operand(always)
            .condition_1_operand(always)
            .condition_operand(1)
            .data_mask(0x80ff_ffff);
        meter.w().valid(true).start_color(FlowMeterColor::Green).cbs_mantissa(9).cir_mantissa(8).cir_exponent(7);
        Access { object, opmod: AsoOpmod::FlowMeter, control, data: [meter; 2] }
    }

    /// Posts it, in two WQEBBs.
    fn post(&self, rig: &mut Rig) {
        let [first, second] = self.data.each_ref().map(|meter| Layout::as_bytes(meter).to_vec());
        let segments = [Layout::as_bytes(&self.control), &first, &second].concat();
        let place = rig.put(WqeOpcode::AccessAso, self.opmod.number() as u8, &segments);
        let mut ctrl = CtrlSeg::read(&place).unwrap();
        ctrl.w().imm(self.object).ce(CompletionMode::Always);
        let wqe = [Layout::as_bytes(&ctrl), &place[SEGMENT..]].concat();
        rig.rewrite(&wqe);
        // Of the second WQEBB.
        rig.posted += 1;
        rig.record(rig.posted.into());
        rig.ring(&wqe);
    }
}

#[test]
fn a_work_request_writes_the_bytes_of_its_mask() {
    let mut rig = Rig::with(card(), TimestampFormat::FreeRunning);
    let pd = rig.parents.pd;
    let first = rig.client.exec(&create(pd, LOG_RUN)).unwrap().reply.obj_id();
    let access = Access::of(first + 5);
    access.post(&mut rig);
    assert_eq!(rig.polls().iter().map(|cqe| cqe.opcode()).collect::<Vec<_>>(), [CqeOpcode::Requester]);
    assert_eq!(parameters(&mut rig.client, first + 5), [FlowMeterParameters::ZERO, access.data[1]]);
    assert_eq!(parameters(&mut rig.client, first), [FlowMeterParameters::ZERO; 2]);
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn what_no_driver_posts_and_objects_of_others_are_refused() {
    type Change = fn(&mut Access);
    const WRONG: [Change; 6] = [
        |access| access.object += 1 << LOG_RUN,
        |access| access.opmod = AsoOpmod::Ipsec,
        |access| _ = access.control.w().condition_0_operand(AsoCondition::Equal.number() as u8),
        |access| _ = access.control.w().read_enable(true),
        |access| _ = access.control.w().data_mask_mode(AsoDataMask::Bitwise64Bit.number() as u8),
        |access| access.object += 2 << LOG_RUN,
    ];
    for (number, change) in WRONG.into_iter().enumerate() {
        let mut rig = Rig::with(card(), TimestampFormat::FreeRunning);
        let (pd, other) = (rig.parents.pd, rig.client.exec(&AllocPdIn::default()).unwrap().pd());
        let first = rig.client.exec(&create(pd, LOG_RUN)).unwrap().reply.obj_id();
        if number + 1 == WRONG.len() {
            rig.client.exec(&create(other, LOG_RUN)).unwrap();
            let theirs = rig.client.exec(&create(other, LOG_RUN)).unwrap().reply.obj_id();
            assert_eq!(theirs, first + (2 << LOG_RUN));
        }
        let mut access = Access::of(first);
        change(&mut access);
        access.post(&mut rig);
        let done = rig.polls();
        let syndrome = ErrorCqe::read(Layout::as_bytes(&done[0])).unwrap().syndrome();
        assert_eq!((done.len(), syndrome), (1, CqeSyndrome::LocalQpOperation), "{number}");
        assert_eq!(rig.client.violations(), [rules::WQE_OPCODE], "{number}");
        assert_eq!(parameters(&mut rig.client, first), [FlowMeterParameters::ZERO; 2], "{number}");
    }
}
