//! Memory that is absent: page faults, and what their answers do.

use std::time::Duration;

use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_prm::ctx::{Klm, Mkc};
use mlx5_prm::eqe::{EventType, MemoryPageFaultEvent, RdmaPageFaultEvent, WqePageFaultEvent};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::{QpState, ServiceType};
use mlx5_prm::wqe::WqeOpcode;

use super::bench::*;
use crate::engine;
use crate::fault::{Fault, FrameFate, Times};
use crate::objects::{ABSENT_KEY, Mkey, OnDemand, PRESENT, PageList, Translation};
use crate::profile::odp_scheme;
use crate::strict::rules;

/// Where the memory on demand begins, as its key counts.
const START: u64 = 0x7000_0000_0000;
/// Its pages.
const PAGES: u64 = 8;
const PAGE: u64 = 4096;
const BYTES: u32 = (PAGES * PAGE) as u32;

/// Two queue pairs, memory on demand that is all absent, and an EQ for page faults.
struct Setup {
    bench: Bench,
    a: u32,
    b: u32,
    eqn: u32,
    /// The key on demand, and where its pages are.
    key: u32,
    memory: u64,
    /// Memory that is always there, and its key.
    other: u64,
    plain: u32,
}

/// What an event says.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// Number, index and type of the queue.
    Wqe {
        number: u32,
        index: u16,
        kind: u8,
        done: u32,
    },
    Remote {
        key: u32,
        address: u64,
        len: u32,
        done: u32,
        writes: bool,
    },
    Memory {
        key: u32,
        address: u64,
        pages: u32,
        ahead: u16,
    },
}

impl Setup {
    fn new() -> Self {
        Self::of(ServiceType::Rc)
    }

    fn of(service: ServiceType) -> Self {
        let mut bench = Bench::new();
        let caps = &mut bench.f.nic.firmware.caps;
        caps.general.current.w().pg(true);
        caps.odp.current.w().transport_page_fault_scheme_cap(&odp_scheme());
        let shape = Shape { service, ..bench.shape() };
        let (a, b) = bench.pair(shape);
        let eqn = bench.eq(6, &[EventType::PageFault]);
        let memory = bench.alloc(PAGES * PAGE);
        let other = bench.alloc(PAGES * PAGE);
        let key = on_demand(&mut bench, START, PAGES);
        let plain = bench.key;
        Setup { bench, a, b, eqn, key, memory, other, plain }
    }

    fn list(&mut self) -> &mut OnDemand {
        match &mut self.bench.mkey_mut(self.key).translation {
            Translation::OnDemand(list) => list,
            other => panic!("{other:?}"),
        }
    }

    /// Lets pages be there with these rights, or takes them away.
    fn set(&mut self, pages: std::ops::Range<u64>, rights: u8) {
        let memory = self.memory;
        let list = self.list();
        let (mut addresses, mut all) = (list.pages.pages.to_vec(), list.rights.to_vec());
        for page in pages {
            (addresses[page as usize], all[page as usize]) = (memory + page * PAGE, rights);
        }
        (list.pages.pages, list.rights) = (addresses.into(), all.into());
    }

    fn bring(&mut self) {
        self.set(0..PAGES, PRESENT);
    }

    /// The next event and its token.
    fn told(&mut self) -> Option<(Told, u32)> {
        let (event, data) = self.bench.event(self.eqn)?;
        assert_eq!(event, EventType::PageFault);
        if self.bench.f.nic.firmware.caps.odp().mem_page_fault() {
            let event = MemoryPageFaultEvent::read(&data).unwrap();
            assert_eq!(event.flags(), 0x80, "the only one of its token");
            let address = u64::from_be_bytes(*event.va());
            let (pages, ahead) = (event.demand_fault_pages() >> 12, event.post_demand_fault_pages());
            return Some((Told::Memory { key: event.mkey(), address, pages, ahead }, event.token31_0()));
        }
        let remote = RdmaPageFaultEvent::read(&data).unwrap();
        if remote.rdma() {
            let (key, address, len) = (remote.r_key(), remote.rdma_va(), remote.rdma_op_len());
            let (done, writes) = (remote.bytes_committed(), remote.write());
            return Some((Told::Remote { key, address, len, done, writes }, remote.qp_number()));
        }
        let wqe = WqePageFaultEvent::read(&data).unwrap();
        let kind = u8::from(wqe.requestor()) | u8::from(wqe.write_read()) << 1;
        let (number, index, done) = (wqe.qpn(), wqe.wqe_index(), wqe.bytes_committed());
        Some((Told::Wqe { number, index, kind, done }, wqe.token()))
    }

