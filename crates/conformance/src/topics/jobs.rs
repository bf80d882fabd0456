//! Jobs: stored by id, counted by their queue, removed when they have no tasks left.

use std::time::Duration;

use ostler_core::{Id, JobId, Outcome, StateName};

use super::super::scene::{KIND, Scene, TICK, heard, invalid};
use super::runner::cases;
use ostler_store::Stats;
use ostler_store::calls::{Claim, ClaimAnswer, NewTask, Prune, QueueChange, Retention};
use ostler_store::jobs::{
    FORMER_JOBS, JobAnswer, JobChange, JobFilter, JobPut, JobRecord, MAX_JOBS_PRUNED, MAX_SPEC_BYTES, NewJob,
    queue_of,
};
use ostler_store::views::Counts;
use ostler_store::{MAX_NAME_BYTES, MAX_PAGE};

cases![
    a_job_is_shown_as_it_was_put,
    a_job_that_is_put_twice_stays_as_it_was,
    jobs_are_listed_from_the_highest_id_down,
    a_job_is_found_by_what_it_was_made_from,
    a_job_has_the_totals_of_its_queue,
    a_job_is_paused_with_its_queue,
    a_job_is_cancelled_and_goes_on,
    a_job_gets_more_items_and_never_fewer,
    an_unknown_job_is_not_changed,
    a_change_of_a_job_is_news,
    a_job_has_a_form,
    a_job_with_tasks_is_kept,
    an_old_job_without_tasks_is_removed_and_stays_counted,
    a_queue_that_was_removed_can_come_back,
    a_prune_removes_so_many_jobs,
    a_job_without_tasks_is_removed_by_name,
    a_job_with_tasks_is_not_removed_by_name,
];

const HOUR: Duration = Duration::from_secs(3_600);
const KEEP: Retention = Retention { completed: HOUR, failed: HOUR, most: 1_000, batch: 100 };

fn id(number: u128) -> JobId {
    JobId(Id::from_bits(number))
}

fn job(number: u128) -> NewJob {
    NewJob {
        id: id(number),
        name: "letters".to_owned(),
        fingerprint: "b1946ac9".to_owned(),
        spec: "{\"argv\":[\"lpr\",\"{}\"]}".to_owned(),
        items: 3,
    }
}

async fn put(s: &Scene, number: u128) -> NewJob {
    assert_eq!(s.store.put_job(job(number)).await, Ok(JobPut::Created));
    job(number)
}

async fn listed(s: &Scene, filter: JobFilter) -> Vec<JobRecord> {
    s.store.jobs(filter, MAX_PAGE).await.expect("jobs answers")
}

async fn shown(s: &Scene, number: u128) -> JobRecord {
    let mut found = listed(s, JobFilter { id: Some(id(number)), ..JobFilter::default() }).await;
    assert_eq!(found.len(), 1, "there is one with this id");
    found.remove(0)
}

fn task(s: &Scene, number: u128) -> NewTask {
    NewTask { queue: queue_of(id(number)), ..s.draft() }
}

async fn numbers(s: &Scene, filter: JobFilter) -> Vec<u128> {
    listed(s, filter).await.iter().map(|record| record.job.id.0.bits()).collect()
}

async fn prune(s: &Scene) -> usize {
    s.store.prune(Prune::Retention(KEEP)).await.expect("prune answers").tasks
}

// ---- stored ----

async fn a_job_is_shown_as_it_was_put(s: &Scene) {
    let job = put(s, 7).await;
    let (made_at, counts) = (s.now(), Counts::default());
    let record = JobRecord { job, made_at, cancelled_at: None, paused: None, counts, pruned: 0 };
    assert_eq!(shown(s, 7).await, record);
}

async fn a_job_that_is_put_twice_stays_as_it_was(s: &Scene) {
    put(s, 7).await;
    let before = s.picture().await;
    let other = NewJob { name: "parcels".to_owned(), items: 9, ..job(7) };
    assert_eq!(s.store.put_job(other).await, Ok(JobPut::Existing));
    assert_eq!(s.picture().await, before);
}

async fn jobs_are_listed_from_the_highest_id_down(s: &Scene) {
    for number in [5, 9, 1] {
        put(s, number).await;
    }
    assert_eq!(numbers(s, JobFilter::default()).await, [9, 5, 1]);
    let below = JobFilter { before: Some(id(9)), ..JobFilter::default() };
    assert_eq!(numbers(s, below).await, [5, 1]);
    let first = s.store.jobs(JobFilter::default(), 1).await.expect("jobs answers");
    assert_eq!(first.len(), 1);
    invalid("page", s.store.jobs(JobFilter::default(), MAX_PAGE + 1).await);
}

