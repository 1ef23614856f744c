//! Two machines and a network between them that loses, doubles and delays, by a seed, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mlx5_prm::ib::{CmAttribute, CmRejectReason, CmSidrStatus, MadHdr};
use mlx5_prm::layout::{Layout, Value};

use super::*;
use crate::message::gid_of;

const SERVICE: Service = Service { space: mlx5_prm::ib::RdmaPortSpace::Tcp, port: 7174 };
const DATAGRAMS: Service = Service { space: mlx5_prm::ib::RdmaPortSpace::Udp, port: 7174 };

/// What the network does to a datagram, in parts of 1000.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    loss: u64,
    doubling: u64,
    /// The longest delay: datagrams overtake each other.
    delay: Duration,
}

const CALM: Weather = Weather { loss: 0, doubling: 0, delay: Duration::from_millis(1) };
const STORM: Weather = Weather { loss: 50, doubling: 30, delay: Duration::from_millis(80) };

struct Network {
    now: Duration,
    random: u64,
    weather: Weather,
    ends: [Machine; 2],
    /// By arrival: to which end.
    under_way: BTreeMap<(Duration, u64), (usize, Vec<u8>)>,
    sent: u64,
    /// What was sent by attribute, and by which end.
    log: Vec<(usize, CmAttribute)>,
    /// Datagrams of an end with this attribute are lost.
    lost: BTreeSet<(usize, u32)>,
}

fn path(end: usize) -> Path {
    let gid = |end: usize| gid_of([10, 0, 0, 1 + end as u8].into());
    Path { local: gid(end), remote: gid(1 - end) }
}

fn config(end: usize, seed: u64) -> Config {
    Config { ca_guid: 0x100 + end as u64, seed: seed.wrapping_mul(2) + end as u64, ..Config::default() }
}

impl Network {
    fn new(seed: u64, weather: Weather) -> Self {
        let mut ends = [0, 1].map(|end| Machine::new(config(end, seed)));
        ends[1].listen(SERVICE).unwrap();
        ends[1].listen(DATAGRAMS).unwrap();
        Network {
            now: Duration::ZERO,
            random: seed ^ 0x1234_5678_9abc_def1,
            weather,
            ends,
            under_way: BTreeMap::new(),
            sent: 0,
            log: Vec::new(),
            lost: BTreeSet::new(),
        }
    }

    /// xorshift.
    fn chance(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn carry(&mut self) {
        for end in 0..2 {
            while let Some(Transmit { path: to, mad }) = self.ends[end].poll_transmit() {
                assert_eq!(to, path(end));
                let attribute = MadHdr::read(&mad[..24]).unwrap().attribute_id();
                self.log.push((end, <CmAttribute as Value>::from_number(attribute.into())));
                if self.lost.contains(&(end, attribute.into())) || self.chance(1000) < self.weather.loss {
                    continue;
                }
                let copies = if self.chance(1000) < self.weather.doubling { 2 } else { 1 };
                for _ in 0..copies {
                    let delay = self.chance(self.weather.delay.as_micros() as u64);
                    self.sent += 1;
                    let arrival = self.now + Duration::from_micros(1 + delay);
                    self.under_way.insert((arrival, self.sent), (1 - end, mad.to_vec()));
                }
            }
        }
    }

    /// The next moment at which something happens, `until` at the latest; false where nothing does before.
    fn step(&mut self, until: Duration) -> bool {
        self.carry();
        let arrival = self.under_way.keys().next().map(|(at, _)| *at);
        let timers = self.ends.iter().filter_map(Machine::poll_timeout);
        let Some(next) = arrival.into_iter().chain(timers).min().filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, mad) = entry.remove();
            self.ends[to].receive(self.now, path(to), &mad).unwrap();
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        self.carry();
        true
    }

    /// The next event of `end`.
    fn event(&mut self, end: usize) -> (ConnectionId, Event) {
        let until = self.now + Duration::from_secs(3600);
        loop {
            if let Some(event) = self.ends[end].poll_event() {
                return event;
            }
            assert!(self.step(until), "end {end} has no event");
        }
    }

