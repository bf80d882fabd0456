//! Pruning: removes finished tasks with all their data; lifetime counts stay.

use std::time::Duration;

use ostler_core::{EventBody, Outcome, StateName, TaskId};

use super::super::scene::{Scene, TICK, TTL};
use super::runner::cases;
use ostler_store::calls::{Appended, Enqueued, NewStep, NewTask, Prune, Pruned, Retention};

cases![
    nothing_is_removed_before_its_time,
    completed_cancelled_and_failed_have_their_own_time,
    the_oldest_go_when_there_are_too_many,
    a_bite_removes_so_many,
    a_bite_of_nothing_removes_nothing,
    only_what_has_ended_is_removed_by_name,
    all_that_belongs_to_a_task_goes,
    lifetime_counts_survive,
    a_pruned_id_is_free,
    a_replayed_task_is_not_pruned,
    a_limit_key_is_forgotten_with_its_last_task,
];

const HOUR: Duration = Duration::from_secs(3_600);

const KEEP: Retention = Retention { completed: HOUR, failed: HOUR, most: 1_000, batch: 100 };

async fn prune(s: &Scene, keep: Retention) -> Pruned {
    s.store.prune(Prune::Retention(keep)).await.expect("prune answers")
}

async fn ended(s: &Scene, count: usize) -> Vec<TaskId> {
    let node = s.join().await;
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(s.completed(node).await);
        s.pass(TICK);
    }
    ids
}

async fn kept(s: &Scene, ids: &[TaskId]) -> Vec<bool> {
    let mut kept = Vec::new();
    for id in ids {
        kept.push(s.find(*id).await.is_some());
    }
    kept
}

async fn nothing_is_removed_before_its_time(s: &Scene) {
    let node = s.join().await;
    s.completed(node).await;
    s.pass(HOUR);
    let before = s.picture().await;
    assert_eq!(prune(s, KEEP).await, Pruned { tasks: 0, orphans: 0, more: false }, "just not too old");
    assert_eq!(s.picture().await, before);
    s.pass(TICK);
    assert_eq!(prune(s, KEEP).await, Pruned { tasks: 1, orphans: 0, more: false });
}

async fn completed_cancelled_and_failed_have_their_own_time(s: &Scene) {
    let node = s.join().await;
    let completed = s.completed(node).await;
    let failed = s.dead_letter(node).await;
    let running = s.running(node).await.task();
    let cancelled = s.add().await;
    s.cancel(cancelled).await;
    let queued = s.add().await;
    let ids = [completed, failed, cancelled, running, queued];
    s.pass(HOUR + TICK);
    let keep = Retention { failed: 2 * HOUR, ..KEEP };
    assert_eq!(prune(s, keep).await, Pruned { tasks: 2, orphans: 0, more: false });
    assert_eq!(kept(s, &ids).await, [false, true, false, true, true]);
    s.pass(HOUR);
    assert_eq!(prune(s, keep).await, Pruned { tasks: 1, orphans: 0, more: false });
    assert_eq!(kept(s, &ids).await, [false, false, false, true, true], "what has not ended is kept for ever");
}

async fn the_oldest_go_when_there_are_too_many(s: &Scene) {
    let ids = ended(s, 5).await;
    let node = s.join().await;
    let failed = s.dead_letter(node).await;
    assert_eq!(prune(s, Retention { most: 2, ..KEEP }).await, Pruned { tasks: 3, orphans: 0, more: false });
    assert_eq!(kept(s, &ids).await, [false, false, false, true, true]);
    assert!(s.find(failed).await.is_some(), "each end is counted apart");
}

async fn a_bite_removes_so_many(s: &Scene) {
    let ids = ended(s, 5).await;
    s.pass(HOUR + TICK);
    let batch = Retention { batch: 2, ..KEEP };
    assert_eq!(prune(s, batch).await, Pruned { tasks: 2, orphans: 0, more: true });
    assert_eq!(kept(s, &ids).await, [false, false, true, true, true], "the oldest first");
    assert_eq!(prune(s, batch).await, Pruned { tasks: 2, orphans: 0, more: true });
    assert_eq!(prune(s, batch).await, Pruned { tasks: 1, orphans: 0, more: false });
    assert_eq!(prune(s, batch).await, Pruned { tasks: 0, orphans: 0, more: false });
}

async fn a_bite_of_nothing_removes_nothing(s: &Scene) {
    let ids = ended(s, 1).await;
    s.pass(HOUR + TICK);
    assert_eq!(prune(s, Retention { batch: 0, ..KEEP }).await.tasks, 0);
    assert_eq!(s.store.prune(Prune::Tasks(Vec::new())).await, Ok(Pruned::default()));
    assert_eq!(kept(s, &ids).await, [true]);
}

