//! Datagrams on the software card: to whom they go, what they bring along, what is lost, every refusal.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::objects::{
    AccessFlags, AddressHandle, AddressPath, AnyDoorbell, BlueFlame, Buffer, CqOptions, DatagramAttributes,
    DoorbellMode, ExclusiveRegion, InitAttributes, MULTICAST_QPN, Membership, MemoryRegion, Pd, Plain, QpChanges,
    QpOptions, QueuePair, RtrAttributes, RtsAttributes, Uar,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue};
use mlx5_dv::queue::{
    Completion, CompletionQueue, DatagramEndpoint, DatagramOptions, DatagramQueue, DatagramSendQueue, Failure, Full,
    GRH, PostError, ReceiveQueue, RefusedReason, Side, WorkError, WrFlags,
};
use mlx5_dv::{Device, Error};
use mlx5_open::Sim;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::values::{QpState, ServiceType};
use mlx5_sim::profile::Profile;

const SOON: std::time::Duration = std::time::Duration::from_secs(20);
const QKEY: u32 = 0x1111_1111;
/// Bytes of a receive.
const ROOM: usize = 2048;

/// A function with one queue pair of datagrams.
struct UdEnd<D: DoorbellMode = AnyDoorbell> {
    sq: DatagramSendQueue<D>,
    rq: ReceiveQueue,
    cq: CompletionQueue,
    qp: Arc<QueuePair>,
    region: Arc<MemoryRegion>,
    device: Arc<Device>,
}

fn options() -> QpOptions {
    QpOptions::default().datagrams().wqes(16, 16).sges(3, 1).inline_bytes(200)
}

impl<D: DoorbellMode> UdEnd<D> {
    fn new(device: &Arc<Device>, qkey: u32) -> Self {
        let pd = Pd::alloc(device).unwrap();
        let uar = Uar::alloc(device).unwrap();
        let cq = CompletionQueue::create(&uar, CqOptions::default().entries(63)).unwrap();
        let qp = QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), options()).unwrap();
        qp.activate(&DatagramAttributes::new(qkey)).unwrap();
        let region = MemoryRegion::allocate(&pd, 16 * ROOM, AccessFlags::LOCAL_WRITE).unwrap();
        let (sq, rq) = (qp.datagram_send_queue().unwrap(), qp.receive_queue().unwrap());
        let mut end = UdEnd { sq, rq, cq, qp, region, device: Arc::clone(device) };
        end.receive(8);
        end
    }

    fn receive(&mut self, count: usize) {
        let mut batch = self.rq.batch();
        for slot in 0..count {
            let segment = self.region.segment(slot * ROOM..(slot + 1) * ROOM);
            // SAFETY: the region outlives the queue, and is read after completions alone.
            unsafe { batch.receive(slot as u64, &[segment]) }.unwrap();
        }
        batch.ring();
    }

    fn gid(&self) -> [u8; 16] {
        self.device.gids()[0].address.octets()
    }

    /// How `from` reaches this end.
    fn handle(&self, from: &Device) -> AddressHandle {
        let path = AddressPath { udp_sport: Some(0xc123), ..AddressPath::link_local(self.gid()).unwrap() };
        AddressHandle::new(from, &path, self.qp.qpn(), QKEY).unwrap()
    }

    fn next(&mut self) -> Result<(Completion, u64), WorkError> {
        let end = Instant::now() + SOON;
        let completion = loop {
            match self.cq.poll() {
                Some(result) => break result?,
                None => assert!(Instant::now() < end, "no completion of QP {:#x}", self.qp.qpn()),
            }
        };
        let wr_id = match completion.work.side {
            Side::Send => self.sq.retire(&completion.work).unwrap(),
            Side::Receive => self.rq.retire(&completion.work).unwrap(),
        };
        Ok((completion, wr_id))
    }

    /// The next datagram, with what stands before it.
    fn heard(&mut self) -> (Completion, Vec<u8>) {
        let (completion, slot) = self.next().unwrap();
        assert_eq!(completion.work.side, Side::Receive);
        let mut bytes = vec![0; completion.byte_len as usize];
        self.region.read(slot as usize * ROOM, &mut bytes);
        (completion, bytes)
    }

    fn send(&mut self, to: &AddressHandle, data: &[u8]) {
        let mut batch = self.sq.batch();
        batch.send_inline(7, WrFlags::SIGNALLED, to, data).unwrap();
        batch.ring();
        assert_eq!(self.next().unwrap().1, 7);
    }
}

