//! Lists: newest first, page by page, with filters.

use std::time::Duration;

use ostler_core::{ErrorClass, Failure, JobId, Outcome, StateName, TaskId};

use super::super::picture::list_all;
use super::super::scene::{Scene, TICK, TTL, failure};
use super::dependencies::add_after;
use super::runner::cases;
use ostler_store::calls::{Prune, QueueChange};
use ostler_store::jobs::queue_of;
use ostler_store::unique::Unique;
use ostler_store::views::{Cursor, Field, Filter, ItemFilter, LeaseFilter, ListOrder, Page};
use ostler_store::{Error, ErrorKind};

cases![
    the_newest_comes_first,
    a_list_has_what_show_has,
    pages_follow_each_other,
    a_page_of_nothing_has_nothing,
    a_cursor_stays_right_while_tasks_come_and_go,
    a_list_by_state,
    a_list_by_queue_and_kind,
    a_list_by_text,
    a_list_by_a_field_of_the_payload,
    a_list_by_the_class_of_the_last_failure,
    a_list_by_the_moment_of_the_last_failure,
    a_list_by_the_time_of_the_end,
    ended_tasks_are_listed_by_the_time_of_their_end,
    the_oldest_come_first_on_request,
    queued_tasks_are_listed_whatever_they_wait_for,
    dead_letters_of_a_queue_and_a_kind_come_from_all_their_lanes,
    a_queue_or_kind_without_tasks_ends_the_list,
    a_cursor_of_another_list_is_refused,
    a_list_of_stale_leases,
    items_of_jobs_are_left_out_on_request,
    everything_that_is_given_must_hold,
];

async fn ids(s: &Scene, filter: &Filter) -> Vec<TaskId> {
    let all = list_all(s.store.as_ref(), filter, 100).await;
    assert_eq!(list_all(s.store.as_ref(), filter, 1).await, all, "the same, one by one");
    all
}

async fn add(s: &Scene, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(s.add().await);
    }
    ids
}

fn newest_first(ids: &[TaskId]) -> Vec<TaskId> {
    ids.iter().rev().copied().collect()
}

async fn the_newest_comes_first(s: &Scene) {
    let mut all = add(s, 3).await;
    all.push(s.add_with(|task| task.run_at = Some(s.in_ms(9_000))).await);
    all.push(s.add_with(|task| task.queue = "parcels".to_owned()).await);
    assert_eq!(ids(s, &Filter::default()).await, newest_first(&all));
}

async fn a_list_has_what_show_has(s: &Scene) {
    let node = s.join().await;
    let id = s.running(node).await.task();
    let page = s.store.list(Filter::default(), None, 10).await.expect("list answers");
    assert_eq!(page.tasks, [s.task(id).await]);
    assert_eq!(page.next, None, "that was all");
}

async fn pages_follow_each_other(s: &Scene) {
    let all = newest_first(&add(s, 7).await);
    let mut seen = Vec::new();
    let mut after: Option<Cursor> = None;
    for _ in 0..3 {
        let page = s.store.list(Filter::default(), after, 3).await.expect("list answers");
        assert!(page.tasks.len() <= 3);
        seen.extend(page.tasks.iter().map(|task| task.id));
        after = page.next;
    }
    assert_eq!((seen, after), (all, None));
}

async fn a_page_of_nothing_has_nothing(s: &Scene) {
    s.add().await;
    let page = s.store.list(Filter::default(), None, 0).await.expect("list answers");
    assert!(page.tasks.is_empty());
}

async fn a_cursor_stays_right_while_tasks_come_and_go(s: &Scene) {
    let all = add(s, 6).await;
    let page = s.store.list(Filter::default(), None, 2).await.expect("list answers");
    assert_eq!(page.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [all[5], all[4]]);
    // The last task seen and one not yet seen are removed; a new one is added.
    for id in [all[4], all[2]] {
        s.cancel(id).await;
        s.store.prune(Prune::Tasks(vec![id])).await.expect("prune answers");
    }
    s.add().await;
    let page = s.store.list(Filter::default(), page.next, 10).await.expect("list answers");
    assert_eq!(page.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [all[3], all[1], all[0]]);
}