async fn a_job_is_found_by_what_it_was_made_from(s: &Scene) {
    put(s, 1).await;
    let other = NewJob { fingerprint: "other".to_owned(), ..job(2) };
    assert_eq!(s.store.put_job(other).await, Ok(JobPut::Created));
    put(s, 3).await;
    let same = JobFilter { fingerprint: Some("b1946ac9".to_owned()), ..JobFilter::default() };
    assert_eq!(numbers(s, same.clone()).await, [3, 1]);
    assert_eq!(numbers(s, JobFilter { before: Some(id(3)), ..same.clone() }).await, [1]);
    assert_eq!(numbers(s, JobFilter { id: Some(id(2)), ..same }).await, [] as [u128; 0]);
}

async fn a_job_has_the_totals_of_its_queue(s: &Scene) {
    put(s, 1).await;
    put(s, 2).await;
    let mut tasks: Vec<NewTask> = (0..3).map(|_| task(s, 1)).collect();
    tasks[2].kind = "another".to_owned();
    s.store.enqueue(tasks.clone()).await.expect("enqueue answers");
    s.add().await;
    s.cancel(tasks[0].id).await;
    let counts = Counts { queued: 2, cancelled: 1, ..Counts::default() };
    assert_eq!(shown(s, 1).await.counts, counts, "of both kinds");
    assert_eq!(shown(s, 2).await.counts, Counts::default());
    s.store.prune(Prune::Tasks(vec![tasks[0].id])).await.expect("prune answers");
    let record = shown(s, 1).await;
    assert_eq!((record.counts, record.pruned), (counts, 1), "what was pruned stays counted");
}

async fn a_job_is_paused_with_its_queue(s: &Scene) {
    put(s, 1).await;
    let pause = vec![QueueChange::Pause("lunch".to_owned())];
    s.store.configure(&queue_of(id(1)), pause).await.expect("configure answers");
    assert_eq!(shown(s, 1).await.paused.as_deref(), Some("lunch"));
    s.store.configure(&queue_of(id(1)), vec![QueueChange::Resume]).await.expect("configure answers");
    assert_eq!(shown(s, 1).await.paused, None);
}

async fn a_job_is_cancelled_and_goes_on(s: &Scene) {
    put(s, 1).await;
    let since = s.now();
    for _ in 0..2 {
        assert_eq!(s.store.change_job(id(1), JobChange::Cancel).await, Ok(JobAnswer::Done));
        s.pass(TICK);
    }
    assert_eq!(shown(s, 1).await.cancelled_at, Some(since), "since it was said first");
    assert_eq!(s.store.change_job(id(1), JobChange::Reopen).await, Ok(JobAnswer::Done));
    assert_eq!(shown(s, 1).await.cancelled_at, None);
}

async fn a_job_gets_more_items_and_never_fewer(s: &Scene) {
    put(s, 1).await;
    for (grown, items) in [(5, 5), (4, 5), (9, 9)] {
        assert_eq!(s.store.change_job(id(1), JobChange::Grow(grown)).await, Ok(JobAnswer::Done));
        assert_eq!(shown(s, 1).await.job.items, items);
    }
}

async fn an_unknown_job_is_not_changed(s: &Scene) {
    let before = s.picture().await;
    for change in [JobChange::Cancel, JobChange::Reopen, JobChange::Grow(9), JobChange::Remove] {
        assert_eq!(s.store.change_job(id(1), change).await, Ok(JobAnswer::NotFound));
    }
    assert_eq!(s.picture().await, before);
}

async fn a_change_of_a_job_is_news(s: &Scene) {
    let mut control = s.store.control();
    control.arm();
    put(s, 1).await;
    heard("a job is there", &mut control).await;
    control.arm();
    s.store.change_job(id(1), JobChange::Cancel).await.expect("change_job answers");
    heard("it was cancelled", &mut control).await;
}

async fn a_job_has_a_form(s: &Scene) {
    let before = s.picture().await;
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    invalid("job", s.store.put_job(NewJob { name: String::new(), ..job(1) }).await);
    invalid("job", s.store.put_job(NewJob { name: long.clone(), ..job(1) }).await);
    invalid("fingerprint", s.store.put_job(NewJob { fingerprint: long, ..job(1) }).await);
    invalid("spec", s.store.put_job(NewJob { spec: "x".repeat(MAX_SPEC_BYTES + 1), ..job(1) }).await);
    assert_eq!(s.picture().await, before);
}

// ---- removed ----

async fn a_job_with_tasks_is_kept(s: &Scene) {
    put(s, 1).await;
    let waits = task(s, 1);
    s.store.enqueue(vec![waits.clone()]).await.expect("enqueue answers");
    s.pass(2 * HOUR);
    assert_eq!(prune(s).await, 0);
    assert_eq!(shown(s, 1).await.counts.queued, 1, "it waits");
    s.cancel(waits.id).await;
    assert_eq!(prune(s).await, 0);
    assert_eq!(shown(s, 1).await.counts.cancelled, 1, "it ended just now");
}

