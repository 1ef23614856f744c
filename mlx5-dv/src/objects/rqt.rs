//! Receive queue tables (RQTs): what frames are spread over.

use std::sync::{Arc, Mutex};

use mlx5_prm::cmd::{CreateRqtIn, DestroyRqtIn, ModifyRqtIn, QueryRqtIn, WithTail};
use mlx5_prm::ctx::{ListQType, RqtBitmask, Rqtc};
use mlx5_prm::layout::Be32;

use super::check::{one_device, within};
use super::object::{DestroyError, Object, destroy_sole};
use super::raw_queue::ethernet_caps;
use super::rq::Rq;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::lock::lock;

/// An indirection table: a [`Tir`](super::Tir) with a hash takes the hash's low bits as an index, and the frame goes to
/// the receive queue of that entry. PRM "RQ Table"; `ibv_rwq_ind_table` in verbs.
///
/// A queue may have any number of entries. The table may be changed while frames arrive ([`set`](Self::set)), from any
/// thread. Give each queue a completion queue of its own: the completions of frames that were spread carry the flow
/// tag of their rule, and not the number of their receive queue.
#[derive(Debug)]
pub struct Rqt {
    rqtn: u32,
    object: Object,
    /// The entries: the table keeps their queues alive.
    rqs: Mutex<Vec<Arc<Rq>>>,
    most: usize,
}

impl Rqt {
    /// Creates a table of `rqs`, in this order. Their number is a power of two, and the most that the table ever has.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without Ethernet; [`Error::Invalid`] for no queues, a number that is no power
    /// of two or exceeds `log_max_rqt_size`, or queues of different cards; [`Error::Command`].
    pub fn create(rqs: &[Arc<Rq>]) -> Result<Arc<Self>, Error> {
        let Some(first) = rqs.first() else {
            return Err(Invalid::Empty { what: "an RQ table", lacks: "receive queues" }.into());
        };
        let device = first.device();
        let (general, _) = ethernet_caps(device.caps())?;
        within("entries", rqs.len() as u64, "log_max_rqt_size", general.log_max_rqt_size())?;
        let mut context = context(device, rqs)?;
        let size = context.rqt_actual_size();
        context.w().rqt_max_size(size);
        rqs.iter().for_each(|rq| rq.mark_tagged());
        let mut create = CreateRqtIn::default();
        create.w().rqt_context(&context);
        let (object, out) = Object::create(device, &WithTail::new(create, numbers(rqs)), "an RQ table", |out| {
            let mut end = DestroyRqtIn::default();
            end.w().rqtn(out.reply.rqtn());
            (end, format!("RQT {:#x}", out.reply.rqtn()))
        })?;
        Ok(Arc::new(Rqt { rqtn: out.reply.rqtn(), object, most: rqs.len(), rqs: Mutex::new(rqs.to_vec()) }))
    }

    /// Replaces the entries at once; frames that arrive meanwhile go by the old or the new ones. As for
    /// [`create`](Self::create), and at most as many as it was created with.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Command`]; the table is as it was.
    pub fn set(&self, rqs: &[Arc<Rq>]) -> Result<(), Error> {
        if rqs.is_empty() || rqs.len() > self.most {
            let limit = 1..=self.most as u64;
            return Err(Invalid::out_of_range("entries", rqs.len() as u64, limit, "this RQ table").into());
        }
        let context = context(self.device(), rqs)?;
        rqs.iter().for_each(|rq| rq.mark_tagged());
        let mut held = lock(&self.rqs);
        let (mut modify, mut bitmask) = (ModifyRqtIn::default(), RqtBitmask::default());
        bitmask.w().rqn_list(true);
        modify.w().rqtn(self.rqtn).bitmask(&bitmask).ctx(&context);
        self.object.modify(&WithTail::new(modify, numbers(rqs)))?;
        *held = rqs.to_vec();
        Ok(())
    }

    /// Asks the card for the entries: the number of each one's queue ([`Rq::rqn`]). PRM "QUERY_RQT". Errors:
    /// [`Error::Command`].
    pub fn query(&self) -> Result<Vec<u32>, Error> {
        let mut query = QueryRqtIn::default();
        query.w().rqtn(self.rqtn);
        let mut query = WithTail::<_, Be32>::new(query, vec![]);
        query.out_tail = self.most;
        let out = self.object.query(&query)?;
        let count = out.reply.rqt_context().rqt_actual_size();
        let (numbers, _) = out.tail.as_chunks::<4>();
        Ok(numbers.iter().take(count.into()).map(|number| u32::from_be_bytes(*number) & 0xff_ffff).collect())
    }

    /// `rqtn`, 24 bits.
    pub fn rqtn(&self) -> u32 {
        self.rqtn
    }

    /// The entries.
    pub fn rqs(&self) -> Vec<Arc<Rq>> {
        lock(&self.rqs).clone()
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Destroys it. Its TIRs must be destroyed first. On an error the table stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |rqt| rqt.object.destroy())
    }
}

/// The context of a table of `rqs`.
fn context(device: &Arc<Device>, rqs: &[Arc<Rq>]) -> Result<Rqtc, Error> {
    for rq in rqs {
        one_device("the receive queues of an RQ table", device, [rq.device()])?;
    }
    if !rqs.len().is_power_of_two() {
        let (given, mend) = (format!("{} entries", rqs.len()), Some("give some queues several entries"));
        return Err(Invalid::NotA { what: "power of two", given, mend }.into());
    }
    let size = u16::try_from(rqs.len());
    let size = size.map_err(|_| Invalid::TooWide { what: "entries", given: rqs.len() as u64, bits: 16 })?;
    let mut context = Rqtc::default();
    context.w().list_q_type(ListQType::Rq).rqt_actual_size(size);
    Ok(context)
}

fn numbers(rqs: &[Arc<Rq>]) -> Vec<Be32> {
    rqs.iter().map(|rq| Be32::new(rq.rqn())).collect()
}