async fn a_list_by_state(s: &Scene) {
    let node = s.join().await;
    let completed = s.completed(node).await;
    let failed = s.dead_letter(node).await;
    let running = s.running(node).await.task();
    let claimed = s.leased(node).await.task();
    let cancelled = s.add().await;
    s.cancel(cancelled).await;
    let queued = s.add().await;
    for (state, id) in [
        (StateName::Queued, queued),
        (StateName::Claimed, claimed),
        (StateName::Running, running),
        (StateName::Completed, completed),
        (StateName::Failed, failed),
        (StateName::Cancelled, cancelled),
    ] {
        assert_eq!(ids(s, &Filter { state: Some(state), ..Filter::default() }).await, [id], "{state:?}");
    }
}

async fn a_list_by_queue_and_kind(s: &Scene) {
    let mut all = Vec::new();
    for (queue, kind) in [("a", "x"), ("a", "y"), ("b", "x")] {
        all.push(s.add_with(|task| (task.queue, task.kind) = (queue.to_owned(), kind.to_owned())).await);
    }
    let by = |queue: Option<&str>, kind: Option<&str>| Filter {
        queue: queue.map(str::to_owned),
        kind: kind.map(str::to_owned),
        ..Filter::default()
    };
    assert_eq!(ids(s, &by(Some("a"), None)).await, [all[1], all[0]]);
    assert_eq!(ids(s, &by(None, Some("x"))).await, [all[2], all[0]]);
    assert_eq!(ids(s, &by(Some("b"), Some("x"))).await, [all[2]]);
    assert_eq!(ids(s, &by(Some("b"), Some("y"))).await, []);
    assert_eq!(ids(s, &by(Some("A"), None)).await, []);
}

async fn a_list_by_text(s: &Scene) {
    let node = s.join().await;
    let failed = s.add().await;
    let lease = s.run(node).await;
    let said = Failure::new(ErrorClass::Permanent, "The \u{c4}pfel are 100% gone");
    s.finish(lease, Outcome::Failed(said)).await;
    let payload = s.add_with(|task| task.payload = "{\"fruit\":\"\u{e4}PFEL_1\"}".to_owned()).await;
    let key = s.add_with(|task| task.unique = Some(Unique::new("Order-\u{c4}pfel"))).await;
    let by = |text: &str| Filter { text: Some(text.to_owned()), ..Filter::default() };
    assert_eq!(ids(s, &by("\u{e4}pfel")).await, [key, payload, failed], "in any case of letters");
    assert_eq!(ids(s, &by("ORDER-")).await, [key]);
    assert_eq!(ids(s, &by("0% G")).await, [failed], "signs are signs and no patterns");
    assert_eq!(ids(s, &by("%")).await, [failed]);
    assert_eq!(ids(s, &by("_")).await, [payload]);
    assert_eq!(ids(s, &by("pears")).await, []);
}

async fn a_list_by_a_field_of_the_payload(s: &Scene) {
    let mut all = Vec::new();
    for payload in [
        "{\"tenant\":\"acme\",\"size\":3,\"deep\":{\"list\":[{\"x\":true}]}}",
        "{\"tenant\":\"Acme\",\"size\":\"3\"}",
        "not JSON at all",
        "[{\"tenant\":\"acme\"}]",
    ] {
        all.push(s.add_with(|task| task.payload = payload.to_owned()).await);
    }
    for (text, expected) in [
        ("payload.tenant=acme", vec![all[0]]),
        ("payload.size=3", vec![all[0]]),
        ("payload.size=\"3\"", vec![all[1]]),
        ("payload.deep.list.0.x=true", vec![all[0]]),
        ("payload.0.tenant=acme", vec![all[3]]),
        ("payload.nothing=1", vec![]),
    ] {
        let field = Some(Field::parse(text).expect("a filter"));
        assert_eq!(ids(s, &Filter { field, ..Filter::default() }).await, expected, "{text}");
    }
}

