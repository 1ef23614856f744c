//! Event queues. PRM `eqc`.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::Eqc;
use mlx5_prm::eqe::Eqe;
use mlx5_prm::layout::Layout;

use super::answer::Answer;
use super::caps::next_below;
use super::memory::{self, Wanted};
use super::syndromes::Syndrome;
use super::{pages, uar};
use crate::function::{Context, Function};
use crate::objects::{Eq, PageList};

/// `eqc.status`.
const STATUS_OK: u8 = 0;
const STATUS_OVERFLOW: u8 = 0x9;
/// `eqc.st`.
const ST_ARMED: u8 = 0x9;
const ST_FIRED: u8 = 0xa;

/// `CREATE_EQ`.
pub(super) fn create(f: &mut Function, command: &CreateEqIn, list: &[u8]) -> Answer<CreateEqOut> {
    let context = *command.eq_context_entry();
    if context.log_eq_size() > f.nic.firmware.caps.general().log_max_eq_sz() {
        return Err(Syndrome::EqSize.into());
    }
    if context.intr() >= f.nic.profile.msix_vectors {
        return Err(Syndrome::EqVector.into());
    }
    f.nic.objects.uars.get(context.uar_page()).ok_or(Syndrome::NoSuchUar)?;
    let event_mask: [u64; 4] = std::array::from_fn(|i| command.event_bitmask()[i].get());
    if f.nic.objects.eqs.iter().any(|(_, eq)| (0..4).any(|i| eq.event_mask[i] & event_mask[i] != 0)) {
        return Err(Syndrome::EventTaken.into());
    }
    let ring = memory::queue(f, wanted(&context), list, None)?;
    check_room(f)?;
    pages::reserve(f, Context::Eq)?;
    check_ring(f, &ring, context.log_eq_size());
    let eq = Eq {
        ring,
        log_size: u32::from(context.log_eq_size()),
        vector: context.intr(),
        uar: context.uar_page(),
        event_mask,
        producer: 0,
        consumer: 0,
        armed: false,
        was_armed: false,
        overrun: false,
        users: 0,
        context,
    };
    let number = f.nic.objects.eqs.insert(eq).map_err(|_| Syndrome::TooManyEqs)?;
    uar::count(f, context.uar_page(), true);
    let mut output = CreateEqOut::ZERO;
    // `max_num_eqs` is below 256, so the number fits.
    output.w().eq_number(number as u8);
    Ok(output)
}

/// Numbers start at 1, so the last one is `max_num_eqs`.
fn check_room(f: &Function) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    let number =
        next_below(&f.nic.objects.eqs, caps.log_max_eq()).filter(|number| *number <= caps.max_num_eqs().into());
    number.map(drop).ok_or(Syndrome::TooManyEqs)
}

fn wanted(context: &Eqc) -> Wanted {
    Wanted {
        log_page_size: context.log_page_size(),
        page_offset: context.page_offset(),
        bytes: (Eqe::SIZE as u64) << context.log_eq_size(),
    }
}

/// Strict mode: before the first pass, the owner bit of all entries must be 1, or a driver would take them for events.
fn check_ring(f: &Function, ring: &PageList, log_size: u8) {
    if !f.nic.strict.is_on() {
        return;
    }
    let bad = (0..1u64 << log_size).find(|index| {
        let mut owner = [0];
        ring.read(&f.nic.dma, index * Eqe::SIZE as u64 + 0x3f, &mut owner).is_ok() && owner[0] & 1 == 0
    });
    if let Some(index) = bad {
        f.nic.strict.report("EQE ring not initialised", || format!("owner bit of entry {index} is 0"));
    }
}

/// `QUERY_EQ`.
pub(super) fn query(f: &mut Function, command: &QueryEqIn) -> Answer<QueryEqOut> {
    let eq = f.nic.objects.eqs.get(u32::from(command.eq_number())).ok_or(Syndrome::NoSuchEq)?;
    let mut context = eq.context;
    context
        .w()
        .status(if eq.overrun { STATUS_OVERFLOW } else { STATUS_OK })
        .st(if eq.armed { ST_ARMED } else { ST_FIRED })
        .consumer_counter(eq.consumer & 0xff_ffff)
        .producer_counter(eq.producer & 0xff_ffff);
    let mut output = QueryEqOut::ZERO;
    output.w().eq_context_entry(&context).event_bitmask(eq.event_mask[0]);
    Ok(output)
}

/// `DESTROY_EQ`.
pub(super) fn destroy(f: &mut Function, command: &DestroyEqIn) -> Answer<DestroyEqOut> {
    let number = u32::from(command.eq_number());
    let eq = f.nic.objects.eqs.get(number).ok_or(Syndrome::NoSuchEq)?;
    if eq.users > 0 {
        return Err(Syndrome::EqInUse.into());
    }
    let uar = eq.uar;
    f.nic.objects.eqs.remove(number);
    uar::count(f, uar, false);
    pages::release(f, Context::Eq);
    Ok(DestroyEqOut::ZERO)
}
