//! Shared receive queues, XRC domains, and queue pairs of services other than RC.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{Ads, AtomicMode, Mkc, Qpc, QueueState, RmpBitmask, Rmpc, RoceAddrLayout, Wq, WqType, XrcSrqc};
use mlx5_prm::layout::{Be64, Layout};
use mlx5_prm::values::{PathMtu, QpState, ServiceType};
use mlx5_prm::wqe::DataSeg;

use super::client::{Client, Parents};
use crate::engine;
use crate::firmware::syndromes::Syndrome;
use crate::objects::RoceAddress;
use crate::profile::Profile;
use crate::transport::packet::{Packet, Route};
use crate::transport::{Opcode, Psn, Transport};
use crate::wire::Frame;

fn rmp(client: &mut Client, parents: &Parents, change: impl FnOnce(&mut Wq)) -> WithTail<CreateRmpIn, Be64> {
    let mut context = Rmpc::ZERO;
    let mut wq = *context.wq();
    wq.w().pd(parents.pd).dbr_addr(parents.doorbells + 128).log_wq_stride(6).log_wq_sz(4).lwm(3);
    change(&mut wq);
    context.w().state(QueueState::Rdy).wq(&wq);
    let mut command = CreateRmpIn::default();
    command.w().ctx(&context);
    WithTail::new(command, vec![Be64::new(client.pages(1))])
}

fn xrc_srq(client: &mut Client, parents: &Parents, xrcd: u32) -> WithTail<CreateXrcSrqIn, Be64> {
    let mut context = XrcSrqc::ZERO;
    context
        .w()
        .pd(parents.pd)
        .cqn(parents.cqn)
        .xrcd(xrcd)
        .log_xrc_srq_size(4)
        .log_rq_stride(2)
        .user_index(77)
        .db_record_addr_h((parents.doorbells >> 32) as u32)
        .db_record_addr_l((parents.doorbells as u32 + 192) >> 2);
    let mut command = CreateXrcSrqIn::default();
    command.w().xrc_srq_context_entry(&context);
    WithTail::new(command, vec![Be64::new(client.pages(1))])
}

#[test]
fn a_shared_receive_queue_has_no_pages_larger_than_an_address() {
    let mut client = Client::up();
    let parents = client.parents();
    let xrcd = client.exec(&AllocXrcdIn::default()).unwrap().xrcd();
    let mut command = xrc_srq(&mut client, &parents, xrcd);
    for log_page_size in [52, 58, 63] {
        let mut context = *command.command.xrc_srq_context_entry();
        context.w().log_page_size(log_page_size).page_offset(1);
        command.command.w().xrc_srq_context_entry(&context);
        assert_eq!(client.refused(&command), Syndrome::PageSize);
    }
}

fn service(client: &mut Client, parents: &Parents, service: ServiceType) -> WithTail<CreateQpIn, Be64> {
    let mut command = client.qp(parents);
    let mut context = *command.command.qpc();
    context.w().st(service);
    command.command.w().qpc(&context);
    command
}

#[test]
fn a_receive_memory_pool_is_made_limited_asked_and_destroyed() {
    let mut client = Client::up();
    let parents = client.parents();
    let command = rmp(&mut client, &parents, |_| {});
    let rmpn = client.exec(&command).unwrap().reply.rmpn();

    let (mut bitmask, mut context) = (RmpBitmask::ZERO, Rmpc::ZERO);
    bitmask.w().lwm(true);
    let mut wq = Wq::ZERO;
    let mut modify = ModifyRmpIn::default();
    wq.w().lwm(17);
    context.w().state(QueueState::Rdy).wq(&wq);
    modify.w().rmpn(rmpn).rmp_state(QueueState::Rdy).bitmask(&bitmask).ctx(&context);
    assert_eq!(client.refused(&modify), Syndrome::SrqLimit);
    wq.w().lwm(5);
    context.w().wq(&wq);
    modify.w().ctx(&context);
    client.exec(&modify).unwrap();

    let mut query = QueryRmpIn::default();
    query.w().rmpn(rmpn);
    let answer = client.exec(&query).unwrap();
    let wq = answer.rmp_context().wq();
    assert_eq!((wq.lwm(), wq.pd(), wq.log_wq_sz(), wq.log_wq_stride()), (5, parents.pd, 4, 6));

    // UCX's, whose WQEs are in a row.
    let in_a_row = rmp(&mut client, &parents, |wq| _ = wq.w().wq_type(WqType::Cyclic));
    query.w().rmpn(client.exec(&in_a_row).unwrap().reply.rmpn());
    assert_eq!(client.exec(&query).unwrap().rmp_context().wq().wq_type(), WqType::Cyclic);
    let mut destroy = DestroyRmpIn::default();
    destroy.w().rmpn(rmpn);
    client.exec(&destroy).unwrap();
    assert_eq!(client.refused(&destroy), Syndrome::NoSuchSrq);
}

