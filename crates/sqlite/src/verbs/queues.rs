//! The settings of queues.

use ostler_store::calls::QueueChange;
use ostler_store::views::QueueSettings;

use crate::keys;
use crate::tx::{Sql, Tx};

pub(crate) fn configure(tx: &mut Tx<'_>, name: &str, changes: &[QueueChange]) -> Sql<QueueSettings> {
    let queue = tx.queue_or_new(name)?;
    let (id, before) = (queue.id, queue.settings.clone());
    let mut settings = before.clone();
    for change in changes {
        settings.apply(change.clone());
    }
    tx.set_settings(name, &settings)?;
    if settings.key_concurrency != before.key_concurrency {
        keys::settle_queue(tx, id, settings.key_concurrency)?;
    }
    if before.paused.is_some() && settings.paused.is_none() {
        tx.ring();
    }
    Ok(settings)
}
