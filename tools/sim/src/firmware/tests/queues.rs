//! Event and completion queues.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{Cqc, Eqc, Umem};
use mlx5_prm::eqe::EventType;
use mlx5_prm::layout::Be64;

use super::client::Client;
use crate::firmware::syndromes::Syndrome;
use crate::profile::Profile;

fn eq(command: &WithTail<CreateEqIn, Be64>, change: impl FnOnce(&mut Eqc)) -> WithTail<CreateEqIn, Be64> {
    let mut command = command.clone();
    let mut context = *command.command.eq_context_entry();
    change(&mut context);
    command.command.w().eq_context_entry(&context);
    command
}

fn cq(command: &WithTail<CreateCqIn, Be64>, change: impl FnOnce(&mut Cqc)) -> WithTail<CreateCqIn, Be64> {
    let mut command = command.clone();
    let mut context = *command.command.cq_context();
    change(&mut context);
    command.command.w().cq_context(&context);
    command
}

#[test]
fn event_queues() {
    let mut client = Client::up();
    let uar = client.exec(&AllocUarIn::default()).unwrap().uar();
    let good = client.eq(uar, 1 << EventType::PortChange.number());
    let number = client.exec(&good).unwrap().reply.eq_number();
    assert_eq!(client.refused(&good), Syndrome::EventTaken);
    let other = client.eq(uar, 0);
    let c = &mut client;
    assert_eq!(c.refused(&eq(&other, |context| _ = context.w().uar_page(3))), Syndrome::NoSuchUar);
    assert_eq!(c.refused(&eq(&other, |context| _ = context.w().intr(64))), Syndrome::EqVector);
    assert_eq!(c.refused(&eq(&other, |context| _ = context.w().log_eq_size(23))), Syndrome::EqSize);
    assert_eq!(c.refused(&eq(&other, |context| _ = context.w().log_eq_size(7))), Syndrome::MemoryTooSmall);
    assert_eq!(c.refused(&eq(&other, |context| _ = context.w().page_offset(1))), Syndrome::MemoryTooSmall);
    assert_eq!(c.refused(&eq(&other, |context| _ = context.w().log_page_size(24))), Syndrome::PageSize);
    let mut query = QueryEqIn::default();
    query.w().eq_number(number);
    let out = client.exec(&query).unwrap();
    assert_eq!((out.eq_context_entry().log_eq_size(), out.event_bitmask()), (6, 1 << 9));
    let mut dealloc = DeallocUarIn::default();
    dealloc.w().uar(uar);
    assert_eq!(client.refused(&dealloc), Syndrome::UarInUse);
    let mut destroy = DestroyEqIn::default();
    destroy.w().eq_number(number);
    client.exec(&destroy).unwrap();
    assert_eq!(client.refused(&destroy), Syndrome::NoSuchEq);
    assert_eq!(client.refused(&query), Syndrome::NoSuchEq);
    client.exec(&dealloc).unwrap();
    assert_eq!(client.violations(), [] as [&str; 0]);
}

#[test]
fn page_offset_counts_64ths_of_the_page() {
    let mut client = Client::up();
    let uar = client.exec(&AllocUarIn::default()).unwrap().uar();
    let mut command = client.eq(uar, 0);
    // Two pages of 8 KiB; the queue, of 4 KiB, starts in the middle of the first.
    let pages = client.pages(5).next_multiple_of(8192);
    client.write(pages + 4096, &[0xff; 4096]);
    command.tail = vec![Be64::new(pages)];
    let command = eq(&command, |context| _ = context.w().log_page_size(1).page_offset(32));
    let number = client.exec(&command).unwrap().reply.eq_number();
    let ring = &client.f.nic.objects.eqs.get(number.into()).unwrap().ring;
    assert_eq!(ring.iova(0), Some((pages + 4096, 4096)));
    let further = eq(&command, |context| _ = context.w().page_offset(33));
    assert_eq!(client.refused(&further), Syndrome::MemoryTooSmall);
}

