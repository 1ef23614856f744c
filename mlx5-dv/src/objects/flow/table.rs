//! Flow tables for received frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_prm::caps::{FlowTableNicCap, FlowTablePropLayout};
use mlx5_prm::cmd::{CreateFlowTableIn, DestroyFlowTableIn, SetFlowTableRootIn};
use mlx5_prm::flow::{FlowTableContext, FlowTableType};

use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::objects::check::{in_range, within};
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// A flow table for received frames, made of flow groups. PRM "Flow Table", type `NIC_RX`.
///
/// After [`set_root`](Self::set_root) every frame enters at this table; frames without a matching rule are dropped.
/// RoCE packets reach their queue pairs without it. A function has one root table at a time.
#[derive(Debug)]
pub struct FlowTable {
    table_id: u32,
    log_size: u32,
    is_root: AtomicBool,
    object: Object,
}

fn properties(device: &Device) -> Result<FlowTablePropLayout, Error> {
    let unsupported = |capability| Error::Unsupported { what: "steering of received frames".into(), capability };
    let caps: FlowTableNicCap = device.caps().current(CapPage::FlowTable).ok_or(unsupported("nic_flow_table"))?;
    let properties = *caps.flow_table_properties_nic_receive();
    if properties.ft_support() { Ok(properties) } else { Err(unsupported("ft_support of NIC receive")) }
}

impl FlowTable {
    /// Creates a table at `level` with room for `entries` rules.
    ///
    /// # Errors
    /// [`Error::Invalid`] on DevX, where the kernel owns the tables: see [`FlowMatcher`](super::matcher::FlowMatcher);
    /// [`Error::Unsupported`]; [`Error::Invalid`] beyond `max_ft_level` or `log_max_ft_size`; [`Error::Command`].
    pub fn create(device: &Arc<Device>, level: u8, entries: u32) -> Result<Arc<Self>, Error> {
        if !device.is_owned() {
            let (device, mend) = (device.name().into(), "make a flow matcher, and rules of it, instead");
            return Err(Invalid::WrongAccess { what: "flow tables", device, kernel: true, mend }.into());
        }
        let caps = properties(device)?;
        in_range("level", level.into(), 0..=caps.max_ft_level().into(), "max_ft_level")?;
        let size = u64::from(entries.max(1)).next_power_of_two();
        within("entries", size, "log_max_ft_size", caps.log_max_ft_size())?;
        let log_size = size.trailing_zeros();
        let (mut create, mut context) = (CreateFlowTableIn::default(), FlowTableContext::default());
        context.w().level(level).log_size(log_size as u8);
        create.w().table_type(FlowTableType::NicRx).flow_table_context(&context);
        let (object, out) = Object::create(device, &create, "a flow table", |out| {
            let mut end = DestroyFlowTableIn::default();
            end.w().table_type(FlowTableType::NicRx).table_id(out.table_id());
            (end, format!("flow table {:#x}", out.table_id()))
        })?;
        Ok(Arc::new(FlowTable { table_id: out.table_id(), log_size, is_root: AtomicBool::new(false), object }))
    }

    /// Makes it the root table until it is destroyed: every received frame enters here.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the function has a root table already, [`Error::Command`].
    pub fn set_root(&self) -> Result<(), Error> {
        let mut root = self.device().root_flow_table();
        if let Some(taken) = *root {
            return Err(Invalid::Taken {
                what: "the root of the frames that the function receives".into(),
                by: format!("flow table {taken:#x}"),
                mend: "destroy that first, or add rules to it",
            }
            .into());
        }
        let mut set = SetFlowTableRootIn::default();
        set.w().table_type(FlowTableType::NicRx).table_id(self.table_id);
        self.device().execute(&set, &self.object.name())?;
        *root = Some(self.table_id);
        self.is_root.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// `table_id`, 24 bits.
    pub fn table_id(&self) -> u32 {
        self.table_id
    }

    /// Number of rules that fit.
    pub fn capacity(&self) -> u32 {
        1 << self.log_size
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()?;
        // Once: afterwards another table may be the root.
        if std::mem::take(self.is_root.get_mut()) {
            *self.object.device().root_flow_table() = None;
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
