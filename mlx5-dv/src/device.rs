//! An open card.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::caps::{CmdHcaCap, RoceCap};
use mlx5_prm::cmd::{
    Command, QueryAdapterIn, QueryEqIn, QueryHcaVportContextIn, QueryNicVportContextIn, QueryRoceAddressIn,
    QueryVportCounterIn, QueryVportStateIn, SetRoceAddressIn,
};
use mlx5_prm::ctx::{Eqc, RoceAddrLayout};
use mlx5_prm::reg::{AnStatus, PortCounterGroup};

use crate::access::owned::{BroughtUp, Owned, bring_up, port};
use crate::access::{Access, AsyncEvents, Function, Options, RawCommand, SafeCommand, devx, hca_cap};
use crate::caps::{CapPage, Caps, FREE_RUNNING_ONLY, REAL_TIME_ONLY};
use crate::clock::Clock;
use crate::counters::{PcieCounters, PortCounters, VportCounters};
use crate::error::{CommandError, Error, Invalid};
use crate::events::Events;
use crate::lock::lock;
use crate::net::{Adapter, Gid, LinkInfo, Mac, PortInfo, Promiscuous};
use crate::timestamp::{ClockRate, RealTime, Timestamp};

/// An open card. Any thread may use it. It is closed when this handle and all objects made from it are dropped.
#[derive(Debug)]
pub struct Device {
    gids: Mutex<Vec<Gid>>,
    mac: Mac,
    caps: Caps,
    /// The root flow tables for frames that are received, and for those that are sent, if this driver created them.
    root_flow_tables: [Mutex<Option<u32>>; 2],
    /// Indices of rate limits that this driver has set.
    rate_limits: Mutex<BTreeSet<u16>>,
    /// UDP ports of VXLAN that this driver has added.
    vxlan_ports: Mutex<BTreeSet<u16>>,
    /// Multicast addresses that the function hears.
    groups: Mutex<Groups>,
    /// The same access as `access`, if this process owns the function.
    owned: Option<Arc<Owned>>,
    access: Arc<dyn Access>,
}

/// The last VLAN. IEEE 802.1Q 9.6.
const LAST_VLAN: u16 = 4094;
/// `roce_version` of an address for RoCE v2 (UDP).
const ROCE_V2: u8 = 2;

/// The MTU that every InfiniBand port has at least. IBTA 7.7.8.
const LEAST_MTU: u16 = 256;

impl Device {
    /// Brings `function` up. PRM "Driver Start-up".
    ///
    /// # Errors
    /// The first step that failed; all completed steps were undone.
    pub fn open(function: Function, options: Options) -> Result<Arc<Device>, Error> {
        let BroughtUp { card, caps, mac } = bring_up(function, &options)?;
        let access: Arc<dyn Access> = Arc::clone(&card) as _;
        let device = Device {
            gids: Mutex::default(),
            mac,
            caps,
            root_flow_tables: Default::default(),
            rate_limits: Default::default(),
            vxlan_ports: Default::default(),
            groups: Default::default(),
            owned: Some(card),
            access,
        };
        if device.caps.roce && !device.caps.is_infiniband() {
            device.set_own_gids(options.ip)?;
        }
        Ok(Arc::new(device))
    }

    /// Opens the kernel's RDMA device `name`, such as `mlx5_0`, which the kernel owns: see [`access::devx`](devx).
    /// `options` that configure the function are ignored, and its GIDs are the kernel's: [`Options::ip`] must be one.
    ///
    /// # Errors
    /// [`Error::Refused`] names the obstacle and, where known, the command that removes it.
    pub fn open_devx(name: &str, options: Options) -> Result<Arc<Device>, Error> {
        Self::of_kernel(devx::open(name, options)?)
    }

