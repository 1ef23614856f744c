//! Tracing: each firmware command and each queue pair transition is a span with its result.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5_dv::Device;
use mlx5_dv::objects::{
    AddressPath, CqOptions, DatagramAttributes, InitAttributes, Pd, QpOptions, QueuePair, RtrAttributes, RtsAttributes,
    Uar,
};
use mlx5_dv::queue::CompletionQueue;
use mlx5_open::Sim;
use mlx5_prm::cmd::{NopIn, QueryQpIn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

type Fields = BTreeMap<String, String>;

/// One span.
#[derive(Clone)]
struct Span {
    kind: (&'static str, &'static str, Level),
    /// Index of the parent span.
    parent: Option<usize>,
    fields: Fields,
}

#[derive(Default)]
struct State {
    spans: Vec<Span>,
    entered: Vec<usize>,
}

/// Records all spans of the driver, in order.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<State>>);

impl Spans {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").trim_matches('"').into());
    }
}

fn index(id: &Id) -> usize {
    id.into_u64() as usize - 1
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("mlx5_dv::")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let metadata = span.metadata();
        let mut fields = Fields::new();
        span.record(&mut Into(&mut fields));
        let mut state = self.lock();
        let parent = state.entered.last().copied();
        state.spans.push(Span { kind: (metadata.target(), metadata.name(), *metadata.level()), parent, fields });
        Id::from_u64(state.spans.len() as u64)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Into(&mut self.lock().spans[index(span)].fields));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, span: &Id) {
        self.lock().entered.push(index(span));
    }
    fn exit(&self, span: &Id) {
        assert_eq!(self.lock().entered.pop(), Some(index(span)));
    }
}

const COMMAND: (&str, &str, Level) = ("mlx5_dv::command", "command", Level::DEBUG);
const TRANSITION: (&str, &str, Level) = ("mlx5_dv::qp", "transition", Level::DEBUG);

/// Runs one test at a time: the decision to record a span is cached per process, and a cache entry made by another test
/// may miss a subscriber that is being set.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The spans during `run`.
fn spans_of(run: impl FnOnce()) -> Vec<Span> {
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), run);
    let state = spans.lock();
    assert!(state.entered.is_empty());
    state.spans.clone()
}

#[test]
fn a_command_is_a_span_with_its_status_and_how_long_it_took() {
    let _alone = alone();
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let spans = spans_of(|| {
        device.execute(&NopIn::default(), "nothing").unwrap();
        let mut query = QueryQpIn::default();
        query.w().qpn(0x77_7777);
        device.execute(&query, "QP 0x777777").expect_err("there is none");
        drop(Pd::alloc(&device).unwrap());
    });
    assert!(spans.iter().all(|span| span.kind == COMMAND && span.parent.is_none()));
    let field = |span: &Span, name: &str| span.fields[name].clone();
    let told: Vec<_> = spans.iter().map(|span| ["opcode", "object", "status"].map(|name| field(span, name))).collect();
    assert_eq!(told[0], ["NOP", "nothing", "OK"]);
    assert_eq!(told[1], ["QUERY_QP", "QP 0x777777", "BAD_RESOURCE"]);
    assert_eq!((&*told[2][0], &*told[3][0], told.len()), ("ALLOC_PD", "DEALLOC_PD", 4));
    assert!(spans.iter().all(|span| span.fields["micros"].parse::<u64>().is_ok()));
}

fn queue_pair(device: &Arc<Device>, options: QpOptions) -> Arc<QueuePair> {
    let (pd, uar) = (Pd::alloc(device).unwrap(), Uar::alloc(device).unwrap());
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), options).unwrap()
}

#[test]
fn a_step_of_a_queue_pair_is_a_span_around_its_command() {
    let _alone = alone();
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let connected = queue_pair(&device, QpOptions::default());
    let datagrams = queue_pair(&device, QpOptions::default().datagrams());
    let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
    let rtr = RtrAttributes::new(connected.qpn(), 0, path);
    let spans = spans_of(|| {
        connected.init(&InitAttributes::default()).unwrap();
        let no_gid = RtrAttributes { path: path.gid_index(9), ..rtr };
        connected.ready_to_receive(&no_gid).expect_err("there is no GID 9");
        connected.ready_to_receive(&rtr).unwrap();
        connected.ready_to_send(&RtsAttributes::new(0)).unwrap();
        connected.ready_to_send(&RtsAttributes::new(0)).expect_err("it is there, and no step was tried");
        connected.to_error().unwrap();
        connected.reset().unwrap();
        datagrams.activate(&DatagramAttributes::new(1)).unwrap();
    });
    let steps: Vec<_> = spans.iter().enumerate().filter(|(_, span)| span.kind == TRANSITION).collect();
    let told = steps.iter().map(|(_, span)| ["service", "from", "to"].map(|name| &*span.fields[name]));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ["RC", "RST", "INIT"],
            ["RC", "INIT", "RTR"],
            ["RC", "INIT", "RTR"],
            ["RC", "RTR", "RTS"],
            ["RC", "RTS", "ERR"],
            ["RC", "ERR", "RST"],
            ["UD", "RST", "INIT"],
            ["UD", "INIT", "RTR"],
            ["UD", "RTR", "RTS"],
        ]
    );
    for (nth, (at, step)) in steps.iter().enumerate() {
        let qp = if nth < 6 { &connected } else { &datagrams };
        assert_eq!(step.fields["qpn"], qp.qpn().to_string());
        let commands: Vec<_> = spans.iter().filter(|span| span.parent == Some(*at)).collect();
        assert_eq!((commands.len(), commands[0].kind), (1, COMMAND));
        assert_eq!(commands[0].fields["object"], format!("QP {:#x}", qp.qpn()));
        let error = step.fields.get("error");
        assert_eq!(error.is_some_and(|error| error.starts_with("INIT2RTR_QP of QP")), nth == 1, "{error:?}");
        assert_eq!(error.is_some(), nth == 1);
    }
}
