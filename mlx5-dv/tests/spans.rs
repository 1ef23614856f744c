//! Each firmware command is a span, with what came of it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use mlx5_dv::objects::Pd;
use mlx5_open::Sim;
use mlx5_prm::cmd::{NopIn, QueryQpIn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

type Fields = BTreeMap<String, String>;

/// Keeps the fields of all spans of commands, in order.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Fields>>>);

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").trim_matches('"').into());
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "mlx5_dv::command"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        assert_eq!((span.metadata().name(), *span.metadata().level()), ("command", tracing::Level::DEBUG));
        let mut spans = self.0.lock().unwrap();
        spans.push(Fields::new());
        let id = spans.len();
        span.record(&mut Into(&mut spans[id - 1]));
        Id::from_u64(id as u64)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Into(&mut self.0.lock().unwrap()[span.into_u64() as usize - 1]));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_command_is_a_span_with_its_status_and_how_long_it_took() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), || {
        device.execute(&NopIn::default(), "nothing").unwrap();
        let mut query = QueryQpIn::default();
        query.w().qpn(0x77_7777);
        device.execute(&query, "QP 0x777777").expect_err("there is none");
        drop(Pd::alloc(&device).unwrap());
    });
    let spans = spans.0.lock().unwrap();
    let told: Vec<_> = spans.iter().map(|span| [&*span["opcode"], &*span["object"], &*span["status"]]).collect();
    assert_eq!(told[0], ["NOP", "nothing", "OK"]);
    assert_eq!(told[1], ["QUERY_QP", "QP 0x777777", "BAD_RESOURCE"]);
    assert_eq!((told[2][0], told[3][0], told.len()), ("ALLOC_PD", "DEALLOC_PD", 4));
    assert!(spans.iter().all(|span| span["micros"].parse::<u64>().is_ok()));
}