    fn answer(&mut self, token: u32, failed: bool) {
        let fault = self.bench.f.nic.scheduler.page_faults.take(token, |_| true).expect("a pending fault");
        engine::resume(&mut self.bench.f, token, fault, failed);
    }

    /// One fault as `expected`: nothing completes before its pages are brought and it is answered.
    fn faults_once(&mut self, expected: Told) {
        self.bench.run_for(Duration::from_secs(60));
        let (a, b) = (self.a, self.b);
        assert_eq!((self.bench.sent(a), self.bench.received(b)), (vec![], vec![]), "it waits, however long");
        let (told, token) = self.told().expect("a page fault");
        assert_eq!(told, expected);
        assert_eq!(self.told(), None, "told once, however often the peer tries");
        self.bring();
        self.answer(token, false);
        self.bench.run_for(Duration::from_secs(60));
        assert_eq!(self.told(), None);
        assert_eq!(self.bench.violations(), Vec::<&str>::new());
    }

    /// One fault, whose pages cannot be had: what the requester's completion says.
    fn fails_once(&mut self) -> Option<CqeSyndrome> {
        self.bench.run();
        let (_, token) = self.told().expect("a page fault");
        self.answer(token, true);
        self.bench.run_for(Duration::from_secs(60));
        let a = self.a;
        let done = self.bench.sent(a);
        assert_eq!(done.len(), 1);
        assert_eq!((self.told(), self.bench.state(a)), (None, QpState::Err));
        done[0].syndrome
    }
}

/// A key of absent pages.
fn on_demand(bench: &mut Bench, start: u64, pages: u64) -> u32 {
    let mut context = Mkc::ZERO;
    context.w().pd(PD).qpn(0xff_ffff).mkey_7_0(0x42).start_addr(start).len(pages * PAGE).log_page_size(12);
    context.w().lr(true).lw(true).rr(true).rw(true).a(true);
    let list = PageList { page_shift: 12, offset: 0, pages: vec![0; pages as usize].into() };
    let absent = OnDemand { pages: list, rights: vec![0; pages as usize].into() };
    bench.f.nic.objects.mkeys.insert(Mkey::new(&context, Translation::OnDemand(absent), None)).unwrap() << 8 | 0x42
}

#[test]
fn a_message_waits_for_the_pages_that_it_is_gathered_from() {
    let mut g = Setup::new();
    let (a, b) = (g.a, g.b);
    g.bench.write(g.memory, &pattern(10_000, 3));
    g.set(0..1, PRESENT);
    g.bench.post_recv(b, &[data(g.other, BYTES, g.plain)]);
    let index = g.bench.post(a, &send(START, 10_000, g.key));
    g.faults_once(Told::Wqe { number: a, index, kind: 1, done: 4096 });
    assert_eq!(g.bench.sent(a).len(), 1);
    assert_eq!(g.bench.received(b)[0].len, 10_000);
    assert_eq!(g.bench.read(g.other, 10_000), pattern(10_000, 3));
}

#[test]
fn a_response_waits_for_its_pages_and_is_asked_for_again() {
    let mut g = Setup::new();
    let (a, b) = (g.a, g.b);
    g.bench.write(g.other, &pattern(20_000, 5));
    g.set(0..2, PRESENT);
    let index = g.bench.post(a, &read(START, 20_000, g.key, g.other, g.plain));
    g.faults_once(Told::Wqe { number: a, index, kind: 3, done: 8192 });
    assert_eq!(g.bench.sent(a)[0].syndrome, None);
    assert_eq!(g.bench.read(g.memory, 20_000), pattern(20_000, 5));
    assert_eq!(g.bench.qp_mut(b).state, QpState::Rts);
}

