//! The settings of queues.

use ostler_store::calls::QueueChange;
use ostler_store::views::QueueSettings;
use ostler_store::{Error, check_settings};

use crate::tx::{Sql, Tx};
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::poll_now;

/// Changes the settings. An error of the caller's is found before anything is written.
pub(crate) fn configure(
    tx: &mut Tx<'_>,
    name: &str,
    changes: &[QueueChange],
) -> Sql<Result<QueueSettings, Error>> {
    let before = tx.queue(name)?.map(|queue| queue.settings.clone()).unwrap_or_default();
    let mut settings = before.clone();
    changes.iter().for_each(|change| settings.apply(change.clone()));
    if let Err(error) = check_settings(&settings) {
        return Ok(Err(error));
    }
    let id = tx.queue_or_new(name)?.id;
    let limits = change_gates(tx, name, &before, changes)?;
    tx.set_settings(name, &settings)?;
    let rules = |settings: &QueueSettings| (settings.key_concurrency, settings.key_rules());
    let now = tx.key_rules(name)?.looked_at();
    if rules(&before) == rules(&settings) {
        limits.iter().try_for_each(|limit| poll_now(limit_keys::settle(tx, Some(*limit), &now)))?;
    } else {
        poll_now(limit_keys::settle_queue(tx, id, now))?;
    }
    // A key that somebody named and no task has is kept only as long as there is something to remember about it.
    limits.into_iter().try_for_each(|limit| poll_now(gates::forget_key(tx, limit)))?;
    if before.paused.is_some() && settings.paused.is_none() {
        tx.ring();
    }
    Ok(Ok(settings))
}

/// What the changes do to gates, one after the other. Answers the keys that they are about.
fn change_gates(
    tx: &mut Tx<'_>,
    name: &str,
    before: &QueueSettings,
    changes: &[QueueChange],
) -> Sql<Vec<i64>> {
    let mut settings = before.clone();
    let mut limits = Vec::new();
    for change in changes {
        limits.extend(poll_now(gates::change(tx, name, &settings, change))?);
        if change.moves_gates() {
            // Whoever waits for the gate of the queue asks again.
            tx.ring();
        }
        settings.apply(change.clone());
    }
    Ok(limits)
}