fn two<D: DoorbellMode>() -> (Sim, UdEnd<D>, UdEnd<D>) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (a, b) = (UdEnd::new(&sim.open(0).unwrap(), QKEY), UdEnd::new(&sim.open(1).unwrap(), QKEY));
    (sim, a, b)
}

#[test]
fn a_datagram_comes_behind_the_header_that_says_whence() {
    let (sim, mut a, mut b) = two::<AnyDoorbell>();
    let to = b.handle(&a.device);
    for len in [0, 1, 15, 12, 64, 200] {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        a.send(&to, &data);
        let (completion, bytes) = b.heard();
        assert_eq!((completion.byte_len as usize, &bytes[GRH..]), (GRH + len, &data[..]));
        assert_eq!((&bytes[8..24], &bytes[24..40]), (&a.gid()[..], &b.gid()[..]), "source and destination of the GRH");
        assert_eq!(completion.remote_qpn, a.qp.qpn());
    }
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_send_that_fails_stops_only_sends_until_they_are_restarted() {
    let (_sim, mut a, mut b) = two::<AnyDoorbell>();
    let (to_a, to_b) = (a.handle(&b.device), b.handle(&a.device));
    assert!(matches!(a.qp.restart_send_queue(), Err(Error::Command(_))), "nothing failed");
    let foreign = MemoryRegion::allocate(&Pd::alloc(&a.device).unwrap(), 64, AccessFlags::LOCAL_WRITE).unwrap();
    let mut batch = a.sq.batch();
    // SAFETY: the card may not read the region.
    unsafe { batch.send(1, WrFlags::SIGNALLED, &to_b, &[foreign.segment(0..64)]) }.unwrap();
    batch.send_inline(2, WrFlags::empty(), &to_b, b"behind it").unwrap();
    batch.ring();
    for (wr_id, syndrome) in [(1, CqeSyndrome::LocalProtection), (2, CqeSyndrome::WorkRequestFlushed)] {
        let error = a.next().unwrap_err();
        assert!(matches!(error.failure, Failure::Syndrome(given) if given == syndrome), "{error:?}");
        assert_eq!(a.sq.retire(&error.work).unwrap(), wr_id);
    }
    assert_eq!(a.qp.query().unwrap().state, QpState::Sqer);
    b.send(&to_a, b"still heard");
    assert_eq!(a.heard().1[GRH..], *b"still heard");
    a.qp.restart_send_queue().unwrap();
    assert_eq!(a.qp.query().unwrap().state, QpState::Rts);
    a.send(&to_b, b"again");
    assert_eq!(b.heard().1[GRH..], *b"again");
}

/// Datagrams of several elements and sizes, one doorbell for many, more than the ring holds.
fn exchange<D: DoorbellMode>() {
    let (sim, mut a, mut b) = two::<D>();
    let to = b.handle(&a.device);
    let data: Vec<u8> = (0..1024).map(|i| (i * 7) as u8).collect();
    a.region.write(8 * ROOM, &data);
    for round in 0..100usize {
        let (first, second) = (1 + round * 5 % 500, 1 + round * 11 % 500);
        let start = 8 * ROOM;
        let mut batch = a.sq.batch();
        batch.send_inline(0, WrFlags::empty(), &to, &data[..round]).unwrap();
        let parts = [a.region.segment(start..start + first), a.region.segment(start..start + second)];
        // SAFETY: nobody writes that part of the region any more.
        unsafe { batch.send_imm(1, WrFlags::SIGNALLED, &to, round as u32, &parts) }.unwrap();
        batch.ring();
        assert_eq!(a.next().unwrap().1, 1);
        assert_eq!(b.heard().1[GRH..], data[..round]);
        let (completion, bytes) = b.heard();
        assert_eq!(completion.imm(), Some(round as u32));
        assert_eq!(bytes[GRH..], [&data[..first], &data[..second]].concat());
        b.receive(2);
    }
    assert_eq!(sim.violations(), []);
}

#[test]
fn by_a_doorbell() {
    exchange::<Plain>();
}

#[test]
fn by_blue_flame() {
    exchange::<BlueFlame>();
}

#[test]
fn a_datagram_of_several_inline_parts_is_that_of_one() {
    let (sim, mut a, mut b) = two::<AnyDoorbell>();
    let to = b.handle(&a.device);
    let data: Vec<u8> = (0..200).map(|i| (i * 7) as u8).collect();
    for len in 0..=data.len() {
        let (first, second) = data[..len].split_at(len / 3);
        let each: Vec<&[u8]> = data[..len].chunks(1).collect();
        let mut batch = a.sq.batch();
        batch.send_inline_all(1, WrFlags::empty(), &to, &[first, &[], second]).unwrap();
        batch.send_imm_inline_all(2, WrFlags::SIGNALLED, &to, len as u32, &each).unwrap();
        batch.ring();
        assert_eq!(a.next().unwrap().1, 2);
        let [plain, imm] = [b.heard(), b.heard()];
        assert_eq!((plain.0.imm(), &plain.1[GRH..]), (None, &data[..len]));
        assert_eq!((imm.0.imm(), &imm.1[GRH..]), (Some(len as u32), &data[..len]));
        b.receive(2);
    }
    assert_eq!(sim.violations(), []);
}

#[test]
fn one_queue_pair_reaches_many_and_itself() {
    let (sim, mut a, mut b) = two::<AnyDoorbell>();
    let mut c = UdEnd::<AnyDoorbell>::new(&b.device, QKEY);
    let to_b = b.handle(&a.device);
    let to_c = to_b.to(c.qp.qpn(), QKEY).unwrap();
    let to_a = a.handle(&a.device);
    for (to, data) in [(&to_b, b"to b"), (&to_c, b"to c"), (&to_a, b"to a")] {
        let mut batch = a.sq.batch();
        batch.send_inline(7, WrFlags::empty(), to, data).unwrap();
        batch.ring();
    }
    for end in [&mut b, &mut c, &mut a] {
        assert_eq!(end.heard().1[GRH..GRH + 3], *b"to ");
    }
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_datagram_with_another_key_is_lost_and_one_with_the_highest_bit_carries_ours() {
    let (_sim, mut a, mut b) = two::<AnyDoorbell>();
    let to = b.handle(&a.device);
    a.send(&to.to(b.qp.qpn(), QKEY + 1).unwrap(), b"wrong");
    a.send(&to.to(b.qp.qpn(), 1 << 31).unwrap(), b"ours");
    assert_eq!(b.heard().1[GRH..], *b"ours");
}

#[test]
fn what_does_not_fit_the_port_is_refused() {
    let (_sim, mut a, b) = two::<AnyDoorbell>();
    let to = b.handle(&a.device);
    assert!(a.device.port().unwrap().mtu > 4096, "a card opened without an MTU has its largest");
    let mut batch = a.sq.batch();
    let most = 4096;
    let long = [a.region.segment(0..4097)];
    let four = [a.region.segment(0..1); 4];
    // SAFETY: nothing is posted.
    unsafe {
        assert_eq!(batch.send(1, WrFlags::empty(), &to, &long), Err(PostError::MessageTooLong { given: 4097, most }));
        let refused = PostError::TooManySges { given: 4, most: 3 };
        assert_eq!(batch.send(1, WrFlags::empty(), &to, &four), Err(refused));
    }
    let refused = PostError::InlineTooLong { given: 201, most: 200 };
    assert_eq!(batch.send_inline(1, WrFlags::empty(), &to, &[0; 201]), Err(refused));
    let parts: [&[u8]; 2] = [&[0; 200], &[0]];
    assert_eq!(batch.send_inline_all(1, WrFlags::empty(), &to, &parts), Err(refused));
    assert_eq!(batch.send_imm_inline_all(1, WrFlags::empty(), &to, 7, &parts), Err(refused));
    assert!(batch.is_empty());
}

#[test]
fn after_a_reset_it_works_again() {
    let (sim, mut a, b) = two::<AnyDoorbell>();
    let (to, UdEnd { sq, rq, mut cq, qp, region, device }) = (b.handle(&a.device), b);
    drop((sq, rq));
    qp.reset().unwrap();
    assert!(cq.poll().is_none());
    qp.activate(&DatagramAttributes::new(QKEY)).unwrap();
    let (sq, rq) = (qp.datagram_send_queue().unwrap(), qp.receive_queue().unwrap());
    let mut b: UdEnd = UdEnd { sq, rq, cq, qp, region, device };
    b.receive(1);
    a.send(&to, b"again");
    assert_eq!(b.heard().1[GRH..], *b"again");
    assert_eq!(sim.violations(), []);
}

#[track_caller]
fn said<T>(result: Result<T, Error>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn each_service_refuses_the_other_s_calls() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let uar = Uar::alloc(&device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let create = |options| QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), options);
    let (connection, datagrams) = (create(QpOptions::default()).unwrap(), create(options()).unwrap());
    let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();

    let name = format!("QP {:#x}", datagrams.qpn());
    for (call, text) in [
        ("init", said(datagrams.init(&InitAttributes::default()))),
        ("ready_to_receive", said(datagrams.ready_to_receive(&RtrAttributes::new(1, 0, path)))),
        ("ready_to_send", said(datagrams.ready_to_send(&RtsAttributes::new(0)))),
    ] {
        assert_eq!(text, format!("{name} is of service UD, and {call} is for RC or UC or XRC: use activate"));
    }
    assert!(said(datagrams.send_queue::<AnyDoorbell>()).ends_with("or datagram_send_queue"));
    assert!(said(connection.datagram_send_queue::<AnyDoorbell>()).ends_with("use send_queue or unreliable_send_queue"));
    let text = said(connection.activate(&DatagramAttributes::new(1)));
    assert!(text.ends_with("use init, ready_to_receive and ready_to_send"), "{text}");

    let text = said(datagrams.datagram_send_queue::<AnyDoorbell>());
    assert_eq!(text, format!("{name} is in RST, and datagram_send_queue needs RTS; first call activate (qkey)"));
    let port = DatagramAttributes { port: 2, ..DatagramAttributes::new(1) };
    assert!(said(datagrams.activate(&port)).contains("num_ports"));
    let pkey = DatagramAttributes { pkey_index: 1, ..DatagramAttributes::new(1) };
    assert!(said(datagrams.activate(&pkey)).contains("pkey_index"));
    datagrams.activate(&DatagramAttributes::new(1)).unwrap();
    let text = said(datagrams.activate(&DatagramAttributes::new(1)));
    assert!(text.ends_with("is in RTS, and activate needs RST; first call reset, then activate (qkey)"), "{text}");

    let mut other = QpOptions::default();
    let error = said(datagrams.modify(&QpChanges::default().min_rnr_timer(1)));
    assert!(error.contains("QpChanges::min_rnr_timer is for RC or XRC"), "{error}");
    assert!(said(connection.modify(&QpChanges::default().qkey(1))).contains("QpChanges::qkey is for UD"));
    datagrams.modify(&QpChanges::default().qkey(0x1234)).unwrap();
    assert_eq!(datagrams.query().unwrap().qkey, 0x1234);
    other.service = ServiceType::Mlx;
    assert!(said(create(other)).starts_with("a queue pair of service MLX is not implemented"));
    assert!(said(AddressHandle::new(&device, &path.service_level(8), 1, 0)).contains("service_level"));
    assert!(said(AddressHandle::new(&device, &path, 1 << 24, 0)).contains("qpn"));
}

#[test]
fn a_group_hears_what_is_sent_to_it_as_long_as_it_listens() {
    let (sim, mut a, mut b) = two::<AnyDoorbell>();
    let mut group = [0; 16];
    (group[0], group[1], group[15]) = (0xff, 0x0e, 7);
    let member = Membership::join(&b.qp, group).unwrap();
    let path = AddressPath { udp_sport: Some(0xc123), ..AddressPath::group(group).unwrap() };
    let to = AddressHandle::new(&a.device, &path, MULTICAST_QPN, QKEY).unwrap();
    a.send(&to, b"all");
    let (completion, bytes) = b.heard();
    assert_eq!((&bytes[24..40], &bytes[GRH..], completion.remote_qpn), (&group[..], &b"all"[..], a.qp.qpn()));
    assert!(Membership::join(&b.qp, group).unwrap_err().to_string().contains("ATTACH_TO_MCG"));
    let refused = Membership::join(&b.qp, b.gid()).unwrap_err().to_string();
    assert!(refused.contains("that of a group"), "{refused}");
    member.leave().unwrap();
    a.send(&to, b"nobody");
    a.send(&b.handle(&a.device), b"you alone");
    assert_eq!(b.heard().1[GRH..], *b"you alone");
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_function_without_the_eswitch_hears_the_groups_that_its_members_and_listeners_have_between_them() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().eswitch_manager(false);
    profile.general_current.w().eswitch_manager(false);
    let sim = Sim::builder().functions(2).profile(profile).build().unwrap();
    let [mut a, mut b]: [UdEnd; 2] = [0, 1].map(|function| UdEnd::new(&sim.open(function).unwrap(), QKEY));
    // An IPv6 group, and an IPv4 one.
    let groups = [
        [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 7],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 129, 2, 3],
    ];
    let [first, second] = groups.map(|group| Membership::join(&b.qp, group).unwrap());
    let queue = |device| {
        let mut queue = EthernetQueue::new(&Pd::alloc(device).unwrap(), EthernetOptions::default()).unwrap();
        queue.listen(&groups.map(|group| AddressPath::group(group).unwrap().mac)).unwrap();
        queue
    };
    let hears = |a: &mut UdEnd, b: &mut UdEnd, text: &[u8]| {
        b.receive(2);
        for group in groups {
            let path = AddressPath { udp_sport: Some(0xc123), ..AddressPath::group(group).unwrap() };
            let to = AddressHandle::new(&a.device, &path, MULTICAST_QPN, QKEY).unwrap();
            a.send(&to, text);
            let heard = b.heard().1;
            assert_eq!(heard[GRH..], *text);
        }
    };
    hears(&mut a, &mut b, b"joined");
    let listener = queue(&b.device);
    hears(&mut a, &mut b, b"both");
    drop(listener);
    hears(&mut a, &mut b, b"joined still");
    b.device.set_multicast(&[]).unwrap();
    hears(&mut a, &mut b, b"the set ones are others");
    // Refused: it is in the group already. The group is still heard.
    Membership::join(&b.qp, groups[0]).unwrap_err();
    hears(&mut a, &mut b, b"as before");
    drop([first, second]);
    assert_eq!(sim.violations(), []);
}