    fn connect(&mut self, qpn: u32) -> ConnectionId {
        let parameters = Parameters::new(qpn, 0x111).private_data(b"hello");
        self.ends[0].connect(self.now, path(0), SERVICE, Route::default(), &parameters).unwrap()
    }

    /// A connection from end 0 to end 1.
    fn connected(&mut self, qpn: u32) -> [ConnectionId; 2] {
        let ours = self.connect(qpn);
        let (theirs, event) = self.event(1);
        assert!(matches!(event, Event::ConnectRequest { .. }), "{event:?}");
        self.ends[1].accept(self.now, theirs, &Parameters::new(qpn + 0x1000, 0x222)).unwrap();
        let (id, event) = self.event(0);
        assert!(id == ours && matches!(event, Event::ConnectResponse { .. }), "{event:?}");
        self.ends[0].ready(ours, &[]).unwrap();
        let (id, event) = self.event(1);
        assert!(id == theirs && matches!(event, Event::Established { .. }), "{event:?}");
        [ours, theirs]
    }

    /// Runs for `time`.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    fn assert_nothing_left(&mut self) {
        self.run(Duration::from_secs(600));
        for end in &self.ends {
            assert!(end.table.is_empty(), "{:?}", end.table);
            assert!(end.listeners.values().all(|waiting| *waiting == 0), "{:?}", end.listeners);
        }
    }

    fn count(&self, end: usize, attribute: CmAttribute) -> usize {
        self.log.iter().filter(|sent| **sent == (end, attribute)).count()
    }
}

