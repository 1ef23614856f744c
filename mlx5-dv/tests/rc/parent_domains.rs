//! Parent domains: rings and doorbell records in memory of the user's.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mlx5_dv::memory::{HostMemory, MemoryOwner};
use mlx5_dv::objects::{
    CqOptions, MemoryRegion, Pd, QpOptions, QueuePair, Rq, RqOptions, Sq, SqOptions, Srq, SrqOptions, Tis,
    TransportDomain, Uar, UmrKeyOptions,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue};
use mlx5_dv::queue::{CompletionQueue, Connection, ConnectionOptions, FastKey, Hub, HubOptions};
use mlx5_dv::{Error, Invalid};
use mlx5_prm::cmd::Opcode;
use mlx5_sim::fault::{Fault, Times};

use crate::ends::{Card, SOON, all_rights, bytes, connected, pattern, write};

/// A mapping of the user's, which tells what it holds when it comes back.
struct Mine {
    mapping: memmap2::MmapMut,
    back: Arc<Mutex<Vec<Vec<u8>>>>,
}

// SAFETY: the mapping keeps its place and is reached by nobody else until the drop, when it was given back.
unsafe impl MemoryOwner for Mine {
    const WRITABLE: bool = true;

    fn bytes(&mut self) -> NonNull<[u8]> {
        self.mapping.bytes()
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        self.back.lock().unwrap().push(self.mapping.to_vec());
    }
}

/// Memory of the user's, a mapping for each call.
#[derive(Clone, Default)]
struct Arena {
    back: Arc<Mutex<Vec<Vec<u8>>>>,
    asked: Arc<AtomicUsize>,
}

