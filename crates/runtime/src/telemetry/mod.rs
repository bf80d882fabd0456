//! Telemetry: every `tracing` event of a node, with its name, level and fields, and the counters that go with it. A place that has
//! something to report calls one function here.
//!
//! - `task.rs`, target `ostler::task`: tasks and attempts. `pool.rs`, target `ostler::pool`: pools, workers and breakers. `node.rs`,
//!   targets `ostler::node` and `ostler::store`: the node itself, and the availability of its store.
//! - `counters.rs`: what is counted. `histogram.rs`: durations.
//!
//! Levels: `WARN` for each failure, `INFO` for what happens to the node and its pools, `DEBUG` for each task. A disabled level costs
//! one atomic load. The names of events, targets and fields are documented in `docs/guide/observability.md`; they are added to, never
//! renamed.

mod counters;
mod histogram;
mod node;
mod pool;
mod task;

use std::sync::Arc;

use tracing::dispatcher::{self, Dispatch};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;
use tracing::{Level, Span};

use crate::breaker_watch::BreakerHint;
use counters::Counters;
pub use counters::{AttemptOutcome, CounterSnapshot, LaneSnapshot, PoolSnapshot};
pub use histogram::HistogramSnapshot;
pub(crate) use task::{AttemptTag, EndedAttempt};

/// Targets: what a filter selects by.
const TASK: &str = "ostler::task";
const POOL: &str = "ostler::pool";
const NODE: &str = "ostler::node";
const STORE: &str = "ostler::store";

/// Reports what a node does. Clones share the same counters.
#[derive(Clone)]
pub struct Telemetry {
    node: Arc<str>,
    counters: Arc<Counters>,
    /// Asks for a look at the breakers.
    pub(crate) breakers: BreakerHint,
    /// The subscriber of the caller that started the node, where it was the default of its thread only. `None`: there is a global one,
    /// or one may still be set.
    dispatch: Option<Dispatch>,
}

impl Telemetry {
    /// The telemetry of a node or client with this name, for the subscriber that is the default here.
    #[must_use]
    pub fn here(node: &str) -> Self {
        let dispatch = dispatcher::get_default(|found| is_set(found).then(|| found.clone()));
        Self { node: node.into(), counters: Arc::default(), breakers: BreakerHint::default(), dispatch }
    }

    /// The same, once it is on the node's thread, where only a global subscriber is the default. That one needs no scope around each
    /// event, which would cost more than the event.
    pub(crate) fn on_node_thread(self) -> Self {
        let is_global = dispatcher::get_default(is_set);
        Self { dispatch: self.dispatch.filter(|_| !is_global), ..self }
    }

    /// What has been counted since the node started.
    #[must_use]
    pub fn counters(&self) -> CounterSnapshot {
        self.counters.snapshot()
    }

    /// Emits an event if its level may be enabled.
    fn emit(&self, level: Level, event: impl FnOnce()) {
        if is_enabled(level) {
            self.scoped(event);
        }
    }

    fn scoped<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.dispatch {
            Some(dispatch) => dispatcher::with_default(dispatch, work),
            None => work(),
        }
    }

    /// A span, or none if its level is disabled.
    fn span(&self, level: Level, span: impl FnOnce() -> Span) -> Span {
        if is_enabled(level) { self.scoped(span) } else { Span::none() }
    }
}

fn is_set(dispatch: &Dispatch) -> bool {
    !dispatch.is::<NoSubscriber>()
}

/// Whether any subscriber may want this level.
fn is_enabled(level: Level) -> bool {
    level <= LevelFilter::current()
}
