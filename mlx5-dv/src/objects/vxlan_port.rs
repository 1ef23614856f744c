//! UDP ports at which the card looks into VXLAN, beside that of the standard.

use std::sync::Arc;

use mlx5_prm::caps::PerProtocolNetworkingOffloadCaps;
use mlx5_prm::cmd::{AddVxlanUdpDportIn, DeleteVxlanUdpDportIn};

use super::object::{DestroyError, Object, destroy_sole};
use super::tunnel::VXLAN_PORT;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};

/// A UDP port whose datagrams the function takes for VXLAN, as it always does those of port 4789: it hashes, checks and
/// matches what is inside, and divides it. Dropping it ends that. PRM "ADD_VXLAN_UDP_DPORT".
///
/// [`FlowMatch::vxlan_at`](super::FlowMatch::vxlan_at) matches its frames, and
/// [`TunnelHeaders::of_ports`](super::TunnelHeaders::of_ports) finds their headers.
///
/// The function has one list of ports. On DevX it is the kernel's as well, which adds the ports of its own VXLAN
/// devices: dropping a port that such a device has takes it from both.
#[derive(Debug)]
pub struct VxlanPort {
    port: u16,
    object: Object,
}

impl VxlanPort {
    /// Adds `port`. It may be added once at a time for each `Device`: share the `Arc`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card that does not look into VXLAN; [`Error::Invalid`] for a port that is one of
    /// VXLAN already, or if there is no room for another (`max_vxlan_udp_ports`); [`Error::Command`], [`Error::Io`].
    pub fn add(device: &Arc<Device>, port: u16) -> Result<Arc<Self>, Error> {
        let most = most(device)?;
        let mut taken = device.vxlan_ports();
        if port == VXLAN_PORT || taken.contains(&port) {
            let (by, mend) = match port {
                VXLAN_PORT => ("the standard", "it needs not be added"),
                _ => ("another VxlanPort", "share that one"),
            };
            return Err(Invalid::Taken { what: format!("UDP port {port}"), by: by.into(), mend }.into());
        }
        if taken.len() >= most {
            let (given, limit) = (taken.len() as u64 + 1, 0..=most as u64);
            let full = Invalid::out_of_range("VXLAN ports beside 4789", given, limit, "this card");
            return Err(full.capability("max_vxlan_udp_ports").into());
        }
        let mut command = AddVxlanUdpDportIn::default();
        command.w().vxlan_udp_port(port);
        let (object, _) = Object::create(device, &command, &format!("VXLAN port {port}"), |_| {
            let mut end = DeleteVxlanUdpDportIn::default();
            end.w().vxlan_udp_port(port);
            (end, format!("VXLAN port {port}"))
        })?;
        taken.insert(port);
        drop(taken);
        Ok(Arc::new(VxlanPort { port, object }))
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Removes the port. On an error it stays one, and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, VxlanPort::remove)
    }

    /// A port that could not be removed stays taken.
    fn remove(&mut self) -> Result<(), CommandError> {
        if self.object.is_alive() {
            let device = Arc::clone(self.object.device());
            let mut taken = device.vxlan_ports();
            self.object.destroy()?;
            taken.remove(&self.port);
        }
        Ok(())
    }
}

impl Drop for VxlanPort {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::error!(%error, "port {} is still one of VXLAN", self.port);
        }
    }
}

/// How many ports can be added. The card counts that of the standard.
fn most(device: &Device) -> Result<usize, Error> {
    let caps = device.caps().current(CapPage::Ethernet).unwrap_or(PerProtocolNetworkingOffloadCaps::ZERO);
    let (of_vxlan, ports) = (caps.tunnel_stateless_vxlan(), caps.max_vxlan_udp_ports());
    let lacking = [("tunnel_stateless_vxlan", !of_vxlan), ("max_vxlan_udp_ports", ports == 0)];
    match lacking.into_iter().find(|(_, lacks)| *lacks) {
        Some((capability, _)) => Err(Error::Unsupported { what: "UDP ports of VXLAN".into(), capability }),
        None => Ok(usize::from(ports) - 1),
    }
}
