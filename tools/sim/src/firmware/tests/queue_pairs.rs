//! Queue pairs: creation, transitions to RTS, and all refusals.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{Ads, Qpc, RoceAddrLayout};
use mlx5_prm::layout::Be64;
use mlx5_prm::values::{PathMtu, QpState, ServiceType};

use super::client::{Client, Parents};
use crate::firmware::syndromes::Syndrome;
use crate::profile::Profile;

const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];

fn changed(command: &WithTail<CreateQpIn, Be64>, change: impl FnOnce(&mut Qpc)) -> WithTail<CreateQpIn, Be64> {
    let mut command = command.clone();
    let mut context = *command.command.qpc();
    change(&mut context);
    command.command.w().qpc(&context);
    command
}

fn set_gid(client: &mut Client) {
    let mut layout = RoceAddrLayout::ZERO;
    layout.w().source_l3_address(&GID).roce_version(2).source_mac_47_32(0x0200).source_mac_31_0(5);
    let mut command = SetRoceAddressIn::default();
    command.w().roce_address_index(0).roce_address(&layout);
    client.exec(&command).unwrap();
}

/// A context with all fields of the three transitions.
fn context() -> Qpc {
    let mut path = Ads::ZERO;
    path.w().vhca_port_num(1).rgid_rip(&GID).rmac_47_32(0x0200).rmac_31_0(9).udp_sport(0xc001).hop_limit(64);
    path.w().ack_timeout(14);
    let mut context = Qpc::ZERO;
    context
        .w()
        .primary_address_path(&path)
        .mtu(PathMtu::Mtu4096)
        .log_msg_max(30)
        .remote_qpn(0x123)
        .next_rcv_psn(0x1111)
        .next_send_psn(0x2222)
        .log_rra_max(2)
        .log_sra_max(3)
        .min_rnr_nak(12)
        .retry_count(7)
        .rnr_retry(6)
        .rwe(true)
        .rre(true);
    context
}

fn to_init(qpn: u32, context: &Qpc) -> Rst2initQpIn {
    let mut command = Rst2initQpIn::default();
    command.w().qpn(qpn).qpc(context);
    command
}

fn to_rtr(qpn: u32, context: &Qpc) -> Init2rtrQpIn {
    let mut command = Init2rtrQpIn::default();
    command.w().qpn(qpn).qpc(context);
    command
}

fn to_rts(qpn: u32, context: &Qpc) -> Rtr2rtsQpIn {
    let mut command = Rtr2rtsQpIn::default();
    command.w().qpn(qpn).qpc(context);
    command
}

fn made(client: &mut Client) -> (Parents, u32) {
    let parents = client.parents();
    client.ready_for_roce();
    set_gid(client);
    let command = client.qp(&parents);
    let qpn = client.exec(&command).unwrap().reply.qpn();
    (parents, qpn)
}