    /// Takes part in a context of the kernel's that another process has created: `file` is a descriptor of its
    /// [`export`](Self::export), or of libibverbs's (`cmd_fd` of an `ibv_context`). (`ibv_import_device`.)
    ///
    /// The processes share the card's objects: each can [import](crate::objects::Pd::import) what others have made, and
    /// what any of them made stays until it destroys it, or the last one closes the context. `options` count as in
    /// [`open_devx`](Self::open_devx).
    ///
    /// # Errors
    /// [`Error::Refused`] for a descriptor that is no context of an mlx5 device.
    pub fn import(file: OwnedFd, options: Options) -> Result<Arc<Device>, Error> {
        Self::of_kernel(devx::import(file, options)?)
    }

    /// A descriptor of the kernel's context, for another process: [`import`](Self::import) takes it, or libibverbs's
    /// `ibv_import_device`. A child inherits it, or a Unix socket takes it along (`SCM_RIGHTS`). Who has it can use
    /// and destroy all that this process has made by this `Device`.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a function that this process owns: no other can use it; [`Error::Io`] if there can be no
    /// more descriptors.
    pub fn export(&self) -> Result<OwnedFd, Error> {
        let kernel = self.access.kernel_verbs().ok_or_else(|| {
            let mend = "open the kernel's device (devx:), whose context processes share";
            Invalid::WrongAccess {
                what: "a context of several processes",
                device: self.name().into(),
                kernel: false,
                mend,
            }
        })?;
        kernel.context()
    }

    fn of_kernel(devx::Opened { access, caps, gids }: devx::Opened) -> Result<Arc<Device>, Error> {
        let mut device = Device {
            gids: Mutex::new(gids),
            mac: Mac([0; 6]),
            caps,
            root_flow_tables: Default::default(),
            rate_limits: Default::default(),
            vxlan_ports: Default::default(),
            groups: Default::default(),
            owned: None,
            access,
        };
        device.mac = device.port()?.mac;
        Ok(Arc::new(device))
    }

    /// How the card is reached.
    pub fn access(&self) -> &Arc<dyn Access> {
        &self.access
    }

    /// The device string it was opened by.
    pub fn name(&self) -> &str {
        self.access.name()
    }

    /// Its capabilities.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The port's GIDs by index, all RoCE v2. GID 0 is the IPv6 link-local address of the port's MAC; GID 1 is
    /// [`Options::ip`], if set; [`set_gid`](Self::set_gid) adds others. On DevX they are the kernel's, as of when the
    /// device was opened.
    pub fn gids(&self) -> Vec<Gid> {
        lock(&self.gids).clone()
    }

    /// The function's MAC address; frames to it are received. All zero on InfiniBand.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Subscribes to asynchronous events, as the card's event queue has them: see [`Access::async_events`]. A channel
    /// that is not read in time loses events, which are [counted](AsyncEvents::take_lost).
    pub fn async_events(&self) -> AsyncEvents {
        self.access.async_events(None)
    }

    /// Subscribes to asynchronous events, as typed values with a descriptor for epoll.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no more descriptors.
    pub fn events(&self) -> Result<Events, Error> {
        Events::of(&self.access)
    }

    /// 4 KiB pages that firmware holds; 0 if the kernel provides them.
    pub fn firmware_pages(&self) -> usize {
        self.owned.as_ref().map_or(0, |owned| owned.pages_held())
    }

    /// Number of command slots, and how many of them are quarantined because their command timed out.
    pub fn command_slots(&self) -> (usize, usize) {
        self.owned.as_ref().map_or((0, 0), |owned| owned.command_slots())
    }

    /// Queries the capabilities again.
    pub fn query_caps(&self) -> Result<Caps, Error> {
        hca_cap::query_all(&*self.access, self.caps.fw_version)
    }