#[test]
fn completion_queues() {
    let mut client = Client::up();
    let parents = client.parents();
    let good = client.cq(parents.uar, parents.eqn, parents.doorbells + 8);
    let c = &mut client;
    assert_eq!(c.refused(&cq(&good, |context| _ = context.w().c_eqn_or_apu_element(9))), Syndrome::NoSuchEq);
    assert_eq!(c.refused(&cq(&good, |context| _ = context.w().uar_page(3))), Syndrome::NoSuchUar);
    assert_eq!(c.refused(&cq(&good, |context| _ = context.w().log_cq_size(23))), Syndrome::CqSize);
    assert_eq!(c.refused(&cq(&good, |context| _ = context.w().cqe_sz(1))), Syndrome::MemoryTooSmall);
    assert_eq!(c.refused(&cq(&good, |context| _ = context.w().cqe_sz(5))), Syndrome::CqeSize);
    let padded = c.exec(&cq(&good, |context| _ = context.w().cqe_sz(2).log_cq_size(5))).unwrap().reply.cqn();
    assert_eq!(c.f.nic.objects.cqs.get(padded).unwrap().cqe_size, 128);
    let mut destroy = DestroyCqIn::default();
    destroy.w().cqn(padded);
    c.exec(&destroy).unwrap();
    assert_eq!(c.refused(&cq(&good, |context| _ = context.w().dbr_addr(4))), Syndrome::DoorbellMisaligned);
    // Compressed: one of five forms of mini CQEs, and an entry for each.
    let compressed = |change: fn(&mut Cqc)| {
        move |context: &mut Cqc| {
            context.w().cqe_comp_en(true);
            change(context);
        }
    };
    let formats: [fn(&mut Cqc); 5] = [
        |_| {},
        |context| _ = context.w().mini_cqe_res_format(1),
        |context| _ = context.w().mini_cqe_res_format(2),
        |context| _ = context.w().mini_cqe_res_format(3),
        |context| _ = context.w().mini_cqe_res_format_ext(1),
    ];
    for format in formats {
        let mut destroy = DestroyCqIn::default();
        destroy.w().cqn(c.exec(&cq(&good, compressed(format))).unwrap().reply.cqn());
        c.exec(&destroy).unwrap();
    }
    let refused: [fn(&mut Cqc); 4] = [
        |context| _ = context.w().mini_cqe_res_format_ext(2),
        |context| _ = context.w().mini_cqe_res_format(3).mini_cqe_res_format_ext(1),
        |context| _ = context.w().cqe_compression_layout(1),
        |context| _ = context.w().cc(true),
    ];
    for change in refused {
        assert_eq!(c.refused(&cq(&good, compressed(change))), Syndrome::CapabilityNotAnnounced);
    }
    let cqn = c.exec(&good).unwrap().reply.cqn();

    let mut destroy_eq = DestroyEqIn::default();
    destroy_eq.w().eq_number(parents.eqn);
    assert_eq!(c.refused(&destroy_eq), Syndrome::EqInUse);
    for cqn in [cqn, parents.cqn] {
        let mut destroy = DestroyCqIn::default();
        destroy.w().cqn(cqn);
        c.exec(&destroy).unwrap();
        assert_eq!(c.refused(&destroy), Syndrome::NoSuchCq);
    }
    c.exec(&destroy_eq).unwrap();
    assert_eq!(c.violations(), [] as [&str; 0]);
}

#[test]
fn moderation_where_it_is_announced() {
    let mut profile = Profile::connectx5();
    profile.general_current.w().cq_moderation(false);
    let mut client = Client::with(profile);
    client.bring_up();
    let mut modify = ModifyCqIn::default();
    modify.w().cqn(client.parents().cqn);
    assert_eq!(client.refused(&modify), Syndrome::CapabilityNotAnnounced);

    let mut profile = Profile::connectx5();
    profile.general_current.w().cq_period_mode_modify(false);
    let mut client = Client::with(profile);
    client.bring_up();
    modify.w().cqn(client.parents().cqn).modify_field_select_resize_field_select(&[0, 0, 0, 0x10]);
    assert_eq!(client.refused(&modify), Syndrome::CapabilityNotAnnounced);

    let mut client = Client::up();
    let cqn = client.parents().cqn;
    let mut context = Cqc::ZERO;
    context.w().cq_period(16).cq_max_count(32).cq_period_mode(1);
    modify.w().cqn(cqn).cq_context(&context).modify_field_select_resize_field_select(&[0, 0, 0, 3]);
    let mut query = QueryCqIn::default();
    query.w().cqn(cqn);
    for (select, mode) in [(3, 0), (0x13, 1)] {
        modify.w().modify_field_select_resize_field_select(&[0, 0, 0, select]);
        client.exec(&modify).unwrap();
        let context = *client.exec(&query).unwrap().cq_context();
        assert_eq!((context.cq_period(), context.cq_max_count(), context.cq_period_mode()), (16, 32, mode));
    }
    context.w().cq_period_mode(2);
    modify.w().cq_context(&context);
    assert_eq!(client.refused(&modify), Syndrome::CapabilityNotAnnounced);
    modify.w().modify_field_select_resize_field_select(&[0, 0, 0, 4]);
    assert_eq!(client.refused(&modify), Syndrome::CqModify);
    modify.w().op_mod(2);
    assert_eq!(client.refused(&modify), Syndrome::UnknownOpMod);
}

/// `MODIFY_CQ` into a fresh ring of `1 << log_size` entries, as Linux asks for it.
fn resize(client: &mut Client, cqn: u32, log_size: u8) -> WithTail<ModifyCqIn, Be64> {
    let pages = (64u64 << log_size).div_ceil(4096);
    let ring = client.pages(pages);
    client.write(ring, &vec![0xf0; (pages << 12) as usize]);
    let mut context = Cqc::ZERO;
    context.w().log_cq_size(log_size);
    let mut command = ModifyCqIn::default();
    command.w().op_mod(1).cqn(cqn).cq_context(&context).modify_field_select_resize_field_select(&[0, 0, 0, 7]);
    WithTail::new(command, (0..pages).map(|page| Be64::new(ring + (page << 12))).collect())
}

