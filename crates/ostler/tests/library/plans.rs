//! Scheduled, dependent and expiring tasks, and administration, through the library.

use std::time::Duration;

use ostler::{
    Amended, Context, EventKind, Filter, KeyHold, Missed, OnConflict, OnFailed, Overlap, Overrides, Pool,
    Priority, PriorityOrder, Recurrence, Replay, ReplayAnswer, ScheduleAnswer, ScheduleSpec, StateName,
    Submission, SubmitError, TaskError, TaskId, WaitError,
};
use ostler_testkit::{Ids, MAX_WAIT, scratch};

const HOUR: Duration = Duration::from_secs(3_600);

/// A pool whose tasks return their payload, or fail with it.
async fn pool(path: &std::path::Path) -> Pool {
    let say = |text: String, _| async move { Ok(text) };
    let fail = |text: String, _| async move { Err::<(), _>(TaskError::permanent(text)) };
    ostler::open(path).unwrap().handle("say", say).handle("fail", fail).workers(2).start().await.unwrap()
}

async fn submit(pool: &Pool, kind: &str, about: Submission) -> TaskId {
    pool.submit_with(kind, &"x", about).await.unwrap()
}

async fn state(pool: &Pool, id: TaskId) -> StateName {
    pool.get(id).await.unwrap().state.name()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_waits_for_others_and_their_failure_means_what_was_said() {
    let folder = scratch();
    let pool = pool(&folder.path().join("jobs.db")).await;
    pool.pause("not yet").await.unwrap();
    let (good, bad) = (pool.submit("say", &"x").await.unwrap(), pool.submit("fail", &"x").await.unwrap());
    let after = |others: &[TaskId], on_failed| Submission {
        after: others.to_vec(),
        on_failed,
        ..Submission::default()
    };
    let last = submit(&pool, "say", after(&[good], OnFailed::Cancel)).await;
    let cancelled = submit(&pool, "say", after(&[good, bad], OnFailed::Cancel)).await;
    let runs = submit(&pool, "say", after(&[bad], OnFailed::Run)).await;
    let waits = submit(&pool, "say", after(&[bad], OnFailed::Wait)).await;
    pool.resume().await.unwrap();
    for (id, ends) in
        [(last, StateName::Completed), (cancelled, StateName::Cancelled), (runs, StateName::Completed)]
    {
        assert_eq!(pool.wait(id).await.unwrap().state.name(), ends);
    }
    assert_eq!(state(&pool, waits).await, StateName::Queued);
    let unknown = Ids::new(7).task();
    let refused = pool.submit_with("say", &"x", after(&[unknown], OnFailed::Run)).await;
    assert!(matches!(refused, Err(SubmitError::NoSuchTask(id)) if id == unknown), "{refused:?}");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_key_is_kept_replaced_or_refused_for_its_time() {
    let folder = scratch();
    let pool = pool(&folder.path().join("jobs.db")).await;
    pool.pause("not yet").await.unwrap();
    let about = |on_conflict, key_hold| Submission {
        key: Some("k".into()),
        on_conflict,
        key_hold,
        ..Submission::default()
    };
    let first =
        pool.submit_with("say", &"1", about(OnConflict::Keep, Some(KeyHold::For(HOUR)))).await.unwrap();
    let again =
        pool.submit_with("say", &"2", about(OnConflict::Replace, Some(KeyHold::For(HOUR)))).await.unwrap();
    assert_eq!((again, pool.get(first).await.unwrap().payload.as_str()), (first, "\"2\""));
    let refused = pool.submit_with("say", &"3", about(OnConflict::Reject, None)).await;
    assert!(matches!(refused, Err(SubmitError::KeyTaken { holder }) if holder == first), "{refused:?}");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_may_be_held_until_the_end_of_its_task() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let handler = |text: String, _: Context| async move { Ok(text) };
    let pool =
        ostler::open(&path).unwrap().handle("say", handler).key_hold(KeyHold::End).start().await.unwrap();
    let about = |key_hold| Submission { key: Some("doc".into()), key_hold, ..Submission::default() };
    pool.pause("not yet").await.unwrap();
    let first = submit(&pool, "say", about(None)).await;
    assert_eq!(submit(&pool, "say", about(None)).await, first, "it has not ended");
    pool.resume().await.unwrap();
    assert_eq!(pool.wait(first).await.unwrap().state.name(), StateName::Completed);
    let second = submit(&pool, "say", about(Some(KeyHold::Removed))).await;
    assert_ne!(second, first);
    pool.wait(second).await.unwrap();
    assert_eq!(submit(&pool, "say", about(None)).await, second, "a submission may say otherwise");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_priorities_are_worth_more_than_any_age() {
    const CENTURY: i64 = 100 * 365 * 24 * 3_600_000;
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db")).unwrap().priority_order(PriorityOrder::Strict);
    let pool = pool.start().await.unwrap();
    let mut ranks = Vec::new();
    for points in [-1, 0, 1] {
        let about = Submission { priority: Priority::new(points).unwrap(), ..Submission::default() };
        ranks.push(pool.get(submit(&pool, "unserved", about).await).await.unwrap().rank.0);
    }
    assert!(ranks.windows(2).all(|pair| pair[0] - pair[1] > CENTURY), "{ranks:?}");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_for_all_attempts_ends_and_a_folder_is_kept() {
    let folder = scratch();
    let pool = pool(&folder.path().join("jobs.db")).await;
    let past = Submission { deadline: Some(pool.now().before(HOUR)), ..Submission::default() };
    let late = submit(&pool, "say", past).await;
    assert_eq!(pool.wait(late).await.unwrap().state.name(), StateName::Failed);
    let about = Submission {
        folder: Some("/tmp".into()),
        deadline: Some(pool.now().after(HOUR)),
        ..Submission::default()
    };
    let done = pool.wait(submit(&pool, "say", about).await).await.unwrap();
    assert_eq!((done.state.name(), done.folder.as_deref()), (StateName::Completed, Some("/tmp")));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_listed_amended_replayed_and_dropped() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let pool = pool(&path).await;
    let other = ostler::open(&path).unwrap().queue("other").start().await.unwrap();
    let elsewhere = other.submit("say", &"x").await.unwrap();
    let (good, bad) = (pool.submit("say", &"x").await.unwrap(), pool.submit("fail", &"x").await.unwrap());
    pool.wait(good).await.unwrap();
    pool.wait(bad).await.unwrap();
    let page = pool.list(Filter::default(), None, 1).await.unwrap();
    assert_eq!(page.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [bad]);
    let rest = pool.list(Filter::default(), page.next, 10).await.unwrap();
    assert_eq!(rest.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [good], "those of its queue");
    let named = Filter { queue: Some("other".into()), ..Filter::default() };
    assert_eq!(pool.list(named, None, 10).await.unwrap().tasks[0].id, elsewhere);

    let rules = Overrides { attempts: Some(9), ..Overrides::NONE };
    assert_eq!(pool.amend(good, rules).await.unwrap(), Amended::Ended(StateName::Completed));
    assert_eq!(pool.amend(elsewhere, rules).await.unwrap(), Amended::Done);
    assert_eq!(pool.get(elsewhere).await.unwrap().overrides.attempts, Some(9));
    let completed = ReplayAnswer::Refused(StateName::Completed);
    assert_eq!(pool.replay(good, Replay::default()).await.unwrap(), completed);
    let payload = Replay { payload: Some("\"again\"".into()), ..Replay::default() };
    assert_eq!(pool.replay(bad, payload).await.unwrap(), ReplayAnswer::Requeued);
    let failed = pool.wait(bad).await.unwrap();
    assert_eq!(failed.last_failure.map(|failure| failure.message).as_deref(), Some("again"));
    assert_eq!(pool.drop_dead_letter(good).await.unwrap(), StateName::Completed);
    assert_eq!(state(&pool, good).await, StateName::Completed, "it is no dead letter");
    assert_eq!(pool.drop_dead_letter(bad).await.unwrap(), StateName::Failed);
    assert!(matches!(pool.get(bad).await, Err(WaitError::NotFound(_))), "it is gone");
    let unknown = Ids::new(7).task();
    assert!(matches!(pool.drop_dead_letter(unknown).await, Err(WaitError::NotFound(_))));
    assert!(matches!(pool.amend(unknown, rules).await, Err(WaitError::NotFound(_))));
    assert!(matches!(pool.replay(unknown, Replay::default()).await, Err(WaitError::NotFound(_))));
    other.drain(MAX_WAIT).await;
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_shown_with_its_attempts_steps_and_events_and_workers_with_their_counts() {
    let folder = scratch();
    let handler = |(): (), context: Context| async move {
        context.step("fetched", || async { Ok(7) }).await?;
        context.log(format!("attempt {}", context.attempt()));
        if context.attempt() == 1 { Err(TaskError::transient("not yet").hint("wait")) } else { Ok(()) }
    };
    let soon = Overrides { base: Some(Duration::from_millis(1)), ..Overrides::NONE };
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().handle("work", handler).defaults(soon);
    let pool = builder.workers(1).worker_name("clerk").start().await.unwrap();
    let id = pool.submit("work", &()).await.unwrap();
    pool.wait(id).await.unwrap();
    let shown = pool.show(id).await.unwrap();
    let ends: Vec<_> = shown.attempts.iter().filter_map(|attempt| attempt.end.as_ref()).collect();
    let endings: Vec<&str> = ends.iter().map(|end| end.ending.name()).collect();
    assert_eq!(endings, ["transient", "success"]);
    let hint = ends[0].failure.as_ref().and_then(|failure| failure.hint.as_deref());
    assert_eq!((hint, ends[1].failure.as_ref()), (Some("wait"), None), "each has its own failure");
    assert!(ends.iter().zip(&shown.attempts).all(|(end, attempt)| end.finished_at >= attempt.started_at));
    let steps: Vec<_> = shown.steps.iter().map(|step| (step.name.as_str(), step.value.as_str())).collect();
    assert_eq!(steps, [("fetched", "7")]);
    let events = pool.events(id, 0, usize::MAX).await.unwrap();
    let logged = events.iter().filter(|event| event.body.kind() == EventKind::Log).collect::<Vec<_>>();
    assert_eq!(logged.len(), 2, "{events:?}");
    let says = |at: usize, part| logged[at].body.text().is_some_and(|text| text.contains(part));
    assert!(says(0, "attempt 1") && says(1, "attempt 2"), "{logged:?}");
    assert!(pool.events(id, logged[0].number, 1).await.unwrap()[0].number > logged[0].number);
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    let reported = async {
        loop {
            looks.tick().await;
            let workers = pool.workers().await.unwrap();
            if let [one] = workers.as_slice()
                && (one.worker.done, one.worker.failed) == (1, 1)
            {
                return one.worker.clone();
            }
        }
    };
    let worker = tokio::time::timeout(MAX_WAIT, reported).await.expect("one worker, with its counts");
    assert!(shown.attempts.iter().all(|attempt| attempt.worker == worker.id));
    assert_eq!(worker.name, "clerk-1");
    let unknown = Ids::new(7).task();
    assert!(matches!(pool.show(unknown).await, Err(WaitError::NotFound(_))));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_are_submitted_in_one_call_and_each_has_its_answer() {
    const MOST: usize = 10_000;
    let folder = scratch();
    // No worker takes a task out of the queue.
    let builder = ostler::open(folder.path().join("jobs.db")).unwrap().queue_limit(MOST as u64);
    let pool = builder.start().await.unwrap();
    let numbers: Vec<usize> = (0..=MOST).collect();
    assert!(matches!(pool.submit_many("count", &numbers).await, Err(SubmitError::Store(_))), "one too many");
    assert_eq!(pool.stats().await.unwrap().submitted(), 0, "all or nothing");
    let first = pool.submit("count", &0).await.unwrap();
    let answers = pool.submit_many("count", &numbers[1..]).await.unwrap();
    let (last, others) = answers.split_last().expect("there are many");
    assert!(matches!(last, Err(SubmitError::QueueFull { limit }) if *limit == MOST as u64), "{last:?}");
    let mut ids = vec![first];
    ids.extend(others.iter().map(|answer| answer.as_ref().expect("there is room")));
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), pool.stats().await.unwrap().tasks.queued), (MOST, MOST as u64));
    let some = *others[4_710].as_ref().expect("there is room");
    assert_eq!(pool.get(some).await.unwrap().payload, "4711", "an answer is in the place of its payload");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_kept_goes_on_and_is_removed() {
    let folder = scratch();
    let pool = pool(&folder.path().join("jobs.db")).await;
    let hourly = ScheduleSpec::every(HOUR).unwrap();
    let about = Recurrence { overlap: Overlap::Replace, missed: Missed::All, ..Recurrence::default() };
    let next = pool.schedule_with("s", hourly.clone(), "say", &"x", about).await.unwrap();
    assert!(next.is_some_and(|next| next > pool.now()));
    assert_eq!(pool.schedule("s", hourly, "say", &"y").await.unwrap(), next, "it goes on where it was");
    assert_eq!(pool.pause_schedule("s").await.unwrap(), ScheduleAnswer::Done);
    let once = ScheduleSpec::at(pool.now());
    assert_eq!(pool.schedule("s", once, "say", &"z").await.unwrap(), None, "it is paused");
    assert_eq!(pool.resume_schedule("s").await.unwrap(), ScheduleAnswer::Done);
    let until = tokio::time::Instant::now() + MAX_WAIT;
    let run = loop {
        let kept = pool.schedules().await.unwrap().remove(0);
        if let Some(task) = kept.last_task {
            break task;
        }
        assert!(tokio::time::Instant::now() < until, "it does not run");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(pool.wait(run).await.unwrap().output.as_deref(), Some("\"z\""));
    assert_eq!(pool.unschedule("s").await.unwrap(), ScheduleAnswer::Done);
    assert_eq!(pool.unschedule("s").await.unwrap(), ScheduleAnswer::NotFound);
    pool.drain(MAX_WAIT).await;
}