    /// Current state of the port. PRM "QUERY_VPORT_STATE", "QUERY_NIC_VPORT_CONTEXT", "PMTU"; of an InfiniBand port
    /// "QUERY_HCA_VPORT_CONTEXT".
    pub fn port(&self) -> Result<PortInfo, Error> {
        if self.caps.is_infiniband() {
            return self.infiniband_port();
        }
        let state = self.execute(&QueryVportStateIn::default(), "port")?;
        let context = *self.execute(&QueryNicVportContextIn::default(), "port")?.nic_vport_context();
        let pmtu = self.owned.as_deref().and_then(|owned| port::mtu(owned).ok());
        Ok(PortInfo {
            up: state.state() == 1,
            admin_up: state.admin_state() != 0,
            mac: Mac::of(context.permanent_address()),
            lid: None,
            mtu: pmtu.map_or(context.mtu(), |pmtu| pmtu.oper_mtu()),
            max_mtu: pmtu.map_or(0, |pmtu| pmtu.max_mtu()),
        })
    }

    fn infiniband_port(&self) -> Result<PortInfo, Error> {
        /// `vport_state`: IBTA's PortState, active. IBTA 14.2.5.6.
        const ACTIVE: u8 = 4;
        let mut query = QueryHcaVportContextIn::default();
        // As on Linux: functions of a single port leave it out.
        query.w().port_num(if self.caps.num_ports == 2 { 1 } else { 0 });
        let context = *self.execute(&query, "port")?.hca_vport_context();
        let pmtu = self.owned.as_deref().and_then(|owned| port::mtu(owned).ok());
        Ok(PortInfo {
            up: context.vport_state() == ACTIVE,
            admin_up: context.vport_state_policy() != 0,
            mac: self.mac,
            lid: Some(context.lid()),
            mtu: pmtu.map_or(LEAST_MTU, |pmtu| pmtu.oper_mtu()),
            max_mtu: pmtu.map_or(0, |pmtu| pmtu.max_mtu()),
        })
    }

    /// Describes the card's board. PRM "QUERY_ADAPTER".
    pub fn adapter(&self) -> Result<Adapter, Error> {
        Ok(Adapter::of(self.execute(&QueryAdapterIn::default(), "adapter")?.query_adapter_struct()))
    }

    /// Current state of the physical link. PRM "PTYS". `None` on DevX: the kernel does not give programs access to
    /// registers.
    pub fn link(&self) -> Result<Option<LinkInfo>, Error> {
        let Some(owned) = &self.owned else { return Ok(None) };
        let register = port::link(owned)?;
        let auto_negotiation = AnStatus::from_number(register.an_status().into());
        Ok(Some(LinkInfo { mode: register.oper_mode(), auto_negotiation }))
    }

    /// Reads a group of the physical port's counters, which all functions of the port share. `priority`, 0 to 7,
    /// selects one for groups that exist per priority or traffic class. PRM "PPCNT". `None` on DevX: the kernel does
    /// not give programs access to registers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a group that the card does not announce, if groups of its kind are announced;
    /// [`Error::Command`].
    pub fn query_port_counters(&self, group: PortCounterGroup, priority: u8) -> Result<Option<PortCounters>, Error> {
        let Some(owned) = &self.owned else { return Ok(None) };
        let general: CmdHcaCap = self.caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        let lacks = match group {
            // Linux, too, asks only cards that have buffers by traffic class.
            PortCounterGroup::PerTrafficClass | PortCounterGroup::PerTrafficClassCongestion => {
                (!general.sbcam_reg()).then_some("sbcam_reg")
            }
            PortCounterGroup::PhysicalLayerStatistical if !general.pcam_reg() => Some("pcam_reg"),
            PortCounterGroup::PhysicalLayerStatistical => {
                (!port::features(owned)?.ppcnt_statistical_group()).then_some("ppcnt_statistical_group")
            }
            _ => None,
        };
        if let Some(capability) = lacks {
            return Err(Error::Unsupported { what: format!("counters of group {group}"), capability });
        }
        Ok(Some(PortCounters::of(&port::counters(owned, group, priority & 7)?)))
    }

