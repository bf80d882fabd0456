//! Maintenance cases: expire, make ready, prune, and take in the inbox.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Readiness, State, StateName, TaskId};
use ostler_store::calls::{Enqueued, Prune, Pruned, Renewed, Retention};
use ostler_store::views::TaskRef;
use ostler_store::{Clock, Store};

use super::verbs::{Case, Stage, claimed, completed, detail, draft, same, stands, told};

const BITE: usize = 100;

pub(crate) async fn cases(stage: &Stage) -> Vec<Case> {
    let mut cases = Vec::new();
    let store = || Arc::clone(&stage.store);

    let (here, (dead, lost)) = (store(), claimed(stage, "expire").await);
    let id = lost.lease.task();
    stage.store.kill(dead).await.expect("its death is known");
    cases.push(Case::new(
        "expire",
        async move { same(&here.expire(BITE).await.map_err(told)?.sessions, &vec![dead]) },
        async move |stage| {
            stands(stage, id, StateName::Queued).await?;
            same(&stage.store.renew(dead, &[]).await, &Ok(Renewed::Ended))
        },
    ));

    let here = store();
    let mut later = draft(stage, "ready");
    let (id, tick) = (later.id, Duration::from_secs(1));
    later.run_at = Some(stage.clock.now().after(tick));
    assert_eq!(stage.store.enqueue(vec![later]).await, Ok(vec![Enqueued::Created(id)]));
    stage.clock.advance(tick);
    cases.push(Case::new(
        "make_ready",
        async move {
            let due = here.make_ready(BITE).await.map_err(told)?.due;
            if due == 0 { Err("nothing was due".to_owned()) } else { Ok(()) }
        },
        async move |stage| {
            let state = detail(stage, id).await?.task.state;
            if matches!(state, State::Queued { readiness: Readiness::Ready, .. }) {
                return Ok(());
            }
            Err(format!("it is {state:?}"))
        },
    ));

    let (here, id) = (store(), completed(stage, "prune").await);
    cases.push(Case::new(
        "prune",
        async move {
            let pruned = here.prune(Prune::Tasks(vec![id])).await.map_err(told)?;
            same(&pruned, &Pruned { tasks: 1, orphans: 0, more: false })
        },
        async move |stage| same(&stage.store.show(TaskRef::Id(id)).await.map_err(told)?, &None),
    ));

    let (here, id) = (store(), completed(stage, "old").await);
    let sql =
        "UPDATE ostler.task SET finished_at = 0 WHERE queue = (SELECT id FROM ostler.queue WHERE name = $1)";
    assert_eq!(stage.direct.execute(sql, &[&stage.name("old")]).await.expect("it is old"), 1);
    cases.push(Case::new(
        "prune by age",
        async move {
            let pruned = here.prune(Prune::Retention(Retention::default())).await.map_err(told)?;
            same(&pruned.tasks, &1)
        },
        async move |stage| same(&stage.store.show(TaskRef::Id(id)).await.map_err(told)?, &None),
    ));

    // The first call on a store takes in its inbox, so this case has its own store.
    let (here, id) = (Arc::clone(&stage.aside), TaskId(stage.id("inbox")));
    let sql = "SELECT aside.enqueue('inbox', 'send', '{}', id => $1)";
    stage.direct.query_one(sql, &[&id.0.to_string()]).await.expect("it came with a transaction");
    let show = async move |store: &dyn Store| {
        let shown = store.show(TaskRef::Id(id)).await.map_err(told)?;
        shown.map(drop).ok_or_else(|| "there is no such task".to_owned())
    };
    cases.push(Case::new("take in", async move { show(&*here).await }, async move |stage| {
        let row = stage.direct.query_one("SELECT count(*) FROM aside.inbox", &[]).await.map_err(told)?;
        same(&row.get::<_, i64>(0), &0)?;
        show(&*stage.aside).await
    }));
    cases
}
