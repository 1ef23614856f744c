//! Protection domains, umems, memory keys, counters, UARs, transport domains.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{AccessMode, Mkc, Umem};
use mlx5_prm::layout::Be64;

use super::client::Client;
use crate::firmware::syndromes::Syndrome;
use crate::objects::{MkeyRights, Translation};
use crate::profile::Profile;

pub(super) fn umem(pages: &[u64], page_offset: u32) -> WithTail<CreateUmemIn, Be64> {
    let mut context = Umem::ZERO;
    context.w().page_offset(page_offset).num_of_mtt(pages.len() as u64);
    let mut command = CreateUmemIn::default();
    command.w().umem(&context);
    // The low bits permit the device to read and write.
    WithTail::new(command, pages.iter().map(|page| Be64::new(page | 3)).collect())
}

fn mkey(pd: u32, pages: &[u64], start: u64, len: u64) -> WithTail<CreateMkeyIn, Be64> {
    let mut context = Mkc::ZERO;
    context.w().access_mode_1_0(1).lr(true).lw(true).rw(true).qpn(0xff_ffff).mkey_7_0(0x42).pd(pd);
    context.w().start_addr(start).len(len).log_page_size(12);
    let mut tail: Vec<_> = pages.iter().map(|page| Be64::new(*page)).collect();
    tail.resize(pages.len().next_multiple_of(2), Be64::new(0));
    context.w().translations_octword_size(tail.len() as u32 / 2);
    let mut command = CreateMkeyIn::default();
    command.w().memory_key_mkey_entry(&context).translations_octword_actual_size(tail.len() as u32 / 2);
    WithTail::new(command, tail)
}

fn change(mkey: &mut WithTail<CreateMkeyIn, Be64>, change: impl FnOnce(&mut Mkc)) {
    let mut context = *mkey.command.memory_key_mkey_entry();
    change(&mut context);
    mkey.command.w().memory_key_mkey_entry(&context);
}

#[test]
fn numbers_are_used_again_and_unknown_ones_refused() {
    let mut client = Client::up();
    let pds: Vec<u32> = (0..3).map(|_| client.exec(&AllocPdIn::default()).unwrap().pd()).collect();
    assert_eq!(pds, [1, 2, 3]);
    let mut dealloc = DeallocPdIn::default();
    dealloc.w().pd(2);
    client.exec(&dealloc).unwrap();
    assert_eq!(client.refused(&dealloc), Syndrome::NoSuchPd);
    assert_eq!(client.exec(&AllocPdIn::default()).unwrap().pd(), 2);

    let uar = client.exec(&AllocUarIn::default()).unwrap().uar();
    assert_eq!(uar, crate::bar::FIRST_UAR);
    let mut dealloc = DeallocUarIn::default();
    dealloc.w().uar(uar);
    client.exec(&dealloc).unwrap();
    assert_eq!(client.refused(&dealloc), Syndrome::NoSuchUar);

    let td = client.exec(&AllocTransportDomainIn::default()).unwrap().transport_domain();
    let mut dealloc = DeallocTransportDomainIn::default();
    dealloc.w().transport_domain(td);
    client.exec(&dealloc).unwrap();
    assert_eq!(client.refused(&dealloc), Syndrome::NoSuchTransportDomain);
}

#[test]
fn all_uars_can_be_given_out() {
    let mut client = Client::up();
    let mut count = crate::bar::FIRST_UAR;
    while client.exec(&AllocUarIn::default()).is_ok() {
        count += 1;
    }
    assert_eq!(client.refused(&AllocUarIn::default()), Syndrome::TooManyUars);
    assert_eq!(count, ((32 << 20) - 3 * (128 << 10)) >> 12, "pages of BAR 0 before the memory on the card");
}

