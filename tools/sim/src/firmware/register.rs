//! Registers, read and written by `ACCESS_REGISTER`. PRM "ACCESS_REGISTER".

use mlx5_prm::cmd::{AccessRegisterIn, AccessRegisterOut, AccessRegisterUserIn};
use mlx5_prm::layout::Layout;
use mlx5_prm::reg::{
    HostEndianness, MpcntReg, MtutcReg, NodeDesc, PaosReg, PcieCounterGroup, PfccReg, PmtuReg, PtysReg, RegisterId,
};

use super::answer::Answer;
use super::link::{PORT, own_port};
use super::syndromes::Syndrome;
use super::{clock, component, link, port_counter, vport};
use crate::function::Function;
use crate::wire::Port;

/// `op_mod`.
const WRITE: u16 = 0;
const READ: u16 = 1;
/// `eth_proto_*`: 100GBASE-CR4, -SR4, -KR4, -LR4.
const ETH_100G: u32 = 1 << 20 | 1 << 21 | 1 << 22 | 1 << 23;
/// `eth_proto_oper`: 100GBASE-CR4.
const ETH_100G_CR4: u32 = 1 << 20;
/// `ext_eth_proto_*`: 100G on four lanes.
const EXT_100G_4: u32 = 1 << 9;
/// `proto_mask`: Ethernet.
const PROTO_ETHERNET: u8 = 1 << 2;
/// `admin_status` and `oper_status` of `PAOS`.
const UP: u8 = 1;
const DOWN: u8 = 2;

/// `ACCESS_REGISTER`.
pub(super) fn access(
    f: &mut Function,
    command: &AccessRegisterIn,
    data: &[u8],
    room: usize,
) -> Answer<(AccessRegisterOut, Vec<u8>)> {
    let write = match command.op_mod() {
        WRITE => true,
        READ => false,
        _ => return Err(Syndrome::UnknownOpMod.into()),
    };
    let data = match RegisterId::from_number(u32::from(command.register_id())) {
        RegisterId::NodeDesc => register(f, data, write, node_desc)?,
        RegisterId::HostEndianness => register(f, data, write, host_endianness)?,
        RegisterId::Paos => register(f, data, write, paos)?,
        RegisterId::Pmtu => register(f, data, write, pmtu)?,
        RegisterId::Ptys => register(f, data, write, ptys)?,
        RegisterId::Pfcc => register(f, data, write, pfcc)?,
        RegisterId::Ppcnt => register(f, data, write, port_counter::ppcnt)?,
        RegisterId::Mpcnt => register(f, data, write, mpcnt)?,
        RegisterId::Mcam => register(f, data, write, component::mcam)?,
        RegisterId::Mtutc => register(f, data, write, clock::mtutc)?,
        RegisterId::Mcqs => register(f, data, write, component::mcqs)?,
        RegisterId::Mcqi => component::mcqi(f, data, write)?,
        _ => return Err(Syndrome::UnknownRegister.into()),
    };
    if room < data.len() {
        return Err(Syndrome::OutputTooShort.into());
    }
    Ok((AccessRegisterOut::ZERO, data))
}

/// `ACCESS_REGISTER_USER`, by which others than the function's driver read: the real-time clock's register alone. DPDK
/// gives no content to what it reads.
pub(super) fn access_by_user(
    f: &mut Function,
    command: &AccessRegisterUserIn,
    _: &[u8],
    room: usize,
) -> Answer<(AccessRegisterOut, Vec<u8>)> {
    if !f.nic.firmware.capabilities().general().access_register_user() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    match (command.op_mod(), RegisterId::from_number(u32::from(command.register_id()))) {
        (READ, RegisterId::Mtutc) => {}
        (READ, _) => return Err(Syndrome::UnknownRegister.into()),
        (WRITE, _) => return Err(Syndrome::RegisterReadOnly.into()),
        _ => return Err(Syndrome::UnknownOpMod.into()),
    }
    if room < MtutcReg::SIZE {
        return Err(Syndrome::OutputTooShort.into());
    }
    let register = clock::mtutc(f, &MtutcReg::ZERO, false)?;
    Ok((AccessRegisterOut::ZERO, register.as_bytes().to_vec()))
}

fn register<R: Layout>(
    f: &mut Function,
    data: &[u8],
    write: bool,
    run: fn(&mut Function, &R, bool) -> Result<R, Syndrome>,
) -> Result<Vec<u8>, Syndrome> {
    let given = R::read(data).ok_or(Syndrome::InputTooShort)?;
    Ok(Layout::as_bytes(&run(f, &given, write)?).to_vec())
}

