//! An opened card.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{Command, QueryNicVportContextIn, QueryRoceAddressIn, QueryVportStateIn, SetRoceAddressIn};
use mlx5_prm::ctx::{MacAddressLayout, RoceAddrLayout};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::access::owned::{BroughtUp, Owned, bring_up, port};
use crate::access::trace::{Observer, Observers};
use crate::access::{Access, AsyncEvent, Function, RawCommand};
use crate::caps::{CapPage, Caps};
use crate::error::{CommandError, Error};
use crate::lock::lock;

/// How to open a card. Begin with [`Options::default`] and change what matters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Reset the function (FLR) first, so that nothing of its last driver is left. Default: yes.
    pub reset: bool,
    /// How long firmware may take to start. Default: 120 s.
    pub firmware_timeout: Duration,
    /// How long firmware may take to answer a command. Default: 60 s.
    pub command_timeout: Duration,
    /// How often firmware's health is looked at. Default: 100 ms.
    pub health_interval: Duration,
    /// How long the health counter may stand still before the card counts as dead. Default: 3 s.
    pub health_patience: Duration,
    /// How many completion vectors (EQs with an interrupt each) to make, as far as the function has them. Default: 1.
    pub completion_vectors: u32,
    /// Ask firmware to sign its replies, and check tokens and signatures of each. Default: no, as Linux does.
    pub sign_replies: bool,
    /// Bring the port up if it is down. Default: yes.
    pub port_up: bool,
    /// The port's MTU, as its register `PMTU` counts frames: 22 bytes (header, VLAN tag, check sequence) above what
    /// `ip link` shows. Default: raised to 4214, where RoCE's largest path MTU fits, if it is lower and the port can. It
    /// stays so when the card is closed, as with Linux.
    pub mtu: Option<u16>,
    /// An IPv4 address for the port: it becomes a GID of its own. Default: none.
    pub ipv4: Option<Ipv4Addr>,
    /// Who is told of every command.
    pub observers: Observers,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            reset: true,
            firmware_timeout: Duration::from_secs(120),
            command_timeout: Duration::from_secs(60),
            health_interval: Duration::from_millis(100),
            health_patience: Duration::from_secs(3),
            completion_vectors: 1,
            sign_replies: false,
            port_up: true,
            mtu: None,
            ipv4: None,
            observers: Observers::default(),
        }
    }
}

impl Options {
    /// Tells `observer` of every command, from the first.
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }
}

/// A port's MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Everybody's.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// The address that frames to the IPv6 multicast group `group` carry. RFC 2464.
    pub fn of_group(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Mac([0x33, 0x33, a, b, c, d])
    }

    /// Error if one of `groups` is a single station's.
    pub(crate) fn check_groups(groups: &[Mac]) -> Result<(), Error> {
        match groups.iter().find(|mac| mac.0[0] & 1 == 0) {
            Some(single) => Err(Error::Invalid(format!("{single} is no multicast address"))),
            None => Ok(()),
        }
    }

    /// The address in a layout.
    pub(crate) fn of(layout: &MacAddressLayout) -> Self {
        let (high, low) = (layout.mac_addr_47_32().to_be_bytes(), layout.mac_addr_31_0().to_be_bytes());
        Mac([high[0], high[1], low[0], low[1], low[2], low[3]])
    }

    /// The layout of the address.
    pub(crate) fn layout(self) -> MacAddressLayout {
        let [a, b, c, d, e, f] = self.0;
        let mut layout = MacAddressLayout::default();
        layout.w().mac_addr_47_32(u16::from_be_bytes([a, b])).mac_addr_31_0(u32::from_be_bytes([c, d, e, f]));
        layout
    }

    /// A random address of one station, administered locally.
    pub(crate) fn random() -> Result<Self, Error> {
        let mut bytes = [0; 6];
        getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| Error::io("making an address", error.into()))?;
        bytes[0] = bytes[0] & !1 | 2;
        Ok(Mac(bytes))
    }

    /// The link-local IPv6 address made of it: fe80::/64, the universal bit flipped, ff:fe in the middle. RFC 4291.
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }
}

impl FromStr for Mac {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
        let mac = bytes.and_then(|bytes| bytes.try_into().ok()).map(Mac);
        mac.ok_or_else(|| Error::Invalid(format!("{text:?} is no MAC address, such as 02:00:c5:00:00:01")))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// An entry of the port's GID table: an address RoCE packets can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gid {
    /// Where in the table.
    pub index: u16,
    /// The 16 bytes of the GID. An IPv4 address is mapped: ::ffff:a.b.c.d.
    pub address: Ipv6Addr,
    /// The MAC address its packets carry.
    pub mac: Mac,
    /// Whether its packets are IPv4 ones.
    pub ipv4: bool,
}

