//! The settings of queues. Whoever changes them holds the queue alone.

use ostler_store::calls::QueueChange;
use ostler_store::check_settings;
use ostler_store::views::QueueSettings;

use crate::fault::{Abort, Sql};
use crate::locks::{LockTarget, Locks, Mode};
use crate::tx::Tx;
use ostler_sql::gates;
use ostler_sql::limit_keys;

/// Whose locks are needed.
pub(crate) fn locks(name: &str) -> Locks {
    Locks::none().and(LockTarget::Queue(name.to_owned()), Mode::Exclusive)
}

/// Changes the settings. An error of the caller's is found before anything is written.
pub(crate) async fn configure(tx: &mut Tx, name: &str, changes: &[QueueChange]) -> Sql<QueueSettings> {
    let before = tx.settings(name)?;
    let mut settings = before.clone();
    changes.iter().for_each(|change| settings.apply(change.clone()));
    check_settings(&settings).map_err(Abort::Refused)?;
    let id = tx.queue_or_new(name).await?.id;
    let limits = change_gates(tx, name, &before, changes).await?;
    tx.set_settings(name, &settings).await?;
    let rules = |settings: &QueueSettings| (settings.key_concurrency, settings.key_rules());
    let now = tx.key_rules(name)?.looked_at();
    if rules(&before) == rules(&settings) {
        for limit in &limits {
            limit_keys::settle(tx, Some(*limit), &now).await?;
        }
    } else {
        limit_keys::settle_queue(tx, id, now).await?;
    }
    // A key that somebody named and no task has is kept only as long as there is something to remember about it.
    for limit in limits {
        gates::forget_key(tx, limit).await?;
    }
    if before.paused.is_some() && settings.paused.is_none() {
        tx.ring();
    }
    Ok(settings)
}

/// What the changes do to gates, one after the other. Answers the keys that they are about.
async fn change_gates(
    tx: &mut Tx,
    name: &str,
    before: &QueueSettings,
    changes: &[QueueChange],
) -> Sql<Vec<i64>> {
    let mut settings = before.clone();
    let mut limits = Vec::new();
    for change in changes {
        limits.extend(gates::change(tx, name, &settings, change).await?);
        if change.moves_gates() {
            // Whoever waits for the gate of the queue asks again.
            tx.ring();
        }
        settings.apply(change.clone());
    }
    Ok(limits)
}