#[test]
fn a_page_that_may_only_be_read_is_absent_for_who_writes_it() {
    let mut g = Setup::new();
    let (a, b) = (g.a, g.b);
    g.set(0..PAGES, 1);
    g.bench.post_recv(b, &[data(g.other, BYTES, g.plain)]);
    g.bench.post(a, &send(START, 5000, g.key));
    g.bench.run();
    assert_eq!((g.told(), g.bench.sent(a).len(), g.bench.received(b).len()), (None, 1, 1));
    let index = g.bench.post(a, &read(START, 5000, g.key, g.other, g.plain));
    g.faults_once(Told::Wqe { number: a, index, kind: 3, done: 0 });
    assert_eq!(g.bench.sent(a)[0].syndrome, None);
}

#[test]
fn a_send_waits_for_the_pages_of_its_receive() {
    let mut g = Setup::new();
    let (a, b) = (g.a, g.b);
    g.bench.write(g.other, &pattern(9000, 7));
    let index = g.bench.post_recv(b, &[data(START, BYTES, g.key)]);
    g.bench.post(a, &send(g.other, 9000, g.plain));
    g.faults_once(Told::Wqe { number: b, index, kind: 2, done: 0 });
    assert_eq!((g.bench.sent(a)[0].syndrome, g.bench.received(b)[0].len), (None, 9000));
    assert_eq!(g.bench.read(g.memory, 9000), pattern(9000, 7));
}

#[test]
fn the_fault_of_a_shared_receive_names_its_queue() {
    let mut g = Setup::new();
    let srqn = g.bench.srq(None);
    let shape = Shape { srqn: Some(srqn), ..g.bench.shape() };
    (g.a, g.b) = g.bench.pair(shape);
    g.bench.write(g.other, &pattern(900, 7));
    g.bench.post_srq(srqn, 0, &[data(START, BYTES, g.key)]);
    let a = g.a;
    g.bench.post(a, &send(g.other, 900, g.plain));
    g.faults_once(Told::Wqe { number: srqn, index: 0, kind: 0, done: 0 });
    assert_eq!(g.bench.sent(a)[0].syndrome, None);
    assert_eq!(g.bench.read(g.memory, 900), pattern(900, 7));
}

#[test]
fn a_remote_write_waits_for_its_pages() {
    let mut g = Setup::new();
    let a = g.a;
    g.bench.write(g.other, &pattern(12_000, 9));
    g.set(0..1, PRESENT);
    g.bench.post(a, &write(g.other, 12_000, g.plain, START + 100, g.key));
    g.faults_once(Told::Remote { key: g.key, address: START + 100, len: 12_000, done: 3072, writes: true });
    assert_eq!(g.bench.sent(a)[0].syndrome, None);
    assert_eq!(g.bench.read(g.memory + 100, 12_000), pattern(12_000, 9));
}

#[test]
fn a_remote_read_waits_for_its_first_page() {
    let mut g = Setup::new();
    let a = g.a;
    g.bench.write(g.memory, &pattern(12_000, 9));
    g.bench.post(a, &read(g.other, 12_000, g.plain, START, g.key));
    g.faults_once(Told::Remote { key: g.key, address: START, len: 12_000, done: 0, writes: false });
    assert_eq!(g.bench.sent(a)[0].syndrome, None);
    assert_eq!(g.bench.read(g.other, 12_000), pattern(12_000, 9));
}

