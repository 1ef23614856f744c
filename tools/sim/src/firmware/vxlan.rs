//! UDP ports of VXLAN. PRM "ADD_VXLAN_UDP_DPORT".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::syndromes::Syndrome;
use crate::function::Function;

fn check(f: &Function) -> Result<(), Syndrome> {
    let announced = f.nic.firmware.capabilities().ethernet().tunnel_stateless_vxlan();
    announced.then_some(()).ok_or(Syndrome::CapabilityNotAnnounced)
}

/// `ADD_VXLAN_UDP_DPORT`: a port that is one already stays one.
pub(super) fn add(f: &mut Function, command: &AddVxlanUdpDportIn) -> Answer<AddVxlanUdpDportOut> {
    check(f)?;
    let most = f.nic.firmware.capabilities().ethernet().max_vxlan_udp_ports();
    if !f.nic.objects.steering.vxlan_ports.add(command.vxlan_udp_port(), most) {
        return Err(Syndrome::TooManyVxlanPorts.into());
    }
    Ok(AddVxlanUdpDportOut::ZERO)
}

/// `DELETE_VXLAN_UDP_DPORT`: the port of VXLAN's standard stays one.
pub(super) fn delete(f: &mut Function, command: &DeleteVxlanUdpDportIn) -> Answer<DeleteVxlanUdpDportOut> {
    check(f)?;
    if !f.nic.objects.steering.vxlan_ports.remove(command.vxlan_udp_port()) {
        return Err(Syndrome::NoSuchVxlanPort.into());
    }
    Ok(DeleteVxlanUdpDportOut::ZERO)
}