async fn a_list_by_the_class_of_the_last_failure(s: &Scene) {
    let node = s.join().await;
    let by = |class| Filter { class: Some(class), ..Filter::default() };
    s.add().await;
    let lease = s.run(node).await;
    let twice = lease.task();
    s.finish(lease, failure(ErrorClass::Transient)).await;
    let dead = s.dead_letter(node).await;
    s.completed(node).await;
    assert_eq!(ids(s, &by(ErrorClass::Transient)).await, [twice]);
    assert_eq!(ids(s, &by(ErrorClass::Permanent)).await, [dead]);
    assert_eq!(ids(s, &by(ErrorClass::Timeout)).await, []);
    s.replay(twice).await;
    let lease = s.run(node).await;
    assert_eq!(ids(s, &by(ErrorClass::Transient)).await, [twice], "what it failed with before still counts");
    s.finish(lease, failure(ErrorClass::Permanent)).await;
    assert_eq!(ids(s, &by(ErrorClass::Transient)).await, [], "the last one counts");
    assert_eq!(ids(s, &by(ErrorClass::Permanent)).await, [dead, twice]);
    let dead_letters = Filter { state: Some(StateName::Failed), ..by(ErrorClass::Permanent) };
    assert_eq!(ids(s, &dead_letters).await, [dead, twice]);
}

async fn a_list_by_the_moment_of_the_last_failure(s: &Scene) {
    let node = s.join().await;
    s.completed(node).await;
    let mut dead = Vec::new();
    let first = s.now();
    for _ in 0..3 {
        dead.push(s.dead_letter(node).await);
        s.pass(TICK);
    }
    s.add().await;
    let between = |since: Option<u64>, until: Option<u64>| {
        let at = |ms: u64| first.after(Duration::from_millis(ms));
        Filter { failed_since: since.map(at), failed_until: until.map(at), ..Filter::default() }
    };
    for (since, until, expected) in [
        (Some(0), None, vec![dead[2], dead[1], dead[0]]),
        (Some(1), None, vec![dead[2], dead[1]]),
        (Some(3), None, vec![]),
        (None, Some(0), vec![]),
        (None, Some(1), vec![dead[0]]),
        (None, Some(9), vec![dead[2], dead[1], dead[0]]),
        (Some(1), Some(2), vec![dead[1]]),
        (Some(2), Some(2), vec![]),
    ] {
        assert_eq!(ids(s, &between(since, until)).await, expected, "{since:?} until {until:?}");
    }
}

async fn a_list_of_stale_leases(s: &Scene) {
    let [overdue, killed, alive] = [s.join().await, s.join().await, s.join().await];
    let old = s.running(overdue).await.task();
    s.pass(TTL);
    for node in [killed, alive] {
        s.store.renew(node, &[]).await.expect("renew answers");
    }
    let dead = s.leased(killed).await.task();
    s.running(alive).await;
    s.add().await;
    let stale = Filter { lease: LeaseFilter::Stale, ..Filter::default() };
    assert_eq!(ids(s, &stale).await, []);
    s.pass(TICK);
    assert_eq!(ids(s, &stale).await, [old]);
    s.fixture.kill(killed).await;
    assert_eq!(ids(s, &stale).await, [dead, old]);
    s.store.expire(0).await.expect("expire answers");
    assert_eq!(ids(s, &stale).await, [dead, old], "their sessions have ended, they are not taken yet");
    s.store.expire(10).await.expect("expire answers");
    assert_eq!(ids(s, &stale).await, []);
}

async fn items_of_jobs_are_left_out_on_request(s: &Scene) {
    let first = s.add().await;
    let item = s.add_with(|task| task.queue = queue_of(JobId(task.id.0))).await;
    let last = s.add().await;
    let hidden = Filter { items: ItemFilter::Hidden, ..Filter::default() };
    assert_eq!(ids(s, &hidden).await, [last, first]);
    assert_eq!(ids(s, &Filter::default()).await, [last, item, first]);
}

