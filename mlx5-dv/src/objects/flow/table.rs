//! Flow tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_prm::caps::{FlowTableNicCap, FlowTablePropLayout};
use mlx5_prm::cmd::{CreateFlowTableIn, DestroyFlowTableIn, QueryFlowTableIn, SetFlowTableRootIn};
use mlx5_prm::flow::{FlowTableContext, FlowTableMissAction, FlowTableType};

use crate::access::ObjectHandle;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::objects::check::{in_range, one_device, within};
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// Which frames a flow table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Direction {
    /// Frames that the function receives. Those that no rule matches are dropped.
    #[default]
    Receive,
    /// Frames that its send queues send. Those that no rule matches are sent.
    Transmit,
}

impl Direction {
    /// `table_type`.
    pub(super) fn table_type(self) -> FlowTableType {
        match self {
            Direction::Receive => FlowTableType::NicRx,
            Direction::Transmit => FlowTableType::NicTx,
        }
    }
}

/// How a flow table is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FlowTableOptions {
    /// Which frames it is for. Default: those that are received.
    pub direction: Direction,
    /// Its level: rules forward to tables of a higher one. On DevX all levels are higher than those of the kernel's
    /// tables. Default: 0.
    pub level: u8,
    /// Room for so many rules; rounded up to a power of two. Default: 1.
    pub entries: u32,
    /// The table, of a higher level, where frames that no rule matches go on. Default: none, see [`Direction`].
    pub miss: Option<Arc<FlowTable>>,
    /// Whether its rules may put frames into tunnels and take them out, as far as the card's tables of this direction
    /// can. Default: no.
    pub tunnels: bool,
}

impl Default for FlowTableOptions {
    fn default() -> Self {
        FlowTableOptions { direction: Direction::Receive, level: 0, entries: 1, miss: None, tunnels: false }
    }
}

/// A flow table, made of flow groups. PRM "Flow Table", types `NIC_RX` and `NIC_TX`.
///
/// After [`set_root`](Self::set_root) every frame of its direction enters at this table. RoCE packets reach their queue
/// pairs without it. A function has one root table at a time for each direction. On DevX the kernel has the root: there
/// the frames enter that a rule of a [`FlowMatcher`](super::matcher::FlowMatcher) forwards to the table, and do not go
/// back to the kernel.
#[derive(Debug)]
pub struct FlowTable {
    table_id: u32,
    log_size: u32,
    direction: Direction,
    /// That of the card.
    level: u8,
    tunnels: bool,
    properties: FlowTablePropLayout,
    is_root: AtomicBool,
    object: Object,
    /// Kept while frames go there.
    _miss: Option<Arc<FlowTable>>,
}

/// What flow tables of `direction` can do.
pub(super) fn properties(device: &Device, direction: Direction) -> Result<FlowTablePropLayout, Error> {
    let (what, support) = match direction {
        Direction::Receive => ("steering of received frames", "ft_support of NIC receive"),
        Direction::Transmit => ("steering of frames that are sent", "ft_support of NIC transmit"),
    };
    let unsupported = |capability| Error::Unsupported { what: what.into(), capability };
    let caps: FlowTableNicCap = device.caps().current(CapPage::FlowTable).ok_or(unsupported("nic_flow_table"))?;
    let properties = match direction {
        Direction::Receive => *caps.flow_table_properties_nic_receive(),
        Direction::Transmit => *caps.flow_table_properties_nic_transmit(),
    };
    if properties.ft_support() { Ok(properties) } else { Err(unsupported(support)) }
}

/// Error unless rules for received frames may give them to TIRs and others at once. Linux asks the same of its own
/// rules that leave frames to what comes after them.
pub(super) fn check_several_paths(device: &Device, with_tables: bool) -> Result<(), Error> {
    let caps: FlowTableNicCap = device.caps().current(CapPage::FlowTable).unwrap_or(FlowTableNicCap::ZERO);
    let unsupported = |capability| {
        Err(Error::Unsupported { what: "flow rules that give a frame to a TIR and to others".into(), capability })
    };
    match (caps.nic_rx_multi_path_tirs(), caps.nic_rx_multi_path_tirs_fts()) {
        (false, _) => unsupported("nic_rx_multi_path_tirs"),
        (true, false) if with_tables => unsupported("nic_rx_multi_path_tirs_fts"),
        _ => Ok(()),
    }
}

/// Levels of the card that are left to the kernel. Linux 6.12 has its tables for the rules of programs, which forward
/// to tables of ours, below 34.
const KERNEL_LEVELS: u8 = 48;

/// The card's first level of a table of its own for one rule, and of the tables of users.
fn first_levels(device: &Device) -> (u8, u8) {
    if device.is_owned() { (0, 0) } else { (KERNEL_LEVELS, KERNEL_LEVELS + 1) }
}

/// The first level, as [`FlowTable::level`] counts, of tables that a sampler leads to: its own is after that of a rule.
pub(super) fn first_sampled_level(device: &Device) -> u8 {
    let (of_rule, of_table) = first_levels(device);
    of_rule + 2 - of_table
}

impl FlowTable {
    /// Creates a table for received frames at `level` with room for `entries` rules.
    ///
    /// # Errors
    /// As for [`with_options`](Self::with_options).
    pub fn create(device: &Arc<Device>, level: u8, entries: u32) -> Result<Arc<Self>, Error> {
        Self::with_options(device, FlowTableOptions { level, entries, ..FlowTableOptions::default() })
    }