#[test]
fn a_response_that_has_begun_waits_for_the_pages_of_its_rest() {
    let mut g = Setup::new();
    let a = g.a;
    g.bench.write(g.memory, &pattern(12_000, 9));
    g.set(0..1, PRESENT);
    g.bench.post(a, &read(g.other, 12_000, g.plain, START, g.key));
    g.bench.run();
    let (told, token) = g.told().unwrap();
    let rest = 12_000 - 4096;
    assert_eq!(told, Told::Remote { key: g.key, address: START + 4096, len: rest, done: 0, writes: false });
    // The peer loses patience and asks for the rest again: the response goes on all the same, and once.
    g.bench.run_for(Duration::from_millis(200));
    assert_eq!((g.told(), g.bench.sent(a)), (None, vec![]));
    g.bring();
    g.answer(token, false);
    g.bench.run_for(Duration::from_secs(1));
    assert_eq!((g.told(), g.bench.sent(a).len()), (None, 1));
    assert_eq!(g.bench.read(g.other, 12_000), pattern(12_000, 9));
    assert_eq!(g.bench.violations(), Vec::<&str>::new());
}

#[test]
fn an_atomic_waits_on_both_sides_and_is_executed_once() {
    let mut g = Setup::new();
    let a = g.a;
    g.bench.write(g.memory, &40u64.to_le_bytes());
    let add = |g: &Setup, at, key, to, rkey| {
        let _ = g;
        Post::new(WqeOpcode::AtomicFa, vec![Seg::Remote(to, rkey), Seg::Atomic(2, 0), Seg::Data(at, 8, key)])
    };
    let post = add(&g, g.other, g.plain, START, g.key);
    g.bench.post(a, &post);
    g.faults_once(Told::Remote { key: g.key, address: START, len: 8, done: 0, writes: true });
    assert_eq!(g.bench.sent(a)[0].syndrome, None);
    assert_eq!(g.bench.read(g.memory, 8), 42u64.to_le_bytes());
    // And where its result goes.
    g.set(0..PAGES, 0);
    g.bench.write(g.other, &50u64.to_le_bytes());
    let post = add(&g, START + 64, g.key, g.other, g.plain);
    let index = g.bench.post(a, &post);
    g.faults_once(Told::Wqe { number: a, index, kind: 3, done: 0 });
    assert_eq!(g.bench.sent(a)[0].syndrome, None);
    assert_eq!(g.bench.read(g.other, 8), 52u64.to_le_bytes(), "once");
    assert_eq!(g.bench.read(g.memory + 64, 8), 50u64.to_le_bytes(), "in the order that the driver chose");
}

#[test]
fn pages_that_cannot_be_had_end_the_work_in_error() {
    let mut g = Setup::new();
    g.bench.post(g.a, &send(START, 100, g.key));
    assert_eq!(g.fails_once(), Some(CqeSyndrome::LocalProtection));
    let mut g = Setup::new();
    g.bench.post(g.a, &read(START, 100, g.key, g.other, g.plain));
    assert_eq!(g.fails_once(), Some(CqeSyndrome::LocalProtection));
    let mut g = Setup::new();
    g.bench.post(g.a, &write(g.other, 100, g.plain, START, g.key));
    assert_eq!(g.fails_once(), Some(CqeSyndrome::RemoteAccess));
    assert_eq!(g.bench.state(g.b), QpState::Err);
    let mut g = Setup::new();
    g.set(0..1, PRESENT);
    g.bench.post(g.a, &read(g.other, 8000, g.plain, START, g.key));
    assert_eq!(g.fails_once(), Some(CqeSyndrome::RemoteOperation), "a response that has begun");
    let mut g = Setup::new();
    g.bench.post_recv(g.b, &[data(START, BYTES, g.key)]);
    g.bench.post(g.a, &send(g.other, 100, g.plain));
    assert_eq!(g.fails_once(), Some(CqeSyndrome::RemoteOperation));
    assert_eq!(g.bench.received(g.b)[0].syndrome, Some(CqeSyndrome::LocalProtection));
}

