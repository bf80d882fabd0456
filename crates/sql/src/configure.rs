//! Configure: changes the settings of a queue, under its exclusive lock.

use ostler_store::calls::QueueChange;
use ostler_store::views::QueueSettings;
use ostler_store::{Error, check_settings};

use crate::budgets;
use crate::gates;
use crate::limit_keys;
use crate::outbox::drop_entries;
use crate::tx::{Tx, key_rules};

/// Changes the settings. Settings that do not fit together are refused before anything is written.
pub async fn configure<T: Tx>(
    tx: &mut T,
    name: &str,
    changes: &[QueueChange],
) -> Result<Result<QueueSettings, Error>, T::Error> {
    let before = tx.queue(name).await?.map(|queue| queue.settings.clone()).unwrap_or_default();
    let mut settings = before.clone();
    changes.iter().for_each(|change| settings.apply(change.clone()));
    if let Err(error) = check_settings(&settings) {
        return Ok(Err(error));
    }
    let id = tx.queue_or_new(name).await?.id;
    let limits = change_gates(tx, name, &before, changes).await?;
    budgets::change(tx, name, &before, &mut settings).await?;
    tx.set_settings(name, &settings).await?;
    for change in changes {
        if let QueueChange::Unsubscribe(subscriber) = change {
            drop_entries(tx, id, subscriber).await?;
        }
    }
    let rules = |settings: &QueueSettings| (settings.key_concurrency, settings.key_rules());
    let now = key_rules(tx, name).await?.looked_at();
    if rules(&before) == rules(&settings) {
        for limit in &limits {
            limit_keys::settle(tx, Some(*limit), &now).await?;
        }
    } else {
        limit_keys::settle_queue(tx, id, now).await?;
    }
    // A key without tasks is kept only as long as its gate has state.
    for limit in limits {
        gates::forget_key(tx, limit).await?;
    }
    if before.paused.is_some() && settings.paused.is_none() {
        tx.ring();
    }
    Ok(Ok(settings))
}

/// Applies the changes to gates, in order. Returns the keys that they name.
async fn change_gates<T: Tx>(
    tx: &mut T,
    name: &str,
    before: &QueueSettings,
    changes: &[QueueChange],
) -> Result<Vec<i64>, T::Error> {
    let mut settings = before.clone();
    let mut limits = Vec::new();
    for change in changes {
        limits.extend(gates::change(tx, name, &settings, change).await?);
        if change.moves_gates() {
            // Claims that wait for the gate of the queue ask again.
            tx.ring();
        }
        settings.apply(change.clone());
    }
    Ok(limits)
}
