//! Enqueue: new tasks, repeated ids, start times and full queues.

use std::time::Duration;

use ostler_core::{
    Backoff, Jitter, KeyHold, OnFailed, Overrides, Priority, Readiness, State, StateName, Wait,
};

use super::super::scene::{KIND, QUEUE, Scene, TRACE, invalid};
use super::runner::cases;
use ostler_store::calls::{Enqueued, NewTask, QueueChange, Report};
use ostler_store::unique::Unique;

cases![
    a_task_is_kept_as_it_was_given,
    nothing_to_enqueue_is_nothing_done,
    many_tasks_of_one_call_are_all_there_and_answered_in_their_order,
    a_repeated_id_answers_with_the_task_that_exists,
    an_id_twice_in_one_call_makes_one_task,
    a_time_ahead_makes_it_wait,
    a_time_now_or_past_makes_it_ready,
    a_full_queue_takes_no_more_and_says_its_limit,
    only_what_waits_fills_a_queue,
    a_full_queue_still_knows_its_tasks,
    one_wrong_task_refuses_the_whole_call,
    names_and_keys_have_a_form,
    a_policy_that_cannot_work_is_refused,
    any_text_survives,
];

async fn a_task_is_kept_as_it_was_given(s: &Scene) {
    let id = s.task_id();
    let overrides = Overrides {
        attempts: Some(7),
        backoff: Some(Backoff::Linear),
        base: Some(Duration::from_millis(1_500)),
        max: Some(Duration::from_secs(9)),
        jitter: Some(Jitter::Off),
        max_crashes: Some(2),
        max_node_deaths: Some(5),
        timeout: Some(Duration::from_secs(33)),
    };
    let new = NewTask {
        id,
        queue: "letters".to_owned(),
        kind: "stamp".to_owned(),
        payload: "{\"to\":\"Ada\"}".to_owned(),
        priority: Priority::new(-3).expect("in range"),
        run_at: None,
        unique: Some(Unique::new("u")),
        limit_key: Some("l".to_owned()),
        after: Vec::new(),
        on_failed: OnFailed::Cancel,
        overrides,
        not_after: Some(s.in_ms(50_000)),
        deadline: Some(s.in_ms(60_000)),
        folder: Some("/tmp/letters".to_owned()),
        traceparent: TRACE.parse().ok(),
        cost: Some(12),
    };
    s.enqueue(new.clone()).await;
    let shown = s.show(id).await;
    let task = &shown.task;
    let (readiness, why, run_at) = (Readiness::Ready, Wait::New, s.now());
    assert_eq!(task.state, State::Queued { readiness, why, run_at });
    assert_eq!((&task.queue, &task.kind, &task.payload), (&new.queue, &new.kind, &new.payload));
    assert_eq!(
        (task.unique_key.as_deref(), &task.limit_key, &task.folder),
        (Some("u"), &new.limit_key, &new.folder)
    );
    assert_eq!((&task.traceparent, task.traceparent.is_some()), (&new.traceparent, true));
    assert_eq!((task.priority, task.overrides, task.cost), (new.priority, new.overrides, 12));
    assert_eq!((task.not_after, task.deadline, task.created_at), (new.not_after, new.deadline, s.now()));
    assert_eq!((task.token, task.runs, task.failures, task.crashes, task.node_deaths), (0, 0, 0, 0, 0));
    assert!(!task.suspect && task.output.is_none() && task.last_failure.is_none());
    assert!(shown.attempts.is_empty() && shown.steps.is_empty());
}

async fn many_tasks_of_one_call_are_all_there_and_answered_in_their_order(s: &Scene) {
    let node = s.join().await;
    let kinds = ["a", "b", "c"];
    let tasks: Vec<NewTask> = (0..600)
        .map(|at| NewTask { kind: kinds[at % 3].to_owned(), payload: at.to_string(), ..s.draft() })
        .collect();
    let expected: Vec<Enqueued> = tasks.iter().map(|task| Enqueued::Created(task.id)).collect();
    assert_eq!(s.store.enqueue(tasks.clone()).await, Ok(expected));
    assert_eq!(s.counts().await.queued, 600);
    let claimed = s.claim(node, 400).await;
    let payloads: Vec<&str> = claimed.iter().map(|claimed| claimed.payload.as_str()).collect();
    let first: Vec<&str> = tasks[..400].iter().map(|task| task.payload.as_str()).collect();
    assert_eq!(payloads, first, "they go in the order in which they were given");
}

