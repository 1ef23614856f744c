//! Flow samplers: some of the frames of a rule go to a table of their own, too.

use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{
    CreateGeneralObjectIn, DestroyGeneralObjectIn, QueryGeneralObjectIn, QueryGeneralObjectOut, ReplyWithTail, WithTail,
};
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::{ObjType, SamplerObj};

use super::table::{Direction, FlowTable, first_sampled_level};
use crate::access::RawCommand;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::objects::check::one_device;
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// Sends every frame of the rules that name it, by [`FlowActions::sample`], on to one table, and a copy of some to
/// another. PRM "Sampler Object"; `mlx5dv_dr_action_create_flow_sampler` of libmlx5.
///
/// A card has a level between two tables for it, so its tables are of a level that is two above that of the rule's
/// table, or more: beside [`FlowRules`] of `priorities` levels, from `priorities + 1` on. On DevX a rule of the
/// kernel's tables leads to tables from level 1 on. Several rules may name one sampler; it keeps its tables, and rules
/// keep it. Any thread may use it.
///
/// Unproven on a card: libmlx5's and Linux' tables of samples are termination tables, which this driver does not make.
///
/// ```no_run
/// use mlx5_dv::objects::{FlowActions, FlowGroup, FlowMatch, FlowRule, FlowRules, FlowRulesOptions, FlowSampler, FlowTable};
/// # fn f(rules: &FlowRules, all: &std::sync::Arc<mlx5_dv::objects::Tir>, some: &std::sync::Arc<mlx5_dv::objects::Tir>)
/// # -> Result<(), mlx5_dv::Error> {
/// let level = FlowRulesOptions::default().priorities + 1;
/// let tables = [FlowTable::create(rules.device(), level, 1)?, FlowTable::create(rules.device(), level, 1)?];
/// let every = FlowMatch::new();
/// let _some = FlowRule::create(&FlowGroup::create(&tables[0], 0..1, &every)?, &every, some)?;
/// let _all = FlowRule::create(&FlowGroup::create(&tables[1], 0..1, &every)?, &every, all)?;
/// // All DNS is received by `all`, and one of a hundred frames by `some`, too.
/// let sampler = FlowSampler::create(100, &tables[0], &tables[1])?;
/// let _dns = rules.add(0, &every.udp_destination_port(53), FlowActions::sample(&sampler))?;
/// # Ok(())
/// # }
/// ```
///
/// [`FlowActions::sample`]: super::actions::FlowActions::sample
/// [`FlowRules`]: super::rule_set::FlowRules
#[derive(Debug)]
pub struct FlowSampler {
    obj_id: u32,
    ratio: u32,
    /// That of the card.
    level: u8,
    object: Object,
    /// Kept while frames go there: that of the samples, and that of all frames.
    tables: [Arc<FlowTable>; 2],
}

impl FlowSampler {
    /// Makes a sampler: all frames go to `default_table`, and of `ratio` frames one, in the mean, to `sample_table`,
    /// too; with 1 each frame. Which ones these are is the card's choice.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a ratio of 0, and tables of different cards or directions, or of too low a level;
    /// [`Error::Unsupported`] on a card without samplers for frames of this direction (`general_obj_types`,
    /// `log_max_ft_sampler_num`): cards have them for received frames, from ConnectX-5 on; [`Error::Command`] if all
    /// are in use; [`Error::Io`].
    pub fn create(
        ratio: u32,
        sample_table: &Arc<FlowTable>,
        default_table: &Arc<FlowTable>,
    ) -> Result<Arc<Self>, Error> {
        let device = default_table.device();
        one_device("the tables of a flow sampler", device, [sample_table.device()])?;
        check_announced(default_table)?;
        if ratio == 0 {
            return Err(Invalid::out_of_range("ratio", 0, 1..=u32::MAX.into(), "a flow sampler").into());
        }
        let level = level_before([sample_table, default_table])?;
        let (mut create, mut context) = (CreateGeneralObjectIn::default(), SamplerObj::ZERO);
        create.w().obj_type(ObjType::Sampler);
        context
            .w()
            .table_type(default_table.direction().table_type())
            .level(level)
            .sample_ratio(ratio)
            .sample_table_id(sample_table.table_id())
            .default_table_id(default_table.table_id());
        let create = WithTail::new(create, Layout::as_bytes(&context).to_vec());
        // SAFETY: an object of this type leads from tables to tables, and the command names no memory.
        let created = unsafe {
            Object::create_over_memory(device, &create, "a flow sampler", |out| {
                let mut destroy = DestroyGeneralObjectIn::default();
                destroy.w().obj_type(ObjType::Sampler).obj_id(out.reply.obj_id());
                (destroy, format!("flow sampler {:#x}", out.reply.obj_id()))
            })
        };
        let (object, out) = created?;
        let tables = [sample_table, default_table].map(Arc::clone);
        Ok(Arc::new(FlowSampler { obj_id: out.reply.obj_id(), ratio, level, object, tables }))
    }

