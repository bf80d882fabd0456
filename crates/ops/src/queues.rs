//! Queues: pause and resume, limits, holds, and circuit breakers by hand.

use std::time::Duration;

use ostler_core::Timestamp;
use ostler_store::calls::QueueChange;
use ostler_store::gates::SetBy;
use ostler_store::views::Liveness;
use ostler_store::{Bounds, Store};
use ostler_wire::action::QueueActionView;
use ostler_wire::limits::{BreakerView, QueueView};

use crate::error::{Missing, OpsError};
use crate::overview::Overview;
use crate::published;

/// Whether there was a pause or a hold to lift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lift {
    Lifted,
    /// There was none.
    NotNeeded,
}

/// Pauses a queue, and creates it if there is none.
///
/// # Errors
/// When the reason is refused, or the store cannot be written.
pub async fn pause(store: &dyn Store, queue: &str, reason: String) -> Result<QueueActionView, OpsError> {
    let settings = store.configure(queue, vec![QueueChange::Pause(reason)]).await?;
    Ok(QueueActionView::new(queue, settings.paused))
}

/// Resumes a queue, if it is paused.
///
/// # Errors
/// When the store cannot be written.
pub async fn resume(store: &dyn Store, queue: &str) -> Result<(QueueActionView, Lift), OpsError> {
    let lift = match store.queue_settings(queue).await?.paused {
        None => Lift::NotNeeded,
        Some(_) => {
            store.configure(queue, vec![QueueChange::Resume]).await?;
            Lift::Lifted
        }
    };
    Ok((QueueActionView::new(queue, None), lift))
}

/// A queue whose limits were changed.
#[derive(Clone, Debug)]
pub struct LimitsSet {
    pub view: QueueView,
    /// A live node whose config has limits for the queue too: they replace these when a node starts with it.
    pub brought: Option<BroughtLimits>,
}

/// Limits of a queue in the config of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroughtLimits {
    pub node: String,
    pub limits: Vec<&'static str>,
}

/// The changes, marked as made by hand: a node whose config has no limits leaves them alone.
#[must_use]
pub fn by_hand(mut changes: Vec<QueueChange>) -> Vec<QueueChange> {
    changes.push(QueueChange::SetBy(SetBy::Hand));
    changes
}

/// Changes the limits of a queue, and creates it if there is none.
///
/// # Errors
/// When a value is refused, or the store cannot be written.
pub async fn set_limits(
    store: &dyn Store,
    queue: &str,
    changes: Vec<QueueChange>,
) -> Result<LimitsSet, OpsError> {
    store.configure(queue, by_hand(changes)).await?;
    let overview = Overview::take(store).await?;
    let alive = overview.survey.nodes.iter().filter(|node| node.liveness == Liveness::Alive);
    let brought = alive
        .map(|node| BroughtLimits { node: node.name.clone(), limits: published::limits(node, queue) })
        .find(|brought| !brought.limits.is_empty());
    Ok(LimitsSet { view: overview.queue(queue)?, brought })
}

/// The change that lifts the hold of a queue, or of one of its limit keys.
#[must_use]
pub fn release_change(key: Option<&str>) -> QueueChange {
    key.map_or(QueueChange::EndHold, |key| QueueChange::EndKeyHold(key.to_owned()))
}

/// Lifts a hold that a "too many requests" answer has placed.
///
/// # Errors
/// When there is no such queue, or the store cannot be written.
pub async fn release(
    store: &dyn Store,
    queue: &str,
    key: Option<&str>,
) -> Result<(QueueView, Lift), OpsError> {
    let before = Overview::take(store).await?;
    let record = before.record(queue)?;
    let held = match key {
        None => record.held_until,
        Some(key) => {
            let mut keys = before.survey.keys.iter();
            let found = keys.find(|record| record.queue == queue && record.key == key);
            found.and_then(|record| record.held_until)
        }
    };
    store.configure(queue, vec![release_change(key)]).await?;
    let lift = if held.is_some() { Lift::Lifted } else { Lift::NotNeeded };
    Ok((Overview::take(store).await?.queue(queue)?, lift))
}

/// Removes a subscriber of a queue, with the outcomes that it has not handled. A program that still has it subscribes again when it
/// starts.
///
/// # Errors
/// When there is no such queue or subscriber, or the store cannot be written.
pub async fn unsubscribe(store: &dyn Store, queue: &str, name: &str) -> Result<QueueView, OpsError> {
    let before = Overview::take(store).await?;
    let mut subscribers = before.record(queue)?.settings.subscribers.iter();
    if !subscribers.any(|(known, _)| known == name) {
        return Err(Missing::Subscriber { queue: queue.to_owned(), name: name.to_owned() }.into());
    }
    store.configure(queue, vec![QueueChange::Unsubscribe(name.to_owned())]).await?;
    Overview::take(store).await?.queue(queue)
}

/// A breaker to open or close by hand: of a queue, or of one of its limit keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerRequest {
    pub queue: String,
    pub key: Option<String>,
    pub position: BreakerPosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPosition {
    /// Open, for this long, or until it is reset.
    Open(Option<Duration>),
    /// Closed, with cleared counters.
    Reset,
}

impl BreakerRequest {
    /// Refuses what no store would take. `now` is the caller's time: the store's is not known yet.
    ///
    /// # Errors
    /// When a name is too long.
    pub fn check(&self, bounds: Bounds, now: Timestamp) -> Result<(), OpsError> {
        Ok(bounds.check_changes(&self.queue, &[self.change(now)])?)
    }

    fn change(&self, now: Timestamp) -> QueueChange {
        match (self.position, self.key.clone()) {
            (BreakerPosition::Open(span), key) => {
                let until = span.map(|span| now.after(span));
                match key {
                    None => QueueChange::OpenBreaker(until),
                    Some(key) => QueueChange::OpenKeyBreaker { key, until },
                }
            }
            (BreakerPosition::Reset, None) => QueueChange::ResetBreaker,
            (BreakerPosition::Reset, Some(key)) => QueueChange::ResetKeyBreaker(key),
        }
    }
}

/// Opens or closes a breaker.
///
/// # Errors
/// When there is no such queue, or the store cannot be written.
pub async fn set_breaker(store: &dyn Store, request: &BreakerRequest) -> Result<BreakerView, OpsError> {
    let queue = &request.queue;
    Overview::take(store).await?.record(queue)?;
    store.configure(queue, vec![request.change(store.now().await?)]).await?;
    Overview::take(store).await?.breaker(queue, request.key.as_deref())
}