#[test]
fn a_walk_to_rts_and_back() {
    let mut client = Client::up();
    let (_, qpn) = made(&mut client);
    let context = context();
    let c = &mut client;
    assert_eq!(c.refused(&to_rtr(qpn, &context)), Syndrome::WrongState);
    assert_eq!(c.refused(&to_rts(qpn, &context)), Syndrome::WrongState);
    c.exec(&to_init(qpn, &context)).unwrap();
    assert_eq!(c.refused(&to_init(qpn, &context)), Syndrome::WrongState);
    c.exec(&to_rtr(qpn, &context)).unwrap();
    c.exec(&to_rts(qpn, &context)).unwrap();

    let qp = c.f.queues.qps.get(qpn).unwrap();
    assert_eq!((qp.state, qp.mtu, qp.remote_qpn), (QpState::Rts, PathMtu::Mtu4096, 0x123));
    assert_eq!((qp.retry_count, qp.rnr_retry, qp.min_rnr_nak), (7, 6, 12));
    assert_eq!((qp.log_sra_max, qp.log_rra_max), (3, 2));
    assert_eq!((qp.remote_write, qp.remote_read, qp.remote_atomic), (true, true, false));
    assert_eq!((qp.path.rgid, qp.path.rmac, qp.path.udp_sport), (GID, [2, 0, 0, 0, 0, 9], 0xc001));
    assert_eq!((qp.path.ack_timeout, qp.path.hop_limit, qp.path.port), (14, 64, 1));

    let mut query = QueryQpIn::default();
    query.w().qpn(qpn);
    let answer = c.exec(&query).unwrap();
    let kept = answer.qpc();
    assert_eq!((kept.state(), kept.next_rcv_psn(), kept.next_send_psn()), (QpState::Rts, 0x1111, 0x2222));
    assert_eq!((kept.log_sq_size(), kept.cqn_snd()), (4, 1));

    let mut rights = Rts2rtsQpIn::default();
    let mut fewer = context;
    fewer.w().rwe(false).rre(true);
    rights.w().qpn(qpn).qpc(&fewer).opt_param_mask(1 << 3);
    c.exec(&rights).unwrap();
    let qp = c.f.queues.qps.get(qpn).unwrap();
    assert_eq!((qp.remote_write, qp.remote_read), (false, true));
    rights.w().opt_param_mask(1 << 5);
    assert_eq!(c.refused(&rights), Syndrome::OptParamMask);

    let counter = c.exec(&AllocQCounterIn::default()).unwrap().counter_set_id();
    fewer.w().counter_set_id(counter);
    rights.w().qpc(&fewer).opt_param_mask(1 << 25);
    c.exec(&rights).unwrap();
    let qp = c.f.queues.qps.get(qpn).unwrap();
    assert_eq!((qp.counter_set_id, qp.remote_write), (counter, false));
    fewer.w().counter_set_id(counter + 1);
    rights.w().qpc(&fewer);
    assert_eq!(c.refused(&rights), Syndrome::NoSuchCounter);

    let mut error = Qp2errIn::default();
    error.w().qpn(qpn);
    c.exec(&error).unwrap();
    assert_eq!(c.f.queues.qps.get(qpn).unwrap().state, QpState::Err);
    let mut reset = Qp2rstIn::default();
    reset.w().qpn(qpn);
    c.exec(&reset).unwrap();
    assert_eq!(c.f.queues.qps.get(qpn).unwrap().state, QpState::Rst);
    c.exec(&to_init(qpn, &context)).unwrap();
    assert_eq!(c.violations(), [] as [&str; 0]);
}

#[test]
fn rings_lie_behind_each_other() {
    let mut client = Client::up();
    let parents = client.parents();
    let command = client.qp(&parents);
    let page = command.tail[0].get();
    let qpn = client.exec(&command).unwrap().reply.qpn();
    assert_eq!(qpn, 64);
    let qp = client.f.queues.qps.get(qpn).unwrap();
    let (send, recv) = (qp.send.as_ref().unwrap(), qp.recv.as_ref().unwrap());
    assert_eq!((recv.memory.iova(0), recv.log_size, recv.log_stride), (Some((page, 4096)), 4, 6));
    assert_eq!((send.memory.iova(0), send.log_size), (Some((page + 1024, 3072)), 4));
    assert_eq!((qp.doorbell.iova, qp.user_index), (parents.doorbells + 64, None));
    let no_recv = changed(&command, |context| _ = context.w().rq_type(3).user_index(7));
    let qpn = client.exec(&no_recv).unwrap().reply.qpn();
    let qp = client.f.queues.qps.get(qpn).unwrap();
    assert!(qp.recv.is_none());
    assert_eq!((qp.send.as_ref().unwrap().memory.iova(0), qp.user_index), (Some((page, 4096)), Some(7)));
}