#[test]
fn what_was_lost_before_pages_that_cannot_be_had_is_sent_again() {
    let mut g = Setup::new();
    let (a, b) = (g.a, g.b);
    g.bench.post_recv(b, &[data(g.other, BYTES, g.plain)]);
    g.bench.f.nic.faults.inject(Fault::Frame { fate: FrameFate::Lost, per_million: 1_000_000 }, Times::Count(1));
    g.bench.post(a, &send(g.other, 100, g.plain));
    g.bench.post(a, &send(START, 100, g.key));
    // The timer of the first expires while the second waits.
    g.bench.run_for(Duration::from_secs(60));
    assert_eq!(g.bench.sent(a), []);
    let (_, token) = g.told().expect("a page fault");
    g.answer(token, true);
    g.bench.run_for(Duration::from_secs(60));
    let syndromes: Vec<_> = g.bench.sent(a).iter().map(|done| done.syndrome).collect();
    assert_eq!(syndromes, [None, Some(CqeSyndrome::LocalProtection)]);
    assert_eq!((g.bench.received(b).len(), g.bench.state(a)), (1, QpState::Err));
}

#[test]
fn absent_memory_is_an_error_where_nobody_answers() {
    let mut g = Setup::new();
    g.bench.f.nic.objects.eqs.remove(g.eqn);
    g.bench.post(g.a, &write(g.other, 100, g.plain, START, g.key));
    g.bench.run();
    assert_eq!(g.bench.sent(g.a)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
    assert_eq!(g.bench.violations(), [rules::ABSENT]);
    // An unreliable connection cannot ask for a packet again.
    let mut g = Setup::of(ServiceType::Uc);
    g.bench.post(g.a, &write(g.other, 100, g.plain, START, g.key));
    g.bench.run();
    assert_eq!((g.told(), g.bench.sent(g.a)[0].syndrome), (None, None));
    assert_eq!(g.bench.violations(), [rules::ABSENT]);
    // The driver chose not to let shared receives wait.
    let mut g = Setup::new();
    let (mut scheme, caps) = (odp_scheme(), &mut g.bench.f.nic.firmware.caps.odp.current);
    let mut rc = *scheme.rc_odp_caps();
    rc.w().srq_receive(false);
    scheme.w().rc_odp_caps(&rc);
    caps.w().transport_page_fault_scheme_cap(&scheme);
    let srqn = g.bench.srq(None);
    let shape = Shape { srqn: Some(srqn), ..g.bench.shape() };
    (g.a, g.b) = g.bench.pair(shape);
    g.bench.post_srq(srqn, 0, &[data(START, BYTES, g.key)]);
    g.bench.post(g.a, &send(g.other, 100, g.plain));
    g.bench.run();
    assert_eq!((g.told(), g.bench.sent(g.a)[0].syndrome), (None, Some(CqeSyndrome::RemoteOperation)));
    assert_eq!(g.bench.violations(), [rules::ABSENT]);
}

#[test]
fn a_queue_pair_that_ends_waits_no_more() {
    let mut g = Setup::new();
    g.bench.post(g.a, &send(START, 100, g.key));
    g.bench.run();
    let (_, token) = g.told().unwrap();
    g.bench.go(g.a, QpState::Rst);
    let faults = &mut g.bench.f.nic.scheduler.page_faults;
    assert!(faults.was_given(token.into()), "its answer is no mistake");
    assert_eq!(faults.take(token, |_| true), None);
}

#[test]
fn a_fault_of_memory_names_the_key_of_its_pages() {
    let mut g = Setup::new();
    let caps = &mut g.bench.f.nic.firmware.caps.odp.current;
    let scheme = *caps.transport_page_fault_scheme_cap();
    caps.w().memory_page_fault_scheme_cap(&scheme).mem_page_fault(true);
    // Four fixed pieces of two pages: all absent, but the second leads to the memory on demand.
    let mut context = Mkc::ZERO;
    context.w().pd(PD).qpn(0xff_ffff).mkey_7_0(0x42).length64(true).log_page_size(13).rw(true).rr(true).lr(true);
    let piece = |key, address| {
        let mut piece = Klm::ZERO;
        piece.w().mkey(key).address(address);
        piece
    };
    let nowhere = on_demand(&mut g.bench, 0, 4 * PAGES);
    let pieces = vec![piece(nowhere, 0), piece(g.key, START), piece(ABSENT_KEY, 0), piece(nowhere, 3 << 13)];
    let mkeys = &mut g.bench.f.nic.objects.mkeys;
    let whole = mkeys.insert(Mkey::new(&context, Translation::FixedKeys(pieces), None)).unwrap() << 8 | 0x42;
    g.bench.write(g.other, &pattern(8000, 2));
    g.bench.post(g.a, &write(g.other, 8000, g.plain, (1 << 13) + 50, whole));
    g.faults_once(Told::Memory { key: g.key, address: START + 50, pages: 1, ahead: 2 });
    assert_eq!(g.bench.sent(g.a)[0].syndrome, None);
    assert_eq!(g.bench.read(g.memory + 50, 8000), pattern(8000, 2));
    for (at, key, address) in [(10, nowhere, 10), (2 << 13, ABSENT_KEY, 0), (3 << 13, nowhere, 3 << 13)] {
        g.bench.post(g.a, &write(g.other, 100, g.plain, at, whole));
        g.bench.run();
        let (told, token) = g.told().unwrap();
        assert_eq!(told, Told::Memory { key, address, pages: 1, ahead: 0 });
        // Another key stands there now.
        let Translation::FixedKeys(pieces) = &mut g.bench.mkey_mut(whole).translation else { panic!() };
        pieces[at as usize >> 13] = piece(g.key, START + 4096);
        g.answer(token, false);
        g.bench.run_for(Duration::from_secs(1));
        assert_eq!(g.bench.sent(g.a)[0].syndrome, None);
    }
    g.bench.post(g.a, &write(g.other, 100, g.plain, 4 << 13, whole));
    g.bench.run();
    assert_eq!((g.told(), g.bench.sent(g.a)[0].syndrome), (None, Some(CqeSyndrome::RemoteAccess)), "past the pieces");
}

/// A small generator: the run is the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn pages_come_and_go_while_messages_flow_and_every_byte_arrives() {
    for seed in 0..20 {
        let (mut g, mut dice) = (Setup::new(), Dice(seed));
        let (a, b) = (g.a, g.b);
        for round in 0..12u8 {
            let len = 1 + dice.below(u64::from(BYTES)) as u32;
            let (memory, other, key, plain) = (g.memory, g.other, g.key, g.plain);
            let kind = dice.below(4);
            let (from, to) = if kind % 2 == 0 { (memory, other) } else { (other, memory) };
            let expected = pattern(len as usize, round ^ seed as u8);
            g.bench.write(to, &vec![0; len as usize]);
            g.bench.write(from, &expected);
            match kind {
                0 => g.bench.post_recv(b, &[data(other, BYTES, plain)]),
                1 => g.bench.post_recv(b, &[data(START, BYTES, key)]),
                _ => 0,
            };
            let post = match kind {
                0 => send(START, len, key),
                1 => send(other, len, plain),
                2 => read(other, len, plain, START, key),
                _ => write(other, len, plain, START, key),
            };
            g.bench.post(a, &post);
            let mut done = Vec::new();
            for _ in 0..10_000 {
                // A turn at a time: pages go at any point of a message.
                engine::run(&mut g.bench.f);
                if let Some(next) = engine::next_deadline(&g.bench.f) {
                    g.bench.f.nic.now = next.max(g.bench.f.nic.now);
                }
                let page = dice.below(PAGES);
                g.set(page..page + 1, 0);
                if let Some((_, token)) = g.told() {
                    g.bring();
                    g.answer(token, false);
                }
                done = g.bench.sent(a);
                if !done.is_empty() {
                    break;
                }
            }
            assert_eq!(done.iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None], "seed {seed}, {kind}");
            assert_eq!(g.bench.received(b).len(), usize::from(kind < 2));
            assert!(g.bench.read(to, len as usize) == expected, "seed {seed}, round {round}: other bytes");
            assert!(done[0].opcode == CqeOpcode::Requester);
        }
        assert_eq!(g.bench.violations(), Vec::<&str>::new());
    }
}