fn reason(event: Event) -> CmRejectReason {
    match event {
        Event::Rejected { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_ends_agree_on_what_both_can() {
    let mut net = Network::new(1, CALM);
    let mut wants = Parameters::new(0x42, 0xabcdef).private_data(b"hello");
    (wants.responder_resources, wants.initiator_depth, wants.rnr_retry_count) = (8, 4, 3);
    let route = Route { source_port: 999, retry_count: 5, local_ack_timeout: 17, ..Route::default() };
    let ours = net.ends[0].connect(net.now, path(0), SERVICE, route, &wants).unwrap();
    let (theirs, event) = net.event(1);
    let Event::ConnectRequest { service, remote, offer, private_data } = event else { panic!("{event:?}") };
    assert_eq!((service, remote.to_string().as_str()), (SERVICE, "10.0.0.1:999"));
    assert_eq!((private_data.len(), &private_data[..6]), (56, &b"hello\0"[..]));
    assert_eq!((offer.remote_qpn, offer.sq_psn, offer.rnr_retry_count), (0x42, 0xabcdef, 3));
    assert_eq!((offer.responder_resources, offer.initiator_depth), (4, 8), "the other way round");
    assert_eq!((offer.route.retry_count, offer.route.local_ack_timeout), (5, 17));

    let mut takes = Parameters::new(0x77, 0x123456).private_data(&[7; 196]);
    (takes.responder_resources, takes.initiator_depth) = (2, 200);
    net.ends[1].accept(net.now, theirs, &takes).unwrap();
    let (_, event) = net.event(0);
    let Event::ConnectResponse { agreed, private_data } = event else { panic!("{event:?}") };
    assert_eq!(private_data, [7; 196]);
    assert_eq!((agreed.remote_qpn, agreed.sq_psn, agreed.rq_psn), (0x77, 0x123456, 0xabcdef));
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (8, 2));
    let accepted = net.ends[1].agreed(theirs).unwrap();
    assert_eq!((accepted.responder_resources, accepted.initiator_depth, accepted.rq_psn), (2, 8, 0x123456));
    net.ends[0].ready(ours, b"go").unwrap();
    let (_, Event::Established { private_data }) = net.event(1) else { panic!() };
    assert_eq!(&private_data[..3], b"go\0");
    assert!(net.ends.iter().all(|end| end.poll_timeout().is_none()), "an established connection has no timer");

    net.ends[1].disconnect(net.now, theirs, b"bye").unwrap();
    let (_, Event::Disconnected { confirmed: true, private_data }) = net.event(0) else { panic!() };
    assert_eq!(&private_data[..4], b"bye\0");
    assert!(matches!(net.event(1), (_, Event::Disconnected { confirmed: true, .. })));
    assert_eq!((net.event(0), net.event(1)), ((ours, Event::TimewaitExit), (theirs, Event::TimewaitExit)));
    net.assert_nothing_left();
}

#[test]
fn nobody_listening_and_a_program_that_refuses_are_told_apart() {
    let mut net = Network::new(2, CALM);
    let nowhere = Service::tcp(1);
    net.ends[0].connect(net.now, path(0), nowhere, Route::default(), &Parameters::new(1, 0)).unwrap();
    assert_eq!(reason(net.event(0).1), CmRejectReason::InvalidServiceId);
    net.connect(2);
    let (theirs, _) = net.event(1);
    net.ends[1].reject(net.now, theirs, CmRejectReason::ConsumerDefined, b"no").unwrap();
    let (_, Event::Rejected { reason, private_data, .. }) = net.event(0) else { panic!() };
    assert_eq!((reason, &private_data[..3]), (CmRejectReason::ConsumerDefined, &b"no\0"[..]));
    net.assert_nothing_left();
}

#[test]
fn a_lost_answer_is_sent_again_and_nothing_happens_twice() {
    for (end, attribute) in [(1, 0x13), (0, 0x14), (0, 0x15), (1, 0x16)] {
        let mut net = Network::new(3, CALM);
        net.lost.insert((end, attribute));
        net.connect(5);
        let (theirs, _) = net.event(1);
        net.ends[1].accept(net.now, theirs, &Parameters::new(6, 0)).unwrap();
        if attribute == 0x13 {
            net.run(Duration::from_secs(4));
            net.lost.clear();
        }
        let (ours, _) = net.event(0);
        net.ends[0].ready(ours, &[]).unwrap();
        net.run(Duration::from_secs(4));
        if attribute == 0x14 {
            net.lost.clear();
        }
        assert!(matches!(net.event(1), (_, Event::Established { .. })));
        net.ends[0].disconnect(net.now, ours, &[]).unwrap();
        net.run(Duration::from_secs(4));
        net.lost.clear();
        assert!(matches!(net.event(0), (_, Event::Disconnected { confirmed: true, .. })));
        assert!(matches!(net.event(1), (_, Event::Disconnected { confirmed: true, .. })));
        assert!(matches!((net.event(0).1, net.event(1).1), (Event::TimewaitExit, Event::TimewaitExit)));
        net.assert_nothing_left();
        assert_eq!(net.ends.each_mut().map(|end| end.poll_event()), [None, None]);
    }
}

#[test]
fn a_rejection_that_is_lost_is_sent_again() {
    let mut net = Network::new(3, CALM);
    net.lost.insert((1, 0x12));
    net.connect(5);
    let (theirs, _) = net.event(1);
    net.ends[1].reject(net.now, theirs, CmRejectReason::ConsumerDefined, &[]).unwrap();
    net.step(net.now);
    net.lost.clear();
    // Before the rejected request is forgotten.
    net.ends[1].config.timewait = Duration::from_secs(10);
    net.ends[1].table.set_deadline(theirs.0, Some(Duration::from_secs(10)));
    assert_eq!(reason(net.event(0).1), CmRejectReason::ConsumerDefined);
    assert_eq!(net.ends[1].poll_event(), None, "the request came twice, and is one");
    net.assert_nothing_left();
}

#[test]
fn a_remote_that_is_dead_is_given_up_in_each_state() {
    let all = |end| (0x10..=0x1a).map(move |attribute| (end, attribute));
    // It never answers.
    let mut net = Network::new(4, CALM);
    net.lost.extend(all(0));
    net.connect(5);
    assert_eq!(net.event(0).1, Event::Unreachable);
    assert_eq!(net.count(0, CmAttribute::ConnectRequest), 16, "and is asked 16 times");
    net.assert_nothing_left();
    // It dies after its request.
    let mut net = Network::new(4, CALM);
    let ours = net.connect(5);
    let (theirs, _) = net.event(1);
    net.lost.extend(all(0));
    net.ends[1].accept(net.now, theirs, &Parameters::new(6, 0)).unwrap();
    assert!(matches!(net.event(0).1, Event::ConnectResponse { .. }));
    assert_eq!(net.event(1).1, Event::Unreachable);
    net.ends[0].destroy(net.now, ours).unwrap();
    net.assert_nothing_left();
    // It dies established: disconnecting takes its time, and says that nobody answered.
    let mut net = Network::new(4, CALM);
    let [ours, theirs] = net.connected(5);
    net.lost.extend(all(1));
    net.ends[0].disconnect(net.now, ours, &[]).unwrap();
    assert!(matches!(net.event(0).1, Event::Disconnected { confirmed: false, .. }));
    assert!(matches!(net.event(1), (id, Event::Disconnected { .. }) if id == theirs));
    net.assert_nothing_left();
    // The queue pair of its datagram service is asked for in vain.
    let mut net = Network::new(4, CALM);
    net.lost.extend(all(0));
    net.ends[0].resolve(net.now, path(0), DATAGRAMS, 55, &[]).unwrap();
    assert_eq!(net.event(0).1, Event::Unreachable);
    assert_eq!(net.count(0, CmAttribute::ServiceIdResReq), 16, "and is asked 16 times");
    assert_eq!(net.ends[1].poll_event(), None);
    net.assert_nothing_left();
    // It dies after it asked for ours: the answer reaches nobody.
    let mut net = Network::new(4, CALM);
    let ours = net.ends[0].resolve(net.now, path(0), DATAGRAMS, 55, &[]).unwrap();
    let (theirs, _) = net.event(1);
    net.lost.extend(all(0).chain(all(1)));
    net.ends[0].destroy(net.now, ours).unwrap();
    net.ends[1].answer(net.now, theirs, 0x55, 0x0123_4567, &[]).unwrap();
    net.run(Duration::from_secs(600));
    assert!(net.count(1, CmAttribute::ServiceIdResReqResp) > 0);
    assert_eq!(net.ends.each_mut().map(Machine::poll_event), [None, None]);
    net.assert_nothing_left();
}

#[test]
fn a_program_that_does_not_answer_rejects() {
    let mut net = Network::new(5, CALM);
    net.connect(5);
    assert!(matches!(net.event(1).1, Event::ConnectRequest { .. }));
    assert_eq!(reason(net.event(0).1), CmRejectReason::Timeout);
    assert_eq!(net.event(1).1, Event::Unreachable);
    assert!(net.count(1, CmAttribute::MsgRcptAck) > 0, "meanwhile the remote is told to wait");
    net.assert_nothing_left();
    net.connect(6);
    let (theirs, _) = net.event(1);
    net.ends[1].accept(net.now, theirs, &Parameters::new(6, 0)).unwrap();
    assert!(matches!(net.event(0).1, Event::ConnectResponse { .. }));
    assert_eq!(net.event(0).1, Event::Unreachable);
    assert_eq!(reason(net.event(1).1), CmRejectReason::Timeout);
    net.assert_nothing_left();
}

#[test]
fn an_acknowledged_request_is_not_sent_again_meanwhile() {
    let mut net = Network::new(6, CALM);
    net.connect(5);
    let (theirs, _) = net.event(1);
    net.ends[1].delay(theirs, 20).unwrap();
    net.run(Duration::from_secs(4));
    assert_eq!(net.count(0, CmAttribute::ConnectRequest), 1);
    net.run(Duration::from_secs(1));
    assert_eq!(net.count(0, CmAttribute::ConnectRequest), 2);
    net.ends[1].destroy(net.now, theirs).unwrap();
    assert_eq!(reason(net.event(0).1), CmRejectReason::ConsumerDefined);
    net.assert_nothing_left();
}

#[test]
fn a_message_on_the_queue_pair_stands_for_a_lost_rtu() {
    let mut net = Network::new(7, CALM);
    net.lost.insert((0, 0x14));
    let ours = net.connect(5);
    let (theirs, _) = net.event(1);
    net.ends[1].accept(net.now, theirs, &Parameters::new(6, 0)).unwrap();
    net.event(0);
    net.ends[0].ready(ours, &[]).unwrap();
    net.ends[1].communication_established(theirs).unwrap();
    assert!(matches!(net.event(1).1, Event::Established { .. }));
    net.ends[1].disconnect(net.now, theirs, &[]).unwrap();
    assert!(matches!(net.event(0).1, Event::Disconnected { confirmed: true, .. }));
    net.assert_nothing_left();
}

#[test]
fn both_may_disconnect_at_once() {
    let mut net = Network::new(8, CALM);
    let [ours, theirs] = net.connected(5);
    net.ends[0].disconnect(net.now, ours, &[]).unwrap();
    net.ends[1].disconnect(net.now, theirs, &[]).unwrap();
    for end in 0..2 {
        assert!(matches!(net.event(end).1, Event::Disconnected { confirmed: true, .. }));
        assert_eq!(net.event(end).1, Event::TimewaitExit);
    }
    net.assert_nothing_left();
}

#[test]
fn a_queue_pair_whose_connection_has_ended_is_connected_again_at_once() {
    let mut net = Network::new(9, CALM);
    let [ours, theirs] = net.connected(5);
    net.ends[0].disconnect(net.now, ours, &[]).unwrap();
    for end in 0..2 {
        assert!(matches!(net.event(end).1, Event::Disconnected { .. }));
    }
    assert_eq!(net.ends[1].state(theirs), Some(State::Timewait));
    // Both ends' queue pairs have the same numbers.
    let [again, _] = net.connected(5);
    assert_ne!(again, ours);
    assert_eq!(net.ends[1].state(theirs), Some(State::Timewait));
}

#[test]
fn a_process_that_was_killed_and_started_anew_is_not_taken_for_the_old_one() {
    let mut net = Network::new(9, CALM);
    let [_, theirs] = net.connected(5);
    // Killed: its successor has other numbers, and the same queue pair.
    net.ends[0] = Machine::new(config(0, 77));
    net.connect(5);
    assert_eq!(reason(net.event(0).1), CmRejectReason::StaleConn);
    let (id, event) = net.event(1);
    assert!(id == theirs && matches!(event, Event::Disconnected { .. }), "{event:?}");
    assert_eq!(net.event(1).1, Event::TimewaitExit);
    net.connected(5);
    // Its acceptance of a connection that it knows no more is rejected at once.
    let mut net = Network::new(9, CALM);
    net.connect(5);
    let (theirs, _) = net.event(1);
    net.ends[0] = Machine::new(config(0, 77));
    net.ends[1].accept(net.now, theirs, &Parameters::new(6, 0)).unwrap();
    assert_eq!(reason(net.event(1).1), CmRejectReason::InvalidCommId);
    net.assert_nothing_left();
}

#[test]
fn a_listener_that_was_killed_and_started_anew_is_asked_to_end_the_old_connection() {
    let mut net = Network::new(9, CALM);
    let [ours, _] = net.connected(5);
    net.ends[1] = Machine::new(config(1, 77));
    net.ends[1].listen(SERVICE).unwrap();
    let again = net.connect(6);
    let (theirs, _) = net.event(1);
    // The queue pair that the old process had.
    net.ends[1].accept(net.now, theirs, &Parameters::new(5 + 0x1000, 0)).unwrap();
    let (id, event) = net.event(0);
    assert_eq!((id, reason(event)), (again, CmRejectReason::StaleConn));
    let (id, event) = net.event(0);
    assert!(id == ours && matches!(event, Event::Disconnected { .. }), "{event:?}");
    assert_eq!(net.event(0), (ours, Event::TimewaitExit));
    assert_eq!(reason(net.event(1).1), CmRejectReason::StaleConn);
    net.connected(6);
}

#[test]
fn a_stranger_changes_nothing() {
    let mut net = Network::new(10, CALM);
    let mut mads = Vec::new();
    let ours = net.connect(5);
    net.carry();
    mads.extend(net.under_way.values().map(|(_, mad)| mad.clone()));
    let (theirs, _) = net.event(1);
    net.ends[1].accept(net.now, theirs, &Parameters::new(6, 0)).unwrap();
    net.carry();
    mads.extend(net.under_way.values().map(|(_, mad)| mad.clone()));
    net.event(0);
    net.ends[0].ready(ours, &[]).unwrap();
    net.event(1);
    let refusal = Refusal {
        path: path(0),
        tid: 0,
        local_id: ours.0,
        remote_id: theirs.0,
        answered: CmAnswered::Other,
        reason: CmRejectReason::StaleConn,
    };
    mads.push(refusal.message(&[], &[]).to_vec());
    net.ends[0].part(net.now, ours.0, &[]);
    mads.extend(net.ends[0].poll_transmit().map(|sent| sent.mad.to_vec()));
    let stranger = Path { remote: gid_of([10, 0, 0, 99].into()), ..path(1) };
    for mad in &mads {
        net.ends[1].receive(net.now, stranger, mad).unwrap();
    }
    assert_eq!(net.ends[1].state(theirs), Some(State::Established));
    let requests = std::iter::from_fn(|| net.ends[1].poll_event());
    assert!(requests.into_iter().all(|(_, event)| matches!(event, Event::ConnectRequest { .. })));
}

#[test]
fn limits_hold() {
    let mut net = Network::new(11, CALM);
    net.ends[1].config.backlog = 2;
    net.ends[0].config.connections = 3;
    let all: Vec<_> = (0..3).map(|qpn| net.connect(qpn)).collect();
    let full = net.ends[0].connect(net.now, path(0), SERVICE, Route::default(), &Parameters::new(9, 0));
    assert_eq!(full, Err(CallError::Full { most: 3 }));
    let (turned_away, event) = net.event(0);
    assert_eq!(reason(event), CmRejectReason::NoResources);
    let waiting = *all.iter().find(|id| **id != turned_away).unwrap();
    assert_eq!(net.ends[0].ready(turned_away, &[]), Err(CallError::Unknown(turned_away.number())));
    let long = Parameters::new(9, 0).private_data(&[0; 57]);
    let refused = net.ends[0].connect(net.now, path(0), SERVICE, Route::default(), &long).unwrap_err();
    assert_eq!(refused.to_string(), "57 bytes of private data, and a REQ has room for 56");
    let refused = net.ends[0].ready(waiting, &[]).unwrap_err();
    assert!(refused.to_string().contains("ready needs a ConnectResponse"), "{refused}");
    let wide = Parameters::new(1 << 24, 0);
    let refused = net.ends[0].connect(net.now, path(0), SERVICE, Route::default(), &wide).unwrap_err();
    assert_eq!(refused.to_string(), "qpn is 0x1000000, and the limit is 0xffffff");
    assert_eq!(net.ends[1].listen(SERVICE), Err(CallError::InUse(SERVICE)));
    assert_eq!(net.ends[1].close(SERVICE), Ok(()));
    assert_eq!(net.ends[1].close(SERVICE), Err(CallError::NotListening(SERVICE)));
}

#[test]
fn the_queue_pair_of_a_service_is_resolved_or_refused() {
    for weather in [CALM, STORM] {
        let mut net = Network::new(12, weather);
        let ask = |net: &mut Network, service| net.ends[0].resolve(net.now, path(0), service, 55, b"who").unwrap();
        ask(&mut net, DATAGRAMS);
        let (theirs, Event::ResolveRequest { remote, private_data, .. }) = net.event(1) else { panic!() };
        assert_eq!((remote.to_string().as_str(), &private_data[..4]), ("10.0.0.1:55", &b"who\0"[..]));
        net.ends[1].answer(net.now, theirs, 0x55, 0x0123_4567, b"me").unwrap();
        let (_, Event::Resolved { qpn, qkey, private_data }) = net.event(0) else { panic!() };
        assert_eq!((qpn, qkey, &private_data[..3]), (0x55, 0x0123_4567, &b"me\0"[..]));
        ask(&mut net, Service::udp(1));
        assert!(matches!(net.event(0).1, Event::Unresolved { status: CmSidrStatus::Unsupported, .. }));
        ask(&mut net, DATAGRAMS);
        let (theirs, _) = net.event(1);
        net.ends[1].refuse_request(net.now, theirs, &[]).unwrap();
        assert!(matches!(net.event(0).1, Event::Unresolved { status: CmSidrStatus::Reject, .. }));
        net.assert_nothing_left();
    }
}

/// A thousand connections in a storm: a third is rejected, the others are made, and ended by either side.
fn thousand(seed: u64) -> (u64, Duration) {
    const ALL: u32 = 1000;
    let mut net = Network::new(seed, STORM);
    for qpn in 0..ALL {
        net.connect(0x100 + qpn);
    }
    let (mut rejected, mut refused, mut made, mut ended) = (0, 0, BTreeSet::new(), [0; 2]);
    let until = Duration::from_secs(3600);
    while net.step(until) {
        let now = net.now;
        while let Some((id, event)) = net.ends[1].poll_event() {
            match event {
                Event::ConnectRequest { offer, .. } if offer.remote_qpn.is_multiple_of(3) => {
                    rejected += 1;
                    net.ends[1].reject(now, id, CmRejectReason::ConsumerDefined, &[]).unwrap();
                }
                Event::ConnectRequest { offer, .. } => {
                    net.ends[1].accept(now, id, &Parameters::new(offer.remote_qpn + 0x1000, 0)).unwrap();
                }
                Event::Established { .. } => {
                    if net.ends[1].agreed(id).unwrap().remote_qpn.is_multiple_of(2) {
                        net.ends[1].disconnect(now, id, &[]).unwrap();
                    }
                }
                Event::Disconnected { .. } => ended[1] += 1,
                Event::TimewaitExit => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some((id, event)) = net.ends[0].poll_event() {
            match event {
                Event::ConnectResponse { agreed, .. } => {
                    assert!(made.insert(agreed.remote_qpn), "one answer, one event");
                    net.ends[0].ready(id, &[]).unwrap();
                    if agreed.remote_qpn % 2 == 1 {
                        net.ends[0].disconnect(now, id, &[]).unwrap();
                    }
                }
                Event::Rejected { reason, .. } => {
                    assert_eq!(reason, CmRejectReason::ConsumerDefined);
                    refused += 1;
                }
                Event::Disconnected { confirmed, .. } => {
                    assert!(confirmed);
                    ended[0] += 1;
                }
                Event::TimewaitExit => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((refused, made.len() as u32 + refused, ended), (333, ALL, [made.len(); 2]));
    assert!(rejected >= refused, "a rejection that came late is asked for again");
    net.assert_nothing_left();
    (net.sent, net.now)
}

#[test]
fn a_thousand_connections_in_a_storm_are_made_rejected_and_ended_and_none_is_left() {
    for seed in 1..=10 {
        assert_eq!(thousand(seed), thousand(seed), "each run of a seed is the same");
    }
}

#[test]
fn no_bytes_panic_and_all_that_they_make_ends() {
    let mut net = Network::new(13, CALM);
    for round in 0..20_000 {
        let mut mad = [0u8; 256];
        mad.iter_mut().for_each(|byte| *byte = net.chance(256) as u8);
        let attribute = 0x10 + net.chance(11) as u8;
        mad[..18].copy_from_slice(&[1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, attribute]);
        if net.chance(2) == 0 {
            // A service that has a listener, with addresses.
            mad[0x20..0x28].copy_from_slice(&SERVICE.id().to_be_bytes());
            mad[0xa4..0xa6].copy_from_slice(&[0, 0x40]);
        }
        let _ = net.ends[1].receive(net.now, path(1), &mad);
        while net.ends[1].poll_transmit().is_some() {}
        while let Some((id, _)) = net.ends[1].poll_event() {
            let _ = match round % 3 {
                0 => net.ends[1].accept(net.now, id, &Parameters::new(1, 1)),
                1 => net.ends[1].destroy(net.now, id),
                _ => Ok(()),
            };
        }
    }
    net.assert_nothing_left();
}