async fn nothing_to_enqueue_is_nothing_done(s: &Scene) {
    let before = s.picture().await;
    assert_eq!(s.store.enqueue(Vec::new()).await, Ok(Vec::new()));
    assert_eq!(s.picture().await, before);
}

async fn a_repeated_id_answers_with_the_task_that_exists(s: &Scene) {
    let first = s.draft();
    let id = s.enqueue(first.clone()).await;
    let before = s.picture().await;
    let again = NewTask { payload: "{\"other\":1}".to_owned(), queue: "elsewhere".to_owned(), ..first };
    assert_eq!(s.store.enqueue(vec![again]).await, Ok(vec![Enqueued::Existing(id)]));
    assert_eq!(s.picture().await, before, "the repeat changes nothing");
}

async fn an_id_twice_in_one_call_makes_one_task(s: &Scene) {
    let task = s.draft();
    let id = task.id;
    let other = s.draft();
    let answers = s.store.enqueue(vec![task.clone(), other.clone(), task]).await;
    let expected = vec![Enqueued::Created(id), Enqueued::Created(other.id), Enqueued::Existing(id)];
    assert_eq!(answers, Ok(expected), "answers stand in the order of the items");
    assert_eq!(s.counts().await.queued, 2);
}

async fn a_time_ahead_makes_it_wait(s: &Scene) {
    let run_at = s.in_ms(1);
    let id = s.add_with(|task| task.run_at = Some(run_at)).await;
    let (readiness, why) = (Readiness::Waiting, Wait::Scheduled);
    assert_eq!(s.task(id).await.state, State::Queued { readiness, why, run_at });
    let node = s.join().await;
    assert!(s.claim(node, 10).await.is_empty(), "a claim does not see it");
}

async fn a_time_now_or_past_makes_it_ready(s: &Scene) {
    for run_at in [s.now(), s.now().before(Duration::from_secs(60))] {
        let id = s.add_with(|task| task.run_at = Some(run_at)).await;
        let (readiness, why) = (Readiness::Ready, Wait::New);
        assert_eq!(s.task(id).await.state, State::Queued { readiness, why, run_at });
    }
}

async fn a_full_queue_takes_no_more_and_says_its_limit(s: &Scene) {
    s.configure(QueueChange::Limit(Some(2))).await;
    let [a, b, c] = [s.draft(), s.draft(), s.draft()];
    let refused = c.id;
    let answers = s.store.enqueue(vec![a.clone(), b.clone(), c]).await;
    let expected = vec![Enqueued::Created(a.id), Enqueued::Created(b.id), Enqueued::QueueFull { limit: 2 }];
    assert_eq!(answers, Ok(expected));
    assert!(s.find(refused).await.is_none(), "what was refused is not there");
    assert_eq!(s.counts().await.submitted(), 2);
    s.add_with(|task| task.queue = "elsewhere".to_owned()).await;
}

async fn only_what_waits_fills_a_queue(s: &Scene) {
    s.configure(QueueChange::Limit(Some(1))).await;
    let node = s.join().await;
    let lease = s.leased(node).await;
    s.add_with(|task| task.run_at = Some(s.in_ms(1_000))).await;
    let third = s.draft();
    let full = Ok(vec![Enqueued::QueueFull { limit: 1 }]);
    assert_eq!(s.store.enqueue(vec![third.clone()]).await, full, "a scheduled task waits too");
    // A full queue does not stop a hand-back: the task was counted before.
    s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
    assert_eq!(s.counts().await.queued, 2);
    assert_eq!(s.store.enqueue(vec![third]).await, full);
}