#[test]
fn shared_queues_that_cannot_be() {
    let mut client = Client::up();
    let parents = client.parents();
    let refuse = |client: &mut Client, change: fn(&mut Wq)| {
        let command = rmp(client, &parents, change);
        client.refused(&command)
    };
    let c = &mut client;
    assert_eq!(refuse(c, |wq| _ = wq.w().pd(99)), Syndrome::NoSuchPd);
    assert_eq!(refuse(c, |wq| _ = wq.w().log_wq_sz(16)), Syndrome::SrqSize);
    assert_eq!(refuse(c, |wq| _ = wq.w().log_wq_stride(10)), Syndrome::RqStride);
    assert_eq!(refuse(c, |wq| _ = wq.w().log_wq_stride(4)), Syndrome::RqStride);
    assert_eq!(refuse(c, |wq| _ = wq.w().log_wq_sz(7)), Syndrome::MemoryTooSmall);
    assert_eq!(refuse(c, |wq| _ = wq.w().wq_signature(true)), Syndrome::CapabilityNotAnnounced);
    assert_eq!(refuse(c, |wq| _ = wq.w().wq_type(WqType::CyclicStridingRq)), Syndrome::CapabilityNotAnnounced);
    let command = xrc_srq(c, &parents, 9);
    assert_eq!(c.refused(&command), Syndrome::NoSuchXrcd);
}

#[test]
fn two_ends_agree_on_what_both_have() {
    let mut client = Client::up();
    let parents = client.parents();
    let mut create = client.qp(&parents);
    assert_eq!(client.exec(&create).unwrap().reply.ece(), 0, "nothing was asked for");
    create.command.w().ece(1 << 28 | 0x22);
    let offered = client.exec(&create).unwrap().reply;
    assert_eq!(offered.ece(), 1 << 28);
    let mut query = QueryQpIn::default();
    query.w().qpn(offered.qpn());
    let in_use = |client: &mut Client| client.exec(&query).unwrap().ece();
    assert_eq!(in_use(&mut client), 0, "offered, but not agreed on");
    let mut path = Ads::default();
    path.w().vhca_port_num(1);
    let mut context = *create.command.qpc();
    context.w().primary_address_path(&path);
    let mut init = Rst2initQpIn::default();
    init.w().qpn(offered.qpn()).qpc(&context).ece(1 << 28 | 7);
    assert_eq!((client.exec(&init).unwrap().ece(), in_use(&mut client)), (1 << 28, 1 << 28));
    // 0 changes nothing.
    let mut again = Init2initQpIn::default();
    again.w().qpn(offered.qpn()).qpc(&context);
    assert_eq!((client.exec(&again).unwrap().ece(), in_use(&mut client)), (0, 1 << 28));
    let mut reset = Qp2rstIn::default();
    reset.w().qpn(offered.qpn());
    client.exec(&reset).unwrap();
    assert_eq!(in_use(&mut client), 0);
}

#[test]
fn a_card_without_options_of_connections_takes_none() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().ece_support(false);
    profile.general_current.w().ece_support(false);
    let mut client = Client::with(profile);
    client.bring_up();
    let parents = client.parents();
    let mut create = client.qp(&parents);
    create.command.w().ece(1 << 28);
    assert_eq!(client.refused(&create), Syndrome::CapabilityNotAnnounced);
}