    /// Asks the card for it, under PRM names. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<SamplerObj, Error> {
        let mut query = QueryGeneralObjectIn::default();
        query.w().obj_type(ObjType::Sampler).obj_id(self.obj_id);
        let mut query = WithTail::<_, u8>::new(query, Vec::new());
        query.out_tail = SamplerObj::SIZE;
        let raw = RawCommand::new(&query, self.object.name());
        // SAFETY: the query changes nothing and names no memory.
        let output = unsafe { self.device().access().query(self.object.handle(), raw.clone()) };
        let reply: ReplyWithTail<QueryGeneralObjectOut> = raw.reply(&output?)?;
        Ok(SamplerObj::read(&reply.tail).unwrap_or_default())
    }

    /// Of how many frames one is sampled, in the mean.
    pub fn ratio(&self) -> u32 {
        self.ratio
    }

    /// Where the copies go.
    pub fn sample_table(&self) -> &Arc<FlowTable> {
        &self.tables[0]
    }

    /// Where all frames go.
    pub fn default_table(&self) -> &Arc<FlowTable> {
        &self.tables[1]
    }

    /// Which frames it is for.
    pub fn direction(&self) -> Direction {
        self.tables[1].direction()
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Number of the object, by which rules name it.
    pub(super) fn obj_id(&self) -> u32 {
        self.obj_id
    }

    /// Its level among all tables of the card.
    pub(super) fn card_level(&self) -> u8 {
        self.level
    }

    /// Level of the lower one of its tables.
    pub(super) fn table_level(&self) -> u8 {
        lowest_level(self.tables.each_ref())
    }

    /// Destroys the sampler. Rules that name it must be deleted first. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |sampler| sampler.object.destroy())
    }
}

/// Error unless the card has samplers that lead to tables like this one.
fn check_announced(table: &FlowTable) -> Result<(), Error> {
    let general: CmdHcaCap = table.device().caps().current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
    let (what, lacks_table) = match table.direction() {
        Direction::Receive => ("flow samplers", "log_max_ft_sampler_num of NIC receive"),
        Direction::Transmit => ("flow samplers of frames that are sent", "log_max_ft_sampler_num of NIC transmit"),
    };
    let has_type = general.general_obj_types() >> ObjType::Sampler.number() & 1 != 0;
    let has_table = table.properties().log_max_ft_sampler_num() > 0;
    let lacking = [("general_obj_types (SAMPLER)", has_type), (lacks_table, has_table)];
    match lacking.into_iter().find(|(_, has)| !has) {
        Some((capability, _)) => Err(Error::Unsupported { what: what.into(), capability }),
        None => Ok(()),
    }
}

/// The level of the card before those of `tables`, which are of one direction.
fn level_before(tables: [&Arc<FlowTable>; 2]) -> Result<u8, Error> {
    let [samples, all] = tables;
    if samples.direction() != all.direction() {
        return Err(Invalid::Requires { what: "a flow sampler".into(), requires: "tables of one direction" }.into());
    }
    let (lowest, first) = (lowest_level(tables), first_sampled_level(all.device()));
    if lowest < first {
        let (given, limit) = (lowest.into(), first.into()..=u8::MAX.into());
        let wrong = Invalid::out_of_range("level", given, limit, "a table of a flow sampler");
        return Err(wrong.mend("a rule's table and the sampler have the levels before").into());
    }
    Ok(samples.card_level().min(all.card_level()) - 1)
}

fn lowest_level([samples, all]: [&Arc<FlowTable>; 2]) -> u8 {
    samples.level().min(all.level())
}