/// Three tasks that fail in another order than they came: the last first.
async fn three_that_end_backwards(s: &Scene) -> Vec<TaskId> {
    let node = s.join().await;
    let (mut all, mut leases) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        all.push(s.add().await);
        leases.push(s.run(node).await);
    }
    for lease in leases.into_iter().rev() {
        s.pass(TICK);
        s.finish(lease, failure(ErrorClass::Permanent)).await;
    }
    all
}

const FAILED: Filter = Filter { state: Some(StateName::Failed), ..Filter::ALL };

async fn a_list_by_the_time_of_the_end(s: &Scene) {
    let first = s.now().after(TICK);
    let all = three_that_end_backwards(s).await;
    s.add().await;
    for state in [None, Some(StateName::Failed)] {
        let between = |since: Option<u32>, until: Option<u32>| {
            let at = |ticks: u32| first.after(TICK * ticks);
            Filter { state, ended_since: since.map(at), ended_until: until.map(at), ..Filter::default() }
        };
        assert_eq!(ids(s, &between(Some(0), None)).await.len(), 3, "{state:?}");
        assert_eq!(ids(s, &between(Some(1), Some(2))).await, [all[1]], "{state:?}");
        assert_eq!(ids(s, &between(Some(2), None)).await, [all[0]], "{state:?}");
        assert_eq!(ids(s, &between(None, Some(1))).await, [all[2]], "{state:?}");
        assert_eq!(ids(s, &between(Some(3), None)).await, [], "{state:?}");
    }
}

async fn ended_tasks_are_listed_by_the_time_of_their_end(s: &Scene) {
    let all = three_that_end_backwards(s).await;
    assert_eq!(ids(s, &FAILED).await, all, "the last to end came first");
    assert_eq!(ids(s, &Filter::default()).await, newest_first(&all), "without a state, by their arrival");
}

async fn the_oldest_come_first_on_request(s: &Scene) {
    let dead = three_that_end_backwards(s).await;
    let oldest = |filter: Filter| Filter { order: ListOrder::OldestFirst, ..filter };
    assert_eq!(ids(s, &oldest(FAILED)).await, newest_first(&dead));
    let node = s.join().await;
    let running = [s.running(node).await.task(), s.running(node).await.task()];
    let queued = add(s, 3).await;
    let waiting = Filter { state: Some(StateName::Queued), ..Filter::default() };
    assert_eq!(ids(s, &oldest(waiting)).await, queued);
    assert_eq!(ids(s, &oldest(Filter::default())).await, [dead, running.to_vec(), queued].concat());
    let runs = Filter { state: Some(StateName::Running), ..Filter::default() };
    assert_eq!(ids(s, &oldest(runs.clone())).await, running);
    assert_eq!(ids(s, &runs).await, newest_first(&running));
}

async fn queued_tasks_are_listed_whatever_they_wait_for(s: &Scene) {
    let node = s.join().await;
    s.completed(node).await;
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let running = s.running(node).await.task();
    let mut queued = vec![
        s.add_with(|task| task.run_at = Some(s.in_ms(9_000))).await,
        s.add_keyed("a").await,
        s.add_keyed("a").await,
        add_after(s, &[running]).await,
    ];
    queued.push(add_after(s, &[queued[0], running]).await);
    queued.push(s.add_with(|task| task.queue = "parcels".to_owned()).await);
    let waiting = Filter { state: Some(StateName::Queued), ..Filter::default() };
    assert_eq!(ids(s, &waiting).await, newest_first(&queued));
    let oldest = Filter { order: ListOrder::OldestFirst, ..waiting.clone() };
    assert_eq!(ids(s, &oldest).await, queued);
    let parcels = Filter { queue: Some("parcels".to_owned()), ..waiting };
    assert_eq!(ids(s, &parcels).await, queued[5..]);
}