impl Gid {
    pub(crate) fn of(index: u16, address: Ipv6Addr, mac: Mac) -> Self {
        Gid { index, address, mac, ipv4: address.to_ipv4_mapped().is_some() }
    }
}

/// The port as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Whether the port has link.
    pub up: bool,
    /// Whether it is meant to be up.
    pub admin_up: bool,
    /// Its own MAC address; all zero for a virtual function that was given none.
    pub mac: Mac,
    /// Bytes of the longest frame that passes, as register `PMTU` counts them: see [`Options::mtu`]. Where the card does not
    /// say, as the vport context has it.
    pub mtu: u16,
    /// The most that can be; 0 where the card does not say.
    pub max_mtu: u16,
}

/// Bytes of the largest RoCE v2 frame that are not payload, as `PMTU` counts them: Ethernet header, VLAN tag and check
/// sequence (22), IPv6, UDP, BTH, the largest extension, ICRC.
pub(crate) const PATH_HEADERS: u32 = 22 + 96;

/// An opened card. Any thread may use it; the card is closed when it and all made of it are gone.
#[derive(Debug)]
pub struct Device {
    gids: Vec<Gid>,
    mac: Mac,
    caps: Caps,
    /// The table where received frames begin, if we made one so.
    root_flow_table: Mutex<Option<u32>>,
    /// The same access as below, where the function is our own.
    owned: Option<Arc<Owned>>,
    access: Arc<dyn Access>,
}

/// `roce_version` of an address whose packets are UDP ones.
const ROCE_V2: u8 = 2;

impl Device {
    /// Brings `function` up. PRM "Driver Start-up".
    ///
    /// # Errors
    /// The first step that failed; all steps before it have been undone.
    pub fn open(function: Function, options: Options) -> Result<Arc<Device>, Error> {
        let BroughtUp { card, caps, mac } = bring_up(function, &options)?;
        let access: Arc<dyn Access> = Arc::clone(&card) as _;
        let mut device =
            Device { gids: vec![], mac, caps, root_flow_table: Mutex::default(), owned: Some(card), access };
        if device.caps.roce {
            device.set_own_gids(options.ipv4)?;
        }
        Ok(Arc::new(device))
    }

    /// A function that the kernel keeps, reached through `access`, with the GIDs that the kernel gave it.
    pub(crate) fn of_kernel(access: Arc<dyn Access>, caps: Caps, gids: Vec<Gid>) -> Result<Arc<Device>, Error> {
        let mut device =
            Device { gids, mac: Mac([0; 6]), caps, root_flow_table: Mutex::default(), owned: None, access };
        device.mac = device.port()?.mac;
        Ok(Arc::new(device))
    }

    /// The way to the card.
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

    /// The port's GIDs, in the order of their indices. GID 0 is the IPv6 link-local address of the port's MAC; GID 1 is the
    /// IPv4 address that [`Options::ipv4`] named, if it did. Where the kernel keeps the function, they are the kernel's
    /// as they were when it was opened. All are RoCE v2.
    pub fn gids(&self) -> &[Gid] {
        &self.gids
    }

    /// The MAC address that the function uses, and takes frames from the wire for.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Asynchronous events from now on: see [`Access::async_events`].
    pub fn async_events(&self) -> mpsc::Receiver<AsyncEvent> {
        self.access.async_events()
    }

    /// Pages of 4 KiB that firmware holds of ours; 0 where the kernel gives them.
    pub fn firmware_pages(&self) -> usize {
        self.owned.as_ref().map_or(0, |owned| owned.pages_held())
    }

    /// How many command slots there are, and how many of them still wait for an answer that did not come in time.
    pub fn command_slots(&self) -> (usize, usize) {
        self.owned.as_ref().map_or((0, 0), |owned| owned.command_slots())
    }

    /// Capabilities, asked anew.
    pub fn query_caps(&self) -> Result<Caps, Error> {
        Caps::read(&*self.access, self.caps.fw_version)
    }

    /// The port as it is now. PRM "QUERY_VPORT_STATE", "QUERY_NIC_VPORT_CONTEXT", "PMTU".
    pub fn port(&self) -> Result<PortInfo, Error> {
        let state = self.execute(&QueryVportStateIn::default(), "port")?;
        let context = *self.execute(&QueryNicVportContextIn::default(), "port")?.nic_vport_context();
        let pmtu = self.owned.as_deref().and_then(|owned| port::mtu(owned).ok());
        Ok(PortInfo {
            up: state.state() == 1,
            admin_up: state.admin_state() == 1,
            mac: Mac::of(context.permanent_address()),
            mtu: pmtu.map_or(context.mtu(), |pmtu| pmtu.oper_mtu()),
            max_mtu: pmtu.map_or(0, |pmtu| pmtu.max_mtu()),
        })
    }

