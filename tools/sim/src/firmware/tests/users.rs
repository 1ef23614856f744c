//! User contexts: objects of one process cannot be named by another.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::Uctx;
use mlx5_prm::eqe::EventType;
use mlx5_prm::layout::Layout;

use super::client::{Client, Failure, Parents};
use super::{keys, pages};
use crate::firmware::syndromes::Syndrome;
use crate::objects::SHARED;

fn uctx(client: &mut Client) -> u16 {
    client.exec(&CreateUctxIn::default()).unwrap().uid()
}

fn destroy_uctx(uid: u16) -> DestroyUctxIn {
    let mut destroy = DestroyUctxIn::default();
    destroy.w().uid(uid);
    destroy
}

fn alloc_pd(uid: u16) -> AllocPdIn {
    let mut alloc = AllocPdIn::default();
    alloc.w().uid(uid);
    alloc
}

fn dealloc_pd(uid: u16, pd: u32) -> DeallocPdIn {
    let mut dealloc = DeallocPdIn::default();
    dealloc.w().uid(uid).pd(pd);
    dealloc
}

#[test]
fn an_object_is_named_by_its_user_context_and_by_the_driver_alone() {
    let mut client = Client::up();
    let (ours, theirs) = (uctx(&mut client), uctx(&mut client));
    assert_ne!(ours, theirs);
    let pd = client.exec(&alloc_pd(ours)).unwrap().pd();
    assert_eq!(client.refused(&dealloc_pd(theirs, pd)), Syndrome::NoSuchPd);
    client.exec(&dealloc_pd(ours, pd)).unwrap();

    let pd = client.exec(&alloc_pd(theirs)).unwrap().pd();
    client.exec(&dealloc_pd(0, pd)).unwrap();
    let pd = client.exec(&alloc_pd(0)).unwrap().pd();
    assert_eq!(client.refused(&dealloc_pd(ours, pd)), Syndrome::NoSuchPd);
}

#[test]
fn an_object_that_waited_for_pages_is_its_user_context_s_too() {
    let mut client = pages::tight();
    pages::take_page_requests(&mut client);
    client.give(3).unwrap();
    let uid = uctx(&mut client);
    let waits = loop {
        match client.exec(&alloc_pd(uid)) {
            Ok(_) => {}
            Err(failure) => break failure,
        }
    };
    assert_eq!(waits, Failure::Unanswered);
    let told: u32 = client.f.nic.objects.eqs.iter().map(|(_, eq)| eq.producer).sum();
    assert_eq!(told, 1, "the driver is asked for pages, whoever's the command is");
    pages::give_meanwhile(&mut client, 3);
    let answer = client.answer(3, AllocPdOut::SIZE).unwrap();
    let pd = AllocPdOut::read(&answer).unwrap().pd();
    client.exec(&dealloc_pd(uid, pd)).unwrap();
}

#[test]
fn an_object_rests_on_what_is_its_user_context_s_or_shared() {
    let mut client = Client::up();
    let (ours, theirs) = (uctx(&mut client), uctx(&mut client));
    let uar = client.exec(&AllocUarIn::default()).unwrap().uar();
    let doorbell = client.pages(1);
    let mut eq = client.eq(uar, 0);
    let driver_s = client.exec(&eq).unwrap().reply.eq_number();
    eq = client.eq(uar, 0);
    eq.command.w().uid(SHARED);
    let eqn = client.exec(&eq).unwrap().reply.eq_number();
    let page = client.pages(1);
    let mut umem = keys::umem(&[page], 0);
    umem.command.w().uid(theirs);
    let umem_id = client.exec(&umem).unwrap().reply.umem_id();

    let mut alloc = AllocUarIn::default();
    alloc.w().uid(ours);
    let our_uar = client.exec(&alloc).unwrap().uar();
    let mut cq = client.cq(our_uar, eqn, doorbell);
    cq.command.w().uid(ours).cq_umem_valid(true).cq_umem_id(umem_id);
    assert_eq!(client.refused(&cq), Syndrome::NoSuchUmem);
    let mut cq = client.cq(uar, eqn, doorbell);
    cq.command.w().uid(ours);
    assert_eq!(client.refused(&cq), Syndrome::NoSuchUar);
    let mut cq = client.cq(our_uar, driver_s, doorbell);
    cq.command.w().uid(ours);
    assert_eq!(client.refused(&cq), Syndrome::NoSuchEq);
    let mut cq = client.cq(our_uar, eqn, doorbell);
    cq.command.w().uid(ours);
    client.exec(&cq).unwrap();
}