    /// Reads the counters of the card's PCIe link: errors, stalls, packets that PCIe took too slowly. A card may have
    /// some of them, or none. PRM "MPCNT". `None` on DevX: the kernel does not give programs access to registers.
    ///
    /// # Errors
    /// [`Error::Command`] if the card announces counters and does not tell them.
    pub fn query_pcie_counters(&self) -> Result<Option<PcieCounters>, Error> {
        let Some(owned) = &self.owned else { return Ok(None) };
        let general: CmdHcaCap = self.caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        if !general.mcam_reg() {
            return Ok(Some(PcieCounters::default()));
        }
        let (features, register) = port::pcie_counters(owned)?;
        Ok(Some(PcieCounters::of(&features, &register)))
    }

    /// The event queue that completion vector `vector` goes to, under PRM names: status, size, interrupt, what it is
    /// armed for, both counters. PRM "QUERY_EQ". `None` on DevX: the kernel does not tell of its event queues.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a vector that the function has not; [`Error::Command`].
    pub fn query_event_queue(&self, vector: u32) -> Result<Option<Eqc>, Error> {
        if !self.is_owned() {
            return Ok(None);
        }
        let eqn = self.access.eqn(vector)?;
        let mut query = QueryEqIn::default();
        query.w().eq_number(eqn as u8);
        Ok(Some(*self.execute(&query, &format!("EQ {eqn:#x}"))?.eq_context_entry()))
    }

    /// Counters of the function's vport since the function was set up. PRM "QUERY_VPORT_COUNTER".
    pub fn query_vport_counters(&self) -> Result<VportCounters, Error> {
        Ok(VportCounters::of(&self.execute(&QueryVportCounterIn::default(), "vport counters")?))
    }

    /// Whether this program owns the function: it brought it up and controls its port, addresses and steering.
    pub fn is_owned(&self) -> bool {
        self.owned.is_some()
    }

