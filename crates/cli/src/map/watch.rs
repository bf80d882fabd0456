//! Watches a map job until it is over: progress, problems of its node and of the store, pauses, and the end of its pilot.

use std::time::Duration;

use ostler_core::{BUDGET_REACHED, JobId};
use ostler_ops::OpsError;
use ostler_ops::jobs;
use ostler_ops::jobs::pilot::{self, PilotState};
use ostler_runtime::{Node, NodeState, StoreNews};
use ostler_store::Store;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::allowance::AllowanceWatch;
use super::halt::HaltMode;
use super::pool;
use super::progress::MapProgress;
use super::table::{self, LiveTable};
use super::unserved::{self, KindWatch};
use crate::exit::say;
use crate::store_location::refusal;

/// The minimum interval between two looks at the progress.
const LOOK: Duration = Duration::from_millis(10);

/// The interval at which a bar is drawn again though nothing has changed.
const BAR_LOOK: Duration = Duration::from_secs(1);

/// Why the job has stopped.
pub(super) enum MapEnd {
    /// All items have finished.
    Done,
    /// The halt condition is met.
    Halted(HaltMode),
    /// The items of the pilot have finished, and the others wait for an approval.
    Piloted,
    /// Its budget is reached, and nothing runs.
    Spent,
    /// The job was cancelled.
    Cancelled,
    Interrupted,
    /// Its node was asked to drain.
    Drained,
}

/// Watches a job until it has stopped.
pub(super) struct Watch<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) node: &'a Node,
    pub(super) job: JobId,
    pub(super) items: u64,
    pub(super) news: mpsc::Receiver<StoreNews>,
    /// The maximum size of the payload of a synthesis.
    pub(super) payload_bytes: usize,
    /// The items that are shown with the progress, if they are to be.
    pub(super) table: Option<LiveTable>,
    /// For items that the workers of a pool run.
    pub(super) kinds: Option<KindWatch>,
    /// For items of a pool that has an account.
    pub(super) allowance: Option<AllowanceWatch>,
}

impl Watch<'_> {
    /// Tells the user that the usage limit of the pool's account is near.
    pub(super) async fn tell_near_limit(&mut self, progress: &MapProgress) {
        if let Some(allowance) = &mut self.allowance
            && let Some(why) = allowance.complaint(self.store).await
        {
            progress.aside(|| say(&why));
        }
    }

    pub(super) async fn until_over(
        &mut self,
        progress: &mut MapProgress,
        mut enqueued: tokio::task::JoinHandle<Result<u64, OpsError>>,
    ) -> anyhow::Result<MapEnd> {
        let (mut ends, mut state) = (self.node.ends(), self.node.state());
        let mut changes = self.store.changes();
        let mut all_enqueued = false;
        let mut said_paused = false;
        let mut troubles = Vec::new();
        let mut looks = tokio::time::interval(table::LOOK);
        let mut clock = tokio::time::interval(BAR_LOOK);
        let mut kind_looks = tokio::time::interval(unserved::LOOK);
        let mut allowance_looks = tokio::time::interval(unserved::LOOK);
        loop {
            tokio::select! {
                done = &mut enqueued, if !all_enqueued => {
                    done??;
                    all_enqueued = true;
                }
                _ = ends.changed() => {}
                Ok(()) = state.changed() => {}
                _ = changes.wait() => {}
                _ = looks.tick(), if self.table.is_some() => {}
                // The time that has passed is shown, too.
                _ = clock.tick(), if progress.is_bar() => {}
                _ = kind_looks.tick(), if self.kinds.is_some() => {}
                _ = allowance_looks.tick(), if self.allowance.is_some() => self.tell_near_limit(progress).await,
            }
            let found = self.node.troubles();
            for trouble in found.iter().filter(|trouble| !troubles.contains(*trouble)) {
                progress.aside(|| say(trouble));
            }
            troubles = found;
            if let Some(why) = self.kinds.as_mut().and_then(|kinds| kinds.complaint(Instant::now())) {
                progress.aside(|| say(&why));
            }
            while let Ok(news) = self.news.try_recv() {
                // The program exits with that message.
                if !matches!(news, StoreNews::Gone(_)) {
                    progress.aside(|| say(&news.to_string()));
                }
            }
            if let Some(error) = self.node.store_health().gone() {
                return Err(refusal(error));
            }
            if *state.borrow_and_update() == NodeState::Draining {
                progress.aside(|| say("drain requested"));
                return Ok(MapEnd::Drained);
            }
            let record = match jobs::existing(self.store, self.job).await {
                Err(error) if error.is_transient() => continue,
                record => record?,
            };
            if let Some(table) = &mut self.table {
                // If the store does not answer, the next look may.
                let _ = table.update(self.store, self.job, record.counts.running).await;
            }
            progress.update(&record.counts, self.table.as_ref().unwrap_or(&LiveTable::default()));
            if all_enqueued {
                pool::synthesize(self.store, &record, self.payload_bytes).await?;
            }
            // Items may have been added meanwhile.
            let items = self.items.max(record.job.items);
            if all_enqueued && record.counts.ended() >= items {
                return Ok(MapEnd::Done);
            }
            match pilot::state(self.store, &record).await {
                Ok(PilotState::Waiting) if all_enqueued => return Ok(MapEnd::Piloted),
                Err(error) if !error.is_transient() => return Err(error.into()),
                Ok(_) | Err(_) => {}
            }
            if record.cancelled_at.is_some() {
                return Ok(MapEnd::Cancelled);
            }
            let is_spent = |why: &String| why.starts_with(BUDGET_REACHED);
            if record.paused.as_ref().is_some_and(is_spent)
                && record.counts.running + record.counts.claimed == 0
            {
                return Ok(MapEnd::Spent);
            }
            if let Some(why) = record.paused.filter(|_| !said_paused) {
                progress.aside(|| {
                    say(&format!("the job is paused: {why}; to resume it: ostler job resume {}", self.job));
                });
                said_paused = true;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
