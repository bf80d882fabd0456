//! Executor by kind: async handlers and handlers that are not `Send`, together in one pool.

use async_trait::async_trait;
use ostler_core::WorkerId;

use crate::contract::{AttemptResult, Control, Executor, Served, Work};
use crate::inline::Inline;
use crate::thread::Threads;

/// Runs each attempt where the handler of its kind is registered. A kind that is registered twice runs inline.
pub struct ByKind {
    inline: Inline,
    threads: Threads,
}

impl ByKind {
    #[must_use]
    pub const fn new(inline: Inline, threads: Threads) -> Self {
        Self { inline, threads }
    }
}

#[async_trait]
impl Executor for ByKind {
    fn served(&self) -> Served {
        match (self.inline.served(), self.threads.served()) {
            (Served::Only(mut kinds), Served::Only(others)) => {
                kinds.extend(others);
                Served::Only(kinds)
            }
            (Served::Any, _) | (_, Served::Any) => Served::Any,
        }
    }

    /// That of the threads: all attempts of the pool may be theirs.
    fn capacity(&self) -> Option<usize> {
        self.threads.capacity()
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        if self.inline.serves(&work.kind) {
            self.inline.run(work, control).await
        } else {
            self.threads.run(work, control).await
        }
    }

    async fn close(&self, worker: WorkerId) {
        self.inline.close(worker).await;
        self.threads.close(worker).await;
    }
}