#[test]
fn counters() {
    let mut client = Client::up();
    let number = client.exec(&AllocQCounterIn::default()).unwrap().counter_set_id();
    client.f.nic.objects.queue_counters.get_mut(number.into()).unwrap().out_of_buffer = 7;
    let mut query = QueryQCounterIn::default();
    query.w().counter_set_id(number).clear(true);
    assert_eq!(client.exec(&query).unwrap().out_of_buffer(), 7);
    assert_eq!(client.exec(&query).unwrap().out_of_buffer(), 0);
    query.w().other_vport(true);
    assert_eq!(client.refused(&query), Syndrome::OtherVport);
    let mut dealloc = DeallocQCounterIn::default();
    dealloc.w().counter_set_id(number);
    client.exec(&dealloc).unwrap();
    assert_eq!(client.refused(&dealloc), Syndrome::NoSuchCounter);
    let made = (0..).take_while(|_| client.exec(&AllocQCounterIn::default()).is_ok()).count();
    assert_eq!(made, 255);
    assert_eq!(client.refused(&AllocQCounterIn::default()), Syndrome::TooManyCounters);
}

#[test]
fn umems() {
    let mut client = Client::up();
    let pages = [client.pages(1), client.pages(1)];
    let id = client.exec(&umem(&pages, 100)).unwrap().reply.umem_id();
    let memory = &client.f.nic.objects.umems.get(id).unwrap().memory;
    assert_eq!((memory.len(), memory.iova(0)), (2 * 4096 - 100, Some((pages[0] + 100, 4096 - 100))));
    assert_eq!(client.refused(&umem(&[], 0)), Syndrome::UmemEmpty);
    assert_eq!(client.refused(&umem(&pages, 2 * 4096)), Syndrome::UmemEmpty);
    let mut short = umem(&pages, 0);
    short.tail.pop();
    assert_eq!(client.refused(&short), Syndrome::InputListLength);
    let mut large = umem(&[pages[0] + 0x1000], 0);
    let mut context = *large.command.umem();
    context.w().log_page_size(9);
    large.command.w().umem(&context);
    assert_eq!(client.refused(&large), Syndrome::AddressMisaligned);
    context.w().log_page_size(20);
    large.command.w().umem(&context);
    assert_eq!(client.refused(&large), Syndrome::PageSize);
    let mut destroy = DestroyUmemIn::default();
    destroy.w().umem_id(id);
    client.exec(&destroy).unwrap();
    assert_eq!(client.refused(&destroy), Syndrome::NoSuchUmem);
}

#[test]
fn a_key_over_pages_starts_where_its_address_says() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let pages = [client.pages(1), client.pages(1), client.pages(1)];
    let start = 0x7fff_0000_0123;
    let index = client.exec(&mkey(pd, &pages, start, 8192)).unwrap().reply.mkey_index();
    let key = client.f.nic.objects.mkeys.get(index).unwrap();
    assert_eq!((key.variant, key.pd, key.qpn, key.start, key.len), (0x42, pd, None, start, Some(8192)));
    assert_eq!(key.rights, MkeyRights::LOCAL_READ | MkeyRights::LOCAL_WRITE | MkeyRights::REMOTE_WRITE);
    let Translation::Pages(list) = &key.translation else { panic!("{:?}", key.translation) };
    assert_eq!(list.iova(0), Some((pages[0] + 0x123, 4096 - 0x123)));
    assert_eq!(list.iova(8191), Some((pages[2] + 0x122, 4096 - 0x122)));

    let mut query = QueryMkeyIn::default();
    query.w().mkey_index(index).pg_access(true);
    let out = client.exec(&query).unwrap();
    assert_eq!(out.memory_key_mkey_entry().start_addr(), start);
    assert_eq!(out.bsf0_klm0_pas_mtt0_1()[8..], pages[1].to_be_bytes());

    let mut dealloc = DeallocPdIn::default();
    dealloc.w().pd(pd);
    assert_eq!(client.refused(&dealloc), Syndrome::PdInUse);
    let mut destroy = DestroyMkeyIn::default();
    destroy.w().mkey_index(index);
    client.exec(&destroy).unwrap();
    assert_eq!(client.refused(&destroy), Syndrome::NoSuchMkey);
    assert_eq!(client.refused(&query), Syndrome::NoSuchMkey);
    client.exec(&dealloc).unwrap();
}