/// Two queues with buffers, each on a function of its own, the second with all of its receives posted; how the first
/// reaches the second; and buffers to send.
fn queues() -> (Sim, DatagramQueue, DatagramQueue, AddressHandle, Vec<Buffer>) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut options = DatagramOptions::new(QKEY);
    (options.send_depth, options.recv_depth) = (4, 4);
    let open = |function| {
        let device = sim.open(function).unwrap();
        let pd = Pd::alloc(&device).unwrap();
        let buffers = ExclusiveRegion::allocate(&pd, 4 * ROOM).unwrap().buffers(ROOM).unwrap();
        let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
        (DatagramQueue::new(&pd, options.clone()).unwrap(), device, path, buffers)
    };
    let (a, device, _, ours) = open(0);
    let (mut b, _, path, theirs) = open(1);
    let mut receives = b.receives();
    for buffer in theirs {
        receives.receive(buffer).unwrap();
    }
    receives.ring();
    let to = AddressHandle::new(&device, &path, b.queue_pair().qpn(), QKEY).unwrap();
    (sim, a, b, to, ours)
}

#[test]
fn datagrams_are_read_and_filled_in_place_and_their_buffers_come_back() {
    let (sim, mut a, mut b, to, mut spare) = queues();
    let mut held: Option<Buffer> = None;
    for round in 0..20u8 {
        let mut buffer = spare.pop().unwrap();
        buffer.set_len(100 + usize::from(round));
        buffer.as_mut_slice().fill(round);
        match round % 2 {
            0 => a.send(&to, buffer).unwrap(),
            _ => a.send_imm(&to, buffer, round.into()).unwrap(),
        };
        let done = b.wait(SOON).unwrap();
        assert_eq!(done.received().unwrap()[GRH..], vec![round; 100 + usize::from(round)]);
        let completion = done.result.unwrap();
        assert_eq!(completion.imm(), (round % 2 == 1).then_some(round.into()));
        assert_eq!(completion.remote_qpn, a.queue_pair().qpn());
        // What came before is untouched as long as it is held.
        if let Some(before) = held.replace(done.buffer.unwrap()) {
            assert!(before.as_slice()[GRH..GRH + 100].iter().all(|&byte| byte == round - 1));
            b.receive(before).unwrap();
        }
        spare.push(a.wait(SOON).unwrap().buffer.unwrap());
    }
    a.send_inline(&to, b"copied").unwrap();
    assert_eq!(b.wait(SOON).unwrap().received().unwrap()[GRH..], *b"copied");
    assert_eq!((a.wait(SOON).unwrap().received(), b.in_flight()), (None, (0, 2)));
    let mut batch = a.batch().unwrap();
    batch.send_inline_all(&to, &[b"in ", b"", b"parts"]).unwrap();
    batch.send_imm_inline(&to, b"with a number", 9).unwrap();
    let refused = batch.send_inline_all(&to, &[&[0; 28], &[0]]).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Post(PostError::InlineTooLong { given: 29, most: 28 }));
    batch.ring();
    for (text, imm) in [(&b"in parts"[..], None), (b"with a number", Some(9))] {
        let done = b.wait(SOON).unwrap();
        assert_eq!((&done.received().unwrap()[GRH..], done.result.unwrap().imm()), (text, imm));
        a.wait(SOON).unwrap().result.unwrap();
        spare.extend(done.buffer);
    }
    b.receive(spare.pop().unwrap()).unwrap();
    let mut batch = a.batch().unwrap();
    batch.send_imm_inline_all(&to, &[b"parts with ", b"a number"], 10).unwrap();
    batch.ring();
    let done = b.wait(SOON).unwrap();
    assert_eq!((&done.received().unwrap()[GRH..], done.result.unwrap().imm()), (&b"parts with a number"[..], Some(10)));
    a.wait(SOON).unwrap().result.unwrap();
    assert_eq!((a.in_flight(), b.in_flight()), ((0, 0), (0, 0)));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_batch_of_datagrams_may_be_quiet_and_a_full_queue_returns_the_buffer() {
    let (sim, mut a, mut b, to, buffers) = queues();
    let mut batch = a.batch().unwrap();
    batch.quiet();
    for (number, mut buffer) in (0..).zip(buffers) {
        buffer.set_len(8);
        buffer.as_mut_slice().fill(number);
        batch.send(&to, buffer).unwrap();
    }
    assert_eq!(batch.send_inline(&to, b"one too many").unwrap_err().reason, RefusedReason::Post(PostError::Full(Full)));
    batch.ring();
    for number in 0..4 {
        assert_eq!(b.wait(SOON).unwrap().received().unwrap()[GRH..], [number; 8]);
        assert_eq!(a.wait(SOON).unwrap().buffer.unwrap().as_slice(), [number; 8]);
    }
    assert_eq!(a.in_flight(), (0, 0));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_reset_returns_all_buffers_of_datagrams_and_the_queue_goes_on() {
    let (sim, mut a, mut b, to, mut buffers) = queues();
    a.send_inline(&to, b"never polled").unwrap();
    a.wait(SOON).unwrap();
    let back = b.reset().unwrap();
    assert_eq!((back.len(), b.in_flight()), (4, (0, 0)));
    assert!(b.poll().unwrap().is_none());
    for buffer in back {
        b.receive(buffer).unwrap();
    }
    buffers[0].set_len(5);
    buffers[0].as_mut_slice().copy_from_slice(b"again");
    a.send(&to, buffers.remove(0)).unwrap();
    assert_eq!(b.wait(SOON).unwrap().received().unwrap()[GRH..], *b"again");
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_datagram_longer_than_its_buffer_ends_the_queue_until_a_reset() {
    let (_sim, mut a, mut b, to, mut buffers) = queues();
    let mut back = b.reset().unwrap();
    back.iter_mut().for_each(|buffer| buffer.set_len(GRH + 4));
    for buffer in back {
        b.receive(buffer).unwrap();
    }
    a.send(&to, buffers.remove(0)).unwrap();
    let done = b.wait(SOON).unwrap();
    assert!(matches!(done.result, Err(WorkError { failure: Failure::Syndrome(_), .. })), "{done:?}");
    assert!(done.received().is_none() && done.buffer.is_some());
    assert_eq!(b.reset().unwrap().len(), 3);
    b.receive(done.buffer.unwrap()).unwrap();
    a.send_inline(&to, b"fit").unwrap();
    assert_eq!(b.wait(SOON).unwrap().received().unwrap()[GRH..], *b"fit");
}

#[test]
fn an_endpoint_sends_one_datagram_to_many_and_receives_in_buffers_beside_its_region() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    let memory = ExclusiveRegion::allocate(&pd, 4 * ROOM).unwrap();
    let options = DatagramOptions::new(QKEY).send_depth(4).recv_depth(2);
    let new = || DatagramEndpoint::new(&region, &options).unwrap();
    let (mut a, mut others) = (new(), [new(), new()]);
    let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
    let to = others.each_ref().map(|other| {
        let qpn = other.queue_pair().qpn();
        AddressHandle::new(&device, &path, qpn, QKEY).unwrap()
    });
    let next = |end: &mut DatagramEndpoint| {
        let start = Instant::now();
        loop {
            if let Some(done) = end.poll().unwrap() {
                return done;
            }
            assert!(start.elapsed() < SOON, "no completion");
        }
    };
    region.write(0, b"to all");
    for (at, other) in (0..).zip(&mut others) {
        let mut receives = other.receives().unwrap();
        receives.receive_buffer(7, memory.buffer(at * ROOM..(at + 1) * ROOM).unwrap()).unwrap();
        while receives.receive(8, 2048..2048 + GRH + 4).is_ok() {}
        let refused = receives.receive_buffer(9, memory.buffer(3 * ROOM..4 * ROOM).unwrap()).unwrap_err();
        assert!(refused.buffer.is_some() && refused.reason == RefusedReason::Post(PostError::Full(Full)));
        receives.ring();
    }
    let mut sends = a.sends().unwrap();
    for to in &to {
        sends.send(1, WrFlags::empty(), to, 0..6).unwrap();
    }
    let mut buffer = memory.buffer(2 * ROOM..3 * ROOM).unwrap();
    buffer.set_len(4);
    buffer.as_mut_slice().copy_from_slice(b"last");
    sends.send_buffer(2, WrFlags::empty(), &to[1], buffer).unwrap();
    sends.ring();
    let sent = next(&mut a);
    assert_eq!((sent.ticket, sent.buffer.unwrap().as_slice()), (2, &b"last"[..]));
    for other in &mut others {
        let done = next(other);
        assert_eq!((done.ticket, &done.received().unwrap()[GRH..]), (7, &b"to all"[..]));
    }
    let done = next(&mut others[1]);
    let (mut last, completion) = ([0; 4], done.result.unwrap());
    region.read(2048 + GRH, &mut last);
    assert_eq!((done.ticket, done.buffer.is_none(), completion.byte_len as usize, &last), (8, true, GRH + 4, b"last"));
    // The other waits for one that never comes.
    let [mut waits, mut goes_on] = others;
    assert_eq!(waits.reset().unwrap().len(), 0);
    let mut receives = goes_on.receives().unwrap();
    receives.receive_buffer(9, memory.buffer(3 * ROOM..4 * ROOM).unwrap()).unwrap();
    receives.ring();
    let mut back = goes_on.reset().unwrap();
    assert!(back.len() == 1 && goes_on.poll().unwrap().is_none());
    let mut receives = goes_on.receives().unwrap();
    receives.receive_buffer(10, back.remove(0)).unwrap();
    receives.receive(11, 2048..2048 + GRH + 4).unwrap();
    receives.ring();
    let mut sends = a.sends().unwrap();
    sends.send_imm_inline(12, WrFlags::empty(), &to[1], 5, b"more").unwrap();
    sends.send_inline_all(13, WrFlags::empty(), &to[1], &[b"mo", b"re"]).unwrap();
    let refused = sends.send_inline_all(14, WrFlags::empty(), &to[1], &[&[0; 20], &[0; 9]]);
    assert_eq!(refused, Err(PostError::InlineTooLong { given: 29, most: 28 }));
    sends.ring();
    let (start, mut heard) = (Instant::now(), Vec::new());
    while heard.len() < 2 {
        heard.extend(goes_on.poll_batch(2).map(|done| done.unwrap()));
        assert!(start.elapsed() < SOON, "{heard:?}");
    }
    let mut second = [0; 4];
    region.read(2048 + GRH, &mut second);
    assert_eq!((heard[0].received().map(|bytes| &bytes[GRH..]), &second), (Some(&b"more"[..]), b"more"));
    let heard = heard.into_iter().map(|done| (done.ticket, done.result.unwrap().imm()));
    assert_eq!(heard.collect::<Vec<_>>(), [(10, Some(5)), (11, None)]);
    drop((a, waits, goes_on));
    assert_eq!(sim.violations(), []);
}
