//! Ports of the kernel's RDMA devices, from netlink (`RDMA_NL_NLDEV`): what `rdma link` shows.
//!
//! Sysfs has most of it too, but names a port's network interface only through its GIDs, and a port may have none.

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_TYPE_MASK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NlasIterator, parse_string, parse_u8, parse_u32,
};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_RDMA;

use super::abi::Number;

/// Constants of the interface, for comparison with the headers (`rdma/rdma_netlink.h`).
pub const NUMBERS: &[Number] = &[
    number("RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET)", GET),
    number("RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_PORT_GET)", PORT_GET),
    number("RDMA_NLDEV_ATTR_DEV_INDEX", DEV_INDEX),
    number("RDMA_NLDEV_ATTR_DEV_NAME", DEV_NAME),
    number("RDMA_NLDEV_ATTR_PORT_INDEX", PORT_INDEX),
    number("RDMA_NLDEV_ATTR_PORT_STATE", PORT_STATE),
    number("RDMA_NLDEV_ATTR_PORT_PHYS_STATE", PORT_PHYS_STATE),
    number("RDMA_NLDEV_ATTR_NDEV_NAME", NDEV_NAME),
];

const fn number(name: &'static str, value: u16) -> Number {
    Number { name, value: value as u64 }
}

/// Message type of a device query and its replies.
const GET: u16 = 5 << 10 | 1;
/// Message type of a port query and its replies.
const PORT_GET: u16 = 5 << 10 | 5;
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const PORT_STATE: u16 = 12;
const PORT_PHYS_STATE: u16 = 13;
const NDEV_NAME: u16 = 51;

/// Size of a message header.
const HEADER: usize = 16;

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaLink {
    /// The device's name, such as `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub port: u8,
    /// Such as `ACTIVE` or `DOWN`.
    pub state: String,
    /// Such as `LinkUp` or `Disabled`.
    pub physical_state: String,
    /// Its network interface, if that is in this process's network namespace.
    pub interface: Option<String>,
}

impl RdmaLink {
    /// All ports of all devices.
    ///
    /// # Errors
    /// The system does not have the interface (module ib_core is not loaded), this process may not use it, or its reply
    /// is invalid.
    pub fn all() -> io::Result<Vec<Self>> {
        let mut socket = Socket::new(NETLINK_RDMA)?;
        socket.bind_auto()?;
        // The reply is available at once, so reads never wait.
        socket.set_non_blocking(true)?;
        let mut links = Vec::new();
        for device in dump(&socket, GET, &[])? {
            let (Some(index), Some(name)) = (device.number(DEV_INDEX), device.text(DEV_NAME)) else { continue };
            let asked = [DefaultNla::new(DEV_INDEX, index.to_ne_bytes().to_vec())];
            links.extend(dump(&socket, PORT_GET, &asked)?.iter().filter_map(|port| port.link(&name)));
        }
        Ok(links)
    }
}

/// The attributes of one message.
#[derive(Debug)]
struct Answer(BTreeMap<u16, Vec<u8>>);

impl Answer {
    fn read(payload: &[u8]) -> io::Result<Self> {
        let mut attributes = BTreeMap::new();
        for attribute in NlasIterator::new(payload) {
            let attribute = attribute.map_err(unreadable)?;
            attributes.insert(attribute.kind() & NLA_TYPE_MASK, attribute.value().to_vec());
        }
        Ok(Answer(attributes))
    }

    fn number(&self, attribute: u16) -> Option<u32> {
        parse_u32(self.0.get(&attribute)?).ok()
    }

    fn text(&self, attribute: u16) -> Option<String> {
        parse_string(self.0.get(&attribute)?).ok()
    }

    fn link(&self, device: &str) -> Option<RdmaLink> {
        let state = |attribute| parse_u8(self.0.get(&attribute)?).ok();
        Some(RdmaLink {
            device: device.into(),
            port: u8::try_from(self.number(PORT_INDEX)?).ok()?,
            state: name_of(state(PORT_STATE)?, &["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"]),
            physical_state: name_of(
                state(PORT_PHYS_STATE)?,
                &[
                    "<unknown>",
                    "Sleep",
                    "Polling",
                    "Disabled",
                    "PortConfigurationTraining",
                    "LinkUp",
                    "LinkErrorRecovery",
                    "Phy Test",
                ],
            ),
            interface: self.text(NDEV_NAME),
        })
    }
}

/// The name that sysfs uses.
fn name_of(state: u8, names: &[&str]) -> String {
    names.get(usize::from(state)).map_or_else(|| state.to_string(), |name| (*name).to_owned())
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A dump request of type `kind`, with `attributes`.
fn question(kind: u16, attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER + attributes.buffer_len()];
    attributes.emit(&mut bytes[HEADER..]);
    let len = bytes.len() as u32;
    let mut message = NetlinkBuffer::new(&mut bytes);
    message.set_length(len);
    message.set_message_type(kind);
    message.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
    bytes
}

fn dump(socket: &Socket, kind: u16, attributes: &[DefaultNla]) -> io::Result<Vec<Answer>> {
    socket.send_to(&question(kind, attributes), &netlink_sys::SocketAddr::new(0, 0), 0)?;
    let mut answers = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if read(&bytes, kind, &mut answers)? {
            return Ok(answers);
        }
    }
}

/// Reads the messages of a datagram. Returns whether the last one was among them.
fn read(bytes: &[u8], kind: u16, answers: &mut Vec<Answer>) -> io::Result<bool> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let message = NetlinkBuffer::new_checked(rest).map_err(unreadable)?;
        match message.message_type() {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            other if other == kind => answers.push(Answer::read(message.payload())?),
            _ => {}
        }
        let len = (message.length() as usize).next_multiple_of(4);
        rest = rest.get(len..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of `kind` with attributes.
    fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let attributes: Vec<_> =
            attributes.iter().map(|(kind, value)| DefaultNla::new(*kind, value.to_vec())).collect();
        question(kind, &attributes)
    }

    #[test]
    fn ports_are_read_and_the_last_message_ends_them() {
        let port: &[(u16, &[u8])] = &[
            (PORT_INDEX, &[1, 0, 0, 0]),
            (PORT_STATE, &[4]),
            (PORT_PHYS_STATE, &[5]),
            (NDEV_NAME, b"eth0\0"),
            (999, &[1, 2, 3]),
        ];
        let mut bytes = message(PORT_GET, port);
        bytes.extend(message(NLMSG_DONE, &[]));
        let mut answers = Vec::new();
        assert!(read(&bytes, PORT_GET, &mut answers).unwrap());
        let link = answers[0].link("mlx5_0").unwrap();
        assert_eq!((link.port, link.state.as_str(), link.physical_state.as_str()), (1, "ACTIVE", "LinkUp"));
        assert_eq!(link.interface.as_deref(), Some("eth0"));
    }

    #[test]
    fn errors_and_garbage_are_errors() {
        let mut bytes = message(NLMSG_ERROR, &[]);
        bytes.extend((-libc::EPERM).to_ne_bytes());
        let len = bytes.len() as u32;
        NetlinkBuffer::new(&mut bytes).set_length(len);
        let error = read(&bytes, GET, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        for len in 1..bytes.len() {
            assert!(read(&bytes[..len], GET, &mut Vec::new()).is_err(), "{len} bytes of a message");
        }
        let mut zero = message(GET, &[]);
        NetlinkBuffer::new(&mut zero).set_length(0);
        assert!(read(&zero, GET, &mut Vec::new()).is_err(), "a length without end");
    }
}