async fn only_what_has_ended_is_removed_by_name(s: &Scene) {
    let node = s.join().await;
    let completed = s.completed(node).await;
    let failed = s.dead_letter(node).await;
    let running = s.running(node).await.task();
    let claimed = s.leased(node).await.task();
    let queued = s.add().await;
    let all = [running, completed, queued, failed, claimed];
    let named = [all.to_vec(), vec![completed, s.task_id()]].concat();
    assert_eq!(
        s.store.prune(Prune::Tasks(named.clone())).await,
        Ok(Pruned { tasks: 2, orphans: 0, more: false })
    );
    assert_eq!(kept(s, &all).await, [true, false, true, false, true]);
    assert_eq!(s.store.prune(Prune::Tasks(named)).await, Ok(Pruned::default()));
}

async fn all_that_belongs_to_a_task_goes(s: &Scene) {
    let node = s.join().await;
    let new = s.draft();
    let id = s.enqueue(new.clone()).await;
    let lease = s.run(node).await;
    let event = || vec![EventBody::line("a")];
    let step = NewStep { name: "fetched".to_owned(), value: "1".to_owned() };
    s.store.append(lease.as_ref(), event()).await.expect("append answers");
    s.store.save_step(lease.as_ref(), step).await.expect("save_step answers");
    s.finish(lease, Outcome::Success).await;
    s.store.prune(Prune::Tasks(vec![id])).await.expect("prune answers");
    assert!(s.events(id).await.is_empty());
    // The same id again is a new task without the old one's data.
    s.enqueue(new).await;
    let shown = s.show(id).await;
    assert!(shown.steps.is_empty() && shown.attempts.is_empty() && s.events(id).await.is_empty());
    let lease = s.run(node).await;
    let appended = s.store.append(lease.as_ref(), event()).await;
    assert_eq!(appended, Ok(Appended::Recorded { last: 1 }));
}

async fn lifetime_counts_survive(s: &Scene) {
    let node = s.join().await;
    s.completed(node).await;
    s.dead_letter(node).await;
    let id = s.add().await;
    s.cancel(id).await;
    let before = s.store.survey().await.expect("survey answers");
    s.pass(TTL);
    s.store.renew(node, &[]).await.expect("renew answers");
    s.pass(HOUR);
    assert_eq!(prune(s, KEEP).await.tasks, 3);
    let after = s.store.survey().await.expect("survey answers");
    assert_eq!(after.lanes, before.lanes, "counts, high water and durations stay");
    assert_eq!(s.counts().await.submitted(), 3);
}

async fn a_pruned_id_is_free(s: &Scene) {
    let new = s.draft();
    let id = s.enqueue(new.clone()).await;
    s.cancel(id).await;
    s.store.prune(Prune::Tasks(vec![id])).await.expect("prune answers");
    assert_eq!(s.store.enqueue(vec![new]).await, Ok(vec![Enqueued::Created(id)]));
}

async fn a_replayed_task_is_not_pruned(s: &Scene) {
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    s.pass(HOUR + TICK);
    s.replay(id).await;
    assert_eq!(prune(s, KEEP).await.tasks, 0);
    assert_eq!(s.state(id).await, StateName::Queued);
}

async fn a_limit_key_is_forgotten_with_its_last_task(s: &Scene) {
    // A flood of one key has ranks far behind those of the other key.
    let flood: Vec<NewTask> =
        (0..20).map(|_| NewTask { limit_key: Some("flood".to_owned()), ..s.draft() }).collect();
    let ids: Vec<TaskId> = flood.iter().map(|task| task.id).collect();
    s.store.enqueue(flood).await.expect("enqueue answers");
    s.store.cancel(ids.clone()).await.expect("cancel answers");
    s.store.prune(Prune::Tasks(ids[1..].to_vec())).await.expect("prune answers");
    let behind = s.add_keyed("flood").await;
    let ahead = s.add_keyed("other").await;
    assert!(s.task(behind).await.rank > s.task(ahead).await.rank, "one task of the key is kept");
    s.store.cancel(vec![behind]).await.expect("cancel answers");
    s.store.prune(Prune::Tasks(vec![ids[0], behind])).await.expect("prune answers");
    let anew = s.add_keyed("flood").await;
    let next = s.add_keyed("other").await;
    assert!(s.task(anew).await.rank < s.task(next).await.rank, "it begins like anybody new");
}