#[test]
fn a_key_over_a_umem() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let pages = [client.pages(1), client.pages(1)];
    let id = client.exec(&umem(&pages, 0x40)).unwrap().reply.umem_id();
    let mut command = mkey(pd, &[], 0x7140, 4096);
    command.command.w().mkey_umem_valid(true).mkey_umem_id(id).mkey_umem_offset(0x100);
    let index = client.exec(&command).unwrap().reply.mkey_index();
    let Translation::Pages(list) = &client.f.nic.objects.mkeys.get(index).unwrap().translation else { panic!() };
    assert_eq!(list.iova(0), Some((pages[0] + 0x140, 4096 - 0x140)));
    let mut destroy = DestroyUmemIn::default();
    destroy.w().umem_id(id);
    assert_eq!(client.refused(&destroy), Syndrome::UmemInUse);
    command.command.w().mkey_umem_offset(0x1000);
    assert_eq!(client.refused(&command), Syndrome::MemoryTooSmall);
    command.command.w().mkey_umem_id(99);
    assert_eq!(client.refused(&command), Syndrome::NoSuchUmem);
    assert_eq!(client.violations(), [] as [&str; 0]);
}

/// DPDK's `mlx5_devx_cmd_mkey_create`: a count that is far too high in both command and context, and no list.
#[test]
fn a_key_over_a_umem_as_dpdk_makes_it() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let pages = [client.pages(1), client.pages(1)];
    let id = client.exec(&umem(&pages, 0x40)).unwrap().reply.umem_id();
    let mut command = mkey(pd, &[], 0x7f00_0000_0040, 4096);
    command.command.w().mkey_umem_valid(true).mkey_umem_id(id).translations_octword_actual_size(4096);
    change(&mut command, |context| _ = context.w().translations_octword_size(4096));
    client.exec(&command).unwrap();
    change(&mut command, |context| _ = context.w().translations_octword_size(1));
    assert_eq!(client.refused(&command), Syndrome::TranslationRoom);
    let mut listed = command.clone();
    listed.tail = vec![Be64::new(pages[0]), Be64::new(pages[1])];
    assert_eq!(client.refused(&listed), Syndrome::TranslationCount);
    assert_eq!(client.violations(), [] as [&str; 0]);
}

#[test]
fn a_key_must_start_in_its_page_where_the_umem_does() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let pages = [client.pages(1), client.pages(1)];
    let id = client.exec(&umem(&pages, 0x40)).unwrap().reply.umem_id();
    let mut command = mkey(pd, &[], 0, 4096);
    command.command.w().mkey_umem_valid(true).mkey_umem_id(id);
    client.exec(&command).unwrap();
    assert_eq!(client.violations(), ["memory key starts elsewhere in its page than in its umem"]);
    change(&mut command, |context| _ = context.w().start_addr(0x40));
    client.exec(&command).unwrap();
    assert_eq!(client.violations(), [] as [&str; 0]);
}

#[test]
fn a_key_over_all_addresses() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let mut command = mkey(pd, &[], 0, 0);
    change(&mut command, |context| _ = context.w().access_mode_1_0(0).length64(true));
    let index = client.exec(&command).unwrap().reply.mkey_index();
    let key = client.f.nic.objects.mkeys.get(index).unwrap();
    assert_eq!(key.len, None);
    assert!(matches!(key.translation, Translation::Physical));
    let page = client.pages(1);
    let mut command = mkey(pd, &[page], 0, 4096);
    change(&mut command, |context| _ = context.w().access_mode_1_0(0));
    assert_eq!(client.refused(&command), Syndrome::TranslationsOfPa);
}