#[test]
fn a_completion_queue_moves_to_a_ring_of_another_size() {
    let mut profile = Profile::connectx5();
    profile.general_current.w().cq_resize(false);
    let mut client = Client::with(profile);
    client.bring_up();
    let cqn = client.parents().cqn;
    let command = resize(&mut client, cqn, 7);
    assert_eq!(client.refused(&command), Syndrome::CqResize);

    let mut client = Client::up();
    let cqn = client.parents().cqn;
    let c = &mut client;
    let mut command = resize(c, cqn, 8);
    let edit = |command: &mut WithTail<ModifyCqIn, Be64>, select: u8| {
        command.command.w().modify_field_select_resize_field_select(&[0, 0, 0, select]);
    };
    edit(&mut command, 6);
    assert_eq!(c.refused(&command), Syndrome::CqModify, "without log_cq_size");
    edit(&mut command, 15);
    assert_eq!(c.refused(&command), Syndrome::CqModify, "of what cannot be changed");
    edit(&mut command, 7);
    let pages = command.tail.split_off(1);
    assert_eq!(c.refused(&command), Syndrome::MemoryTooSmall);
    command.tail.extend(pages);
    let old = c.f.nic.objects.cqs.get(cqn).unwrap().ring.iova(0).unwrap().0;
    c.exec(&command).unwrap();
    let last = c.read(old, 64)[63];
    assert_eq!(last, 5 << 4, "the old ring ends with RESIZE_CQ, software's");
    let cq = c.f.nic.objects.cqs.get(cqn).unwrap();
    assert_eq!((cq.log_size, cq.producer, cq.ring.iova(0).unwrap().0), (8, 1, command.tail[0].get()));
    let mut query = QueryCqIn::default();
    query.w().cqn(cqn);
    assert_eq!(c.exec(&query).unwrap().cq_context().log_cq_size(), 8);
    let mut far = resize(c, cqn, 6);
    far.command.w().cqn(cqn + 9);
    assert_eq!(c.refused(&far), Syndrome::NoSuchCq);
    assert_eq!(c.violations(), [] as [&str; 0]);
}

#[test]
fn a_completion_queue_in_umems() {
    let mut client = Client::up();
    let parents = client.parents();
    let (ring, doorbells) = (client.pages(2), client.pages(1));
    client.write(ring, &[0xff; 8192]);
    let mut umems = Vec::new();
    for pages in [vec![ring, ring + 4096], vec![doorbells]] {
        let mut context = Umem::ZERO;
        context.w().num_of_mtt(pages.len() as u64);
        let mut command = CreateUmemIn::default();
        command.w().umem(&context);
        let command = WithTail::new(command, pages.iter().map(|page| Be64::new(*page)).collect());
        umems.push(client.exec(&command).unwrap().reply.umem_id());
    }
    let mut command = client.cq(parents.uar, parents.eqn, 0);
    command.tail.clear();
    command.command.w().cq_umem_valid(true).cq_umem_id(umems[0]).cq_umem_offset(0x1000);
    let command = cq(&command, |context| _ = context.w().dbr_umem_valid(true).dbr_umem_id(umems[1]).dbr_addr(0x48));
    let cqn = client.exec(&command).unwrap().reply.cqn();
    let made = client.f.nic.objects.cqs.get(cqn).unwrap();
    assert_eq!(made.ring.iova(0), Some((ring + 0x1000, 4096)));
    assert_eq!(made.doorbell.iova, doorbells + 0x48);
    for id in &umems {
        let mut destroy = DestroyUmemIn::default();
        destroy.w().umem_id(*id);
        assert_eq!(client.refused(&destroy), Syndrome::UmemInUse);
    }
    let far = cq(&command, |context| _ = context.w().dbr_addr(0x1000));
    assert_eq!(client.refused(&far), Syndrome::DoorbellOutside);
    let mut far = command.clone();
    far.command.w().cq_umem_offset(0x2000);
    assert_eq!(client.refused(&far), Syndrome::OffsetTooLarge);
    far.command.w().cq_umem_offset(0x1040);
    assert_eq!(client.refused(&far), Syndrome::MemoryTooSmall);
    let mut destroy = DestroyCqIn::default();
    destroy.w().cqn(cqn);
    client.exec(&destroy).unwrap();
    let mut destroy = DestroyUmemIn::default();
    destroy.w().umem_id(umems[0]);
    client.exec(&destroy).unwrap();
}

#[test]
fn rings_that_were_not_initialised() {
    let mut client = Client::up();
    let parents = client.parents();
    assert_eq!(client.violations(), [] as [&str; 0]);
    let mut command = client.eq(parents.uar, 0);
    command.tail[0] = Be64::new(client.pages(1));
    client.exec(&command).unwrap();
    assert_eq!(client.violations(), ["EQE ring not initialised"]);
    // A completion queue's is looked at when it is first used.
    let mut command = client.cq(parents.uar, parents.eqn, parents.doorbells);
    command.tail[0] = Be64::new(client.pages(1));
    client.exec(&command).unwrap();
    assert_eq!(client.violations(), [] as [&str; 0]);
}
