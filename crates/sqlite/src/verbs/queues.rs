//! The settings of queues.

use ostler_store::calls::QueueChange;
use ostler_store::views::QueueSettings;

use crate::gates;
use crate::keys;
use crate::tx::{Sql, Tx};

pub(crate) fn configure(tx: &mut Tx<'_>, name: &str, changes: &[QueueChange]) -> Sql<QueueSettings> {
    let queue = tx.queue_or_new(name)?;
    let (id, before) = (queue.id, queue.settings.clone());
    let mut settings = before.clone();
    let mut limits = Vec::new();
    for change in changes {
        limits.extend(gates::change(tx, name, &settings, change)?);
        if change.moves_gates() {
            // Whoever waits for the gate of the queue asks again.
            tx.ring();
        }
        settings.apply(change.clone());
    }
    tx.set_settings(name, &settings)?;
    let rules = |settings: &QueueSettings| (settings.key_concurrency, settings.key_rules());
    let now = tx.key_rules(name)?.looked_at();
    if rules(&before) == rules(&settings) {
        limits.into_iter().try_for_each(|limit| keys::settle(tx, Some(limit), &now))?;
    } else {
        keys::settle_queue(tx, id, now)?;
    }
    if before.paused.is_some() && settings.paused.is_none() {
        tx.ring();
    }
    Ok(settings)
}