    /// The root flow table for received frames, or for those that are sent.
    pub(crate) fn root_flow_table(&self, of_sent: bool) -> MutexGuard<'_, Option<u32>> {
        lock(&self.root_flow_tables[usize::from(of_sent)])
    }

    /// Indices of rate limits in use.
    pub(crate) fn rate_limits(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        lock(&self.rate_limits)
    }

    /// UDP ports of VXLAN that this driver has added.
    pub(crate) fn vxlan_ports(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        lock(&self.vxlan_ports)
    }

    /// The error for `what` that the kernel controls on DevX.
    fn kernels(&self, what: &'static str, mend: &'static str) -> Error {
        Invalid::WrongAccess { what, device: self.name().into(), kernel: true, mend }.into()
    }

    /// Replaces the multicast addresses that the function receives beside those of queues that listen and of
    /// [memberships](crate::objects::Membership), as far as its flow tables accept them. PRM
    /// "MODIFY_NIC_VPORT_CONTEXT", `allowed_list_type` 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] on DevX, or for an address that is not a multicast one; [`Error::Command`].
    pub fn set_multicast(&self, groups: &[Mac]) -> Result<(), Error> {
        let Some(owned) = &self.owned else {
            return Err(self.kernels("multicast addresses", "join groups by its network interface (ip maddr add)"));
        };
        check_groups(groups)?;
        Ok(self.change_groups(owned, |all| all.set = groups.to_vec())?)
    }

    /// Lets the function receive `groups`, which must be multicast, until the result is dropped: their addresses get
    /// into the vport's list, by which the e-switch brings frames to a virtual function. On DevX the list is the
    /// kernel's.
    pub(crate) fn hear(self: &Arc<Self>, groups: &[Mac]) -> Result<Hearing, Error> {
        check_groups(groups)?;
        if let Some(owned) = &self.owned {
            self.change_groups(owned, |all| all.heard.extend_from_slice(groups))?;
        }
        Ok(Hearing { groups: groups.to_vec(), device: Arc::clone(self) })
    }

    /// Changes the multicast addresses that the function receives. On an error they are as before.
    fn change_groups(&self, owned: &Owned, change: impl FnOnce(&mut Groups)) -> Result<(), CommandError> {
        let mut groups = lock(&self.groups);
        let mut changed = groups.clone();
        change(&mut changed);
        changed.write(owned, &groups.all())?;
        *groups = changed;
        Ok(())
    }

    /// Ends what [`hear`](Self::hear) began. On an error the card's list is as before, up to the next change.
    fn stop_hearing(&self, ended: &[Mac]) -> Result<(), Error> {
        let Some(owned) = &self.owned else { return Ok(()) };
        let mut groups = lock(&self.groups);
        let before = groups.all();
        for mac in ended {
            if let Some(at) = groups.heard.iter().position(|heard| heard == mac) {
                groups.heard.remove(at);
            }
        }
        Ok(groups.write(owned, &before)?)
    }

    /// Replaces the unicast addresses that the function receives beside [its own](Self::mac), as far as its flow tables
    /// accept them. PRM "MODIFY_NIC_VPORT_CONTEXT", `allowed_list_type` 0, and "SET_L2_TABLE_ENTRY".
    ///
    /// # Errors
    /// [`Error::Invalid`] on DevX, for a multicast address, or more than the card's list holds; [`Error::Command`].
    pub fn set_unicast(&self, others: &[Mac]) -> Result<(), Error> {
        let Some(owned) = &self.owned else {
            return Err(
                self.kernels("unicast addresses", "add them to its network interface (ip link add ... macvlan)")
            );
        };
        if let Some(group) = others.iter().find(|mac| mac.is_group()) {
            return Err(Invalid::NotA { what: "unicast address", given: group.to_string(), mend: None }.into());
        }
        port::set_unicast_addresses(owned, &self.caps, self.mac, others)
    }

    /// Error if the port's mode is the kernel's.
    pub(crate) fn check_promiscuous(&self) -> Result<(), Error> {
        match self.is_owned() {
            true => Ok(()),
            false => {
                Err(self.kernels("promiscuous mode", "set it on its network interface (ip link set ... promisc on)"))
            }
        }
    }

    /// Sets which frames the function receives beside those to its own addresses, as far as its flow tables accept
    /// them. PRM "MODIFY_NIC_VPORT_CONTEXT", `promisc_*`.
    ///
    /// # Errors
    /// [`Error::Invalid`] on DevX; [`Error::Command`] if this function may not.
    pub fn set_promiscuous(&self, mode: Promiscuous) -> Result<(), Error> {
        self.check_promiscuous()?;
        match &self.owned {
            Some(owned) => Ok(port::set_promiscuous(owned, mode)?),
            None => Ok(()),
        }
    }

    /// Writes an entry of the card's RoCE address table, which [`gids`](Self::gids) then has. Address `::` clears it.
    /// PRM "SET_ROCE_ADDRESS".
    ///
    /// Only frames to [`mac`](Self::mac) are received from the wire: an entry with another address can send but not
    /// receive. In a VLAN nobody answers for the address but who the program has for it.
    ///
    /// # Errors
    /// [`Error::Invalid`] on DevX, for an index that the table has not, or a VLAN above 4094; [`Error::Command`].
    pub fn set_gid(&self, gid: Gid) -> Result<(), Error> {
        if self.owned.is_none() {
            return Err(self.kernels("GIDs", "give its network interface an address (ip addr add)"));
        }
        let last = self.caps.roce_address_table_size.max(1) - 1;
        if gid.index > last {
            let refused = Invalid::out_of_range("Gid::index", gid.index.into(), 0..=last.into(), "this card");
            return Err(refused.capability("roce_address_table_size").into());
        }
        let vlan = gid.vlan.unwrap_or(0);
        if vlan > LAST_VLAN {
            return Err(Invalid::out_of_range("Gid::vlan", vlan.into(), 0..=LAST_VLAN.into(), "IEEE 802.1Q").into());
        }
        let [a, b, c, d, e, f] = gid.mac.0;
        let mut entry = RoceAddrLayout::default();
        entry
            .w()
            .source_l3_address(&gid.address.octets())
            .source_mac_47_32(u16::from_be_bytes([a, b]))
            .source_mac_31_0(u32::from_be_bytes([c, d, e, f]))
            .roce_l3_type(if gid.ipv4 { 0 } else { 1 })
            .vlan_valid(gid.vlan.is_some())
            .vlan_id(vlan)
            .roce_version(ROCE_V2);
        let mut set = SetRoceAddressIn::default();
        set.w().roce_address_index(gid.index).vhca_port_num(self.port_selector()).roce_address(&entry);
        // Held over the command, so that the table is the card's.
        let mut gids = lock(&self.gids);
        self.execute(&set, &format!("GID {}", gid.index))?;
        gids.retain(|other| other.index != gid.index);
        if !gid.address.is_unspecified() {
            let at = gids.partition_point(|other| other.index < gid.index);
            gids.insert(at, gid);
        }
        Ok(())
    }

    /// Reads an entry of the card's RoCE address table. PRM "QUERY_ROCE_ADDRESS".
    pub fn query_gid(&self, index: u16) -> Result<Gid, Error> {
        let mut query = QueryRoceAddressIn::default();
        query.w().roce_address_index(index).vhca_port_num(self.port_selector());
        let entry = *self.execute(&query, &format!("GID {index}"))?.roce_address();
        let (high, low) = (entry.source_mac_47_32().to_be_bytes(), entry.source_mac_31_0().to_be_bytes());
        let mac = Mac([high[0], high[1], low[0], low[1], low[2], low[3]]);
        let octets = *entry.source_l3_address();
        let address = match entry.roce_l3_type() {
            // An entry that is not set is all zero.
            0 if octets != [0; 16] => Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]).to_ipv6_mapped(),
            _ => Ipv6Addr::from(octets),
        };
        let vlan = entry.vlan_valid().then(|| entry.vlan_id());
        Ok(Gid { vlan, ..Gid::new(index, address, mac) })
    }

    /// Executes a command that cannot make the card access memory: see [`SafeCommand`]. `object` is what it concerns,
    /// for messages.
    pub fn execute<C: SafeCommand>(&self, command: &C, object: &str) -> Result<C::Out, CommandError> {
        let input = || [command.head(), command.tail()].concat();
        self.access.run(command, object).map_err(|error| error.because(&input(), &self.caps))
    }

    /// Executes any typed command that creates no object; `object` is what it concerns, for messages. The command is
    /// sent unchecked.
    ///
    /// # Safety
    /// As for [`Access::execute`]: the command can make the card access any memory that it sees.
    ///
    /// ```compile_fail,E0133
    /// fn open_the_heap(device: &mlx5_dv::Device, key: &mlx5_prm::cmd::CreateMkeyIn) {
    ///     let _ = device.execute_raw(key, ""); // only in an unsafe block
    /// }
    /// ```
    pub unsafe fn execute_raw<C: Command>(&self, command: &C, object: &str) -> Result<C::Out, CommandError> {
        let raw = RawCommand::new(command, object);
        // SAFETY: by this function's contract.
        let output = unsafe { self.access.execute(raw.clone()) };
        raw.reply(&output.map_err(|error| error.because(&raw.input, &self.caps))?)
    }

    /// The card's free-running clock now, which completions bear, too. Costs reads of a register of the card, over the
    /// bus: some microseconds.
    ///
    /// # Errors
    /// [`Error::Dead`]; on `devx:` also [`Error::Invalid`] and [`Error::Io`] if the kernel does not show the clock.
    pub fn timestamp(&self) -> Result<Timestamp, Error> {
        self.access.clock_ticks().map(Timestamp)
    }

    /// The card's real-time clock now. Costs as much as [`timestamp`](Self::timestamp).
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card whose real-time clock is missing or switched off; otherwise as for
    /// [`timestamp`](Self::timestamp).
    pub fn real_time(&self) -> Result<RealTime, Error> {
        let general: CmdHcaCap = self.caps.current(CapPage::General).unwrap_or_default();
        if general.rq_ts_format() == FREE_RUNNING_ONLY {
            return Err(Error::Unsupported { what: "a real-time clock".into(), capability: "rq_ts_format" });
        }
        self.access.real_time().map(|time| RealTime::of(Timestamp(time)))
    }

    /// Rate of the card's free-running clock.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that does not tell it, or whose completions bear real time alone.
    pub fn clock_rate(&self) -> Result<ClockRate, Error> {
        let lacks = |what: &str, capability| Error::Unsupported { what: what.into(), capability };
        let roce: RoceCap = self.caps.current(CapPage::Roce).unwrap_or_default();
        if roce.qp_ts_format() == REAL_TIME_ONLY {
            return Err(lacks("completions with the time of the free-running clock", "qp_ts_format"));
        }
        let general: CmdHcaCap = self.caps.current(CapPage::General).unwrap_or_default();
        ClockRate::of_khz(general.device_frequency_khz())
            .ok_or_else(|| lacks("its clock's rate", "device_frequency_khz"))
    }

    /// The clock of all waits: [`Options::clock`].
    pub fn clock(&self) -> &Clock {
        self.access.clock()
    }

    /// Whether the system wants the function back: somebody unbinds it from vfio-pci, or unplugs it, and waits until
    /// this process has closed it. [`events`](Self::events) tell it as [`Event::WantedBack`](crate::Event::WantedBack).
    pub fn is_wanted_back(&self) -> bool {
        self.access.is_wanted_back()
    }

    /// Why the card is dead; `None` while it is alive.
    pub fn death(&self) -> Option<Error> {
        self.access.death()
    }

    fn set_own_gids(&self, ip: Option<IpAddr>) -> Result<(), Error> {
        self.set_gid(Gid::new(0, self.mac.link_local(), self.mac))?;
        ip.map_or(Ok(()), |address| self.set_gid(Gid::new(1, address, self.mac)))
    }

    /// `vhca_port_num`: the first port, if a function can have several.
    fn port_selector(&self) -> u8 {
        let general = self.caps.current::<CmdHcaCap>(CapPage::General);
        u8::from(general.is_some_and(|general| general.num_vhca_ports() > 0))
    }
}