#[test]
fn keys_that_cannot_be() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let page = client.pages(1);
    let good = mkey(pd, &[page], 0, 4096);
    let refuse = |client: &mut Client, edit: fn(&mut Mkc)| {
        let mut command = good.clone();
        change(&mut command, edit);
        client.refused(&command)
    };
    let c = &mut client;
    assert_eq!(refuse(c, |context| _ = context.w().pd(77)), Syndrome::NoSuchPd);
    assert_eq!(refuse(c, |context| context.set_access_mode(AccessMode::SwIcm)), Syndrome::AccessMode);
    assert_eq!(refuse(c, |context| _ = context.w().len(0)), Syndrome::MkeyLength);
    assert_eq!(refuse(c, |context| _ = context.w().length64(true)), Syndrome::MkeyLength);
    assert_eq!(refuse(c, |context| _ = context.w().start_addr(u64::MAX - 4095).len(8192)), Syndrome::MkeyLength);
    assert_eq!(refuse(c, |context| _ = context.w().len(1 << 20)), Syndrome::TranslationRoom);
    assert_eq!(
        refuse(c, |context| _ = context.w().start_addr(1).len(8192).translations_octword_size(2)),
        Syndrome::TranslationsTooFew
    );
    assert_eq!(refuse(c, |context| _ = context.w().log_page_size(11)), Syndrome::PageSize);
    assert_eq!(refuse(c, |context| _ = context.w().log_page_size(63)), Syndrome::PageSize);
    assert_eq!(refuse(c, |context| _ = context.w().bsf_en(true)), Syndrome::CapabilityNotAnnounced);
    assert_eq!(refuse(c, |context| _ = context.w().translations_octword_size(0)), Syndrome::TranslationRoom);
    let mut command = good.clone();
    command.command.w().translations_octword_actual_size(3);
    assert_eq!(c.refused(&command), Syndrome::TranslationCount);
    c.exec(&good).unwrap();
}

#[test]
fn pages_have_rights_where_the_command_says_so() {
    let mut client = Client::with(Profile::connectx7());
    client.bring_up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let mut command = mkey(pd, &[client.pages(1)], 0, 4096);
    client.exec(&command).unwrap();
    let page = command.tail[0].get();
    for rights in [1, 2, 3, 0x800] {
        command.tail[0] = Be64::new(page | rights);
        assert_eq!(client.refused(&command), Syndrome::TranslationRights);
    }
    command.tail[0] = Be64::new(page | 3);
    command.command.w().pg_access(true);
    let index = client.exec(&command).unwrap().reply.mkey_index();
    let found = &client.f.nic.objects.mkeys.get(index).unwrap().translation;
    assert!(matches!(found, Translation::Pages(_)), "{found:?}");
}

#[test]
fn a_list_of_keys_is_as_long_as_announced() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let longest = 1 << client.f.nic.firmware.caps.general().log_max_klm_list_size();
    let list = |octwords: u32| {
        let mut context = Mkc::ZERO;
        context.w().access_mode_1_0(2).free(true).umr_en(true).lr(true).qpn(0xff_ffff).pd(pd);
        context.w().translations_octword_size(octwords);
        let mut command = CreateMkeyIn::default();
        command.w().memory_key_mkey_entry(&context);
        WithTail::<_, Be64>::new(command, vec![])
    };
    // The kernel's users of fast registration take lists of 256 and more.
    assert!(longest > 256);
    client.exec(&list(longest)).unwrap();
    assert_eq!(client.refused(&list(longest + 1)), Syndrome::KlmList);
}

#[test]
fn the_room_that_updates_fill_is_bounded() {
    let mut client = Client::up();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let free = |mode: AccessMode, octwords: u32| {
        let mut context = Mkc::ZERO;
        context.set_access_mode(mode);
        context.w().free(true).umr_en(true).lr(true).qpn(0xff_ffff).pd(pd).translations_octword_size(octwords);
        let mut command = CreateMkeyIn::default();
        command.w().memory_key_mkey_entry(&context);
        WithTail::<_, Be64>::new(command, vec![])
    };
    // What Linux creates for all addresses, in pieces of 1 GiB, with page tables of five levels.
    let longest = 1 << (56 - 30);
    client.f.nic.firmware.caps.general.current.w().fixed_buffer_size(true);
    client.exec(&free(AccessMode::Mtt, longest)).unwrap();
    for mode in [AccessMode::Mtt, AccessMode::Ksm] {
        for octwords in [longest + 1, 0xffff_fff0, u32::MAX] {
            assert_eq!(client.refused(&free(mode, octwords)), Syndrome::MkeyRoom);
        }
    }
}
