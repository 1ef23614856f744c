//! A host of its own on a raw Ethernet queue: TCP by smoltcp, with calls that wait.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::{Device, Mac};
use mlx5_neighbours::packets::solicited_node;
use mlx5_neighbours::{Ipv4Cidr, Network};
use mlx5_smoltcp::{Phy, PhyOptions};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::wire::EthernetAddress;

use crate::pingpong::Failure;

/// Bytes of a socket's buffers: the largest window.
const WINDOW: usize = 1 << 20;
/// Longest sleep of a wait.
const NAP: Duration = Duration::from_millis(50);
/// Timeout of a wait in which nothing arrives or leaves.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for the last acknowledgement.
const GRACE: Duration = Duration::from_secs(2);

/// A host, and its sockets.
pub struct Stack {
    phy: Phy,
    interface: Interface,
    sockets: SocketSet<'static>,
    start: Instant,
    next_port: u16,
}

impl Stack {
    /// The host `network` on `phy`, of `device`'s address.
    pub fn over(device: &Arc<Device>, mut phy: Phy, network: Network) -> Self {
        let config = Config::new(EthernetAddress(device.mac().0).into());
        let mut interface = Interface::new(config, &mut phy, smoltcp::time::Instant::ZERO);
        // smoltcp has room for two addresses.
        interface.update_ip_addrs(|addresses| _ = addresses.push(network.cidr()));
        // smoltcp has room for two routes.
        let _ = match network.gateway() {
            Some(IpAddr::V4(gateway)) => interface.routes_mut().add_default_ipv4_route(gateway),
            Some(IpAddr::V6(gateway)) => interface.routes_mut().add_default_ipv6_route(gateway),
            None => Ok(None),
        };
        Stack { phy, interface, sockets: SocketSet::new(vec![]), start: Instant::now(), next_port: 49152 }
    }

    /// The host `network` on a queue of `device`.
    pub fn new(device: &Arc<Device>, network: Network) -> Result<Self, Failure> {
        Ok(Self::over(device, Phy::listen(device, &groups_of(network), PhyOptions::default())?, network))
    }

    /// The network device.
    pub fn phy(&self) -> &Phy {
        &self.phy
    }

    fn add(&mut self) -> SocketHandle {
        let buffer = || SocketBuffer::new(vec![0; WINDOW]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Cubic);
        self.sockets.add(socket)
    }

    /// A socket.
    pub fn socket(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// A socket that takes a connection to `port`.
    pub fn listen(&mut self, port: u16) -> Result<SocketHandle, Failure> {
        let handle = self.add();
        self.socket(handle).listen(port)?;
        Ok(handle)
    }

    /// Waits until the socket has its connection.
    pub fn accept(&mut self, handle: SocketHandle, patience: Duration) -> Result<(), Failure> {
        self.until_within(patience, "a connection", |stack| match stack.socket(handle).state() {
            State::Closed => Some(Err("the connection was refused".into())),
            State::Listen | State::SynSent | State::SynReceived => None,
            _ => Some(Ok(())),
        })?
    }

    /// Connects to `remote`.
    pub fn connect(&mut self, remote: SocketAddr) -> Result<SocketHandle, Failure> {
        let handle = self.add();
        let local = self.next_port;
        self.next_port = local.checked_add(1).unwrap_or(49152);
        let context = self.interface.context();
        let socket = self.sockets.get_mut::<Socket>(handle);
        socket.connect(context, (remote.ip(), remote.port()), local)?;
        self.accept(handle, PATIENCE)?;
        Ok(handle)
    }

    /// Lets the stack receive and send; sleeps if there is nothing to do.
    fn turn(&mut self) -> Result<(), Failure> {
        let now = smoltcp::time::Instant::from_micros(self.start.elapsed().as_micros() as i64);
        self.interface.poll(now, &mut self.phy, &mut self.sockets);
        let delay = self.interface.poll_delay(now, &self.sockets).map_or(NAP, |delay| NAP.min(delay.into()));
        self.phy.wait(delay)?;
        Ok(())
    }

    /// Runs the stack until `ready` returns something; `what` is waited for.
    pub fn until<T>(&mut self, what: &str, ready: impl FnMut(&mut Self) -> Option<T>) -> Result<T, Failure> {
        self.until_within(PATIENCE, what, ready)
    }

    fn until_within<T>(
        &mut self,
        patience: Duration,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Failure> {
        let begin = Instant::now();
        loop {
            if let Some(result) = ready(self) {
                return Ok(result);
            }
            if begin.elapsed() > patience {
                return Err(format!("no {what} within {} s", patience.as_secs()).into());
            }
            self.turn()?;
        }
    }

    /// Fills `bytes` from the socket.
    pub fn read(&mut self, handle: SocketHandle, bytes: &mut [u8]) -> Result<(), Failure> {
        let mut got = 0;
        while got < bytes.len() {
            got += self.until("data", |stack| {
                let socket = stack.socket(handle);
                match socket.can_recv() {
                    true => Some(socket.recv_slice(&mut bytes[got..]).map_err(Failure::from)),
                    false if socket.may_recv() => None,
                    false => Some(Err("the other end closed the connection".into())),
                }
            })??;
        }
        Ok(())
    }

    /// Sends `bytes` by the socket.
    pub fn write(&mut self, handle: SocketHandle, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let sent = self.until("room to send", |stack| {
                let socket = stack.socket(handle);
                match socket.can_send() {
                    true => Some(socket.send_slice(bytes).map_err(Failure::from)),
                    false if socket.may_send() => None,
                    false => Some(Err("the other end closed the connection".into())),
                }
            })??;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Closes the socket. What was sent is acknowledged by then, or the other end has closed its own.
    pub fn close(&mut self, handle: SocketHandle) {
        self.socket(handle).close();
        let ended = [State::Closed, State::FinWait2, State::TimeWait];
        let closed = |stack: &mut Self| ended.contains(&stack.socket(handle).state()).then_some(());
        // The other end may be gone before it acknowledges the last.
        let _ = self.until_within(GRACE, "end of the connection", closed);
        self.sockets.remove(handle);
    }
}

/// The groups by which a host of `network` is found: those of IPv6's solicitations, as ARP's requests are broadcast.
pub fn groups_of(network: Network) -> Vec<Mac> {
    match network.address() {
        IpAddr::V4(_) => vec![],
        IpAddr::V6(address) => vec![Mac::of_group(solicited_node(address).into())],
    }
}

/// The address of a host in `network`, for one that is made up.
pub fn host(network: [u8; 3], number: u8) -> Network {
    let [a, b, c] = network;
    Ipv4Cidr::new(Ipv4Addr::new(a, b, c, number), 24).into()
}
