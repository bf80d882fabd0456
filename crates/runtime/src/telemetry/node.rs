//! Events of the node itself, target `ostler::node`, and of the availability of its store, target `ostler::store`.

use std::time::Duration;

use ostler_core::{SessionId, show_duration};
use tracing::{Level, event};

use super::counters::count;
use super::{NODE, STORE, Telemetry};
use crate::node::Drained;
use crate::store_health::StoreNews;

impl Telemetry {
    pub(crate) fn node_started(&self, session: SessionId, host: &str) {
        let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
        self.emit(Level::INFO, || {
            event!(
                name: "node.started", target: NODE, Level::INFO,
                { node = &*self.node, session = %session, host, pid, version },
                "node \"{}\" started", self.node
            );
        });
    }

    pub(crate) fn node_draining(&self, timeout: Duration, running: usize) {
        let tasks = if running == 1 { "task" } else { "tasks" };
        self.emit(Level::INFO, || {
            event!(
                name: "node.draining", target: NODE, Level::INFO,
                { node = &*self.node, running },
                "draining: waiting up to {} for {running} running {tasks}", show_duration(timeout)
            );
        });
    }

    /// A drain was taken back.
    pub(crate) fn node_resumed(&self) {
        self.emit(Level::INFO, || {
            event!(
                name: "node.resumed", target: NODE, Level::INFO,
                { node = &*self.node },
                "the drain was taken back: claiming tasks again"
            );
        });
    }

    pub(crate) fn node_stopped(&self, drained: Drained) {
        let Drained { finished, handed_back } = drained;
        self.emit(Level::INFO, || {
            event!(
                name: "node.stopped", target: NODE, Level::INFO,
                { node = &*self.node, finished, handed_back },
                "stopped: {finished} tasks finished while it drained, {handed_back} returned to the queue"
            );
        });
    }

    /// The node has renewed its leases.
    pub(crate) fn node_renewed(&self) {
        count(&self.counters.heartbeats);
    }

    /// A call of the store failed. `store_news` reports whether the store is away.
    pub(crate) fn store_failed(&self) {
        count(&self.counters.store_errors);
    }

    /// The node could not renew its leases, or was declared dead.
    pub(crate) fn node_fenced(&self) {
        count(&self.counters.fenced);
        self.emit(Level::WARN, || {
            event!(
                name: "node.fenced", target: NODE, Level::WARN,
                { node = &*self.node },
                "the node could not renew its leases: it has stopped its tasks and will rejoin"
            );
        });
    }

    pub(crate) fn node_rejoined(&self, session: SessionId) {
        self.emit(Level::INFO, || {
            event!(
                name: "node.rejoined", target: NODE, Level::INFO,
                { node = &*self.node, session = %session },
                "the node lost its leases and rejoined as {session}"
            );
        });
    }

    /// Why the node cannot rejoin yet.
    pub(crate) fn node_not_rejoined(&self, error: &str) {
        self.emit(Level::WARN, || {
            event!(
                name: "node.not_rejoined", target: NODE, Level::WARN,
                { node = &*self.node, error },
                "the node cannot rejoin yet, and keeps trying"
            );
        });
    }

    /// The store became unusable, or is back.
    pub(crate) fn store_news(&self, news: &StoreNews) {
        let node = &*self.node;
        match news {
            StoreNews::Away(_) => {
                count(&self.counters.store_outages);
                self.emit(Level::WARN, || {
                    event!(name: "store.away", target: STORE, Level::WARN, { node }, "{news}");
                });
            }
            StoreNews::Back { after } => {
                let outage_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                self.emit(Level::INFO, || {
                    event!(name: "store.back", target: STORE, Level::INFO, { node, outage_ms }, "{news}");
                });
            }
            StoreNews::Refused(_) => self.emit(Level::WARN, || {
                event!(name: "store.refused", target: STORE, Level::WARN, { node }, "{news}");
            }),
            StoreNews::Gone(_) => self.emit(Level::ERROR, || {
                event!(name: "store.gone", target: STORE, Level::ERROR, { node }, "{news}");
            }),
        }
    }
}
