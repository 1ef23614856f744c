//! Numbers of queue pairs that no queue pair gets.

use std::ops::Range;
use std::sync::Arc;

use mlx5_prm::caps::{CmdHcaCap, CmdHcaCap2};
use mlx5_prm::cmd::{CreateGeneralObjectIn, DestroyGeneralObjectIn, GeneralObjCreateParam, WithTail};
use mlx5_prm::layout::Be32;
use mlx5_prm::obj::ObjType;

use super::object::{DestroyError, Object, destroy_sole};
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::Error;

/// Queue pair numbers have 24 bits.
const QUEUE_NUMBERS: u32 = 1 << 24;

/// A run of queue pair numbers that neither a queue pair of the port nor another run has, for who connects by a
/// connection manager without a queue pair for each connection. A DC initiator is one: it reaches many targets, while
/// the connection manager tells connections apart, also those that ended lately (TIMEWAIT), by their numbers. As
/// libmlx5's `mlx5dv_reserved_qpn_alloc`, which takes its numbers one by one from such runs.
///
/// A number is free for another connection when the connection manager has forgotten the last one: take all numbers of
/// a run once, and then another run. Dropping it gives the numbers back to the card.
#[derive(Debug)]
pub struct ReservedQpns {
    object: Object,
    numbers: Range<u32>,
}

impl ReservedQpns {
    /// Reserves as many numbers as the card gives at least: `2^log_reserved_qpn_granularity`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that reserves none (`general_obj_types`); [`Error::Command`] if all are in use
    /// (`log_max_num_reserved_qpn`); [`Error::Io`].
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let log_count = log_granularity(device)?;
        let mut range = GeneralObjCreateParam::ZERO;
        range.w().log_obj_range(log_count);
        let mut create = CreateGeneralObjectIn::default();
        create.w().obj_type(ObjType::ReservedQpn).op_param(&range);
        let what = "reserved queue pair numbers";
        let create = WithTail::new(create, vec![Be32::ZERO; CONTEXT_WORDS]);
        // SAFETY: an object of this type is a run of numbers, and the command names no memory.
        let created = unsafe {
            Object::create_over_memory(device, &create, what, |out| {
                let mut destroy = DestroyGeneralObjectIn::default();
                destroy.w().obj_type(ObjType::ReservedQpn).obj_id(out.reply.obj_id());
                (destroy, format!("{what} from {:#x} on", out.reply.obj_id()))
            })
        };
        let (object, out) = created?;
        let first = out.reply.obj_id();
        let end = first.checked_add(1 << log_count).filter(|end| *end <= QUEUE_NUMBERS);
        let end = end.ok_or_else(|| {
            Error::response("obj_id", first.into(), None, format!("2^{log_count} queue pair numbers begin there"))
        })?;
        Ok(Arc::new(ReservedQpns { object, numbers: first..end }))
    }

    /// The numbers.
    pub fn numbers(&self) -> Range<u32> {
        self.numbers.clone()
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Gives the numbers back. On an error they stay reserved, and are returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |reserved| reserved.object.destroy())
    }
}

/// The context of the object, in which nothing is set. Of libmlx5 (`reserved_qpn`).
const CONTEXT_WORDS: usize = 4;

fn log_granularity(device: &Device) -> Result<u8, Error> {
    let general: CmdHcaCap = device.caps().current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
    if general.general_obj_types() & 1 << ObjType::ReservedQpn.number() == 0 {
        let what = "reserved queue pair numbers".into();
        return Err(Error::Unsupported { what, capability: "general_obj_types (RESERVED_QPN)" });
    }
    Ok(device.caps().general_2().unwrap_or(CmdHcaCap2::ZERO).log_reserved_qpn_granularity())
}
