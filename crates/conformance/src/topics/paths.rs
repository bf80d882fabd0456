//! Payload paths: limit keys and costs that a queue reads from payloads.

use std::time::Duration;

use ostler_core::{OnConflict, Outcome, Rate, TaskId};

use super::super::scene::{QUEUE, Scene};
use super::runner::cases;
use ostler_store::calls::{Enqueued, NewTask, QueueChange, Replay};
use ostler_store::gates::MAX_COST;
use ostler_store::paths::PayloadPath;
use ostler_store::schedules::{Fired, Firing, Schedule, TaskTemplate};
use ostler_store::unique::Unique;

cases![
    a_task_has_the_key_of_its_payload,
    what_is_no_scalar_is_no_key,
    what_a_task_says_itself_wins,
    a_task_has_the_cost_of_its_payload,
    keys_of_payloads_share_limits_with_those_that_were_given,
    keys_of_payloads_take_turns,
    without_a_path_payloads_are_not_looked_at,
    another_path_is_for_those_who_come,
    a_replacement_brings_its_own_key_and_cost,
    a_replay_keeps_the_key_and_the_cost,
    the_run_of_a_schedule_has_the_key_of_its_payload,
    paths_are_kept_and_shown,
];

fn path(text: &str) -> Option<PayloadPath> {
    Some(PayloadPath::parse(text).expect("a path"))
}

async fn by_tenant(s: &Scene) {
    s.configure(QueueChange::KeyPath(path("payload.tenant"))).await;
}

async fn add(s: &Scene, payload: &str) -> TaskId {
    s.add_with(|task| task.payload = payload.to_owned()).await
}

async fn key(s: &Scene, id: TaskId) -> Option<String> {
    s.task(id).await.limit_key
}

