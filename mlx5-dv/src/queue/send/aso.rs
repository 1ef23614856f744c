//! Work requests that write objects of steering. PRM "ASO Control Segment".

use mlx5_prm::wqe::{AsoCondition, AsoCtrlSeg, AsoDataMask, AsoOpmod, SEGMENT, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::ethernet::Frames;
use super::ring::Room;
use super::wqe::{Head, Request, WrFlags};
use crate::queue::error::PostError;

/// Bytes of an object.
const OBJECT: usize = 64;
const CONTROL: usize = size_of::<AsoCtrlSeg>() / SEGMENT;

/// What is written to a pair of flow meters: those bytes of `data` that `mask` has.
struct Meters<'a> {
    data: &'a [u8; OBJECT],
    mask: u64,
}

impl Head for Meters<'_> {
    const OPMOD: u8 = AsoOpmod::FlowMeter.number() as u8;

    fn segments(&self) -> usize {
        CONTROL + OBJECT / SEGMENT
    }

    fn store(&self, room: &mut Room<'_>, at: usize) {
        /// One of both conditions is enough.
        const ANY: u8 = 1;
        let always = AsoCondition::AlwaysTrue.number() as u8;
        let mut control = AsoCtrlSeg::ZERO;
        control
            .w()
            .data_mask_mode(AsoDataMask::Bytewise64Byte.number() as u8)
            .condition_0_operand(always)
            .condition_1_operand(always)
            .condition_operand(ANY)
            .data_mask(self.mask);
        let segments: [[u64; 2]; CONTROL] = zerocopy::transmute!(control);
        (at..).zip(segments).for_each(|(at, segment)| room.store(at, segment));
        room.store_bytes(at + CONTROL, 0, self.data);
    }
}

impl<D: SendDoorbell> SendBatch<'_, D, Frames> {
    /// Writes a pair of flow meters, with a completion. Errors: [`PostError`].
    pub(crate) fn write_meters(&mut self, object: u32, data: &[u8; OBJECT], mask: u64) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AccessAso, wr_id: 0, flags: WrFlags::SIGNALLED, imm: object };
        self.post_elements(request, Meters { data, mask }, &[])
    }
}