#[test]
fn an_xrc_domain_outlives_its_queues() {
    let mut client = Client::up();
    let parents = client.parents();
    let xrcd = client.exec(&AllocXrcdIn::default()).unwrap().xrcd();
    let command = xrc_srq(&mut client, &parents, xrcd);
    let srqn = client.exec(&command).unwrap().reply.xrc_srqn();
    let mut query = QueryXrcSrqIn::default();
    query.w().xrc_srqn(srqn);
    let answer = client.exec(&query).unwrap();
    let context = answer.xrc_srq_context_entry();
    assert_eq!((context.xrcd(), context.cqn(), context.user_index()), (xrcd, parents.cqn, 77));
    let mut arm = ArmXrcSrqIn::default();
    arm.w().xrc_srqn(srqn).lwm(2).op_mod(1);
    client.exec(&arm).unwrap();
    assert_eq!(client.f.nic.objects.srqs.get(srqn).unwrap().limit, 2);

    let mut dealloc = DeallocXrcdIn::default();
    dealloc.w().xrcd(xrcd);
    assert_eq!(client.refused(&dealloc), Syndrome::XrcdInUse);
    let mut wrong_kind = DestroyRmpIn::default();
    wrong_kind.w().rmpn(srqn);
    assert_eq!(client.refused(&wrong_kind), Syndrome::NoSuchSrq);
    let mut destroy = DestroyXrcSrqIn::default();
    destroy.w().xrc_srqn(srqn);
    client.exec(&destroy).unwrap();
    client.exec(&dealloc).unwrap();
}

/// The key of all addresses of a protection domain.
fn key(client: &mut Client, pd: u32) -> u32 {
    let mut context = Mkc::ZERO;
    context.w().pd(pd).lr(true).lw(true).length64(true).qpn(0xff_ffff);
    let mut command = CreateMkeyIn::default();
    command.w().memory_key_mkey_entry(&context);
    client.exec(&WithTail::<_, Be64>::new(command, vec![])).unwrap().reply.mkey_index() << 8
}

/// An XRC queue pair of that domain, ready to receive from anywhere.
fn xrc_target(client: &mut Client, parents: &Parents, xrcd: u32) -> u32 {
    client.ready_for_roce();
    let mut create = service(client, parents, ServiceType::Xrc);
    let mut context = *create.command.qpc();
    context.w().xrcd(xrcd).rq_type(3);
    create.command.w().qpc(&context);
    let qpn = client.exec(&create).unwrap().reply.qpn();
    let mac = client.f.nic.objects.vport.mac();
    let entry = RoceAddress { gid: [0; 16], mac, vlan: None, ipv4: false, layout: RoceAddrLayout::ZERO };
    client.f.nic.objects.gids.set(0, Some(entry));
    let qp = client.f.queues.qps.get_mut(qpn).unwrap();
    (qp.state, qp.mtu) = (QpState::Rtr, PathMtu::Mtu256);
    qp.context.w().log_msg_max(12);
    qpn
}

#[test]
fn a_receive_that_a_message_began_to_fill_ends_with_its_shared_queue() {
    let mut client = Client::up();
    let parents = client.parents();
    let xrcd = client.exec(&AllocXrcdIn::default()).unwrap().xrcd();
    let create_cq = client.cq(parents.uar, parents.eqn, parents.doorbells + 256);
    let cqn = client.exec(&create_cq).unwrap().reply.cqn();
    let create = xrc_srq(&mut client, &Parents { cqn, ..parents }, xrcd);
    let srqn = client.exec(&create).unwrap().reply.xrc_srqn();
    let mut receive = DataSeg::ZERO;
    receive.w().byte_count(4096).lkey(key(&mut client, parents.pd)).addr(client.pages(1));
    client.write(create.tail[0].get() + 16, receive.as_bytes());
    client.write(parents.doorbells + 192, &1u32.to_be_bytes());
    let qpn = xrc_target(&mut client, &parents, xrcd);
    let mut first = Packet::new(Opcode::SendFirst, Route::default(), qpn, Psn::new(0));
    (first.transport, first.xrc_srqn, first.payload) = (Transport::Xrc, srqn, vec![1; 256]);
    engine::receive(&mut client.f, Frame::Roce(Box::new(first)));
    while engine::run(&mut client.f) {}
    assert_eq!(client.f.queues.qps.get(qpn).unwrap().rc.receive.expected.number(), 1, "it is under way");

    let (mut destroy, mut destroy_cq, mut error) =
        (DestroyXrcSrqIn::default(), DestroyCqIn::default(), Qp2errIn::default());
    destroy.w().xrc_srqn(srqn);
    destroy_cq.w().cqn(cqn);
    error.w().qpn(qpn);
    client.exec(&destroy).unwrap();
    client.exec(&destroy_cq).unwrap();
    assert_eq!(client.exec(&create_cq).unwrap().reply.cqn(), cqn, "another of the same number");
    client.exec(&error).unwrap();
    while engine::run(&mut client.f) {}
    assert_eq!(client.f.nic.objects.cqs.get(cqn).unwrap().producer, 0);
}

