//! A `tracing` subscriber that keeps every event and span, for tests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use ostler_testkit::MAX_WAIT;
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Fields by name, as text; the sentence is `message`.
pub(super) type Fields = BTreeMap<String, String>;

#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) name: &'static str,
    pub(super) target: &'static str,
    pub(super) level: Level,
    pub(super) fields: Fields,
}

impl Seen {
    /// The value of a field, or nothing.
    pub(super) fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }
}

/// What was captured. Clones share it.
#[derive(Clone)]
pub(super) struct Capture {
    up_to: LevelFilter,
    events: watch::Sender<Vec<Seen>>,
    spans: Arc<Mutex<Vec<Fields>>>,
}

thread_local! {
    /// The spans that this thread is in.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Capture {
    pub(super) fn new(up_to: LevelFilter) -> Self {
        Self { up_to, events: watch::Sender::new(Vec::new()), spans: Arc::default() }
    }

    pub(super) fn dispatch(&self) -> Dispatch {
        Dispatch::new(self.clone())
    }

    pub(super) fn all(&self) -> Vec<Seen> {
        self.events.borrow().clone()
    }

    /// All events with this name.
    pub(super) fn named(&self, name: &str) -> Vec<Seen> {
        self.all().into_iter().filter(|seen| seen.name == name).collect()
    }

    /// Waits for an event with this name.
    pub(super) async fn wait(&self, name: &str) -> Seen {
        let mut events = self.events.subscribe();
        let has = |events: &Vec<Seen>| events.iter().any(|seen| seen.name == name);
        let waited = tokio::time::timeout(MAX_WAIT, events.wait_for(has)).await.is_ok();
        assert!(waited, "there is no {name}: {:#?}", self.all());
        self.named(name).remove(0)
    }

    /// The fields of the span that the current thread is in.
    pub(super) fn current_span(&self) -> Option<Fields> {
        let number = ENTERED.with_borrow(|entered| entered.last().copied())?;
        self.spans.lock().unwrap().get(usize::try_from(number).unwrap() - 1).cloned()
    }
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Capture {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= self.up_to && about.target().starts_with("ostler::")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.up_to)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Reader(&mut fields));
        let mut spans = self.spans.lock().unwrap();
        spans.push(fields);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let about = event.metadata();
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let seen = Seen { name: about.name(), target: about.target(), level: *about.level(), fields };
        self.events.send_modify(|events| events.push(seen));
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, _span: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }
}
