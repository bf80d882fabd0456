//! Queues: pause and resume, limits, holds, and circuit breakers by hand.

use std::time::Duration;

use ostler_core::{Budget, Cost, KeyHold, PriorityOrder, Rate, Timestamp};
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerSetting, SetBy};
use ostler_store::paths::PayloadPath;
use ostler_store::views::Liveness;
use ostler_store::{Bounds, Store};
use ostler_wire::action::QueueActionView;
use ostler_wire::limit_syntax::{NONE, Wish};
use ostler_wire::limits::{BreakerView, BroughtLimits, LimitsSet, QueueView};

use crate::budgets;
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

/// Limits to change, as a user wishes them. Those that are not mentioned do not change.
#[derive(Clone, Debug, Default)]
pub struct QueueSet {
    pub rate: Vec<Wish<Rate>>,
    pub key_rate: Vec<Wish<Rate>>,
    pub concurrency: Option<Wish<u32>>,
    pub key_concurrency: Option<Wish<u32>>,
    pub queue_limit: Option<Wish<u64>>,
    pub key: Option<Wish<PayloadPath>>,
    pub cost: Option<Wish<PayloadPath>>,
    pub breaker: Option<Wish<BreakerSetting>>,
    pub budget: Option<Wish<Cost>>,
    pub budget_per_day: Option<Wish<Cost>>,
    pub reserve: Option<Wish<Cost>>,
    pub priority: Option<PriorityOrder>,
    pub key_until: Option<KeyHold>,
}

/// Why limits cannot be set as wished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWish {
    #[error("reserve goes with budget or budget_per_day")]
    ReserveAlone,
    #[error("{0}: {NONE} removes all windows; it cannot be combined with others")]
    NoneAndOthers(&'static str),
    #[error("nothing to set; give a limit such as rate")]
    Nothing,
}

impl QueueSet {
    /// The budget that is asked for, given the present one; `None`: it is not mentioned.
    fn budget(&self, before: Option<Budget>) -> Result<Option<QueueChange>, BadWish> {
        if self.budget.is_none() && self.budget_per_day.is_none() {
            return if self.reserve.is_some() { Err(BadWish::ReserveAlone) } else { Ok(None) };
        }
        let before = before.unwrap_or_default();
        let or = |wish: &Option<Wish<Cost>>, before| wish.clone().map_or(before, Wish::into_option);
        let total = or(&self.budget, before.total);
        let (per_day, reserve) =
            (or(&self.budget_per_day, before.per_day), or(&self.reserve, before.reserve));
        let limits = total.is_some() || per_day.is_some();
        Ok(Some(QueueChange::Budget(limits.then_some(Budget { total, per_day, reserve }))))
    }

    /// The changes that are asked for, given the present budget.
    ///
    /// # Errors
    /// When nothing is asked for, or what is asked for does not go together.
    pub fn changes(self, before: Option<Budget>) -> Result<Vec<QueueChange>, BadWish> {
        let mut changes = Vec::new();
        changes.extend(self.budget(before)?);
        if !self.rate.is_empty() {
            changes.push(QueueChange::Rate(windows("rate", self.rate)?));
        }
        if !self.key_rate.is_empty() {
            changes.push(QueueChange::KeyRate(windows("key_rate", self.key_rate)?));
        }
        changes.extend(
            [
                self.concurrency.map(|wish| QueueChange::Concurrency(wish.into_option())),
                self.key_concurrency.map(|wish| QueueChange::KeyConcurrency(wish.into_option())),
                self.queue_limit.map(|wish| QueueChange::Limit(wish.into_option())),
                self.key.map(|wish| QueueChange::KeyPath(wish.into_option())),
                self.cost.map(|wish| QueueChange::CostPath(wish.into_option())),
                self.breaker.map(|wish| QueueChange::Breaker(wish.into_option())),
                self.priority.map(QueueChange::Priority),
                self.key_until.map(QueueChange::KeyHold),
            ]
            .into_iter()
            .flatten(),
        );
        if changes.is_empty() { Err(BadWish::Nothing) } else { Ok(changes) }
    }
}

/// All windows, or an empty list for "none".
fn windows(field: &'static str, wishes: Vec<Wish<Rate>>) -> Result<Vec<Rate>, BadWish> {
    if wishes.len() > 1 && wishes.contains(&Wish::Nothing) {
        return Err(BadWish::NoneAndOthers(field));
    }
    Ok(wishes.into_iter().filter_map(Wish::into_option).collect())
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
/// When a value is refused, the cost of the work that a budget is for is not known, or the store cannot be written.
pub async fn set_limits(
    store: &dyn Store,
    queue: &str,
    changes: Vec<QueueChange>,
) -> Result<LimitsSet, OpsError> {
    if changes.iter().any(|change| matches!(change, QueueChange::Budget(Some(_)))) {
        budgets::check(store, &[queue]).await?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_removed_together_or_not_at_all() {
        assert_eq!(windows("rate", vec![Wish::Nothing, Wish::Nothing]), Err(BadWish::NoneAndOthers("rate")));
        assert_eq!(windows("rate", vec![Wish::Nothing]), Ok(Vec::new()));
        assert_eq!(QueueSet::default().changes(None), Err(BadWish::Nothing));
        let reserve = QueueSet { reserve: Some(Wish::Nothing), ..QueueSet::default() };
        assert_eq!(reserve.changes(None), Err(BadWish::ReserveAlone));
    }
}