/// Multicast addresses that a function hears.
#[derive(Debug, Clone, Default)]
struct Groups {
    /// Those that [`Device::set_multicast`] was given.
    set: Vec<Mac>,
    /// Those that objects of this driver hear, one entry for each that does.
    heard: Vec<Mac>,
}

impl Groups {
    /// Each address once.
    fn all(&self) -> Vec<Mac> {
        let mut all = Vec::new();
        for mac in self.set.iter().chain(&self.heard) {
            if !all.contains(mac) {
                all.push(*mac);
            }
        }
        all
    }

    /// Writes the vport's list, if it is not as `before`.
    fn write(&self, owned: &Owned, before: &[Mac]) -> Result<(), CommandError> {
        let all = self.all();
        if all == before { Ok(()) } else { port::list_groups(owned, &all) }
    }
}

/// Multicast addresses that a function hears until it is dropped.
#[derive(Debug)]
pub(crate) struct Hearing {
    groups: Vec<Mac>,
    device: Arc<Device>,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        // On a dead card nothing is left to be cleared.
        if let Err(error) = self.device.stop_hearing(&self.groups)
            && !error.is_dead()
        {
            tracing::warn!(%error, "the function's list of multicast addresses is left as it was");
        }
    }
}

/// Error if one of `groups` is a unicast address.
pub(crate) fn check_groups(groups: &[Mac]) -> Result<(), Invalid> {
    match groups.iter().find(|mac| !mac.is_group()) {
        Some(single) => Err(Invalid::NotA { what: "multicast address", given: single.to_string(), mend: None }),
        None => Ok(()),
    }
}