/// The event of a queue pair that its user moves to the error state goes to the driver's event queue.
#[test]
fn what_a_user_s_command_causes_is_the_card_s_own_doing() {
    let mut client = Client::up();
    let uid = uctx(&mut client);
    let driver_s = client.parents();
    let mut eq = client.eq(driver_s.uar, 1 << EventType::SrqLastWqe.number());
    let told = client.exec(&eq).unwrap().reply.eq_number();
    eq = client.eq(driver_s.uar, 0);
    eq.command.w().uid(SHARED);
    let eqn = client.exec(&eq).unwrap().reply.eq_number();

    let pd = client.exec(&alloc_pd(uid)).unwrap().pd();
    let mut alloc = AllocUarIn::default();
    alloc.w().uid(uid);
    let uar = client.exec(&alloc).unwrap().uar();
    let mut cq = client.cq(uar, eqn, driver_s.doorbells);
    cq.command.w().uid(uid);
    let cqn = client.exec(&cq).unwrap().reply.cqn();
    let mut qp = client.qp(&Parents { pd, uar, eqn, cqn, ..driver_s });
    qp.command.w().uid(uid);
    let qpn = client.exec(&qp).unwrap().reply.qpn();
    client.f.queues.qps.get_mut(qpn).unwrap().srqn = Some(1);

    let mut to_err = Qp2errIn::default();
    to_err.w().uid(uid).qpn(qpn);
    client.exec(&to_err).unwrap();
    assert_eq!(client.f.nic.objects.eqs.get(told.into()).unwrap().producer, 1);
    // The command continues on its user's behalf.
    assert_eq!(client.refused(&dealloc_pd(uid, driver_s.pd)), Syndrome::NoSuchPd);
}

#[test]
fn a_user_context_ends_after_its_objects() {
    let mut client = Client::up();
    let before = client.f.object_count();
    let uid = uctx(&mut client);
    let pd = client.exec(&alloc_pd(uid)).unwrap().pd();
    assert_eq!(client.refused(&destroy_uctx(uid)), Syndrome::UserContextInUse);
    client.exec(&dealloc_pd(uid, pd)).unwrap();
    client.exec(&destroy_uctx(uid)).unwrap();
    assert_eq!(client.f.object_count(), before);
    assert_eq!(client.refused(&destroy_uctx(uid)), Syndrome::NoUserContext);
    assert_eq!(client.refused(&alloc_pd(uid)), Syndrome::NoUserContext);
    assert_eq!(uctx(&mut client), uid, "its number is free again");
}

#[test]
fn the_driver_s_commands_are_not_for_user_contexts() {
    let mut client = Client::up();
    let uid = uctx(&mut client);
    let mut input = CreateUctxIn::default().head().to_vec();
    input[2..4].copy_from_slice(&uid.to_be_bytes());
    let failure = client.exec_bytes(&input, CreateUctxOut::SIZE);
    let refused = Failure::Refused(Syndrome::NotForUsers.status(), Syndrome::NotForUsers.number());
    assert_eq!(failure.map(drop), Err(refused));
}

#[test]
fn only_announced_rights_are_given() {
    let mut client = Client::up();
    let with_cap = |cap: u32| {
        let mut uctx = Uctx::default();
        uctx.w().cap(cap);
        let mut create = CreateUctxIn::default();
        create.w().uctx(&uctx);
        create
    };
    client.exec(&with_cap(1)).unwrap();
    assert_eq!(client.refused(&with_cap(2)), Syndrome::CapabilityNotAnnounced);
}

#[test]
fn there_are_as_many_as_announced() {
    let mut client = Client::up();
    let log_max = client.f.nic.firmware.capabilities().general().log_max_uctx();
    for _ in 1..1u32 << log_max {
        uctx(&mut client);
    }
    assert_eq!(client.refused(&CreateUctxIn::default()), Syndrome::TooManyUserContexts);
}
