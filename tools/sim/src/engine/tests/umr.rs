//! Keys changed by UMR WQEs.

use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_prm::ctx::{AccessMode, Klm, Mkc};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::{QpState, ServiceType};
use mlx5_prm::wqe::{MkeyMaskBit, RepeatBlockSeg, RepeatEntry, UmrCheck, UmrCtrlSeg, WqeOpcode, mkey_mask};

use super::bench::*;
use crate::objects::{Mkey, MkeyRights, PageList, Pd, Translation};
use crate::strict::rules;

/// Fields changed by fast registration.
const REGISTER: &[MkeyMaskBit] = &[
    MkeyMaskBit::Len,
    MkeyMaskBit::PageSize,
    MkeyMaskBit::StartAddr,
    MkeyMaskBit::Key,
    MkeyMaskBit::LocalRead,
    MkeyMaskBit::LocalWrite,
    MkeyMaskBit::RemoteRead,
    MkeyMaskBit::RemoteWrite,
    MkeyMaskBit::Free,
];

/// A free key with room for 8 pages or 4 keys, as drivers create it for UMR.
fn free_key(bench: &mut Bench, mode: AccessMode) -> u32 {
    let mut context = Mkc::ZERO;
    context.set_access_mode(mode);
    context.w().free(true).umr_en(true).pd(PD).qpn(0xff_ffff).mkey_7_0(0x42).translations_octword_size(4);
    let translation = match mode {
        AccessMode::Klms => Translation::Keys(Vec::new()),
        _ => Translation::Pages(PageList::default()),
    };
    bench.f.nic.objects.mkeys.insert(Mkey::new(&context, translation, None)).unwrap() << 8 | 0x42
}

/// A context with all rights for `len` bytes at `start`, and the low byte of `key`.
fn context(key: u32, start: u64, len: u64) -> Mkc {
    let mut context = Mkc::ZERO;
    context.w().mkey_7_0(key as u8).start_addr(start).len(len).log_page_size(12);
    context.w().lr(true).lw(true).rr(true).rw(true);
    context
}

fn control(parts: &[MkeyMaskBit], check: UmrCheck, octwords: usize) -> UmrCtrlSeg {
    let mut control = UmrCtrlSeg::ZERO;
    control
        .w()
        .inline(true)
        .check_free(check.number() as u8)
        .xlt_octowords(octwords as u16)
        .mkey_mask(mkey_mask(parts));
    control
}

fn umr(key: u32, control: UmrCtrlSeg, context: &Mkc, list: &[u8]) -> Post {
    let mut segments = [control.as_bytes(), context.as_bytes(), list].concat();
    segments.resize(segments.len().next_multiple_of(16), 0);
    let mut post = Post::new(WqeOpcode::Umr, vec![Seg::Raw(segments)]);
    post.immediate = key;
    post
}

/// Maps `len` bytes of the page at `memory` by a free key, at the address `start`.
fn register(key: u32, start: u64, len: u64, memory: u64) -> Post {
    let list = [(memory | 3).to_be_bytes(), [0; 8]].concat();
    umr(key, control(REGISTER, UmrCheck::NotFree, 1), &context(key, start, len), &list)
}

fn invalidate(key: u32) -> Post {
    let mut freed = Mkc::ZERO;
    freed.w().free(true);
    umr(key, control(&[MkeyMaskBit::Free], UmrCheck::None, 0), &freed, &[])
}

fn page(bench: &mut Bench) -> u64 {
    let at = bench.alloc(8192);
    at.next_multiple_of(4096)
}