/// Host byte order, used for the operands of atomics if the atomic capabilities say so. PRM `register_host_endianness`.
fn host_endianness(f: &mut Function, given: &HostEndianness, write: bool) -> Result<HostEndianness, Syndrome> {
    if write {
        f.nic.firmware.host_endianness = *given;
    }
    Ok(f.nic.firmware.host_endianness)
}

/// The node description: what the driver set, otherwise the model's.
fn node_desc(f: &mut Function, given: &NodeDesc, write: bool) -> Result<NodeDesc, Syndrome> {
    if write {
        f.nic.firmware.node_desc = *given.node_description();
    }
    let mut register = NodeDesc::ZERO;
    register.w().node_description(&f.nic.firmware.node_desc);
    Ok(register)
}

/// Administrative and operational port status. PRM `paos_reg`.
fn paos(f: &mut Function, given: &PaosReg, write: bool) -> Result<PaosReg, Syndrome> {
    own_port(given.local_port())?;
    if write {
        match given.admin_status() {
            UP => f.nic.objects.vport.port_up = true,
            DOWN => f.nic.objects.vport.port_up = false,
            _ => return Err(Syndrome::RegisterReadOnly),
        }
        link::follow(f);
    }
    let status = |up| if up { UP } else { DOWN };
    let (admin, oper) = (status(f.nic.objects.vport.port_up), status(f.nic.port.link_up));
    let mut register = PaosReg::ZERO;
    register.w().local_port(PORT).admin_status(admin).oper_status(oper);
    Ok(register)
}

/// Port MTU: of Ethernet frames with their headers, not of a RoCE path. A new `admin_mtu` is in force at once. Of an
/// InfiniBand port it is that of a packet's payload. PRM `pmtu_reg`.
fn pmtu(f: &mut Function, given: &PmtuReg, write: bool) -> Result<PmtuReg, Syndrome> {
    const INFINIBAND: u16 = 4096;
    own_port(given.local_port())?;
    if vport::is_infiniband(f) {
        let mut register = PmtuReg::ZERO;
        register.w().local_port(PORT).max_mtu(INFINIBAND).admin_mtu(INFINIBAND).oper_mtu(INFINIBAND);
        return if write { Err(Syndrome::RegisterReadOnly) } else { Ok(register) };
    }
    if write {
        if !vport::MTU.contains(&given.admin_mtu()) {
            return Err(Syndrome::PortMtuRange);
        }
        f.nic.port.mtu = given.admin_mtu();
    }
    let mtu = f.nic.port.mtu;
    let mut register = PmtuReg::ZERO;
    register.w().local_port(PORT).max_mtu(Port::MAX_MTU).admin_mtu(mtu).oper_mtu(mtu);
    Ok(register)
}

/// Flow control: neither pause nor PFC is supported. PRM `pfcc_reg`.
fn pfcc(_: &mut Function, given: &PfccReg, write: bool) -> Result<PfccReg, Syndrome> {
    own_port(given.local_port())?;
    let wants_some = given.pptx() || given.pprx() || given.pfctx() != 0 || given.pfcrx() != 0;
    if write && wants_some {
        return Err(Syndrome::RegisterReadOnly);
    }
    let mut register = PfccReg::ZERO;
    register.w().local_port(PORT);
    Ok(register)
}

/// Counters of PCIe, all zero: the host's memory is at hand, so that no transfer fails, waits or overflows. PRM
/// `mpcnt_reg`.
fn mpcnt(_: &mut Function, given: &MpcntReg, write: bool) -> Result<MpcntReg, Syndrome> {
    if write || given.clr() {
        return Err(Syndrome::RegisterReadOnly);
    }
    match PcieCounterGroup::from_number(given.grp().into()) {
        PcieCounterGroup::Performance => Ok(MpcntReg::ZERO),
        PcieCounterGroup::Unknown(_) => Err(Syndrome::CounterGroup),
    }
}

/// Port type and speed: one fixed speed. PRM `ptys_reg`.
fn ptys(f: &mut Function, given: &PtysReg, write: bool) -> Result<PtysReg, Syndrome> {
    own_port(given.local_port())?;
    if write {
        return Err(Syndrome::RegisterReadOnly);
    }
    let up = f.nic.port.link_up;
    let mut register = PtysReg::ZERO;
    register.w().local_port(PORT).proto_mask(given.proto_mask() & PROTO_ETHERNET);
    if given.proto_mask() & PROTO_ETHERNET != 0 {
        register
            .w()
            .eth_proto_capability(ETH_100G)
            .eth_proto_admin(ETH_100G)
            .eth_proto_oper(if up { ETH_100G_CR4 } else { 0 })
            .ext_eth_proto_capability(EXT_100G_4)
            .ext_eth_proto_admin(EXT_100G_4)
            .ext_eth_proto_oper(if up { EXT_100G_4 } else { 0 });
    }
    Ok(register)
}