    /// Whether the function is ours alone: brought up by this program, with its port, addresses and steering.
    pub fn is_owned(&self) -> bool {
        self.owned.is_some()
    }

    /// The table where received frames begin.
    pub(crate) fn root_flow_table(&self) -> MutexGuard<'_, Option<u32>> {
        lock(&self.root_flow_table)
    }

    /// Sets the multicast addresses whose frames come to the function, as far as its flow tables let them: all there are, in
    /// place of those before. PRM "MODIFY_NIC_VPORT_CONTEXT", `allowed_list_type` 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the kernel keeps the function, or for an address that is no group's; [`Error::Command`].
    pub fn set_multicast(&self, groups: &[Mac]) -> Result<(), Error> {
        let Some(owned) = &self.owned else {
            let name = self.name();
            return Err(Error::Invalid(format!(
                "the kernel keeps the addresses of {name}: join groups by its network interface (ip maddr add) instead"
            )));
        };
        Mac::check_groups(groups)?;
        Ok(port::list_groups(owned, groups)?)
    }

    /// Writes an entry of the card's RoCE address table. PRM "SET_ROCE_ADDRESS".
    ///
    /// Frames from the wire come for [`mac`](Self::mac) alone: an entry with another address can send, and hears nothing.
    pub fn set_gid(&self, gid: Gid) -> Result<(), Error> {
        if self.owned.is_none() {
            let name = self.name();
            return Err(Error::Invalid(format!(
                "the kernel keeps the GIDs of {name}: give its network interface an address (ip addr add) instead"
            )));
        }
        if gid.index >= self.caps.roce_address_table_size.max(1) {
            let size = self.caps.roce_address_table_size;
            return Err(Error::Invalid(format!("GID index {} is not below the table's size, {size}", gid.index)));
        }
        let [a, b, c, d, e, f] = gid.mac.0;
        let mut entry = RoceAddrLayout::default();
        entry
            .w()
            .source_l3_address(&gid.address.octets())
            .source_mac_47_32(u16::from_be_bytes([a, b]))
            .source_mac_31_0(u32::from_be_bytes([c, d, e, f]))
            .roce_l3_type(if gid.ipv4 { 0 } else { 1 })
            .roce_version(ROCE_V2);
        let mut set = SetRoceAddressIn::default();
        set.w().roce_address_index(gid.index).vhca_port_num(self.port_selector()).roce_address(&entry);
        self.execute(&set, &format!("GID {}", gid.index))?;
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
            0 => Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]).to_ipv6_mapped(),
            _ => Ipv6Addr::from(octets),
        };
        Ok(Gid::of(index, address, mac))
    }

    /// Executes a typed command that creates nothing; `object` is what it is about, for messages.
    ///
    /// Nothing judges the command: one that makes a memory key, gives pages to firmware or takes them, or touches an object
    /// of somebody else's can aim the card at any memory it sees, this program's own registered memory included. Queries
    /// are harmless; for the rest use the types of [`objects`](crate::objects).
    pub fn execute<C: Command>(&self, command: &C, object: &str) -> Result<C::Out, CommandError> {
        let raw = RawCommand::new(command, object);
        let output = self.access.execute(raw.clone()).map_err(|error| error.because(&raw.input, &self.caps))?;
        raw.reply(&output)
    }

    /// Whether the card is known to be dead or gone, and why.
    pub fn death(&self) -> Option<Error> {
        self.access.death()
    }

    fn set_own_gids(&mut self, ipv4: Option<Ipv4Addr>) -> Result<(), Error> {
        let mut gids = vec![Gid::of(0, self.mac.link_local(), self.mac)];
        gids.extend(ipv4.map(|address| Gid::of(1, address.to_ipv6_mapped(), self.mac)));
        for gid in &gids {
            self.set_gid(*gid)?;
        }
        self.gids = gids;
        Ok(())
    }

    /// `vhca_port_num`: the first port, where one function may have several.
    fn port_selector(&self) -> u8 {
        let general = self.caps.current::<CmdHcaCap>(CapPage::General);
        u8::from(general.is_some_and(|general| general.num_vhca_ports() > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_local_gid_is_the_one_every_host_makes_of_a_mac() {
        let mac = Mac([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]);
        assert_eq!(mac.link_local().to_string(), "fe80::5eff:fe10:1");
        assert_eq!(mac.to_string(), "02:00:5e:10:00:01");
    }
}
