//! Row ids inside the file are reused after a removal; their former meaning is not.

use std::time::Duration;

use ostler_core::{Outcome, SessionId};
use ostler_store::calls::{Claim, ClaimAnswer, Fenced, Finished, Kinds, Prune, Ran, Report, Retention};
use ostler_store::views::TaskRef;
use ostler_store::{Lease, Store};
use ostler_testkit::{Ids, TempStore};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn join(store: &dyn Store, ids: &Ids, ttl: Duration) -> SessionId {
    let node = ids.new_session("node", ttl);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    session
}

async fn lease(store: &dyn Store, ids: &Ids, session: SessionId) -> Lease {
    store.enqueue(ids.new_tasks(1, "mail", "send")).await.expect("enqueue answers");
    let asks = Claim { session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 1 };
    match store.claim(asks).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks: mut claimed, .. } => claimed.remove(0).lease,
        ClaimAnswer::SessionEnded => panic!("the session is over, and should not be"),
    }
}

fn ran(ids: &Ids, lease: Lease) -> Report {
    let ran = Some(Ran { worker: ids.worker(), took: Duration::from_millis(1) });
    Report { lease, ran, outcome: Outcome::Success, output: None, reading: None }
}

#[tokio::test]
async fn an_attempt_is_not_put_down_to_a_session_that_was_removed() {
    let (here, clock) = TempStore::manual();
    let (store, ids) = (here.store(), Ids::new(1));
    let old = join(&*store, &ids, DAY).await;
    let report = ran(&ids, lease(&*store, &ids, old).await);
    store.finish(vec![report]).await.expect("finish answers");
    assert_eq!(store.leave(old).await, Ok(Fenced::Recorded));
    store.expire(100).await.expect("expire answers");
    clock.advance(30 * DAY);
    store.prune(Prune::Retention(Retention::default())).await.expect("prune answers");

    let new = join(&*store, &ids, DAY).await;
    let report = ran(&ids, lease(&*store, &ids, new).await);
    let task = report.lease.task();
    store.finish(vec![report]).await.expect("finish answers");
    let shown = store.show(TaskRef::Id(task)).await.expect("show answers").expect("it is there");
    assert_eq!(shown.attempts[0].session, new);
}

#[tokio::test]
async fn a_lease_on_a_task_that_was_removed_does_not_reach_the_task_in_its_place() {
    let (here, _clock) = TempStore::manual();
    let (store, ids) = (here.store(), Ids::new(1));
    let session = join(&*store, &ids, DAY).await;
    let first = lease(&*store, &ids, session).await;
    let name = first.as_ref();
    store.finish(vec![ran(&ids, first)]).await.expect("finish answers");
    store.prune(Prune::Tasks(vec![name.task])).await.expect("prune answers");
    let second = lease(&*store, &ids, session).await;
    assert_eq!(
        (second.as_ref().row, second.as_ref().token),
        (name.row, name.token),
        "the place and token are the same"
    );
    let late = store.finish(vec![ran(&ids, Lease::granted(name))]).await.expect("finish answers");
    assert_eq!(late, [Finished::LeaseLost]);
}
