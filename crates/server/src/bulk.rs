//! Bulk actions under way on this node: started once for the same action, filter and cut-off, with progress and a stop.
//!
//! Nothing is kept of them but in memory: an action that was interrupted with its node is started again, and does the rest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ostler_core::Timestamp;
use ostler_ops::bulk::{BulkPlan, BulkRun};
use ostler_store::Store;
use ostler_wire::action::{BulkProgress, BulkState};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::answer::RequestError;

/// Actions that are kept to be asked about; the oldest that is over is forgotten first.
const MAX_ACTIONS: usize = 100;
/// Actions that run at once.
const MAX_RUNNING: usize = 4;

#[derive(Debug)]
struct KeptAction {
    progress: Arc<Mutex<BulkProgress>>,
    stop: CancellationToken,
    number: u64,
}

/// The bulk actions of a node.
#[derive(Debug, Default)]
pub(crate) struct BulkActions(Mutex<(u64, HashMap<String, KeptAction>)>);

/// The id of an action: the same for the same action, filter and cut-off.
pub(crate) fn id_of(action: &str, filter: &str, cutoff: Timestamp) -> String {
    let digest = Sha256::new()
        .chain_update(action)
        .chain_update([0])
        .chain_update(filter)
        .chain_update([0])
        .chain_update(cutoff.millis().to_be_bytes())
        .finalize();
    digest[..10].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl BulkActions {
    /// Starts an action, or goes on with one that was stopped or has failed.
    pub(crate) fn start(
        self: &Arc<Self>,
        store: Arc<dyn Store>,
        id: String,
        action: &'static str,
        plan: BulkPlan,
        node_stops: &CancellationToken,
    ) -> Result<BulkProgress, RequestError> {
        let mut kept = self.0.lock().expect("no panic while actions are held");
        let (next, all) = &mut *kept;
        let is_open = |kept: &KeptAction| state(kept) == BulkState::Running;
        if let Some(known) = all.get(&id)
            && matches!(state(known), BulkState::Running | BulkState::Done)
        {
            return Ok(known.progress.lock().expect("no panic while progress is held").clone());
        }
        if all.values().filter(|kept| is_open(kept)).count() >= MAX_RUNNING {
            return Err(RequestError::busy(format!("{MAX_RUNNING} actions are running, the most at once")));
        }
        if all.len() >= MAX_ACTIONS {
            let oldest = all.iter().filter(|(_, kept)| !is_open(kept)).min_by_key(|(_, kept)| kept.number);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                all.remove(&id);
            }
        }
        let progress = BulkProgress::begun(id.clone(), action, plan.cutoff);
        let (shared, stop) = (Arc::new(Mutex::new(progress.clone())), node_stops.child_token());
        *next += 1;
        all.insert(id, KeptAction { progress: Arc::clone(&shared), stop: stop.clone(), number: *next });
        tokio::spawn(run(store, plan, shared, stop));
        Ok(progress)
    }

    pub(crate) fn progress(&self, id: &str) -> Option<BulkProgress> {
        let kept = self.0.lock().expect("no panic while actions are held");
        let found = kept.1.get(id)?;
        Some(found.progress.lock().expect("no panic while progress is held").clone())
    }

    /// All that are known, the newest first.
    pub(crate) fn list(&self) -> Vec<BulkProgress> {
        let kept = self.0.lock().expect("no panic while actions are held");
        let mut all: Vec<&KeptAction> = kept.1.values().collect();
        all.sort_by_key(|kept| std::cmp::Reverse(kept.number));
        all.iter()
            .map(|kept| kept.progress.lock().expect("no panic while progress is held").clone())
            .collect()
    }

    /// Stops an action between two batches.
    pub(crate) fn stop(&self, id: &str) -> Option<BulkProgress> {
        {
            let kept = self.0.lock().expect("no panic while actions are held");
            kept.1.get(id)?.stop.cancel();
        }
        self.progress(id)
    }
}

fn state(kept: &KeptAction) -> BulkState {
    kept.progress.lock().expect("no panic while progress is held").state
}

async fn run(
    store: Arc<dyn Store>,
    plan: BulkPlan,
    shared: Arc<Mutex<BulkProgress>>,
    stop: CancellationToken,
) {
    let mut run = BulkRun::new(plan);
    loop {
        // Between two batches, never within one: what a batch has done is counted.
        let step = if stop.is_cancelled() { None } else { Some(run.step(store.as_ref()).await) };
        let mut progress = shared.lock().expect("no panic while progress is held");
        match step {
            None => {
                progress.state = BulkState::Stopped;
                return;
            }
            Some(Ok(None)) => {
                progress.state = BulkState::Done;
                return;
            }
            Some(Err(error)) => {
                (progress.state, progress.error) = (BulkState::Failed, Some(error.to_string()));
                return;
            }
            Some(Ok(Some(acted))) => {
                progress.add(&acted);
            }
        }
    }
}