async fn a_queue_or_kind_without_tasks_ends_the_list(s: &Scene) {
    let node = s.join().await;
    s.completed(node).await;
    s.dead_letter(node).await;
    s.running(node).await;
    s.add().await;
    for state in StateName::ALL.into_iter().map(Some).chain([None]) {
        for (queue, kind) in [(Some("absent"), None), (None, Some("absent")), (Some("absent"), Some("send"))]
        {
            let (queue, kind) = (queue.map(str::to_owned), kind.map(str::to_owned));
            let page = s.store.list(Filter { state, queue, kind, ..Filter::ALL }, None, 10).await;
            assert_eq!(page, Ok(Page { tasks: Vec::new(), next: None }), "{state:?}");
        }
    }
}

async fn dead_letters_of_a_queue_and_a_kind_come_from_all_their_lanes(s: &Scene) {
    let mut all = Vec::new();
    for (queue, kind) in [("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")] {
        let id = s.add_with(|task| (task.queue, task.kind) = (queue.to_owned(), kind.to_owned())).await;
        s.pass(TICK);
        s.cancel(id).await;
        all.push(id);
    }
    let by = |queue: Option<&str>, kind: Option<&str>, order: ListOrder| Filter {
        state: Some(StateName::Cancelled),
        queue: queue.map(str::to_owned),
        kind: kind.map(str::to_owned),
        order,
        ..Filter::default()
    };
    let (newest, oldest) = (ListOrder::NewestFirst, ListOrder::OldestFirst);
    assert_eq!(ids(s, &by(Some("a"), None, newest)).await, [all[3], all[2], all[0]]);
    assert_eq!(ids(s, &by(Some("a"), None, oldest)).await, [all[0], all[2], all[3]]);
    assert_eq!(ids(s, &by(None, Some("x"), newest)).await, [all[3], all[1], all[0]]);
    assert_eq!(ids(s, &by(Some("b"), Some("x"), newest)).await, [all[1]]);
    assert_eq!(ids(s, &by(Some("c"), None, newest)).await, []);
    let failed = Filter { queue: Some("a".to_owned()), ..FAILED };
    assert_eq!(ids(s, &failed).await, [], "none of them has failed");
}

async fn a_cursor_of_another_list_is_refused(s: &Scene) {
    three_that_end_backwards(s).await;
    let kind = |answer: Result<_, Error>| answer.map(drop).map_err(|error| error.kind());
    let of = |page: Result<Page, Error>| page.expect("list answers").next;
    let by_end = of(s.store.list(FAILED, None, 1).await);
    let by_arrival = of(s.store.list(Filter::default(), None, 1).await);
    assert!(by_end.is_some() && by_arrival.is_some());
    assert_eq!(kind(s.store.list(Filter::default(), by_end, 1).await), Err(ErrorKind::Invalid));
    assert_eq!(kind(s.store.list(FAILED, by_arrival, 1).await), Err(ErrorKind::Invalid));
    for cursor in [by_end, by_arrival].into_iter().flatten() {
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
}

async fn everything_that_is_given_must_hold(s: &Scene) {
    let node = s.join().await;
    let payload =
        |text: &'static str| move |task: &mut ostler_store::calls::NewTask| task.payload = text.to_owned();
    let wanted = s.add_with(payload("{\"a\":1,\"b\":\"Berlin\"}")).await;
    s.run(node).await;
    s.add_with(payload("{\"a\":1,\"b\":\"Berlin\"}")).await;
    s.add_with(payload("{\"a\":2,\"b\":\"Berlin\"}")).await;
    let filter = Filter {
        state: Some(StateName::Running),
        queue: Some("mail".to_owned()),
        kind: Some("send".to_owned()),
        text: Some("berlin".to_owned()),
        field: Some(Field::parse("payload.a=1").expect("a filter")),
        class: None,
        failed_since: None,
        failed_until: None,
        ended_since: None,
        ended_until: None,
        lease: LeaseFilter::Any,
        items: ItemFilter::Listed,
        order: ListOrder::NewestFirst,
    };
    assert_eq!(ids(s, &filter).await, [wanted]);
    assert_eq!(ids(s, &Filter { lease: LeaseFilter::Stale, ..filter }).await, []);
}
