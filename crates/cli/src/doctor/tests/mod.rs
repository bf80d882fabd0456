//! Every fault is produced for real, in a temporary store, and recognised by its code. All findings are compared, so that false
//! alarms are noticed too.

mod jobs;
mod limits;
mod schedules;
mod store;
mod threads;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{SessionId, Timestamp, Worker, WorkerState};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Fenced, Kinds, NewSession, Renewed};
use ostler_store::{Clock as _, Store as _};
use ostler_testkit::{Ids, ManualClock, TempStore};

use ostler_wire::system::FindingView as Finding;

use super::{Subject, examine};
use crate::config::{Config, ConfigError, StoreUrl};

const TTL: Duration = Duration::from_secs(60);

/// A store with a manual clock, and a doctor for it.
struct World {
    files: TempStore,
    clock: ManualClock,
    ids: Ids,
    config: Option<Result<Config, ConfigError>>,
}

impl World {
    fn new() -> Self {
        let (files, clock) = TempStore::manual();
        Self { files, clock, ids: Ids::new(1), config: None }
    }

    async fn enqueue(&self, count: usize, queue: &str, kind: &str) {
        self.files.store().enqueue(self.ids.new_tasks(count, queue, kind)).await.expect("they are taken");
    }

    /// A running node with one idle worker for each pool.
    async fn node(&self, name: &str, pools: &[&str]) -> SessionId {
        self.join(self.ids.new_session(name, TTL), pools).await
    }

    async fn join(&self, node: NewSession, pools: &[&str]) -> SessionId {
        let session = node.id;
        assert_eq!(self.files.store().join(node).await, Ok(Fenced::Recorded));
        let workers = pools.iter().map(|pool| self.worker(pool, self.clock.now())).collect();
        assert_eq!(self.files.store().report(session, workers, Vec::new()).await, Ok(Fenced::Recorded));
        session
    }

    fn worker(&self, pool: &str, started_at: Timestamp) -> Worker {
        Worker {
            id: self.ids.worker(),
            name: "shell-1".to_owned(),
            pool: pool.to_owned(),
            pid: None,
            state: WorkerState::Idle,
            memory_bytes: None,
            started_at,
            done: 0,
            failed: 0,
            task: None,
        }
    }

    /// Advances the clock, while these nodes stay alive.
    async fn pass(&self, time: Duration, living: &[SessionId]) {
        let until = self.clock.now().after(time);
        while self.clock.now() < until {
            self.clock.advance((TTL / 4).min(until.since(self.clock.now())));
            for session in living {
                let renewed = self.files.store().renew(*session, &[]).await.expect("it is renewed");
                assert!(matches!(renewed, Renewed::Held { .. }), "{renewed:?}");
            }
        }
    }

    async fn claim(&self, session: SessionId, queue: &str, limit: usize) -> Vec<Claimed> {
        let claim = Claim { session, queue: queue.to_owned(), kinds: Kinds::Any, limit };
        match self.files.store().claim(claim).await.expect("a claim is answered") {
            ClaimAnswer::Tasks { tasks, .. } => tasks,
            other => panic!("{other:?}"),
        }
    }

    async fn findings(self) -> Vec<Finding> {
        let store = Some(StoreUrl::Sqlite(self.files.path()));
        looked(Subject {
            store,
            config: self.config,
            containment: None,
            threads: None,
            clock: Arc::new(self.clock),
        })
        .await
    }
}

/// The doctor's findings, except about the disk of the machine that runs the tests, which may really be full.
async fn looked(subject: Subject) -> Vec<Finding> {
    let findings = examine(subject).await;
    findings.into_iter().filter(|finding| !finding.code.starts_with("disk-")).collect()
}

/// Asserts that this, and nothing else, was found.
#[track_caller]
fn only(findings: Vec<Finding>, code: &str) -> Finding {
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [code], "{findings:#?}");
    findings.into_iter().next().expect("there is one")
}

/// Asserts that it contains these words.
#[track_caller]
fn says(finding: &Finding, sentence: &str, advice: &str) {
    assert!(finding.sentence.contains(sentence), "{finding:#?}");
    assert!(finding.advice.contains(advice), "{finding:#?}");
}