#[test]
fn queue_pairs_that_cannot_be() {
    let mut client = Client::up();
    let parents = client.parents();
    let good = client.qp(&parents);
    let refuse = |client: &mut Client, edit: fn(&mut Qpc)| client.refused(&changed(&good, edit));
    let c = &mut client;
    assert_eq!(refuse(c, |context| _ = context.w().st(ServiceType::Dct)), Syndrome::Service);
    assert_eq!(
        refuse(c, |context| _ = context.w().pm_state(mlx5_prm::values::PathMigration::Armed)),
        Syndrome::Migration
    );
    assert_eq!(refuse(c, |context| _ = context.w().pd(9)), Syndrome::NoSuchPd);
    assert_eq!(refuse(c, |context| _ = context.w().uar_page(9)), Syndrome::NoSuchUar);
    assert_eq!(refuse(c, |context| _ = context.w().cqn_rcv(9)), Syndrome::NoSuchCq);
    assert_eq!(refuse(c, |context| _ = context.w().cqn_snd(9)), Syndrome::NoSuchCq);
    assert_eq!(refuse(c, |context| _ = context.w().rq_type(2)), Syndrome::RqType);
    assert_eq!(refuse(c, |context| _ = context.w().rq_type(3).no_sq(true)), Syndrome::NoQueues);
    assert_eq!(refuse(c, |context| _ = context.w().log_rq_stride(6)), Syndrome::RqStride);
    assert_eq!(refuse(c, |context| _ = context.w().log_sq_size(6)), Syndrome::MemoryTooSmall);
    assert_eq!(refuse(c, |context| _ = context.w().dbr_addr(12)), Syndrome::DoorbellMisaligned);
    assert_eq!(refuse(c, |context| _ = context.w().wq_signature(true)), Syndrome::QpFeature);
    let mut numbered = good.clone();
    numbered.command.w().input_qpn(70);
    assert_eq!(c.refused(&numbered), Syndrome::InputQpn);
    c.exec(&good).unwrap();
}

#[test]
fn as_many_as_the_capability_in_force() {
    let mut profile = Profile::connectx5();
    profile.general_current.w().log_max_qp(7);
    let mut client = Client::with(profile);
    client.bring_up();
    let parents = client.parents();
    let command = client.qp(&parents);
    let made = (0..).take_while(|_| client.exec(&command).is_ok()).count();
    assert_eq!(made, 128 - 64, "the special ones are not given out");
    assert_eq!(client.refused(&command), Syndrome::TooManyQps);
}

#[test]
fn what_the_driver_took_back_is_gone() {
    let mut profile = Profile::connectx5();
    profile.general_current.w().log_max_pd(2).log_max_cq(1).log_max_mkey(1).log_max_umem(1).log_max_transport_domain(1);
    profile.general_current.w().max_num_eqs(1).max_qp_cnt(1).rc(false).roce(false);
    let mut client = Client::with(profile);
    client.bring_up();
    let parents = client.parents();
    let c = &mut client;
    let (eq, cq) = (c.eq(parents.uar, 0), c.cq(parents.uar, parents.eqn, parents.doorbells));
    assert_eq!(c.refused(&eq), Syndrome::TooManyEqs);
    assert_eq!(c.refused(&cq), Syndrome::TooManyCqs);
    let qp = c.qp(&parents);
    assert_eq!(c.refused(&qp), Syndrome::Service);
    assert_eq!((0..).take_while(|_| c.exec(&AllocPdIn::default()).is_ok()).count(), 4 - 1 - 1);
    assert_eq!(c.refused(&AllocPdIn::default()), Syndrome::TooManyPds);
    c.exec(&AllocTransportDomainIn::default()).unwrap();
    assert_eq!(c.refused(&AllocTransportDomainIn::default()), Syndrome::TooManyTransportDomains);
    c.exec(&AllocQCounterIn::default()).unwrap();
    assert_eq!(c.refused(&AllocQCounterIn::default()), Syndrome::TooManyCounters);
    let mut layout = RoceAddrLayout::ZERO;
    layout.w().source_l3_address(&GID).roce_version(2).source_mac_31_0(5);
    let mut command = SetRoceAddressIn::default();
    command.w().roce_address(&layout);
    assert_eq!(c.refused(&command), Syndrome::CapabilityNotAnnounced);
}

