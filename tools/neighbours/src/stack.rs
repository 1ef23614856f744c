//! The thread that receives, answers and sends requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::{Device, Error, Invalid, Mac};
use mlx5_smoltcp::{Phy, PhyOptions, RxFrame, TxSlot};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv6Cidr};

use super::groups::{ALL_HOSTS, ALL_NODES, Notice, Query, is_told};
use super::packets::{self, solicited_node};
use super::shared::Shared;

/// Buffers for receiving and for sending.
const RECEIVES: u32 = 32;
const SENDS: u32 = 8;
/// Longest wait for a frame. Between waits the thread looks for new requests, and checks the state of the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for what is sent last.
const LAST_SENDS: Duration = Duration::from_secs(2);
/// Time between two requests for an address.
const REQUEST_INTERVAL: Duration = Duration::from_millis(250);
/// Prefix length of link-local addresses.
const LINK_LOCAL_PREFIX: u8 = 64;

/// smoltcp on a raw Ethernet queue.
pub struct Stack {
    interface: Interface,
    phy: Phy,
    start: Instant,
    /// When the last round of requests has begun.
    requested: Option<Instant>,
    /// Whether that round goes on: there were too few buffers.
    is_asking: bool,
    /// The last address of the round so far.
    asked: Option<IpAddr>,
    mac: Mac,
    ipv4: Option<Ipv4Addr>,
    /// The link-local one, and the network's behind it, if that is of IPv6.
    ipv6: Vec<Ipv6Addr>,
}

impl Stack {
    pub fn new(device: &Arc<Device>, network: Option<IpCidr>) -> Result<Self, Error> {
        let mac = device.mac();
        if let Some(network) = network
            && !network.address().is_unicast()
        {
            let given = network.address().to_string();
            return Err(Invalid::NotA { what: "unicast address", given, mend: None }.into());
        }
        let (mut ipv4, mut ipv6) = (None, vec![mac.link_local()]);
        match network.map(|network| network.address().into()) {
            Some(IpAddr::V4(address)) => ipv4 = Some(address),
            Some(IpAddr::V6(address)) => ipv6.push(address),
            None => {}
        }
        let mut options = PhyOptions::default();
        (options.receives, options.sends) = (RECEIVES, SENDS);
        let mut phy = Phy::listen(device, &own_groups(&ipv6), options)?;
        let config = Config::new(EthernetAddress(mac.0).into());
        let mut interface = Interface::new(config, &mut phy, smoltcp::time::Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let link_local = Ipv6Cidr::new(mac.link_local(), LINK_LOCAL_PREFIX);
            // smoltcp has room for two addresses.
            let _ = addresses.push(IpCidr::Ipv6(link_local));
            let _ = network.map(|network| addresses.push(network));
        });
        Ok(Stack {
            interface,
            phy,
            start: Instant::now(),
            requested: None,
            is_asking: false,
            asked: None,
            mac,
            ipv4,
            ipv6,
        })
    }

    /// Runs until it is told to stop, or the queue fails.
    pub fn run(&mut self, shared: &Shared) -> Result<(), Error> {
        let mut sockets = SocketSet::new(vec![]);
        while !shared.lock().stop {
            self.phy.wait(POLL_INTERVAL)?;
            self.process_received(shared, &mut sockets);
            self.send_requests(shared);
            self.listen_to_groups(shared);
            self.tell_of_groups(shared);
        }
        self.finish(shared)
    }

    /// Tells of all groups that were left, and waits until that is on the wire: the queue's end would discard it.
    fn finish(&mut self, shared: &Shared) -> Result<(), Error> {
        let end = Instant::now() + LAST_SENDS;
        while Instant::now() < end {
            if self.tell_of_groups(shared) && self.phy.queue().in_flight().0 == 0 {
                break;
            }
            self.phy.wait(POLL_INTERVAL)?;
        }
        Ok(())
    }

    /// Lets smoltcp read what has come, also meanwhile; learns from each frame, and answers what smoltcp does not.
    fn process_received(&mut self, shared: &Shared, sockets: &mut SocketSet<'_>) {
        let (mac, ipv6) = (self.mac, &self.ipv6);
        let mut replies = Vec::new();
        let mut look = |frame: &[u8]| {
            if let Some(query) = Query::parse(frame) {
                shared.lock().asked(&query, mac.0[5]);
            }
            let parsed = packets::parse(frame, mac, ipv6);
            replies.extend(parsed.reply);
            if let Some((address, mac)) = parsed.learned {
                shared.lock().learn(address, mac);
                shared.changed.notify_all();
            }
        };
        let now = smoltcp::time::Instant::from_micros(self.start.elapsed().as_micros() as i64);
        self.interface.poll(now, &mut Tap { phy: &mut self.phy, look: &mut look }, sockets);
        // Who asked in vain asks again.
        replies.iter().for_each(|reply| _ = self.phy.send(reply));
    }

    /// Sends requests for wanted addresses, once per interval. Where there are fewer buffers than addresses, the round
    /// goes on in the next turn: those in front must not keep the others from their turn.
    fn send_requests(&mut self, shared: &Shared) {
        let mut state = shared.lock();
        if state.wanted.is_empty() {
            (self.requested, self.is_asking) = (None, false);
            return;
        }
        if !self.is_asking {
            if self.requested.is_some_and(|requested| requested.elapsed() < REQUEST_INTERVAL) {
                return;
            }
            (self.requested, self.is_asking, self.asked) = (Some(Instant::now()), true, None);
        }
        let behind = self.asked.map_or(Bound::Unbounded, Bound::Excluded);
        for (address, requested) in state.wanted.range_mut((behind, Bound::Unbounded)) {
            if !self.ask_for(*address) {
                return;
            }
            *requested += 1;
            self.asked = Some(*address);
        }
        self.is_asking = false;
    }

    /// Asks for the MAC address of `address`. Returns false if no buffer is free.
    fn ask_for(&mut self, address: IpAddr) -> bool {
        let request = match address {
            // Without an address of IPv4 there is no way to another.
            IpAddr::V4(target) => self.ipv4.map(|own| packets::arp_request(self.mac, own, target)),
            IpAddr::V6(target) => {
                let own = if target.is_unicast_link_local() { self.ipv6.first() } else { self.ipv6.last() };
                own.map(|own| packets::solicitation(self.mac, *own, target))
            }
        };
        request.is_none_or(|request| self.phy.send(&request))
    }

    /// Listens to the groups that the function is in, if these have changed: queries about one group go to it.
    fn listen_to_groups(&mut self, shared: &Shared) {
        let mut state = shared.lock();
        if !std::mem::take(&mut state.groups_changed) {
            return;
        }
        let mut listened = own_groups(&self.ipv6);
        listened.extend(state.groups.keys().copied().map(Mac::of_group));
        drop(state);
        listened.sort_unstable_by_key(|mac| mac.0);
        listened.dedup();
        if let Err(error) = self.phy.listen_to(&listened) {
            tracing::warn!(%error, "queries about single multicast groups are not heard");
        }
    }

    /// Tells the network of groups that were left, and reports those that are due, as far as there are buffers. Returns
    /// whether that was all.
    fn tell_of_groups(&mut self, shared: &Shared) -> bool {
        let mut state = shared.lock();
        while let Some(group) = state.left.last().copied() {
            // It may have been joined again.
            if !state.groups.contains_key(&group) && !self.tell(Notice::Leave, group) {
                return false;
            }
            state.left.pop();
        }
        for group in state.due() {
            if !self.tell(Notice::Report, group) {
                return false;
            }
            state.reported(group);
        }
        true
    }

    /// Returns false if no buffer is free.
    fn tell(&mut self, notice: Notice, group: IpAddr) -> bool {
        !is_told(group) || self.phy.send(&notice.message(self.mac, self.ipv4, group))
    }
}