async fn a_full_queue_still_knows_its_tasks(s: &Scene) {
    s.configure(QueueChange::Limit(Some(1))).await;
    let first = NewTask { unique: Some(Unique::new("k")), ..s.draft() };
    let id = s.enqueue(first.clone()).await;
    let same_key = NewTask { id: s.task_id(), ..first.clone() };
    let answers = s.store.enqueue(vec![first, same_key]).await;
    assert_eq!(answers, Ok(vec![Enqueued::Existing(id), Enqueued::Existing(id)]));
}

async fn one_wrong_task_refuses_the_whole_call(s: &Scene) {
    let before = s.picture().await;
    let wrong = NewTask { kind: String::new(), ..s.draft() };
    invalid("an empty kind", s.store.enqueue(vec![s.draft(), wrong, s.draft()]).await);
    assert_eq!(s.picture().await, before, "nothing of the call was written");
}

async fn names_and_keys_have_a_form(s: &Scene) {
    let draft = || s.draft();
    let some = |text: &str| Some(text.to_owned());
    let for_no_time = Unique { hold: Some(KeyHold::For(Duration::ZERO)), ..Unique::new("k") };
    let wrong = [
        ("an empty queue", NewTask { queue: String::new(), ..draft() }),
        ("a queue with a line break", NewTask { queue: "a\nb".to_owned(), ..draft() }),
        ("a queue with a NUL", NewTask { queue: "a\0b".to_owned(), ..draft() }),
        ("a kind with a tab", NewTask { kind: "a\tb".to_owned(), ..draft() }),
        ("an empty unique key", NewTask { unique: Some(Unique::new("")), ..draft() }),
        ("an empty limit key", NewTask { limit_key: some(""), ..draft() }),
        ("a key with a NUL", NewTask { unique: Some(Unique::new("a\0b")), ..draft() }),
        ("a unique key for no time", NewTask { unique: Some(for_no_time), ..draft() }),
        ("a payload with a NUL", NewTask { payload: "\"\0\"".to_owned(), ..draft() }),
        ("a folder with a NUL", NewTask { folder: some("/tmp/\0"), ..draft() }),
    ];
    let before = s.picture().await;
    for (what, task) in wrong {
        invalid(what, s.store.enqueue(vec![task]).await);
    }
    assert_eq!(s.picture().await, before);
}

async fn a_policy_that_cannot_work_is_refused(s: &Scene) {
    let zero = |overrides| NewTask { overrides, ..s.draft() };
    let none = Overrides::NONE;
    invalid("no attempts", s.store.enqueue(vec![zero(Overrides { attempts: Some(0), ..none })]).await);
    let no_time = Overrides { timeout: Some(Duration::ZERO), ..none };
    invalid("no time", s.store.enqueue(vec![zero(no_time)]).await);
    assert_eq!(s.counts().await.submitted(), 0);
}

async fn any_text_survives(s: &Scene) {
    let odd = "'; DROP TABLE task; -- %_ \\ \" \u{1f40e} \u{202e} e\u{301} \u{feff}";
    let id = s
        .add_with(|task| {
            task.queue = odd.to_owned();
            task.kind = odd.to_owned();
            task.payload = format!("{odd}\r\n\t\u{7f}");
            task.unique = Some(Unique::new(odd));
            task.limit_key = Some(format!("{odd}\n"));
            task.folder = Some(odd.to_owned());
        })
        .await;
    let task = s.task(id).await;
    assert_eq!((task.queue.as_str(), task.kind.as_str()), (odd, odd));
    assert_eq!(task.payload, format!("{odd}\r\n\t\u{7f}"));
    assert_eq!((task.unique_key.as_deref(), task.folder.as_deref()), (Some(odd), Some(odd)));
    assert_eq!(task.limit_key, Some(format!("{odd}\n")));
    assert_eq!(task.state.name(), StateName::Queued);
    // Names are case-sensitive.
    s.add_with(|task| task.queue = QUEUE.to_uppercase()).await;
    s.add_with(|task| task.kind = KIND.to_uppercase()).await;
    assert_eq!(s.store.survey().await.expect("survey answers").lanes.len(), 3);
}