#[test]
fn a_registered_key_is_used_until_it_is_invalidated() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to) = (bench.alloc(4096), page(&mut bench));
    let key = free_key(&mut bench, AccessMode::Mtt);
    let local = bench.key;
    bench.write(from, &pattern(100, 1));
    bench.post(b, &register(key, 0x7000_0000_0040, 100, to));
    bench.run();
    assert_eq!(bench.sent(b)[0].opcode, CqeOpcode::Requester);
    bench.post(a, &write(from, 100, local, 0x7000_0000_0040, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    assert_eq!(bench.read(to + 0x40, 100), pattern(100, 1));
    bench.post(b, &invalidate(key));
    bench.run();
    bench.post(a, &write(from, 100, local, 0x7000_0000_0040, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
    assert_eq!(bench.violations(), [rules::KEY]);
}

/// Linux sets `fre` for its own queue pairs; those of users register keys alone.
#[test]
fn pages_are_registered_by_a_queue_pair_with_fre() {
    let (mut bench, a, b) = Bench::standard();
    for qpn in [a, b] {
        bench.qp_mut(qpn).context.w().fre(false);
    }
    let (to, local) = (page(&mut bench), bench.key);
    let keys = free_key(&mut bench, AccessMode::Klms);
    let list = data(to, 100, local);
    bench.post(a, &umr(keys, control(REGISTER, UmrCheck::NotFree, 1), &context(keys, to, 100), list.as_bytes()));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    let pages = free_key(&mut bench, AccessMode::Mtt);
    bench.post(b, &register(pages, 0x7000_0000_0000, 100, to));
    bench.run();
    assert_eq!(bench.sent(b)[0].syndrome, Some(CqeSyndrome::MemoryWindowBind));
    assert_eq!(bench.violations(), [rules::UMR]);
}

#[test]
fn an_update_at_its_fence_is_made_before_it_completes() {
    let (mut bench, a, _) = Bench::standard();
    let (from, to) = (bench.alloc(4096), page(&mut bench));
    let (key, local) = (free_key(&mut bench, AccessMode::Mtt), bench.key);
    // What is before it takes PSNs, and it takes none: their acknowledgement is no word about the update.
    bench.post(a, &write(from, 100, local, to, local));
    bench.post(a, &Post { fence: true, ..register(key, 0x7000_0000_0000, 100, to) });
    bench.post(a, &Post { fence: true, ..Post::new(WqeOpcode::Nop, vec![]) });
    bench.run();
    assert_eq!(bench.sent(a).iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None; 3]);
    assert!(!bench.mkey_mut(key).is_free(), "it completed");
    bench.post(a, &write(from, 100, local, to, local));
    bench.post(a, &Post { fence: true, ..invalidate(key) });
    bench.run();
    assert_eq!(bench.sent(a).iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None; 2]);
    assert!(bench.mkey_mut(key).is_free(), "it completed");
    assert_eq!(bench.violations(), [] as [&str; 0]);
}

#[test]
fn a_message_that_was_posted_with_the_update_before_it_needs_a_fence() {
    let (mut bench, a, _) = Bench::standard();
    let (from, to) = (bench.alloc(4096), page(&mut bench));
    let (key, local) = (free_key(&mut bench, AccessMode::Mtt), bench.key);
    let mut post_all = |posts: &[Post]| {
        posts.iter().for_each(|post| _ = bench.post(a, post));
        bench.run();
        bench.sent(a);
        bench.violations()
    };
    let message = || write(from, 100, local, to, local);
    let fenced = || Post { fence: true, ..message() };
    let quiet = |post| Post { signalled: false, ..post };
    let none: [&str; 0] = [];
    assert_eq!(post_all(&[register(key, 0, 100, to), message(), invalidate(key)]), [rules::KEY_FENCE]);
    assert_eq!(post_all(&[register(key, 0, 100, to), fenced(), message(), invalidate(key)]), none);
    // The one behind it is an update, which no rule asks to wait, or sends nothing.
    assert_eq!(post_all(&[register(key, 0, 100, to), invalidate(key), Post::new(WqeOpcode::Nop, vec![])]), none);
    // The update was seen to complete, or could not be seen.
    assert_eq!(post_all(&[register(key, 0, 100, to)]), none);
    assert_eq!(post_all(&[message(), quiet(invalidate(key))]), none);
    assert_eq!(post_all(&[message()]), [rules::KEY_FENCE]);
}

#[test]
fn an_update_that_is_refused_at_its_fence_fails_behind_what_was_before_it() {
    let (mut bench, a, _) = Bench::standard();
    let (from, to) = (bench.alloc(4096), page(&mut bench));
    let (key, local) = (free_key(&mut bench, AccessMode::Mtt), bench.key);
    bench.mkey_mut(key).context.w().umr_en(false);
    bench.post(a, &write(from, 100, local, to, local));
    bench.post(a, &Post { fence: true, ..register(key, 0x7000_0000_0000, 100, to) });
    bench.run();
    let syndromes: Vec<_> = bench.sent(a).iter().map(|done| done.syndrome).collect();
    assert_eq!(syndromes, [None, Some(CqeSyndrome::MemoryWindowBind)]);
    assert_eq!(bench.violations(), [rules::UMR]);
}

#[test]
fn a_key_that_the_peer_invalidated_is_free_until_an_update_says_otherwise() {
    let (mut bench, a, b) = Bench::standard();
    let to = page(&mut bench);
    let (key, local) = (free_key(&mut bench, AccessMode::Mtt), bench.key);
    bench.post(b, &register(key, 0, 100, to));
    bench.mkey_mut(key).context.w().en_rinval(true);
    bench.post_recv(b, &[]);
    bench.post(a, &send_inval(key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    assert!(bench.mkey_mut(key).context.free(), "as QUERY_MKEY says");
    bench.post(b, &umr(key, control(&[MkeyMaskBit::LocalWrite], UmrCheck::None, 0), &context(key, 0, 100), &[]));
    bench.post(a, &write(to, 100, local, 0, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
    assert_eq!(bench.violations(), [rules::KEY]);
}

#[test]
fn a_list_in_memory_goes_where_the_offset_says() {
    let (mut bench, a, _) = Bench::standard();
    let (list, first, second) = (bench.alloc(64), page(&mut bench), page(&mut bench));
    let key = free_key(&mut bench, AccessMode::Mtt);
    let local = bench.key;
    let entries = |page: u64| [(page | 3).to_be_bytes(), ((page + 4096) | 3).to_be_bytes()].concat();
    bench.post(a, &umr(key, control(REGISTER, UmrCheck::None, 1), &context(key, 0, 0x4000), &entries(first)));
    bench.write(list, &entries(second));
    let mut more = control(&[], UmrCheck::Free, 1);
    more.w().inline(false).translation_offset_en(true).xlt_offset(1);
    bench.post(a, &umr(key, more, &Mkc::ZERO, data(list, 16, local).as_bytes()));
    bench.run();
    assert_eq!(bench.sent(a).len(), 2);
    let Translation::Pages(pages) = &bench.mkey_mut(key).translation else { panic!("pages") };
    assert_eq!(pages.pages[..], [first, first + 4096, second, second + 4096]);
}

#[test]
fn an_update_of_what_is_not_as_it_should_be_is_refused_and_changes_nothing() {
    let refused = |change: fn(&mut Bench, u32, &mut UmrCtrlSeg), rule_of: &str| {
        let (mut bench, a, _) = Bench::standard();
        let memory = page(&mut bench);
        let key = free_key(&mut bench, AccessMode::Mtt);
        let mut control = control(REGISTER, UmrCheck::NotFree, 1);
        change(&mut bench, key, &mut control);
        let before = bench.mkey_mut(key).context;
        let list = [memory.to_be_bytes(), [0; 8]].concat();
        bench.post(a, &umr(key, control, &context(key, 0, 100), &list));
        bench.run();
        assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::MemoryWindowBind), "{rule_of}");
        assert_eq!(bench.state(a), QpState::Err, "{rule_of}");
        assert_eq!(bench.mkey_mut(key).context.as_bytes(), before.as_bytes(), "{rule_of}");
        assert_eq!(bench.violations(), [rules::UMR], "{rule_of}");
    };
    refused(|bench, key, _| bench.mkey_mut(key).set_free(false), "in use");
    refused(|_, _, control| _ = control.w().check_free(UmrCheck::Free.number() as u8), "free");
    refused(|bench, key, _| _ = bench.mkey_mut(key).context.w().umr_en(false), "without umr_en");
    refused(|bench, key, _| bench.mkey_mut(key).pd = PD + 1, "another protection domain");
    refused(|_, _, control| _ = control.w().check_qpn(true), "any queue pair's");
    refused(|_, _, control| _ = control.w().translation_offset_en(true).xlt_offset(4), "past its room");
    refused(|_, _, control| _ = control.w().mkey_mask(mkey_mask(REGISTER) | 1 << 12), "a signature");
    refused(|_, _, control| _ = control.w().mkey_mask(mkey_mask(&[MkeyMaskBit::Pd])), "its protection domain");
}

/// Maps 8 KiB of pages of that size by a free key.
fn register_large(key: u32, pages: [u64; 2]) -> Post {
    let mut large = context(key, 0, 8192);
    large.w().log_page_size(13);
    umr(key, control(REGISTER, UmrCheck::NotFree, 1), &large, &pages.map(u64::to_be_bytes).concat())
}

#[test]
fn a_page_that_is_not_aligned_to_its_size_is_refused_unless_it_is_absent() {
    for (is_on_demand, page, expected) in [
        (false, 0xffff_ffff_ffff_f003, Some(CqeSyndrome::MemoryWindowBind)),
        (true, 0xffff_ffff_ffff_f003, Some(CqeSyndrome::MemoryWindowBind)),
        (true, 0xffff_ffff_ffff_f000, None),
        (false, 0xffff_ffff_ffff_e003, None),
    ] {
        let (mut bench, a, _) = Bench::standard();
        bench.f.nic.firmware.caps.general.current.w().pg(is_on_demand);
        let key = free_key(&mut bench, AccessMode::Mtt);
        bench.post(a, &register_large(key, [page, 0]));
        bench.run();
        assert_eq!(bench.sent(a)[0].syndrome, expected, "{page:#x}");
    }
}

#[test]
fn pages_whose_size_is_changed_later_end_with_the_addresses() {
    let (mut bench, a, b) = Bench::standard();
    let (key, local) = (free_key(&mut bench, AccessMode::Mtt), bench.key);
    // Before it is used, as Linux does with a long list: the size changes with the last update.
    bench.mkey_mut(key).context.w().log_page_size(12);
    let mut large = context(key, 0, 8192);
    large.w().log_page_size(13);
    let list = [0xffff_ffff_ffff_f003u64.to_be_bytes(), [0; 8]].concat();
    bench.post(b, &umr(key, control(&[], UmrCheck::NotFree, 1), &Mkc::ZERO, &list));
    bench.post(b, &umr(key, control(REGISTER, UmrCheck::NotFree, 0), &large, &[]));
    bench.run();
    assert_eq!(bench.sent(b).iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None; 2]);
    bench.post(a, &write(MEMORY, 100, local, 4096, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
}

#[test]
fn the_room_of_a_key_is_any_number() {
    let (mut bench, a, _) = Bench::standard();
    let memory = page(&mut bench);
    let key = free_key(&mut bench, AccessMode::Mtt);
    bench.mkey_mut(key).context.w().translations_octword_size(u32::MAX);
    bench.post(a, &register(key, 0, 100, memory));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    assert_eq!(bench.violations(), [] as [&str; 0]);
}

#[test]
fn the_kernels_queue_moves_keys_between_protection_domains() {
    let mut bench = Bench::new();
    for _ in 0..=PD + 1 {
        _ = bench.f.nic.objects.pds.insert(Pd { users: 1 });
    }
    let shape = Shape { service: ServiceType::RegUmr, ..bench.shape() };
    let qpn = bench.qp(shape);
    bench.qp_mut(qpn).pd = 0;
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        bench.go(qpn, state);
    }
    let key = free_key(&mut bench, AccessMode::Mtt);
    let mut moved = Mkc::ZERO;
    moved.w().pd(PD + 1);
    bench.post(qpn, &umr(key, control(&[MkeyMaskBit::Pd], UmrCheck::None, 0), &moved, &[]));
    bench.run();
    assert_eq!(bench.sent(qpn)[0].opcode, CqeOpcode::Requester);
    assert_eq!(bench.mkey_mut(key).pd, PD + 1);
    let users = [PD, PD + 1].map(|pd| bench.f.nic.objects.pds.get(pd).unwrap().users);
    assert_eq!(users, [0, 2]);
    bench.post(qpn, &send(0, 0, 0));
    bench.run();
    assert_eq!(bench.sent(qpn)[0].syndrome, Some(CqeSyndrome::LocalQpOperation));
    assert_eq!(bench.violations(), [rules::WQE_OPCODE]);
}

#[test]
fn a_window_over_another_key_allows_what_both_do() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to) = (bench.alloc(8192), bench.alloc(8192));
    let local = bench.key;
    let behind = bench.mkey(to, Some(4096), MkeyRights::LOCAL_READ | MkeyRights::LOCAL_WRITE);
    let window = free_key(&mut bench, AccessMode::Klms);
    let klm = |address: u64, len: u32| {
        let mut klm = Klm::ZERO;
        klm.w().byte_count(len).mkey(behind).address(address);
        klm.as_bytes().to_vec()
    };
    // Two parts of the key, in reverse order.
    let list = [klm(to + 2048, 1000), klm(to, 1000)].concat();
    bench.post(b, &umr(window, control(REGISTER, UmrCheck::NotFree, 2), &context(window, 0x1000, 2000), &list));
    bench.run();
    bench.write(from, &pattern(1500, 3));
    bench.post(a, &write(from, 1500, local, 0x1000 + 400, window));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    assert_eq!(bench.read(to + 2048 + 400, 600), pattern(1500, 3)[..600]);
    assert_eq!(bench.read(to, 900), pattern(1500, 3)[600..]);
    bench.post(a, &read(from + 4096, 1500, local, 0x1000 + 400, window));
    bench.run();
    assert_eq!(bench.read(from + 4096, 1500), pattern(1500, 3));
    assert_eq!(bench.violations(), [] as [&str; 0]);
    bench.mkey_mut(behind).rights = MkeyRights::LOCAL_READ;
    bench.post(a, &write(from, 10, local, 0x1000, window));
    bench.run();
    assert_eq!(bench.sent(a).last().unwrap().syndrome, Some(CqeSyndrome::RemoteAccess));
}

/// A pattern of `repeat_count` turns of these entries: key, address, bytes taken, bytes to the next turn's.
fn pattern_of(repeat_count: u32, entries: &[(u32, u64, u16, u16)]) -> Vec<u8> {
    let cycle = entries.iter().map(|entry| u32::from(entry.2)).sum();
    let mut block = RepeatBlockSeg::ZERO;
    block.w().bcount_per_cycle(cycle).op(0x400).repeat_count(repeat_count).num_entries(entries.len() as u16);
    let mut list = block.as_bytes().to_vec();
    for (key, va, bcount, stride) in entries {
        let mut entry = RepeatEntry::ZERO;
        entry.w().key(*key).va(*va).bcount(*bcount).stride(*stride);
        list.extend_from_slice(entry.as_bytes());
    }
    list.resize(list.len().next_multiple_of(64), 0);
    list
}

#[test]
fn a_key_of_a_pattern_takes_a_piece_of_each_entry_in_turn() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to) = (bench.alloc(8192), bench.alloc(8192));
    let local = bench.key;
    let key = free_key(&mut bench, AccessMode::Klms);
    // Sectors of 60 bytes from a stretch of such, each followed by its 4 bytes of check sum from another.
    let list = pattern_of(16, &[(local, to, 60, 60), (local, to + 4096, 4, 8)]);
    bench.post(b, &umr(key, control(REGISTER, UmrCheck::NotFree, list.len() / 16), &context(key, 0, 1024), &list));
    bench.run();
    assert_eq!(bench.sent(b)[0].syndrome, None);
    bench.write(from, &pattern(1024, 9));
    // From the middle of a sector on, over several packets' worth of pieces.
    bench.post(a, &write(from + 30, 900, local, 30, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    let sent = pattern(1024, 9);
    for turn in 0..14usize {
        let (skip, start) = (if turn == 0 { 30 } else { 0 }, turn * 64);
        let sector = bench.read(to + turn as u64 * 60 + skip as u64, 60 - skip);
        assert_eq!(sector, sent[start + skip..start + 60], "sector {turn}");
        assert_eq!(bench.read(to + 4096 + turn as u64 * 8, 4), sent[start + 60..start + 64], "check sum {turn}");
        assert_eq!(bench.read(to + 4096 + turn as u64 * 8 + 4, 4), [0; 4], "between check sums");
    }
    bench.post(a, &read(from + 4096, 900, local, 30, key));
    bench.run();
    assert_eq!(bench.read(from + 4096, 900), sent[30..930]);
    assert_eq!(bench.violations(), [] as [&str; 0]);
    bench.post(a, &read(from + 4096, 995, local, 30, key));
    bench.run();
    assert_eq!(bench.sent(a).last().unwrap().syndrome, Some(CqeSyndrome::RemoteAccess), "past its end");
}

#[test]
fn a_pattern_reaches_no_further_than_the_keys_behind_it() {
    let (mut bench, a, b) = Bench::standard();
    let to = bench.alloc(4096);
    let behind = bench.mkey(to, Some(1000), ALL);
    let (key, local) = (free_key(&mut bench, AccessMode::Klms), bench.key);
    let list = pattern_of(11, &[(behind, to, 50, 100)]);
    bench.post(b, &umr(key, control(REGISTER, UmrCheck::NotFree, list.len() / 16), &context(key, 0, 550), &list));
    bench.run();
    bench.post(a, &read(to, 500, local, 0, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    bench.post(a, &read(to, 501, local, 0, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
    assert_eq!(bench.violations(), [rules::KEY]);
}

#[test]
fn a_pattern_that_is_not_sound_is_refused() {
    let refused = |change: fn(&mut Vec<u8>), offset: u16| {
        let (mut bench, a, _) = Bench::standard();
        let (key, local) = (free_key(&mut bench, AccessMode::Klms), bench.key);
        let mut list = pattern_of(4, &[(local, MEMORY, 60, 60)]);
        change(&mut list);
        let mut control = control(REGISTER, UmrCheck::NotFree, list.len() / 16 - usize::from(offset));
        control.w().translation_offset_en(offset != 0).xlt_offset(offset);
        bench.post(a, &umr(key, control, &context(key, 0, 100), &list));
        bench.run();
        assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::MemoryWindowBind));
        assert!(bench.mkey_mut(key).is_free());
        assert_eq!(bench.violations(), [rules::UMR]);
    };
    refused(|list| list[3] = 61, 0);
    refused(|list| list[15] = 9, 0);
    refused(|list| (list[3], list[19]) = (0, 0), 0);
    refused(|_| {}, 1);
}

/// Fields changed by binding a window, as libmlx5 does.
const BIND: &[MkeyMaskBit] = &[
    MkeyMaskBit::Len,
    MkeyMaskBit::StartAddr,
    MkeyMaskBit::Key,
    MkeyMaskBit::Qpn,
    MkeyMaskBit::LocalWrite,
    MkeyMaskBit::RemoteRead,
    MkeyMaskBit::RemoteWrite,
    MkeyMaskBit::Free,
];

/// Binds the window `key`, with that low byte, to 100 bytes of the key `behind` at `memory`, at the same address, for
/// the queue pair `qpn` or for all.
fn bind(key: u32, low: u8, check: UmrCheck, qpn: Option<u32>, behind: u32, memory: u64) -> Post {
    let mut bound = context(key, memory, 100);
    bound.w().mkey_7_0(low).qpn(qpn.unwrap_or(0xff_ffff));
    let mut klm = Klm::ZERO;
    klm.w().byte_count(100).mkey(behind).address(memory);
    umr(key, control(BIND, check, 1), &bound, klm.as_bytes())
}

fn send_inval(key: u32) -> Post {
    let mut send = Post::new(WqeOpcode::SendInval, vec![]);
    send.immediate = key;
    send
}

#[test]
fn a_window_bound_again_is_another_key_and_the_old_one_is_none() {
    let (mut bench, a, b) = Bench::standard();
    let memory = bench.alloc(4096);
    let (window, local) = (free_key(&mut bench, AccessMode::Klms), bench.key);
    for low in [1, 2] {
        bench.post(b, &bind(window, low, UmrCheck::None, None, local, memory));
        bench.run();
        bench.post(a, &write(memory + 1024, 100, local, memory, window & !0xff | u32::from(low)));
        bench.run();
        assert_eq!(bench.sent(a).last().unwrap().syndrome, None);
    }
    bench.post(a, &write(memory + 1024, 100, local, memory, window & !0xff | 1));
    bench.run();
    assert_eq!(bench.sent(a).last().unwrap().syndrome, Some(CqeSyndrome::RemoteAccess));
    assert_eq!(bench.violations(), [rules::KEY]);
}

#[test]
fn a_window_of_one_queue_pair_opens_nothing_to_others() {
    let (mut bench, a, b) = Bench::standard();
    let memory = bench.alloc(4096);
    let (window, local) = (free_key(&mut bench, AccessMode::Klms), bench.key);
    bench.post(b, &bind(window, window as u8, UmrCheck::NotFree, Some(a), local, memory));
    bench.run();
    bench.post(a, &write(memory + 1024, 100, local, memory, window));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteAccess), "it is not the responder's");
    assert_eq!(bench.violations(), [rules::KEY]);
}

#[test]
fn a_window_that_is_open_is_not_opened_again_before_it_was_closed() {
    let (mut bench, _, b) = Bench::standard();
    let memory = bench.alloc(4096);
    let (window, local) = (free_key(&mut bench, AccessMode::Klms), bench.key);
    for expected in [None, Some(CqeSyndrome::MemoryWindowBind)] {
        bench.post(b, &bind(window, window as u8, UmrCheck::NotFree, Some(b), local, memory));
        bench.run();
        assert_eq!(bench.sent(b)[0].syndrome, expected);
    }
    assert_eq!(bench.violations(), [rules::UMR]);
}

#[test]
fn a_window_of_one_queue_pair_is_not_closed_through_another() {
    for (owner_is_responder, expected) in [(true, None), (false, Some(CqeSyndrome::RemoteAccess))] {
        let (mut bench, a, b) = Bench::standard();
        let memory = bench.alloc(4096);
        let (window, local) = (free_key(&mut bench, AccessMode::Klms), bench.key);
        let owner = if owner_is_responder { b } else { a };
        bench.post(b, &bind(window, window as u8, UmrCheck::NotFree, Some(owner), local, memory));
        bench.mkey_mut(window).context.w().en_rinval(true);
        bench.post_recv(b, &[]);
        bench.post(a, &send_inval(window));
        bench.run();
        assert_eq!(bench.sent(a)[0].syndrome, expected);
        assert_eq!(bench.mkey_mut(window).is_free(), owner_is_responder);
    }
}