/// The network device of smoltcp, whose received frames are looked at before smoltcp reads them: it takes those, too,
/// that come while it works.
struct Tap<'a, F> {
    phy: &'a mut Phy,
    look: &'a mut F,
}

/// A received frame.
struct Tapped<'a, F> {
    frame: RxFrame<'a>,
    look: &'a mut F,
}

impl<F: FnMut(&[u8])> phy::Device for Tap<'_, F> {
    type RxToken<'a>
        = Tapped<'a, F>
    where
        Self: 'a;
    type TxToken<'a>
        = TxSlot<'a>
    where
        Self: 'a;

    fn receive(&mut self, now: smoltcp::time::Instant) -> Option<(Tapped<'_, F>, TxSlot<'_>)> {
        let (frame, slot) = self.phy.receive(now)?;
        Some((Tapped { frame, look: self.look }, slot))
    }

    fn transmit(&mut self, now: smoltcp::time::Instant) -> Option<TxSlot<'_>> {
        self.phy.transmit(now)
    }

    fn capabilities(&self) -> phy::DeviceCapabilities {
        self.phy.capabilities()
    }
}

impl<F: FnMut(&[u8])> phy::RxToken for Tapped<'_, F> {
    fn consume<R, G: FnOnce(&[u8]) -> R>(self, read: G) -> R {
        self.frame.consume(|frame| {
            (self.look)(frame);
            read(frame)
        })
    }
}

/// MAC addresses of the groups that a host with these IPv6 addresses is in.
fn own_groups(own: &[Ipv6Addr]) -> Vec<Mac> {
    let of_all = [ALL_HOSTS.into(), ALL_NODES.into()];
    let solicited = own.iter().map(|address| solicited_node(*address).into());
    of_all.into_iter().chain(solicited).map(Mac::of_group).collect()
}