#[test]
fn parents_cannot_go_first() {
    let mut client = Client::up();
    let (parents, qpn) = made(&mut client);
    let mut cq = DestroyCqIn::default();
    cq.w().cqn(parents.cqn);
    assert_eq!(client.refused(&cq), Syndrome::CqInUse);
    let mut pd = DeallocPdIn::default();
    pd.w().pd(parents.pd);
    assert_eq!(client.refused(&pd), Syndrome::PdInUse);
    let mut destroy = DestroyQpIn::default();
    destroy.w().qpn(qpn);
    client.exec(&destroy).unwrap();
    assert_eq!(client.refused(&destroy), Syndrome::NoSuchQp);
    client.exec(&cq).unwrap();
    client.exec(&pd).unwrap();
}

#[test]
fn transitions_that_cannot_be() {
    let mut client = Client::up();
    let (_, qpn) = made(&mut client);
    let c = &mut client;
    let good = context();
    let with = |edit: fn(&mut Qpc)| {
        let mut context = good;
        edit(&mut context);
        context
    };
    let path = |edit: fn(&mut Ads)| {
        let mut context = good;
        let mut path = *context.primary_address_path();
        edit(&mut path);
        context.w().primary_address_path(&path);
        context
    };
    assert_eq!(c.refused(&to_init(99, &good)), Syndrome::NoSuchQp);
    assert_eq!(c.refused(&to_init(qpn, &path(|path| _ = path.w().vhca_port_num(2)))), Syndrome::PortNumber);
    assert_eq!(c.refused(&to_init(qpn, &path(|path| _ = path.w().pkey_index(1)))), Syndrome::PkeyIndex);
    assert_eq!(c.refused(&to_init(qpn, &with(|context| _ = context.w().rae(true)))), Syndrome::AtomicMode);
    assert_eq!(c.refused(&to_init(qpn, &with(|context| _ = context.w().counter_set_id(8)))), Syndrome::NoSuchCounter);
    c.exec(&to_init(qpn, &good)).unwrap();
    assert_eq!(c.refused(&to_rtr(qpn, &with(|context| _ = context.w().mtu(PathMtu::Unknown(6))))), Syndrome::Mtu);
    c.f.nic.port.mtu = 4197;
    assert_eq!(c.refused(&to_rtr(qpn, &good)), Syndrome::PortMtu);
    c.f.nic.port.mtu = 4198;
    c.f.nic.objects.vport.context.w().roce_en(false);
    assert_eq!(c.refused(&to_rtr(qpn, &good)), Syndrome::RoceDisabled);
    c.f.nic.objects.vport.context.w().roce_en(true);
    assert_eq!(c.refused(&to_rtr(qpn, &with(|context| _ = context.w().log_msg_max(31)))), Syndrome::MessageLimit);
    assert_eq!(c.refused(&to_rtr(qpn, &with(|context| _ = context.w().log_rra_max(5)))), Syndrome::ReadsResponder);
    assert_eq!(c.refused(&to_rtr(qpn, &path(|path| _ = path.w().src_addr_index(3)))), Syndrome::SourceAddress);
    assert_eq!(c.refused(&to_rtr(qpn, &path(|path| _ = path.w().rmac_47_32(0x0100)))), Syndrome::RemoteMac);
    assert_eq!(c.refused(&to_rtr(qpn, &path(|path| _ = path.w().rmac_47_32(0).rmac_31_0(0)))), Syndrome::RemoteMac);
    assert_eq!(c.f.queues.qps.get(qpn).unwrap().state, QpState::Init);
    c.exec(&to_rtr(qpn, &good)).unwrap();
    assert_eq!(c.refused(&to_rts(qpn, &with(|context| _ = context.w().log_sra_max(5)))), Syndrome::ReadsRequester);
    c.exec(&to_rts(qpn, &good)).unwrap();
    let mut back = Sqd2rtsQpIn::default();
    back.w().qpn(qpn);
    assert_eq!(c.refused(&back), Syndrome::WrongState);
}
