//! Walks along the cursor of a list while tasks end and others arrive: each task that was there at the beginning is met once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ostler_core::Outcome;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::world::{World, on_each_store};

on_each_store!(
    a_walk_along_all_tasks_meets_each_once_while_others_end_and_arrive,
    a_walk_along_completed_tasks_meets_each_once_while_others_end,
    a_walk_by_offset_is_noticed,
);

/// Tasks that are there at the beginning. All have ids of one millisecond.
const THERE: usize = 10_000;
const PAGE: usize = 100;
/// Tasks that end in one transaction, and that arrive in one.
const AT_ONCE: usize = 400;
/// Ends, and inserts, per second, at least.
const MIN_RATE: f64 = 500.0;

/// What is wrong with a walk: tasks that it has missed, and those that it has met twice.
fn slips(there: &BTreeSet<String>, met: &[String]) -> Vec<String> {
    let mut times: BTreeMap<&str, usize> = there.iter().map(|id| (id.as_str(), 0)).collect();
    for id in met {
        times.entry(id).and_modify(|times| *times += 1);
    }
    let wrong = times.into_iter().filter(|(_, times)| *times != 1);
    wrong.map(|(id, times)| format!("{id} was met {times} times")).collect()
}

fn ids(page: &Value) -> Vec<String> {
    let tasks = page["tasks"].as_array().expect("a list");
    tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()).collect()
}

/// Walks along a list while tasks end and others arrive all the time. Whom it met.
async fn walk(world: &Arc<World>, list: &str) -> Vec<String> {
    let (over, others) = (CancellationToken::new(), Arc::clone(world));
    let stop = over.clone();
    let busy = tokio::spawn(async move {
        let (session, began, mut ended) = (others.node().await, Instant::now(), 0_u32);
        while !stop.is_cancelled() {
            let claimed = others.claim(session, AT_ONCE).await;
            ended += u32::try_from(claimed.len()).expect("a few");
            others.finish(claimed, &Outcome::Success).await;
            others.enqueue(AT_ONCE).await;
        }
        (ended, f64::from(ended) / began.elapsed().as_secs_f64())
    });
    let (mut met, mut path) = (Vec::new(), format!("{list}&limit={PAGE}"));
    loop {
        let page = world.get(&path).await.is(200).json();
        met.extend(ids(&page));
        match page["cursor"].as_str() {
            Some(cursor) => path = format!("{list}&limit={PAGE}&cursor={cursor}"),
            None => break,
        }
    }
    over.cancel();
    let (ended, rate) = busy.await.expect("it ends");
    println!("{ended} tasks ended and as many arrived meanwhile, {rate:.0} a second");
    assert!(ended > 0 && rate >= MIN_RATE, "{ended} tasks ended, {rate:.0} a second");
    met
}

async fn a_walk_along_all_tasks_meets_each_once_while_others_end_and_arrive(world: World) {
    let world = Arc::new(world);
    let there = world.enqueue(THERE).await.iter().map(ToString::to_string).collect();
    let met = walk(&world, "/api/v1/tasks?oldest=false").await;
    assert_eq!(slips(&there, &met), Vec::<String>::new());
}

async fn a_walk_along_completed_tasks_meets_each_once_while_others_end(world: World) {
    let world = Arc::new(world);
    let there = world.enqueue(THERE).await.iter().map(ToString::to_string).collect();
    let session = world.node().await;
    loop {
        let claimed = world.claim(session, PAGE).await;
        if claimed.is_empty() {
            break;
        }
        world.finish(claimed, &Outcome::Success).await;
    }
    world.enqueue(PAGE).await;
    let met = walk(&world, "/api/v1/tasks?state=completed").await;
    assert_eq!(slips(&there, &met), Vec::<String>::new());
}

/// A page as an offset would cut it, while a task arrives before each.
async fn a_walk_by_offset_is_noticed(world: World) {
    let there: BTreeSet<String> = world.enqueue(50).await.iter().map(ToString::to_string).collect();
    let mut met = Vec::new();
    for offset in (0..50).step_by(10) {
        world.enqueue(1).await;
        let all = ids(&world.get("/api/v1/tasks?limit=1000").await.json());
        met.extend(all.into_iter().skip(offset).take(10));
    }
    let wrong = slips(&there, &met);
    assert!(wrong.iter().any(|slip| slip.ends_with("2 times")), "{wrong:?}");
    assert!(wrong.iter().any(|slip| slip.ends_with("0 times")), "{wrong:?}");
}