impl Arena {
    /// A domain whose rings lie here, in pieces of at least `least` bytes.
    fn domain(&self, base: &Arc<Pd>, least: usize) -> Arc<Pd> {
        let arena = self.clone();
        base.alloc_parent(move |len| {
            arena.asked.fetch_add(1, Ordering::Relaxed);
            let mapping = memmap2::MmapMut::map_anon(len.max(least)).unwrap();
            HostMemory::of(Mine { mapping, back: Arc::clone(&arena.back) })
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// All that came back, one behind the other.
    fn content(&self) -> Vec<u8> {
        self.back.lock().unwrap().concat()
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn rings_lie_in_the_user_s_memory_and_it_comes_back_with_the_last_of_them() {
    for (least, pieces) in [(0, 4), (1 << 20, 1)] {
        let (card, arena) = (Card::new(), Arena::default());
        let domain = arena.domain(&card.pd, least);
        let mut ends =
            [0, 1].map(|_| Connection::new(&domain, ConnectionOptions::default()).expect("a connection of the domain"));
        let [a, b] = &mut ends;
        a.connect(&b.local().unwrap()).unwrap();
        b.connect(&a.local().unwrap()).unwrap();
        // A completion queue and a queue pair for each.
        assert_eq!(arena.asked(), pieces);
        let region = MemoryRegion::allocate(&domain, 4096, all_rights()).unwrap();
        let mut message = region.buffer(0..16).unwrap();
        message.write(0, b"in the send ring");
        b.receive(region.buffer(64..128).unwrap()).unwrap();
        a.send(message).unwrap();
        b.wait(SOON).unwrap();
        a.wait(SOON).unwrap();
        assert_eq!(bytes(&region, 64, 16), b"in the send ring");
        let remote = region.remote_at(128);
        write(a, &region, &pattern(64, 3), remote);
        let target = [remote.addr.to_be_bytes().as_slice(), &remote.rkey.to_be_bytes()].concat();
        assert!(arena.content().is_empty(), "the rings are in use");
        drop((ends, region));
        assert_eq!(arena.back.lock().unwrap().len(), pieces, "all came back");
        assert!(contains(&arena.content(), &target), "the WRITE's address and key, as its WQE has them");
        Pd::destroy(domain).unwrap();
        card.end();
    }
}

/// Each way to create rings, in `domain`: its name and its error.
fn creations(card: &Card, domain: &Arc<Pd>) -> Vec<(&'static str, Option<Error>)> {
    let device = &card.device;
    let uar = Uar::alloc(device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default().entries(63)).unwrap();
    let transport = TransportDomain::alloc(device).unwrap();
    let tis = Tis::create(&transport, 0).unwrap();
    let depth = QpOptions::default().wqes(16, 16);
    vec![
        ("CQ", CompletionQueue::create(&uar, CqOptions::default().parent_domain(domain)).err()),
        ("QP", QueuePair::create(domain, &uar, cq.cq(), cq.cq(), depth).err()),
        ("SRQ", Srq::create(domain, SrqOptions::default()).err()),
        ("SQ", Sq::create(domain, &uar, &tis, cq.cq(), SqOptions::default()).err()),
        ("RQ", Rq::create(domain, cq.cq(), RqOptions::default()).err()),
        ("connection", Connection::new(domain, ConnectionOptions::default()).err()),
        ("hub", Hub::<()>::new(domain, HubOptions::default()).err()),
        ("frames", EthernetQueue::new(domain, EthernetOptions::default()).err()),
    ]
}

#[test]
fn each_creation_takes_its_ring_from_the_domain() {
    let (card, arena) = (Card::new(), Arena::default());
    let none =
        card.pd.alloc_parent(|_| Err(Error::Memory { reason: "the arena is full".into(), fix: None, source: None }));
    for (name, refused) in creations(&card, &none) {
        let text = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("the arena is full"), "{name}: {text:?}");
    }
    let domain = arena.domain(&card.pd, 0);
    for (name, refused) in creations(&card, &domain) {
        assert!(refused.is_none(), "{name}: {refused:?}");
    }
    drop((none, domain));
    card.end();
}

#[test]
fn a_completion_queue_grows_in_its_domain() {
    let (card, arena) = (Card::new(), Arena::default());
    let domain = arena.domain(&card.pd, 0);
    let uar = Uar::alloc(&card.device).unwrap();
    let mut cq = CompletionQueue::create(&uar, CqOptions::default().entries(63).parent_domain(&domain)).unwrap();
    cq.resize(4095).unwrap();
    assert_eq!(arena.asked(), 2);
    drop((cq, uar));
    assert_eq!(arena.back.lock().unwrap().len(), 2);
    drop(domain);
    card.end();
}

#[test]
fn memory_that_cannot_hold_rings_is_refused() {
    let card = Card::new();
    let refusal = |memory: fn(usize) -> Result<HostMemory, Error>| {
        let domain = card.pd.alloc_parent(memory);
        Srq::create(&domain, SrqOptions::default()).unwrap_err()
    };
    let short = refusal(|_| HostMemory::allocate(4096));
    assert!(matches!(short, Error::Invalid(Invalid::OutOfRange { .. })), "{short:?}");
    let odd = refusal(|len| HostMemory::from_vec(vec![0; len + 100]));
    assert!(matches!(odd, Error::Invalid(Invalid::Misaligned { .. })), "{odd:?}");
    // Whole pages that others read.
    let read = refusal(|len| HostMemory::of(Shared(memmap2::MmapMut::map_anon(len).unwrap())));
    assert!(read.to_string().contains("MemoryOwner::WRITABLE"), "{read}");
    card.end();
}

struct Shared(memmap2::MmapMut);

// SAFETY: nobody writes the mapping, which keeps its place.
unsafe impl MemoryOwner for Shared {
    const WRITABLE: bool = false;

    fn bytes(&mut self) -> NonNull<[u8]> {
        self.0.bytes()
    }
}

#[test]
fn a_parent_domain_is_its_domain_for_every_key() {
    let (card, arena) = (Card::new(), Arena::default());
    let domain = arena.domain(&card.pd, 0);
    let again = arena.domain(&domain, 0);
    assert_eq!((domain.pdn(), again.pdn()), (card.pd.pdn(), card.pd.pdn()));
    let (mut a, b) = connected(&card);
    let region = MemoryRegion::allocate(&again, 4096, all_rights()).unwrap();
    write(&mut a, &region, &pattern(100, 1), region.remote_at(200));
    assert_eq!(bytes(&region, 200, 100), pattern(100, 1));
    let mut key = FastKey::create(&domain, UmrKeyOptions::default()).unwrap();
    key.push(region.buffer(0..64).unwrap()).unwrap();
    a.register(&mut key, all_rights()).unwrap();
    key.settle(&a.wait(SOON).unwrap());
    drop((key, a, b, region, domain, again));
    card.end();
}

#[test]
fn memory_that_the_card_may_still_use_never_comes_back() {
    let (card, arena) = (Card::new(), Arena::default());
    let domain = arena.domain(&card.pd, 0);
    let srq = Srq::create(&domain, SrqOptions::default()).unwrap();
    let refused = Fault::CommandStatus { opcode: Some(Opcode::DestroyRmp.number() as u16), status: 1, syndrome: 0 };
    card.sim.handle(0).faults().inject(refused, Times::Always);
    drop((srq, domain));
    assert_eq!((arena.asked(), arena.content().len()), (1, 0));
}
