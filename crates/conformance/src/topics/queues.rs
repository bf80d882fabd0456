//! Queue settings.

use std::time::Duration;

use ostler_core::{
    Backoff, BreakerPolicy, Budget, Cost, EndKind, Jitter, KeyHold, Outcome, Overrides, PriorityOrder, Rate,
    Spending, StateName, Trip,
};

use super::super::scene::{QUEUE, Scene, invalid};
use super::runner::cases;
use ostler_store::calls::{Enqueued, Finished, QueueChange};
use ostler_store::gates::{BreakerScope, BreakerSetting, SetBy};
use ostler_store::outbox::{OutboxFilter, Subscription};
use ostler_store::paths::PayloadPath;
use ostler_store::views::{QueueRecord, QueueSettings};

cases![
    looking_at_a_queue_makes_none,
    changes_are_kept_and_answered,
    changes_of_one_call_are_made_in_order,
    a_queue_is_there_with_its_first_task,
    a_paused_queue_gives_nothing_and_takes_everything,
    a_pause_does_not_stop_what_runs,
    a_limit_can_be_lifted,
    a_lower_limit_removes_nothing,
    settings_that_cannot_work_are_refused,
    queues_are_shown_in_order_of_name,
];

async fn configure(s: &Scene, changes: Vec<QueueChange>) -> QueueSettings {
    s.store.configure(QUEUE, changes).await.expect("configure answers")
}

async fn queues(s: &Scene) -> Vec<QueueRecord> {
    s.store.survey().await.expect("survey answers").queues
}

async fn looking_at_a_queue_makes_none(s: &Scene) {
    assert_eq!(configure(s, Vec::new()).await, QueueSettings::default());
    assert_eq!(queues(s).await, Vec::new());
}

async fn changes_are_kept_and_answered(s: &Scene) {
    let overrides = Overrides {
        attempts: Some(7),
        backoff: Some(Backoff::Fixed),
        base: Some(Duration::from_millis(1)),
        max: Some(Duration::from_secs(9)),
        jitter: Some(Jitter::Half),
        max_crashes: Some(2),
        max_node_deaths: Some(5),
        timeout: Some(Duration::from_secs(33)),
    };
    let rate = vec![Rate { amount: 7, per: Duration::from_millis(1_500), burst: 9 }];
    let key_rate = vec![Rate::even(10, Duration::from_secs(1)), Rate::even(100, Duration::from_secs(60))];
    let window = Duration::from_millis(2_500);
    let trip = Trip::Rate { failures_percent: 40, at_least: 5, window };
    let policy = BreakerPolicy { trip, reset: Duration::from_secs(30) };
    let breaker = BreakerSetting { policy, scope: BreakerScope::Key };
    let path = |text| PayloadPath::parse(text).ok();
    let [total, per_day, reserve] = [3, 2, 1].map(|nanos| Some(Cost::from_nanos(nanos)));
    let budget = Budget { total, per_day, reserve };
    let changes = vec![
        QueueChange::Pause("lunch".to_owned()),
        QueueChange::Limit(Some(5)),
        QueueChange::KeyConcurrency(Some(2)),
        QueueChange::Overrides(overrides),
        QueueChange::KindOverrides("send".to_owned(), overrides),
        QueueChange::Subscribe(Subscription {
            name: "hooks".to_owned(),
            wants: OutboxFilter::NONE.with(EndKind::Failed).with(EndKind::Retry),
        }),
        QueueChange::Rate(rate.clone()),
        QueueChange::KeyRate(key_rate.clone()),
        QueueChange::Breaker(Some(breaker)),
        QueueChange::Concurrency(Some(3)),
        QueueChange::KeyPath(path("payload.tenant")),
        QueueChange::CostPath(path("payload.a.b")),
        QueueChange::KeyHold(KeyHold::For(Duration::from_millis(7))),
        QueueChange::Priority(PriorityOrder::Strict),
        QueueChange::Account(Some("claude".to_owned())),
        QueueChange::Budget(Some(budget)),
        QueueChange::ServedBy(Some("agents".to_owned())),
        QueueChange::SetBy(SetBy::Hand),
    ];
    let expected = QueueSettings {
        paused: Some("lunch".to_owned()),
        limit: Some(5),
        concurrency: Some(3),
        key_concurrency: Some(2),
        key_path: path("payload.tenant"),
        cost_path: path("payload.a.b"),
        key_hold: KeyHold::For(Duration::from_millis(7)),
        priority: PriorityOrder::Strict,
        overrides,
        kinds: [("send".to_owned(), overrides)].into(),
        subscribers: [("hooks".to_owned(), [EndKind::Retry, EndKind::Failed].into_iter().collect())]
            .into_iter()
            .collect(),
        rate,
        key_rate,
        breaker: Some(breaker),
        account: Some("claude".to_owned()),
        budget: Some(budget),
        pool: Some("agents".to_owned()),
        set_by: SetBy::Hand,
    };
    assert_eq!(configure(s, changes).await, expected);
    assert_eq!(configure(s, Vec::new()).await, expected);
    assert_eq!(queues(s).await, [record(expected.clone())]);
    let second = s.fixture.second().await;
    assert_eq!(second.queue_settings(QUEUE).await, Ok(expected));
    let changes = vec![
        QueueChange::Resume,
        QueueChange::Limit(None),
        QueueChange::KeyConcurrency(None),
        QueueChange::Overrides(Overrides::NONE),
        QueueChange::KindOverrides("send".to_owned(), Overrides::NONE),
        QueueChange::Unsubscribe("hooks".to_owned()),
        QueueChange::Rate(Vec::new()),
        QueueChange::KeyRate(Vec::new()),
        QueueChange::Breaker(None),
        QueueChange::Concurrency(None),
        QueueChange::KeyPath(None),
        QueueChange::CostPath(None),
        QueueChange::KeyHold(KeyHold::Removed),
        QueueChange::Priority(PriorityOrder::Aging),
        QueueChange::Account(None),
        QueueChange::Budget(None),
        QueueChange::ServedBy(None),
    ];
    let lifted = QueueSettings { set_by: SetBy::Hand, ..QueueSettings::default() };
    assert_eq!(configure(s, changes).await, lifted, "who lifted all limits is known");
    assert_eq!(second.queue_settings(QUEUE).await, Ok(lifted));
    let changes = vec![QueueChange::SetBy(SetBy::Config)];
    assert_eq!(configure(s, changes).await, QueueSettings::default());
    assert_eq!(queues(s).await.len(), 1, "a queue with settings stays");
}