    /// Creates a table.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; [`Error::Invalid`] beyond `max_ft_level` or `log_max_ft_size`; [`Error::Command`].
    pub fn with_options(device: &Arc<Device>, options: FlowTableOptions) -> Result<Arc<Self>, Error> {
        let (_, first) = first_levels(device);
        let most = properties(device, options.direction)?.max_ft_level().saturating_sub(first);
        in_range("level", options.level.into(), 0..=most.into(), "max_ft_level")?;
        let level = first + options.level;
        Self::at(device, level, options)
    }

    /// Creates a table on DevX for one rule of the kernel's tables, before those of users.
    pub(super) fn of_one_rule(device: &Arc<Device>, direction: Direction, tunnels: bool) -> Result<Arc<Self>, Error> {
        let options = FlowTableOptions { direction, tunnels, ..FlowTableOptions::default() };
        Self::at(device, first_levels(device).0, options)
    }

    /// Creates a table at a level of the card.
    fn at(device: &Arc<Device>, level: u8, options: FlowTableOptions) -> Result<Arc<Self>, Error> {
        let FlowTableOptions { direction, entries, miss, tunnels, .. } = options;
        let caps = properties(device, direction)?;
        let size = u64::from(entries.max(1)).next_power_of_two();
        within("entries", size, "log_max_ft_size", caps.log_max_ft_size())?;
        // Cards take frames out of tunnels where they are received, and put them into some where they are sent.
        let (can_enter, can_leave) = (tunnels && caps.reformat(), tunnels && caps.decap());
        if tunnels && !can_enter && !can_leave {
            let capability = if direction == Direction::Receive { "decap" } else { "reformat" };
            return Err(Error::Unsupported { what: "flow tables with tunnels".into(), capability });
        }
        let log_size = size.trailing_zeros();
        let (mut create, mut context) = (CreateFlowTableIn::default(), FlowTableContext::default());
        context.w().level(level).log_size(log_size as u8).reformat_en(can_enter).decap_en(can_leave);
        if let Some(next) = &miss {
            one_device("a flow table and the next", device, [next.device()])?;
            if next.direction != direction || next.level <= level {
                let requires = "a table of the same direction and of a higher level";
                return Err(Invalid::Requires { what: "FlowTableOptions::miss".into(), requires }.into());
            }
            context.w().table_miss_action(FlowTableMissAction::Fwd).table_miss_id(next.table_id);
        }
        create.w().table_type(direction.table_type()).flow_table_context(&context);
        let (object, out) = Object::create(device, &create, "a flow table", |out| {
            let mut end = DestroyFlowTableIn::default();
            end.w().table_type(direction.table_type()).table_id(out.table_id());
            (end, format!("flow table {:#x}", out.table_id()))
        })?;
        Ok(Arc::new(FlowTable {
            table_id: out.table_id(),
            log_size,
            direction,
            level,
            tunnels,
            properties: caps,
            is_root: AtomicBool::new(false),
            object,
            _miss: miss,
        }))
    }

    /// Makes it the root table until it is destroyed: every frame of its direction enters here.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the function has a root table already, and on DevX, where the kernel has it;
    /// [`Error::Command`].
    pub fn set_root(&self) -> Result<(), Error> {
        if !self.device().is_owned() {
            let (device, mend) = (self.device().name().into(), "forward to the table by a rule of a flow matcher");
            return Err(Invalid::WrongAccess { what: "the root of flow tables", device, kernel: true, mend }.into());
        }
        let mut root = self.device().root_flow_table(self.direction == Direction::Transmit);
        if let Some(taken) = *root {
            let frames = if self.direction == Direction::Receive { "receives" } else { "sends" };
            return Err(Invalid::Taken {
                what: format!("the root of the frames that the function {frames}"),
                by: format!("flow table {taken:#x}"),
                mend: "destroy that first, or add rules to it",
            }
            .into());
        }
        let mut set = SetFlowTableRootIn::default();
        set.w().table_type(self.direction.table_type()).table_id(self.table_id);
        self.device().execute(&set, &self.object.name())?;
        *root = Some(self.table_id);
        self.is_root.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Asks the card for its context, under PRM names: level, size, where frames go on that no rule matches. PRM
    /// "QUERY_FLOW_TABLE". Errors: [`Error::Command`].
    pub fn query(&self) -> Result<FlowTableContext, Error> {
        let mut query = QueryFlowTableIn::default();
        query.w().table_type(self.direction.table_type()).table_id(self.table_id);
        Ok(*self.object.query(&query)?.flow_table_context())
    }

    /// `table_id`, 24 bits.
    pub fn table_id(&self) -> u32 {
        self.table_id
    }

    /// Number of rules that fit.
    pub fn capacity(&self) -> u32 {
        1 << self.log_size
    }

    /// Which frames it is for.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Its level.
    pub fn level(&self) -> u8 {
        self.level.saturating_sub(first_levels(self.device()).1)
    }

    /// Its level among all tables of the card.
    pub(super) fn card_level(&self) -> u8 {
        self.level
    }

    /// Its handle in the kernel.
    pub(super) fn handle(&self) -> ObjectHandle {
        self.object.handle()
    }

    /// Whether its rules may have tunnels.
    pub(super) fn has_tunnels(&self) -> bool {
        self.tunnels
    }

    /// What its rules can do.
    pub(super) fn properties(&self) -> &FlowTablePropLayout {
        &self.properties
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()?;
        // Once: afterwards another table may be the root.
        if std::mem::take(self.is_root.get_mut()) {
            *self.object.device().root_flow_table(self.direction == Direction::Transmit) = None;
        }
        Ok(())
    }

    /// Destroys the table. Its groups must be destroyed first. On an error the table stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, FlowTable::end)
    }
}

impl Drop for FlowTable {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a flow table was not destroyed; it stays with the card until that is reset");
        }
    }
}
