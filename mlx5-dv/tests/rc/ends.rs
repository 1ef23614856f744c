//! Two connected queue pairs, and their software card.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, DoorbellMode, InitAttributes, MemoryRegion, Pd, QpOptions,
    QueuePair, RtrAttributes, RtsAttributes, Uar,
};
use mlx5_dv::queue::{
    Completion, CompletionQueue, Connection, ConnectionOptions, ReceiveQueue, RemoteAddress, SendQueue, WaitError,
    Work, WorkError,
};
use mlx5_open::Sim;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_sim::profile::Profile;

/// Limit for everything that must succeed.
pub const SOON: Duration = Duration::from_secs(20);

/// All access rights of a region.
pub fn all_rights() -> AccessFlags {
    AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE
}

/// A card whose strict-mode reports [`end`](Self::end) checks.
pub struct Card {
    pub sim: Sim,
    pub device: Arc<Device>,
    pub pd: Arc<Pd>,
}

impl Card {
    pub fn new() -> Card {
        Card::of(Profile::connectx5())
    }

    /// A card with the capabilities of `profile`.
    pub fn of(profile: Profile) -> Card {
        let sim = Sim::builder().profile(profile).build().unwrap();
        let device = sim.open(0).unwrap();
        let pd = Pd::alloc(&device).unwrap();
        Card { sim, device, pd }
    }

    /// Checks that all objects are destroyed and that the card reports no violation.
    pub fn end(self) {
        self.end_after(&[]);
    }

    /// As [`end`](Self::end), for a test with deliberate violations: the card must report exactly `rules`.
    pub fn end_after(self, rules: &[&str]) {
        let mut broken: Vec<_> = self.sim.violations().iter().map(|violation| violation.rule).collect();
        broken.sort_unstable();
        broken.dedup();
        assert_eq!(broken, rules);
        let handle = self.sim.handle(0);
        Pd::destroy(self.pd).unwrap();
        drop(self.device);
        let counts = handle.counts();
        assert_eq!((counts.qps, counts.cqs, counts.mkeys, counts.umems, counts.uars), (0, 0, 0, 0, 0), "{counts:?}");
        assert_eq!((counts.dma_ranges, counts.pages_held), (0, 0), "{counts:?}");
        assert_eq!(self.sim.violations(), []);
    }

    pub fn region(&self, len: usize) -> Arc<MemoryRegion> {
        MemoryRegion::allocate(&self.pd, len, all_rights()).unwrap()
    }
}

/// Differences from the default setup.
pub struct Setup {
    pub qp: QpOptions,
    pub cq: CqOptions,
    pub rts: RtsAttributes,
    pub remote_access: AccessFlags,
    pub min_rnr_timer: u8,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            qp: QpOptions::default().wqes(16, 16).sges(4, 4).inline_bytes(200),
            cq: CqOptions::default().entries(63),
            rts: RtsAttributes::new(0),
            remote_access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
            min_rnr_timer: 1,
        }
    }
}

/// One end of a connection.
pub struct End<D: DoorbellMode = AnyDoorbell> {
    pub sq: SendQueue<D>,
    pub rq: ReceiveQueue,
    pub cq: CompletionQueue,
    pub qp: Arc<QueuePair>,
}

/// Two connected ends on one card.
pub fn pair(card: &Card) -> (End, End) {
    pair_of(card, &Setup::default())
}

/// As [`pair`], with the given setup.
pub fn pair_of(card: &Card, setup: &Setup) -> (End, End) {
    pair_with(card, setup)
}

/// As [`pair_of`], with doorbell mode `D`.
pub fn pair_with<D: DoorbellMode>(card: &Card, setup: &Setup) -> (End<D>, End<D>) {
    pair_on(card, setup, [(); 2].map(|()| Uar::alloc(&card.device).unwrap()))
}

/// As [`pair_with`], each end on a page of its own, or both on one.
pub fn pair_on<D: DoorbellMode>(card: &Card, setup: &Setup, pages: [Arc<Uar>; 2]) -> (End<D>, End<D>) {
    let [left, right] = pages.map(|uar| {
        let cq = CompletionQueue::create(&uar, setup.cq.clone()).unwrap();
        let qp = QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), setup.qp.clone()).unwrap();
        qp.init(&InitAttributes { remote_access: setup.remote_access, ..InitAttributes::default() }).unwrap();
        (cq, qp)
    });
    connect(card, setup, left, right)
}

/// As [`pair`], with queue pairs that were reset before.
pub fn connect_again(
    card: &Card,
    left: (CompletionQueue, Arc<QueuePair>),
    right: (CompletionQueue, Arc<QueuePair>),
) -> (End, End) {
    for (_, qp) in [&left, &right] {
        qp.init(&InitAttributes::default()).unwrap();
    }
    connect(card, &Setup::default(), left, right)
}