/// The record of a queue without a hold or a breaker.
fn record(settings: QueueSettings) -> QueueRecord {
    QueueRecord {
        name: QUEUE.to_owned(),
        high_water: 0,
        spending: settings.budget.map(|_| Spending::default()),
        settings,
        held_until: None,
        breaker: None,
        shut: None,
    }
}

async fn changes_of_one_call_are_made_in_order(s: &Scene) {
    let pause = |reason: &str| QueueChange::Pause(reason.to_owned());
    let settings = configure(s, vec![pause("a"), QueueChange::Resume, pause("b"), pause("c")]).await;
    assert_eq!(settings.paused.as_deref(), Some("c"));
    let settings = configure(s, vec![QueueChange::Limit(Some(1)), QueueChange::Resume]).await;
    assert_eq!((settings.paused, settings.limit), (None, Some(1)));
}

async fn a_queue_is_there_with_its_first_task(s: &Scene) {
    s.add().await;
    assert_eq!(queues(s).await, [QueueRecord { high_water: 1, ..record(QueueSettings::default()) }]);
}

async fn a_paused_queue_gives_nothing_and_takes_everything(s: &Scene) {
    let node = s.join().await;
    let first = s.add().await;
    s.configure(QueueChange::Pause("lunch".to_owned())).await;
    let second = s.add().await;
    assert!(s.claim(node, 10).await.is_empty());
    assert_eq!(s.counts().await.queued, 2);
    s.configure(QueueChange::Resume).await;
    assert_eq!(s.claim_ids(node, 10).await, vec![first, second]);
}

async fn a_pause_does_not_stop_what_runs(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    s.configure(QueueChange::Pause("lunch".to_owned())).await;
    assert_eq!(s.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
}

async fn a_limit_can_be_lifted(s: &Scene) {
    s.configure(QueueChange::Limit(Some(1))).await;
    s.add().await;
    let next = s.draft();
    assert_eq!(s.store.enqueue(vec![next.clone()]).await, Ok(vec![Enqueued::QueueFull { limit: 1 }]));
    s.configure(QueueChange::Limit(None)).await;
    s.enqueue(next).await;
}

async fn a_lower_limit_removes_nothing(s: &Scene) {
    s.add().await;
    s.add().await;
    s.configure(QueueChange::Limit(Some(1))).await;
    assert_eq!(s.counts().await.queued, 2);
    assert_eq!(s.store.enqueue(vec![s.draft()]).await, Ok(vec![Enqueued::QueueFull { limit: 1 }]));
}

async fn settings_that_cannot_work_are_refused(s: &Scene) {
    s.configure(QueueChange::Limit(Some(3))).await;
    let before = s.picture().await;
    let said = |overrides| vec![QueueChange::Limit(Some(9)), QueueChange::Overrides(overrides)];
    let wrong = [
        ("a limit of nothing", vec![QueueChange::Limit(Some(9)), QueueChange::Limit(Some(0))]),
        ("a concurrency of nothing", vec![QueueChange::KeyConcurrency(Some(0))]),
        ("no attempts", said(Overrides { attempts: Some(0), ..Overrides::NONE })),
        ("no time", said(Overrides { timeout: Some(Duration::ZERO), ..Overrides::NONE })),
        ("a reason with a NUL", vec![QueueChange::Pause("\0".to_owned())]),
    ];
    for (what, changes) in wrong {
        invalid(what, s.store.configure(QUEUE, changes).await);
    }
    for name in ["", "a\nb"] {
        invalid("a queue's name", s.store.configure(name, vec![QueueChange::Resume]).await);
    }
    assert_eq!(s.picture().await, before, "what was refused changed nothing");
}

async fn queues_are_shown_in_order_of_name(s: &Scene) {
    for name in ["b", "a", "c", "B"] {
        s.store.configure(name, vec![QueueChange::Resume]).await.expect("configure answers");
    }
    let names: Vec<String> = queues(s).await.into_iter().map(|queue| queue.name).collect();
    assert_eq!(names, ["B", "a", "b", "c"], "by their bytes");
}
