use super::*;

const CREATE_CQ: u16 = 0x400;

#[test]
fn nothing_goes_wrong_unless_asked() {
    let faults = Faults::new();
    assert_eq!(faults.command(CREATE_CQ), CommandFaults::default());
    assert_eq!((faults.frame(), faults.completion_error(1), faults.page_request()), (None, None, None));
    assert!(!faults.removed() && !faults.event_lost(1) && !faults.health_counter_stopped());
    assert_eq!(faults.health_syndrome(), None);
}

#[test]
fn faults_hit_what_they_name_as_often_as_they_say() {
    let faults = Faults::new();
    let status = Fault::CommandStatus { opcode: Some(CREATE_CQ), status: 3, syndrome: 0x62bbc6 };
    faults.inject(status, Times::Count(2));
    faults.inject(Fault::BadToken { opcode: None }, Times::Count(1));
    assert!(faults.command(0x500).bad_token);
    for _ in 0..2 {
        assert_eq!(faults.command(CREATE_CQ), CommandFaults { status: Some((3, 0x62bbc6)), ..Default::default() });
    }
    assert_eq!(faults.command(CREATE_CQ), CommandFaults::default());
    assert_eq!(faults.list(), []);
}

#[test]
fn of_two_alike_one_counts_at_a_time() {
    let faults = Faults::new();
    for status in [3, 4] {
        faults.inject(Fault::CommandStatus { opcode: None, status, syndrome: 0 }, Times::Count(1));
    }
    assert_eq!(faults.command(1).status, Some((3, 0)));
    assert_eq!(faults.command(1).status, Some((4, 0)));
    assert_eq!(faults.command(1).status, None);
}

#[test]
fn states_last_until_cleared() {
    let faults = Faults::new();
    let other = faults.clone();
    let removal = faults.inject(Fault::SurpriseRemoval, Times::Always);
    faults.inject(Fault::Health { syndrome: 8 }, Times::Always);
    faults.inject(Fault::HealthCounterStopped, Times::Always);
    assert!(other.removed() && other.removed() && other.health_counter_stopped());
    assert_eq!((other.health_syndrome(), other.health_syndrome()), (Some(8), Some(8)));
    assert!(other.clear(removal) && !other.clear(removal));
    assert!(!faults.removed());
    other.clear_all();
    assert!(!faults.health_counter_stopped());
}

#[test]
fn losses_are_as_frequent_as_said_and_repeat_with_their_seed() {
    let run = |seed| {
        let faults = Faults::new();
        faults.seed(seed);
        faults.inject(Fault::Frame { fate: FrameFate::Lost, per_million: 100_000 }, Times::Always);
        (0..10_000).map(|_| faults.frame().is_some()).collect::<Vec<_>>()
    };
    let lost = run(7).into_iter().filter(|lost| *lost).count();
    assert!((800..1200).contains(&lost), "{lost} of 10000 at 10 %");
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn every_kind_has_a_text() {
    let cases = [
        ("status:CREATE_CQ:0x3", Fault::CommandStatus { opcode: Some(CREATE_CQ), status: 3, syndrome: 0 }),
        ("swallow:any", Fault::CommandSwallowed { opcode: None }),
        ("delivery:0x400:1", Fault::DeliveryStatus { opcode: Some(CREATE_CQ), status: 1 }),
        ("late:any:20", Fault::CommandLate { opcode: None, by: Duration::from_millis(20) }),
        ("token:any", Fault::BadToken { opcode: None }),
        ("signature:any", Fault::BadSignature { opcode: None }),
        ("event-lost:0x0a", Fault::EventLost { event_type: Some(10) }),
        ("health:8", Fault::Health { syndrome: 8 }),
        ("health-counter", Fault::HealthCounterStopped),
        ("pages:-5", Fault::PageRequest { pages: -5 }),
        ("removal", Fault::SurpriseRemoval),
        ("cqe:64:5:0x51", Fault::CompletionError { qpn: Some(64), syndrome: 5, vendor_syndrome: 0x51 }),
        ("cqe-opcode:any:7", Fault::CqeOpcode { qpn: None, opcode: 7 }),
        ("loss:0.5%", Fault::Frame { fate: FrameFate::Lost, per_million: 5000 }),
        ("duplicate:1%", Fault::Frame { fate: FrameFate::Duplicated, per_million: 10_000 }),
        ("reorder:100%", Fault::Frame { fate: FrameFate::Reordered, per_million: 1_000_000 }),
        ("corrupt:0%", Fault::Frame { fate: FrameFate::Corrupted(0), per_million: 0 }),
    ];
    for (text, fault) in cases {
        assert_eq!(text.parse(), Ok(Injection { fault, times: Times::Always }), "{text}");
        assert_eq!(format!("{text}*3").parse(), Ok(Injection { fault, times: Times::Count(3) }), "{text}");
    }
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    for (text, reason) in [
        ("los:1%", "unknown fault `los`"),
        ("los:1%", "cqe, cqe-opcode, loss"),
        ("loss", "too few or too many"),
        ("removal:1", "too few or too many"),
        ("loss:101%", "`101%` is not a valid share"),
        ("loss:1", "`1` is not a valid share"),
        ("status:CREATE_QC:3", "`CREATE_QC` is not a valid opcode"),
        ("status:any:256", "`256` is not a valid status"),
        ("removal*0", "`0` is not a valid number of times"),
        ("removal*x", "`x` is not a valid number of times"),
    ] {
        let error = text.parse::<Injection>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}
