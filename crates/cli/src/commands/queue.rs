//! `ostler queue`: shows queues and what throttles them, and changes their limits while nodes run.

use ostler_core::{State, Task};
use ostler_runtime::LIMIT_SETTINGS;
use ostler_store::calls::QueueChange;
use ostler_store::gates::SetBy;
use ostler_store::views::{Liveness, QueueRecord, Survey};
use ostler_store::{Clock as _, Store, SystemClock};
use ostler_wire::limits::{BreakerRule, KeyView, QueueView, ThrottleView};
use ostler_wire::system::TaskCounts;

use super::Console;
use crate::args::{QueueCommand, Set};
use crate::exit::{Code, refused, say};
use crate::print::{self, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, command: QueueCommand) -> anyhow::Result<Code> {
    match command {
        QueueCommand::Ls => list(console).await,
        QueueCommand::Show { queue } => show(console, &queue).await,
        QueueCommand::Set(set) => change(console, *set).await,
        QueueCommand::Release { queue, key } => release(console, &queue, key).await,
    }
}

async fn list(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let survey = store.survey().await?;
    let views: Vec<QueueView> = survey.queues.iter().map(|record| view(&survey, record)).collect();
    console.out.answer(&views, |looks| print::queues(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn show(console: &Console, queue: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let survey = store.survey().await?;
    tell(console, &survey, queue)
}

fn tell(console: &Console, survey: &Survey, queue: &str) -> anyhow::Result<Code> {
    let view = view(survey, named(survey, queue)?);
    console.out.answer(&view, |looks| print::queue(&view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn change(console: &Console, set: Set) -> anyhow::Result<Code> {
    let place = console.place()?;
    let queue = set.queue.clone();
    let mut changes = set.changes().map_err(|sentence| refused(Code::BadInput, sentence))?;
    changes.push(QueueChange::SetBy(SetBy::Hand));
    // Checked before the store is opened: a refused change creates no store.
    place.bounds().check_changes(&queue, &changes)?;
    let store = place.open(IfMissing::Make).await?;
    store.configure(&queue, changes).await?;
    let survey = store.survey().await?;
    if let Some((node, limits)) = who_brings(&survey, &queue) {
        say(&format!(
            "applied; the config of node \"{}\" sets limits for {} too ({}), which replace these when a node \
             starts with it",
            visible(node),
            visible(&queue),
            limits.join(", ")
        ));
    }
    tell(console, &survey, &queue)
}

/// A live node whose config has limits for the queue, and which limits.
fn who_brings<'a>(survey: &'a Survey, queue: &str) -> Option<(&'a str, Vec<&'static str>)> {
    let brings = |settings: &str| -> Vec<&'static str> {
        let said: serde_json::Value = serde_json::from_str(settings).unwrap_or_default();
        LIMIT_SETTINGS
            .into_iter()
            .filter(|limit| said.get(queue).is_some_and(|said| said.get(limit).is_some()))
            .collect()
    };
    let alive = survey.nodes.iter().filter(|node| node.liveness == Liveness::Alive);
    alive.map(|node| (node.name.as_str(), brings(&node.settings))).find(|(_, limits)| !limits.is_empty())
}

async fn release(console: &Console, queue: &str, key: Option<String>) -> anyhow::Result<Code> {
    let place = console.place()?;
    let change = key.clone().map_or(QueueChange::EndHold, QueueChange::EndKeyHold);
    place.bounds().check_changes(queue, std::slice::from_ref(&change))?;
    let store = place.open(IfMissing::Refuse).await?;
    let before = store.survey().await?;
    let record = named(&before, queue)?;
    let held = match &key {
        None => record.held_until,
        Some(key) => {
            let of_key =
                |record: &&ostler_store::gates::KeyRecord| record.queue == queue && record.key == *key;
            before.keys.iter().find(of_key).and_then(|record| record.held_until)
        }
    };
    store.configure(queue, vec![change]).await?;
    let after = store.survey().await?;
    let view = view(&after, named(&after, queue)?);
    console.out.answer(&view, |_| {
        let whose =
            key.map_or_else(|| visible(queue), |key| format!("{} of {}", visible(&key), visible(queue)));
        let how = if held.is_some() { "is no longer on hold" } else { "was not on hold" };
        format!("{whose} {how}\n")
    })?;
    Ok(Code::Done)
}

pub(super) fn named<'a>(survey: &'a Survey, queue: &str) -> anyhow::Result<&'a QueueRecord> {
    survey.queues.iter().find(|record| record.name == queue).ok_or_else(|| {
        refused(Code::NotFound, format!("there is no queue \"{}\"; see: ostler queue ls", visible(queue)))
    })
}

fn view(survey: &Survey, record: &QueueRecord) -> QueueView {
    let settings = &record.settings;
    let lanes = survey.lanes.iter().filter(|lane| lane.queue == record.name);
    let tasks =
        lanes.map(|lane| lane.counts).fold(ostler_store::views::Counts::default(), |sum, one| sum.plus(one));
    let keys = survey.keys.iter().filter(|key| key.queue == record.name).map(|key| {
        let held = ThrottleView::new(&key.queue, Some(&key.key), key.shut);
        KeyView {
            key: key.key.clone(),
            waits_for: held.waits_for,
            until: held.until,
            held_until: key.held_until.map(Into::into),
            breaker_state: key.breaker.map(Into::into),
        }
    });
    QueueView {
        queue: record.name.clone(),
        paused: settings.paused.clone(),
        tasks: TaskCounts {
            queued: tasks.queued,
            claimed: tasks.claimed,
            running: tasks.running,
            completed: tasks.completed,
            failed: tasks.failed,
            cancelled: tasks.cancelled,
        },
        queue_limit: settings.limit,
        concurrency: settings.concurrency,
        key_concurrency: settings.key_concurrency,
        key: settings.key_path.as_ref().map(ToString::to_string),
        cost: settings.cost_path.as_ref().map(ToString::to_string),
        rate: settings.rate.iter().map(Into::into).collect(),
        key_rate: settings.key_rate.iter().map(Into::into).collect(),
        breaker: rule(record),
        breaker_state: record.breaker.map(Into::into),
        held: record.shut.map(|shut| ThrottleView::new(&record.name, None, shut)),
        keys: keys.collect(),
    }
}

/// When the breaker of a queue, or of each key, opens automatically.
pub(super) fn rule(record: &QueueRecord) -> Option<BreakerRule> {
    record.settings.breaker.map(|breaker| BreakerRule::new(&breaker.policy, breaker.scope.name()))
}

/// Throttled queues and limit keys, including paused queues.
pub(super) fn held(survey: &Survey, only: Option<&str>) -> Vec<ThrottleView> {
    let wanted = |queue: &str| only.is_none_or(|only| only == queue);
    let queues = survey.queues.iter().filter(|record| wanted(&record.name)).flat_map(|record| {
        let paused = record.settings.paused.is_some().then(|| ThrottleView::paused(&record.name));
        paused.into_iter().chain(record.shut.map(|shut| ThrottleView::new(&record.name, None, shut)))
    });
    let keys = survey.keys.iter().filter(|key| wanted(&key.queue));
    queues.chain(keys.map(|key| ThrottleView::new(&key.queue, Some(&key.key), key.shut))).collect()
}

/// What throttles a task that would otherwise run.
pub(super) async fn holds(store: &dyn Store, task: &Task) -> anyhow::Result<Option<ThrottleView>> {
    match task.state {
        State::Queued { .. } => {}
        State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => return Ok(None),
    }
    let all = held(&store.survey().await?, Some(&task.queue));
    // The key's throttle is more specific than the queue's.
    let of_key = all.iter().find(|held| held.key.is_some() && held.key == task.limit_key);
    Ok(of_key.or_else(|| all.iter().find(|held| held.key.is_none())).cloned())
}