#[test]
fn a_queue_pair_holds_its_shared_queue() {
    let mut client = Client::up();
    let parents = client.parents();
    let command = rmp(&mut client, &parents, |_| {});
    let rmpn = client.exec(&command).unwrap().reply.rmpn();
    let mut command = client.qp(&parents);
    let mut context = *command.command.qpc();
    context.w().rq_type(1).srqn_rmpn_xrqn(rmpn);
    command.command.w().qpc(&context);
    let qpn = client.exec(&command).unwrap().reply.qpn();
    let qp = client.f.queues.qps.get(qpn).unwrap();
    assert_eq!((qp.srqn, qp.recv.is_some()), (Some(rmpn), false));
    let mut destroy = DestroyRmpIn::default();
    destroy.w().rmpn(rmpn);
    assert_eq!(client.refused(&destroy), Syndrome::SrqInUse);
    context.w().srqn_rmpn_xrqn(99);
    command.command.w().qpc(&context);
    assert_eq!(client.refused(&command), Syndrome::NoSuchSrq);
}

#[test]
fn a_datagram_queue_pair_takes_its_key_and_no_path() {
    let mut client = Client::up();
    let parents = client.parents();
    client.ready_for_roce();
    let command = service(&mut client, &parents, ServiceType::Ud);
    let qpn = client.exec(&command).unwrap().reply.qpn();
    let mut context = mlx5_prm::ctx::Qpc::ZERO;
    let mut path = *context.primary_address_path();
    path.w().vhca_port_num(1);
    context.w().primary_address_path(&path).q_key(0x1234_5678).mtu(mlx5_prm::values::PathMtu::Mtu4096);
    let mut init = Rst2initQpIn::default();
    init.w().qpn(qpn).qpc(&context);
    client.exec(&init).unwrap();
    let mut rtr = Init2rtrQpIn::default();
    rtr.w().qpn(qpn).qpc(&context).opt_param_mask(1 << 1);
    assert_eq!(client.refused(&rtr), Syndrome::OptParamMask, "it has no rights to give");
    rtr.w().opt_param_mask(0);
    client.exec(&rtr).unwrap();
    let mut rts = Rtr2rtsQpIn::default();
    rts.w().qpn(qpn).qpc(&context);
    client.exec(&rts).unwrap();
    let qp = client.f.queues.qps.get(qpn).unwrap();
    assert_eq!((qp.state, qp.context.q_key()), (QpState::Rts, 0x1234_5678));
    context.w().q_key(7);
    let mut change = Rts2rtsQpIn::default();
    change.w().qpn(qpn).qpc(&context).opt_param_mask(1 << 5);
    client.exec(&change).unwrap();
    assert_eq!(client.f.queues.qps.get(qpn).unwrap().context.q_key(), 7);
    let mut restart = Sqerr2rtsQpIn::default();
    restart.w().qpn(qpn).qpc(&context);
    assert_eq!(client.refused(&restart), Syndrome::WrongState);
    client.f.queues.qps.get_mut(qpn).unwrap().state = QpState::Sqer;
    let mut query = QueryQpIn::default();
    query.w().qpn(qpn);
    assert_eq!(client.exec(&query).unwrap().qpc().state(), QpState::Sqer);
    client.exec(&restart).unwrap();
    assert_eq!(client.f.queues.qps.get(qpn).unwrap().state, QpState::Rts);
}

#[test]
fn there_is_one_queue_pair_of_the_general_services() {
    let mut client = Client::up();
    let parents = client.parents();
    let command = service(&mut client, &parents, ServiceType::Qp1);
    let qpn = client.exec(&command).unwrap().reply.qpn();
    let again = service(&mut client, &parents, ServiceType::Qp1);
    assert_eq!(client.refused(&again), Syndrome::GsiTaken);
    let mut destroy = DestroyQpIn::default();
    destroy.w().qpn(qpn);
    client.exec(&destroy).unwrap();
    client.exec(&again).unwrap();
}

