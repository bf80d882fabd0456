//! Options that come with handlers: workers announce them at their start. They become policy values of their kinds in the store,
//! below those of the config.

use std::collections::BTreeMap;

use ostler_core::Overrides;
use ostler_store::calls::QueueChange;
use tokio::sync::Mutex;

use crate::attempt::{PoolContext, give_back};
use crate::workers::WorkerSet;

/// The options of a pool's handlers.
#[derive(Default)]
pub(crate) struct HandlerOptions {
    /// Those that the store has.
    applied: Mutex<BTreeMap<String, Overrides>>,
}

impl HandlerOptions {
    /// Writes the options that the executor knows now, if they are new. Tasks that were claimed without them go back to their queue.
    pub(crate) async fn apply(&self, context: &PoolContext, workers: &WorkerSet) {
        let mut applied = self.applied.lock().await;
        let options = context.pool.executor.kind_options();
        if *applied == options {
            return;
        }
        let changes = changes(&context.pool.settings, &applied, &options);
        // An unavailable store is asked again when the next worker starts.
        if context.store.configure(&context.pool.queue, changes).await.is_err() {
            return;
        }
        *applied = options;
        drop(applied);
        for waiting in workers.take_back(0) {
            give_back(context, waiting.claimed).await;
        }
    }
}

/// What changes in the store, whose values for a kind win over those for the queue: so the config's values for both come first.
fn changes(
    config: &[QueueChange],
    before: &BTreeMap<String, Overrides>,
    options: &BTreeMap<String, Overrides>,
) -> Vec<QueueChange> {
    let (mut queue, mut kinds) = (Overrides::NONE, BTreeMap::new());
    for change in config {
        if let QueueChange::Overrides(overrides) = change {
            queue = *overrides;
        } else if let QueueChange::KindOverrides(kind, overrides) = change {
            kinds.insert(kind.as_str(), *overrides);
        }
    }
    let of_config = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    let gone = before.keys().filter(|kind| !options.contains_key(*kind));
    let gone = gone.map(|kind| QueueChange::KindOverrides(kind.clone(), of_config(kind)));
    let given = options
        .iter()
        .map(|(kind, given)| QueueChange::KindOverrides(kind.clone(), of_config(kind).or(&queue).or(given)));
    gone.chain(given).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn attempts(attempts: u32) -> Overrides {
        Overrides { attempts: Some(attempts), ..Overrides::NONE }
    }

    #[test]
    fn what_the_config_says_of_a_kind_or_its_queue_wins_over_the_handler() {
        let timeout = Some(Duration::from_secs(9));
        let config = [
            QueueChange::Overrides(Overrides { timeout, ..Overrides::NONE }),
            QueueChange::KindOverrides("scan".into(), attempts(2)),
        ];
        let given = Overrides { timeout: Some(Duration::from_secs(30)), ..attempts(5) };
        let options = [("scan".to_owned(), given), ("mail".to_owned(), given)].into();
        let before = [("old".to_owned(), given)].into();
        assert_eq!(
            changes(&config, &before, &options),
            [
                QueueChange::KindOverrides("old".into(), Overrides::NONE),
                QueueChange::KindOverrides("mail".into(), Overrides { timeout, ..attempts(5) }),
                QueueChange::KindOverrides("scan".into(), Overrides { timeout, ..attempts(2) }),
            ]
        );
    }
}