async fn a_task_has_the_key_of_its_payload(s: &Scene) {
    s.configure(QueueChange::KeyPath(path("payload.user.tenant"))).await;
    for (payload, wanted) in [
        (r#"{"user":{"tenant":"acme","plan":"small"}}"#, "acme"),
        (r#"{"user":{"tenant":17}}"#, "17"),
        (r#"{"user":{"tenant":false}}"#, "false"),
    ] {
        let id = add(s, payload).await;
        assert_eq!(key(s, id).await.as_deref(), Some(wanted), "{payload}");
        assert_eq!(s.task(id).await.payload, payload, "the payload stays as it is");
    }
}

async fn what_is_no_scalar_is_no_key(s: &Scene) {
    by_tenant(s).await;
    for payload in
        [r#"{"tenant":["a"]}"#, r#"{"tenant":{}}"#, r#"{"tenant":null}"#, r#"{"tenant":""}"#, "{}", "[]", "1"]
    {
        let id = add(s, payload).await;
        assert_eq!(key(s, id).await, None, "{payload}");
    }
}

async fn what_a_task_says_itself_wins(s: &Scene) {
    by_tenant(s).await;
    s.configure(QueueChange::CostPath(path("payload.tokens"))).await;
    let payload = r#"{"tenant":"acme","tokens":9}"#.to_owned();
    let said = s
        .add_with(|task| {
            (task.limit_key, task.cost, task.payload) = (Some("mine".to_owned()), Some(1), payload.clone());
        })
        .await;
    let unsaid = add(s, &payload).await;
    assert_eq!((key(s, said).await.as_deref(), s.task(said).await.cost), (Some("mine"), 1));
    assert_eq!((key(s, unsaid).await.as_deref(), s.task(unsaid).await.cost), (Some("acme"), 9));
}

async fn a_task_has_the_cost_of_its_payload(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::CostPath(path("payload.tokens"))).await;
    s.configure(QueueChange::Rate(vec![Rate { amount: 10, per: Duration::from_secs(1), burst: 10 }])).await;
    let ids = [add(s, r#"{"tokens":6}"#).await, add(s, r#"{"tokens":"4"}"#).await, add(s, "{}").await];
    assert_eq!(s.claim_ids(node, 10).await, ids[..2], "they use all of it");
    s.pass(Duration::from_millis(100));
    assert_eq!(s.claim_ids(node, 10).await, ids[2..], "without a number it is one");
    let huge = add(s, r#"{"tokens":123456789012}"#).await;
    assert_eq!(s.task(huge).await.cost, MAX_COST);
}

async fn keys_of_payloads_share_limits_with_those_that_were_given(s: &Scene) {
    let node = s.join().await;
    by_tenant(s).await;
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let first = add(s, r#"{"tenant":"acme"}"#).await;
    let second = s.add_keyed("acme").await;
    let other = add(s, r#"{"tenant":"bond"}"#).await;
    let free = add(s, "{}").await;
    let mut begun = s.claim(node, 10).await;
    let ids: Vec<TaskId> = begun.iter().map(|claimed| claimed.lease.task()).collect();
    assert!(ids.contains(&first) && ids.contains(&other) && ids.contains(&free) && ids.len() == 3, "{ids:?}");
    let at = ids.iter().position(|id| *id == first).expect("it has begun");
    s.finish(begun.remove(at).lease, Outcome::Success).await;
    assert_eq!(s.claim_ids(node, 10).await, [second]);
}

async fn keys_of_payloads_take_turns(s: &Scene) {
    let node = s.join().await;
    by_tenant(s).await;
    let of = |tenant: &str| NewTask { payload: format!(r#"{{"tenant":"{tenant}"}}"#), ..s.draft() };
    let tasks: Vec<NewTask> = ["a", "a", "a", "b", "b"].into_iter().map(of).collect();
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    s.store.enqueue(tasks).await.expect("enqueue answers");
    assert_eq!(s.claim_ids(node, 10).await, [0, 3, 1, 4, 2].map(|at| ids[at]));
}

async fn without_a_path_payloads_are_not_looked_at(s: &Scene) {
    let before = add(s, r#"{"tenant":"acme","tokens":5}"#).await;
    by_tenant(s).await;
    s.configure(QueueChange::KeyPath(None)).await;
    let after = add(s, r#"{"tenant":"acme","tokens":5}"#).await;
    let elsewhere = s
        .add_with(|task| {
            (task.queue, task.payload) = ("parcels".to_owned(), r#"{"tenant":"acme"}"#.to_owned());
        })
        .await;
    for id in [before, after, elsewhere] {
        assert_eq!((key(s, id).await, s.task(id).await.cost), (None, 1));
    }
}

async fn another_path_is_for_those_who_come(s: &Scene) {
    by_tenant(s).await;
    let payload = r#"{"tenant":"acme","region":"north"}"#;
    let first = add(s, payload).await;
    s.configure(QueueChange::KeyPath(path("payload.region"))).await;
    let second = add(s, payload).await;
    assert_eq!(key(s, first).await.as_deref(), Some("acme"));
    assert_eq!(key(s, second).await.as_deref(), Some("north"));
}

async fn a_replacement_brings_its_own_key_and_cost(s: &Scene) {
    by_tenant(s).await;
    s.configure(QueueChange::CostPath(path("payload.tokens"))).await;
    let task = |payload: &str| NewTask {
        unique: Some(Unique { on_conflict: OnConflict::Replace, ..Unique::new("u") }),
        payload: payload.to_owned(),
        ..s.draft()
    };
    let id = s.enqueue(task(r#"{"tenant":"a","tokens":3}"#)).await;
    assert_eq!((key(s, id).await.as_deref(), s.task(id).await.cost), (Some("a"), 3));
    let answer = s.store.enqueue(vec![task(r#"{"tenant":"b"}"#)]).await;
    assert_eq!(answer, Ok(vec![Enqueued::Replaced(id)]));
    assert_eq!((key(s, id).await.as_deref(), s.task(id).await.cost), (Some("b"), 1));
}

async fn a_replay_keeps_the_key_and_the_cost(s: &Scene) {
    by_tenant(s).await;
    s.configure(QueueChange::CostPath(path("payload.tokens"))).await;
    let id = add(s, r#"{"tenant":"a","tokens":3}"#).await;
    s.cancel(id).await;
    let how = Replay { payload: Some(r#"{"tenant":"b","tokens":4}"#.to_owned()), ..Replay::default() };
    s.store.replay(vec![id], how).await.expect("replay answers");
    assert_eq!((key(s, id).await.as_deref(), s.task(id).await.cost), (Some("a"), 3));
}

async fn the_run_of_a_schedule_has_the_key_of_its_payload(s: &Scene) {
    by_tenant(s).await;
    let (expected, payload) = (s.now(), r#"{"tenant":"acme"}"#);
    let task = s.draft();
    let template = TaskTemplate {
        queue: task.queue.clone(),
        kind: task.kind.clone(),
        payload: payload.to_owned(),
        priority: task.priority,
        overrides: task.overrides,
    };
    let schedule = Schedule {
        name: "nightly".to_owned(),
        spec: "every 1h".to_owned(),
        overlap: ostler_core::Overlap::ALL[0],
        missed: ostler_core::Missed::ALL[0],
        task: template,
        next_at: Some(expected),
    };
    s.store.put_schedule(schedule).await.expect("it is kept");
    let run = NewTask { payload: payload.to_owned(), ..task };
    let id = run.id;
    let firing = Firing { schedule: "nightly".to_owned(), expected, next: None, task: Some(run) };
    assert_eq!(s.store.fire(firing).await, Ok(Fired::Enqueued(id)));
    assert_eq!(key(s, id).await.as_deref(), Some("acme"));
}

async fn paths_are_kept_and_shown(s: &Scene) {
    by_tenant(s).await;
    s.configure(QueueChange::CostPath(path("payload.a.b.c"))).await;
    let second = s.fixture.second().await;
    let settings = second.queue_settings(QUEUE).await.expect("configure answers");
    assert_eq!((settings.key_path, settings.cost_path), (path("payload.tenant"), path("payload.a.b.c")));
    s.configure(QueueChange::CostPath(None)).await;
    let survey = second.survey().await.expect("survey answers");
    assert_eq!(survey.queues[0].settings.cost_path, None);
}