fn connect<D: DoorbellMode>(
    card: &Card,
    setup: &Setup,
    left: (CompletionQueue, Arc<QueuePair>),
    right: (CompletionQueue, Arc<QueuePair>),
) -> (End<D>, End<D>) {
    let (left_qpn, right_qpn) = (left.1.qpn(), right.1.qpn());
    (end(card, setup, left, right_qpn, (100, 200)), end(card, setup, right, left_qpn, (200, 100)))
}

fn end<D: DoorbellMode>(
    card: &Card,
    setup: &Setup,
    (cq, qp): (CompletionQueue, Arc<QueuePair>),
    remote_qpn: u32,
    (sq_psn, rq_psn): (u32, u32),
) -> End<D> {
    let path = AddressPath::link_local(card.device.gids()[0].address.octets()).unwrap();
    let mut rtr = RtrAttributes::new(remote_qpn, rq_psn, path);
    rtr.min_rnr_timer = setup.min_rnr_timer;
    qp.ready_to_receive(&rtr).unwrap();
    qp.ready_to_send(&RtsAttributes { sq_psn, ..setup.rts }).unwrap();
    End { sq: qp.send_queue().unwrap(), rq: qp.receive_queue().unwrap(), cq, qp }
}

impl<D: DoorbellMode> End<D> {
    /// The next completion, retired: its `wr_id` and result.
    pub fn next(&mut self) -> (u64, Result<Completion, WorkError>) {
        let deadline = Instant::now() + SOON;
        let result = loop {
            if let Some(result) = self.cq.poll() {
                break result;
            }
            assert!(Instant::now() < deadline, "no completion; {:?}", self.qp.query());
            std::thread::yield_now();
        };
        (self.retire(&work(&result)), result)
    }

    pub fn retire(&mut self, work: &Work) -> u64 {
        match work.side {
            mlx5_dv::queue::Side::Send => self.sq.retire(work).unwrap(),
            mlx5_dv::queue::Side::Receive => self.rq.retire(work).unwrap(),
        }
    }

    /// The next completion, which must be successful.
    #[track_caller]
    pub fn good(&mut self) -> (u64, Completion) {
        let (wr_id, result) = self.next();
        (wr_id, result.unwrap())
    }

    /// The next completion, which must be an error.
    #[track_caller]
    pub fn bad(&mut self) -> (u64, WorkError) {
        let (wr_id, result) = self.next();
        (wr_id, result.unwrap_err())
    }

    /// Posts one receive for all of `region`.
    pub fn receive(&mut self, wr_id: u64, region: &MemoryRegion) {
        let mut batch = self.rq.batch();
        // SAFETY: the tests keep their regions until their queue pairs are destroyed, and read them only after
        // completions.
        unsafe { batch.receive(wr_id, &[region.segment(0..region.len())]).unwrap() };
        batch.ring();
    }
}

pub fn work(result: &Result<Completion, WorkError>) -> Work {
    match result {
        Ok(completion) => completion.work,
        Err(error) => error.work,
    }
}

/// A byte pattern that differs for each `seed`.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

/// The content of `region` from `offset` on.
pub fn bytes(region: &MemoryRegion, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(offset, &mut bytes);
    bytes
}

/// Two connections with each other.
pub fn connected(card: &Card) -> (Connection, Connection) {
    connected_by(card, &ConnectionOptions::default())
}

/// As [`connected`], in place of `before`: the second end has the number of the one before.
pub fn connected_anew(card: &Card, before: (Connection, Connection)) -> (Connection, Connection) {
    let qpn = before.1.queue_pair().qpn();
    drop(before);
    let ends = connected(card);
    assert_eq!(ends.1.queue_pair().qpn(), qpn, "the number is used again");
    ends
}

/// Two connections with each other, of these options.
pub fn connected_by(card: &Card, options: &ConnectionOptions) -> (Connection, Connection) {
    let mut a = Connection::new(&card.pd, options.clone()).unwrap();
    let mut b = Connection::new(&card.pd, options.clone()).unwrap();
    a.connect(&b.local().unwrap()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    (a, b)
}

/// Writes `data` by way of `remote`.
pub fn write(from: &mut Connection, region: &Arc<MemoryRegion>, data: &[u8], remote: RemoteAddress) {
    let mut buffer = region.buffer(0..data.len()).unwrap();
    buffer.write(0, data);
    from.write_blocking(buffer, remote, SOON).unwrap();
}

/// The remote refuses to be written at `remote`; the connection is unusable then.
pub fn is_refused(from: &mut Connection, region: &Arc<MemoryRegion>, remote: RemoteAddress) {
    match from.write_blocking(region.buffer(0..1).unwrap(), remote, SOON) {
        Err(WaitError::Failed { error, .. }) => assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess)),
        other => panic!("{other:?}"),
    }
}