#[test]
fn management_datagrams_have_256_bytes_and_their_port_at_each_transition() {
    let mut client = Client::up();
    let parents = client.parents();
    client.ready_for_roce();
    let command = service(&mut client, &parents, ServiceType::Qp1);
    let qpn = client.exec(&command).unwrap().reply.qpn();
    let with = |port: u8, mtu: PathMtu, log_msg_max: u8| {
        let (mut path, mut context) = (Ads::ZERO, Qpc::ZERO);
        path.w().vhca_port_num(port);
        context.w().primary_address_path(&path).mtu(mtu).log_msg_max(log_msg_max);
        context
    };
    let good = with(1, PathMtu::Mtu256, 8);
    let mut init = Rst2initQpIn::default();
    init.w().qpn(qpn).qpc(&good);
    client.exec(&init).unwrap();
    let mut rtr = Init2rtrQpIn::default();
    rtr.w().qpn(qpn);
    for (wrong, why) in [
        (with(1, PathMtu::Mtu4096, 8), Syndrome::GsiLimits),
        (with(1, PathMtu::Mtu256, 12), Syndrome::GsiLimits),
        (with(0, PathMtu::Mtu256, 8), Syndrome::PortNumber),
    ] {
        rtr.w().qpc(&wrong);
        assert_eq!(client.refused(&rtr), why);
    }
    rtr.w().qpc(&good);
    client.exec(&rtr).unwrap();
    let mut rts = Rtr2rtsQpIn::default();
    rts.w().qpn(qpn).qpc(&with(0, PathMtu::Mtu256, 8));
    assert_eq!(client.refused(&rts), Syndrome::PortNumber);
    rts.w().qpc(&good);
    client.exec(&rts).unwrap();
}

#[test]
fn remote_atomics_are_of_eight_bytes() {
    let mut client = Client::up();
    let parents = client.parents();
    let command = client.qp(&parents);
    let qpn = client.exec(&command).unwrap().reply.qpn();
    let mut context = mlx5_prm::ctx::Qpc::ZERO;
    let mut path = *context.primary_address_path();
    path.w().vhca_port_num(1);
    context.w().primary_address_path(&path).rae(true).atomic_mode(AtomicMode::UpTo64B);
    let mut init = Rst2initQpIn::default();
    init.w().qpn(qpn).qpc(&context);
    assert_eq!(client.refused(&init), Syndrome::AtomicMode);
    context.w().atomic_mode(AtomicMode::IbSpec);
    init.w().qpc(&context);
    client.exec(&init).unwrap();
    assert!(client.f.queues.qps.get(qpn).unwrap().remote_atomic);
}

#[test]
fn groups_are_joined_and_left() {
    let mut c = Client::up();
    let parents = c.parents();
    let mut command = c.qp(&parents);
    let mut context = *command.command.qpc();
    let connection = c.exec(&command).unwrap().reply.qpn();
    context.w().st(ServiceType::Ud);
    command.command.w().qpc(&context);
    let qpn = c.exec(&command).unwrap().reply.qpn();
    let group = crate::transport::packet::gid_of_ipv4([224, 0, 0, 9]);
    let attach = |qpn: u32, gid: [u8; 16]| {
        let mut command = AttachToMcgIn::default();
        command.w().qpn(qpn).multicast_gid(&gid);
        command
    };
    assert_eq!(c.refused(&attach(connection, group)), Syndrome::GroupService);
    assert_eq!(c.refused(&attach(qpn + 1, group)), Syndrome::NoSuchQp);
    assert_eq!(c.refused(&attach(qpn, crate::transport::packet::gid_of_ipv4([10, 0, 0, 9]))), Syndrome::GroupAddress);
    c.exec(&attach(qpn, group)).unwrap();
    assert_eq!(c.refused(&attach(qpn, group)), Syndrome::GroupMember);
    let mut destroy = DestroyQpIn::default();
    destroy.w().qpn(qpn);
    assert_eq!(c.refused(&destroy), Syndrome::QpInGroup);
    let mut detach = DetachFromMcgIn::default();
    detach.w().qpn(qpn).multicast_gid(&group);
    c.exec(&detach).unwrap();
    assert_eq!(c.refused(&detach), Syndrome::NotInGroup);
    c.exec(&destroy).unwrap();
}