async fn an_old_job_without_tasks_is_removed_and_stays_counted(s: &Scene) {
    put(s, 1).await;
    let over = task(s, 1);
    s.store.enqueue(vec![over.clone()]).await.expect("enqueue answers");
    s.cancel(over.id).await;
    s.replay(over.id).await;
    s.cancel(over.id).await;
    let before = Stats::of(&s.store.survey().await.expect("survey answers"), None).totals;
    s.pass(HOUR + TICK);
    assert_eq!(prune(s).await, 1, "its task, and the job in the same call");
    let after = Stats::of(&s.store.survey().await.expect("survey answers"), None).totals;
    assert_eq!((after, after.cancelled, after.replayed), (before, 2, 1), "the totals stay");
    assert_eq!(listed(s, JobFilter::default()).await, []);
    let survey = s.store.survey().await.expect("survey answers");
    assert!(survey.queues.iter().all(|queue| queue.name != queue_of(id(1))), "its queue is gone");
    let lane = survey.lanes.iter().find(|lane| lane.queue == FORMER_JOBS).expect("its counts are there");
    assert_eq!((lane.kind.as_str(), lane.counts.cancelled), (KIND, 1));
    let queue = survey.queues.iter().find(|queue| queue.name == FORMER_JOBS).expect("its queue is there");
    assert_eq!(queue.high_water, 1);
    assert_eq!(survey.lanes.len(), 1);
}

async fn a_queue_that_was_removed_can_come_back(s: &Scene) {
    put(s, 1).await;
    let over = task(s, 1);
    s.store.enqueue(vec![over.clone()]).await.expect("enqueue answers");
    s.cancel(over.id).await;
    s.pass(HOUR + TICK);
    prune(s).await;
    put(s, 1).await;
    let again = task(s, 1);
    s.store.enqueue(vec![again.clone()]).await.expect("enqueue answers");
    s.add().await;
    let record = shown(s, 1).await;
    assert_eq!((record.counts, record.pruned), (Counts { queued: 1, ..Counts::default() }, 0));
    let node = s.join().await;
    let claim = Claim { queue: queue_of(id(1)), ..s.asks(node, 9) };
    let ClaimAnswer::Tasks { mut tasks, .. } = s.store.claim(claim).await.expect("claim answers") else {
        panic!("the session is alive")
    };
    assert_eq!(tasks.len(), 1, "of the job only");
    let lease = tasks.remove(0).lease;
    assert_eq!(lease.task(), again.id);
    s.finish(lease, Outcome::Success).await;
    assert_eq!(s.state(again.id).await, StateName::Completed);
    assert_eq!(shown(s, 1).await.counts.completed, 1);
}

async fn a_prune_removes_so_many_jobs(s: &Scene) {
    let count = MAX_JOBS_PRUNED as u128 + 5;
    for number in 0..count {
        put(s, number).await;
    }
    s.pass(HOUR + TICK);
    prune(s).await;
    assert_eq!(listed(s, JobFilter::default()).await.len(), 5);
    prune(s).await;
    assert_eq!(listed(s, JobFilter::default()).await, []);
}

async fn a_job_without_tasks_is_removed_by_name(s: &Scene) {
    put(s, 1).await;
    put(s, 2).await;
    let over = task(s, 1);
    s.store.enqueue(vec![over.clone()]).await.expect("enqueue answers");
    s.cancel(over.id).await;
    s.store.prune(Prune::Tasks(vec![over.id])).await.expect("prune answers");
    let mut control = s.store.control();
    control.arm();
    assert_eq!(s.store.change_job(id(1), JobChange::Remove).await, Ok(JobAnswer::Done));
    heard("a job is gone", &mut control).await;
    assert_eq!(numbers(s, JobFilter::default()).await, [2], "the other one stays");
    let survey = s.store.survey().await.expect("survey answers");
    assert!(survey.queues.iter().all(|queue| queue.name != queue_of(id(1))), "its queue is gone");
    let lane = survey.lanes.iter().find(|lane| lane.queue == FORMER_JOBS).expect("its counts are there");
    assert_eq!((lane.kind.as_str(), lane.counts.cancelled), (KIND, 1));
    assert_eq!(s.store.change_job(id(1), JobChange::Remove).await, Ok(JobAnswer::NotFound));
    // A job that never had a task has no queue.
    assert_eq!(s.store.change_job(id(2), JobChange::Remove).await, Ok(JobAnswer::Done));
    assert_eq!(listed(s, JobFilter::default()).await, []);
}

async fn a_job_with_tasks_is_not_removed_by_name(s: &Scene) {
    put(s, 1).await;
    let left = task(s, 1);
    s.store.enqueue(vec![left.clone()]).await.expect("enqueue answers");
    let before = s.picture().await;
    assert_eq!(s.store.change_job(id(1), JobChange::Remove).await, Ok(JobAnswer::HasTasks), "it waits");
    assert_eq!(s.picture().await, before);
    s.cancel(left.id).await;
    assert_eq!(s.store.change_job(id(1), JobChange::Remove).await, Ok(JobAnswer::HasTasks), "it has ended");
    assert_eq!(s.task(left.id).await.queue, queue_of(id(1)));
}
