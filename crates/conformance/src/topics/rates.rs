//! Rate limits: how much of a queue, or of each limit key, starts in a window, across all nodes.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Bucket, Outcome, Rate, Readiness, Seed, StateName, Taken, TaskId, Timestamp};

use super::super::scene::{Scene, heard, invalid};
use super::holds::{HELD, look};
use super::runner::cases;
use ostler_store::Store;
use ostler_store::calls::{ClaimAnswer, NewTask, Prune, QueueChange, Report, Retention};
use ostler_store::gates::{MAX_AMOUNT, MAX_COST, MAX_WINDOW, MAX_WINDOWS};

cases![
    a_claim_takes_as_many_as_there_are_tokens,
    a_queue_without_tokens_is_not_looked_at,
    several_windows_all_hold,
    a_rate_of_a_queue_is_for_all_its_keys_and_kinds,
    each_key_has_a_rate_of_its_own,
    a_key_without_tokens_does_not_hold_up_the_others,
    tasks_without_a_key_have_no_rate_of_a_key,
    a_task_takes_what_it_costs,
    what_costs_more_than_there_ever_is_goes_when_all_of_it_is_there,
    a_costly_task_is_not_overtaken_in_its_queue,
    a_costly_task_of_a_key_gets_its_turn,
    a_hand_back_that_never_began_gives_its_tokens_back,
    a_rate_can_be_changed_and_lifted,
    a_raised_rate_frees_what_waits_at_once,
    a_larger_burst_frees_what_waits_at_once,
    a_lowered_rate_holds_at_once_and_for_a_window_at_most,
    a_rate_that_goes_up_and_down_gives_nothing_more,
    a_claim_of_nothing_forgets_nothing_that_was_used,
    a_window_that_stays_keeps_what_was_used,
    a_rate_that_was_lifted_begins_anew,
    a_lifted_rate_rings,
    a_key_that_was_pruned_has_not_more_tokens,
    a_cap_and_a_rate_hold_together,
    two_stores_never_take_more_than_the_rate_gives,
    two_stores_at_a_hundred_a_second_come_within_two_percent,
    rates_and_costs_that_cannot_work_are_refused,
];

const SECOND: Duration = Duration::from_secs(1);
/// The rates of a queue, and those of each of its keys.
const SCOPES: [fn(Vec<Rate>) -> QueueChange; 2] = [QueueChange::Rate, QueueChange::KeyRate];

/// This many in ten seconds, spread evenly.
fn in_ten_seconds(amount: u64) -> Vec<Rate> {
    vec![Rate::even(amount, 10 * SECOND)]
}

fn rate(amount: u64) -> Vec<Rate> {
    vec![Rate { amount, per: SECOND, burst: amount }]
}

async fn add(s: &Scene, key: Option<&str>, count: usize) -> Vec<TaskId> {
    let tasks: Vec<NewTask> =
        (0..count).map(|_| NewTask { limit_key: key.map(String::from), ..s.draft() }).collect();
    let ids = tasks.iter().map(|task| task.id).collect();
    s.store.enqueue(tasks).await.expect("enqueue answers");
    ids
}

async fn a_claim_takes_as_many_as_there_are_tokens(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::Rate(rate(5))).await;
    let ids = add(s, None, 8).await;
    assert_eq!(look(s, node, 3).await, (ids[..3].to_vec(), None));
    assert_eq!(look(s, node, 10).await, (ids[3..5].to_vec(), Some(s.in_ms(200))));
    s.pass(Duration::from_millis(400));
    assert_eq!(look(s, node, 10).await, (ids[5..7].to_vec(), Some(s.in_ms(200))));
}

async fn a_queue_without_tokens_is_not_looked_at(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::Rate(rate(1))).await;
    let late = s.in_ms(5);
    let ids = add(s, None, 1).await;
    assert_eq!(s.claim_ids(node, 10).await, ids);
    let id = s.add_with(|task| task.not_after = Some(late)).await;
    s.pass(Duration::from_millis(6));
    assert_eq!(look(s, node, 10).await, (vec![], Some(s.in_ms(994))));
    assert_eq!(s.state(id).await, StateName::Queued, "a claim that looks would have ended it");
}

async fn several_windows_all_hold(s: &Scene) {
    let node = s.join().await;
    let slow = Rate { amount: 6, per: 60 * SECOND, burst: 6 };
    s.configure(QueueChange::Rate(vec![rate(4)[0], slow])).await;
    add(s, None, 20).await;
    assert_eq!(s.claim(node, 10).await.len(), 4);
    s.pass(SECOND);
    let (taken, next) = look(s, node, 10).await;
    assert_eq!((taken.len(), next), (2, Some(s.in_ms(9_000))));
}

async fn a_rate_of_a_queue_is_for_all_its_keys_and_kinds(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::Rate(rate(2))).await;
    s.add_keyed("a").await;
    s.add_keyed("b").await;
    s.add_with(|task| task.kind = "other".to_owned()).await;
    assert_eq!(s.claim(node, 10).await.len(), 2);
    assert!(s.claim(node, 10).await.is_empty());
}

async fn each_key_has_a_rate_of_its_own(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyRate(rate(2))).await;
    let (a, b) = (add(s, Some("a"), 3).await, add(s, Some("b"), 3).await);
    let (mut taken, next) = look(s, node, 10).await;
    let mut expected = [&a[..2], &b[..2]].concat();
    taken.sort_unstable();
    expected.sort_unstable();
    assert_eq!((taken, next), (expected, Some(s.in_ms(500))));
    assert_eq!((s.waits(a[2]).await, s.waits(b[2]).await), (HELD, HELD));
    s.pass(Duration::from_millis(500));
    let mut taken = s.claim_ids(node, 10).await;
    let mut expected = vec![a[2], b[2]];
    taken.sort_unstable();
    expected.sort_unstable();
    assert_eq!(taken, expected);
}

async fn a_key_without_tokens_does_not_hold_up_the_others(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyRate(rate(1))).await;
    let flood = add(s, Some("flood"), 150).await;
    let other = s.add_keyed("other").await;
    let taken = s.claim_ids(node, 2).await;
    assert!(taken.contains(&flood[0]) && taken.contains(&other), "{taken:?}");
    s.pass(SECOND);
    assert_eq!(s.claim_ids(node, 2).await, flood[1..2], "one by one, in order");
}

async fn tasks_without_a_key_have_no_rate_of_a_key(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyRate(rate(1))).await;
    let ids = add(s, None, 5).await;
    assert_eq!(look(s, node, 10).await, (ids, None));
}

async fn a_task_takes_what_it_costs(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::Rate(rate(10))).await;
    let costly = s.add_with(|task| task.cost = Some(8)).await;
    let ids = add(s, None, 3).await;
    assert_eq!(look(s, node, 10).await, (vec![costly, ids[0], ids[1]], Some(s.in_ms(100))));
    assert_eq!(s.task(costly).await.cost, 8);
}

async fn what_costs_more_than_there_ever_is_goes_when_all_of_it_is_there(s: &Scene) {
    let node = s.join().await;
    for (change, key) in
        [(QueueChange::Rate(rate(10)), None), (QueueChange::KeyRate(rate(10)), Some("k".to_owned()))]
    {
        s.configure(QueueChange::Rate(Vec::new())).await;
        s.configure(change).await;
        let first = s.add_with(|task| task.limit_key.clone_from(&key)).await;
        let huge = s.add_with(|task| (task.limit_key, task.cost) = (key.clone(), Some(35))).await;
        let last = s.add_with(|task| task.limit_key.clone_from(&key)).await;
        assert_eq!(look(s, node, 10).await, (vec![first], Some(s.in_ms(100))));
        s.pass(Duration::from_millis(100));
        assert_eq!(look(s, node, 10).await, (vec![huge], Some(s.in_ms(2_600))), "and leaves a debt");
        s.pass(Duration::from_millis(2_600));
        assert_eq!(s.claim_ids(node, 10).await, [last]);
    }
}

async fn a_costly_task_is_not_overtaken_in_its_queue(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::Rate(rate(10))).await;
    let ids = add(s, None, 5).await;
    let costly = s.add_with(|task| task.cost = Some(9)).await;
    let after = add(s, None, 5).await;
    assert_eq!(look(s, node, 20).await, (ids, Some(s.in_ms(400))));
    assert_eq!(
        look(s, node, 20).await,
        (vec![], Some(s.in_ms(400))),
        "there would be tokens for cheaper ones"
    );
    s.pass(Duration::from_millis(400));
    assert_eq!(look(s, node, 20).await, (vec![costly], Some(s.in_ms(100))));
    assert_eq!(s.waits(after[0]).await.0, Readiness::Ready);
}

async fn a_costly_task_of_a_key_gets_its_turn(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyRate(rate(10))).await;
    let first = add(s, Some("k"), 10).await;
    assert_eq!(s.claim_ids(node, 10).await, first);
    let costly = s.add_with(|task| (task.limit_key, task.cost) = (Some("k".to_owned()), Some(10))).await;
    let mut waited = 0;
    // Cheaper tasks keep arriving; they wait behind it.
    while s.state(costly).await == StateName::Queued {
        add(s, Some("k"), 2).await;
        s.claim(node, 10).await;
        s.pass(Duration::from_millis(100));
        waited += 1;
        assert!(waited <= 12, "a second fills the bucket");
    }
}

async fn a_hand_back_that_never_began_gives_its_tokens_back(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::Rate(rate(2))).await;
    s.configure(QueueChange::KeyRate(rate(2))).await;
    let ids = add(s, Some("k"), 3).await;
    let leases: Vec<_> = s.claim(node, 10).await.into_iter().map(|claimed| claimed.lease).collect();
    assert_eq!(leases.len(), 2);
    s.store.finish(Report::hand_backs(leases)).await.expect("finish answers");
    let mut leases: Vec<_> = s.claim(node, 10).await.into_iter().map(|claimed| claimed.lease).collect();
    assert_eq!(leases.iter().map(ostler_store::Lease::task).collect::<Vec<_>>(), ids[..2]);
    let begun = leases.remove(0);
    s.start(&begun).await;
    s.finish(begun, Outcome::HandedBack).await;
    assert!(s.claim(node, 10).await.is_empty(), "what has begun has used its token");
}

async fn a_rate_can_be_changed_and_lifted(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyRate(rate(2))).await;
    let ids = add(s, Some("k"), 20).await;
    assert_eq!(s.claim_ids(node, 20).await, ids[..2]);
    s.configure(QueueChange::KeyRate(rate(10))).await;
    assert_eq!(s.claim_ids(node, 20).await, ids[2..10], "two of the ten are used");
    s.configure(QueueChange::KeyRate(Vec::new())).await;
    assert_eq!(look(s, node, 20).await, (ids[10..].to_vec(), None));
    let ids = add(s, Some("k"), 2).await;
    s.configure(QueueChange::Rate(rate(1))).await;
    assert_eq!(s.claim_ids(node, 20).await, ids[..1]);
    s.configure(QueueChange::Rate(Vec::new())).await;
    assert_eq!(s.claim_ids(node, 20).await, ids[1..]);
}

async fn a_raised_rate_frees_what_waits_at_once(s: &Scene) {
    let node = s.join().await;
    let mut bell = s.store.wakeups();
    for set in SCOPES {
        s.configure(set(in_ten_seconds(1))).await;
        let ids = add(s, Some("k"), 3).await;
        assert_eq!(look(s, node, 10).await, (ids[..1].to_vec(), Some(s.in_ms(10_000))));
        s.pass(SECOND);
        bell.arm();
        s.configure(set(in_ten_seconds(2))).await;
        heard("a rate that is raised", &mut bell).await;
        assert_eq!(look(s, node, 10).await, (ids[1..2].to_vec(), Some(s.in_ms(5_000))));
        s.configure(set(Vec::new())).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[2..]);
    }
}

async fn a_larger_burst_frees_what_waits_at_once(s: &Scene) {
    let node = s.join().await;
    for set in SCOPES {
        s.configure(set(in_ten_seconds(5))).await;
        let ids = add(s, Some("k"), 4).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[..1]);
        s.configure(set(vec![Rate { burst: 3, ..in_ten_seconds(5)[0] }])).await;
        assert_eq!(look(s, node, 10).await, (ids[1..3].to_vec(), Some(s.in_ms(2_000))));
        s.configure(set(Vec::new())).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[3..]);
    }
}

async fn a_lowered_rate_holds_at_once_and_for_a_window_at_most(s: &Scene) {
    let node = s.join().await;
    for set in SCOPES {
        for (used, lower, wait_ms) in [(3, 20, 1_000), (10, 2, 10_000)] {
            s.configure(set(in_ten_seconds(100))).await;
            let ids = add(s, Some("k"), 12).await;
            assert_eq!(s.claim_ids(node, used).await, ids[..used]);
            s.configure(set(in_ten_seconds(lower))).await;
            assert_eq!(look(s, node, 10).await, (vec![], Some(s.in_ms(wait_ms))), "{lower}");
            s.pass(Duration::from_millis(wait_ms));
            assert_eq!(s.claim_ids(node, 10).await, ids[used..=used], "{lower}");
            s.configure(set(Vec::new())).await;
            assert_eq!(s.claim_ids(node, 20).await, ids[used + 1..]);
        }
    }
}

async fn a_rate_that_goes_up_and_down_gives_nothing_more(s: &Scene) {
    let node = s.join().await;
    for set in SCOPES {
        s.configure(set(in_ten_seconds(1))).await;
        let ids = add(s, Some("k"), 3).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[..1]);
        s.configure(set(in_ten_seconds(2))).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[1..2]);
        for (amount, wait_ms) in [(1, 10_000), (2, 5_000), (1, 10_000), (2, 5_000)] {
            s.configure(set(in_ten_seconds(amount))).await;
            assert_eq!(look(s, node, 10).await, (vec![], Some(s.in_ms(wait_ms))), "{amount}");
        }
        s.configure(set(Vec::new())).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[2..]);
    }
}

async fn a_claim_of_nothing_forgets_nothing_that_was_used(s: &Scene) {
    let node = s.join().await;
    for set in SCOPES {
        s.configure(set(in_ten_seconds(1))).await;
        let first = add(s, Some("k"), 1).await;
        assert_eq!(s.claim_ids(node, 10).await, first);
        s.configure(set(in_ten_seconds(10))).await;
        assert_eq!(s.claim_ids(node, 10).await, []);
        s.configure(set(in_ten_seconds(1))).await;
        let second = add(s, Some("k"), 1).await;
        assert_eq!(look(s, node, 10).await, (vec![], Some(s.in_ms(10_000))));
        s.configure(set(Vec::new())).await;
        assert_eq!(s.claim_ids(node, 10).await, second);
    }
}

async fn a_window_that_stays_keeps_what_was_used(s: &Scene) {
    let node = s.join().await;
    let long = Rate { burst: 20, ..in_ten_seconds(20)[0] };
    for set in SCOPES {
        s.configure(set(vec![rate(10)[0], long])).await;
        let ids = add(s, Some("k"), 30).await;
        assert_eq!(s.claim_ids(node, 30).await, ids[..10]);
        s.configure(set(vec![long])).await;
        assert_eq!(look(s, node, 30).await, (ids[10..20].to_vec(), Some(s.in_ms(500))));
        s.configure(set(Vec::new())).await;
        assert_eq!(s.claim_ids(node, 30).await, ids[20..]);
    }
}

async fn a_rate_that_was_lifted_begins_anew(s: &Scene) {
    let node = s.join().await;
    for set in SCOPES {
        s.configure(set(in_ten_seconds(1))).await;
        let ids = add(s, Some("k"), 3).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[..1]);
        s.configure(set(Vec::new())).await;
        s.configure(set(in_ten_seconds(1))).await;
        assert_eq!(look(s, node, 10).await, (ids[1..2].to_vec(), Some(s.in_ms(10_000))));
        s.configure(set(Vec::new())).await;
        assert_eq!(s.claim_ids(node, 10).await, ids[2..]);
    }
}

async fn a_lifted_rate_rings(s: &Scene) {
    let node = s.join().await;
    let mut bell = s.store.wakeups();
    for (some, none) in [
        (QueueChange::Rate(rate(1)), QueueChange::Rate(Vec::new())),
        (QueueChange::KeyRate(rate(1)), QueueChange::KeyRate(Vec::new())),
    ] {
        s.configure(some).await;
        add(s, Some("k"), 3).await;
        s.claim(node, 10).await;
        bell.arm();
        s.configure(none).await;
        heard("a rate that is lifted", &mut bell).await;
        assert_eq!(s.claim(node, 10).await.len(), 2);
    }
}

async fn a_key_that_was_pruned_has_not_more_tokens(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyRate(rate(1))).await;
    let all = Retention { completed: Duration::ZERO, failed: Duration::ZERO, most: 0, batch: 100 };
    let mut begun = 0;
    for _ in 0..10 {
        let id = s.add_keyed("k").await;
        for claimed in s.claim(node, 10).await {
            begun += 1;
            s.finish(claimed.lease, Outcome::Success).await;
        }
        s.cancel(id).await;
        s.store.prune(Prune::Tasks(vec![id])).await.expect("prune answers");
        s.store.prune(Prune::Retention(all)).await.expect("prune answers");
    }
    assert_eq!(begun, 1);
    s.pass(SECOND);
    s.store.prune(Prune::Retention(all)).await.expect("prune answers");
    s.add_keyed("k").await;
    assert_eq!(s.claim(node, 10).await.len(), 1);
}

async fn a_cap_and_a_rate_hold_together(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyRate(rate(3))).await;
    s.configure(QueueChange::KeyConcurrency(Some(2))).await;
    let ids = add(s, Some("k"), 6).await;
    let mut leases: Vec<_> = s.claim(node, 10).await.into_iter().map(|claimed| claimed.lease).collect();
    assert_eq!(leases.len(), 2, "the cap");
    s.finish(leases.remove(0), Outcome::Success).await;
    let third = s.claim_ids(node, 10).await;
    assert_eq!(third, ids[2..3]);
    s.finish(leases.remove(0), Outcome::Success).await;
    assert_eq!(look(s, node, 10).await.0, vec![], "the rate");
    s.pass(SECOND);
    assert_eq!(s.claim_ids(node, 10).await, ids[3..4]);
}

async fn two_stores_never_take_more_than_the_rate_gives(s: &Scene) {
    let node = s.join().await;
    let rates =
        vec![Rate { amount: 7, per: SECOND, burst: 3 }, Rate { amount: 40, per: 10 * SECOND, burst: 40 }];
    s.configure(QueueChange::Rate(rates.clone())).await;
    let stores: [Arc<dyn Store>; 2] = [Arc::clone(&s.store), s.fixture.second().await];
    let mut chance = Seed::new(11);
    let mut expected = Bucket::full(&rates, s.now());
    add(s, None, 1_000).await;
    for turn in 0..200 {
        let asked = s.asks(node, 1 + usize::try_from(chance.below(4)).unwrap_or(0));
        let limit = asked.limit;
        let answer = stores[usize::try_from(chance.below(2)).unwrap_or(0)].claim(asked).await;
        let Ok(ClaimAnswer::Tasks { tasks, .. }) = answer else { panic!("{answer:?}") };
        let mut allowed = 0;
        while allowed < limit && expected.take(1, s.now()) == Taken::Granted {
            allowed += 1;
        }
        assert_eq!(tasks.len(), allowed, "claim {turn}");
        s.pass(Duration::from_millis(chance.below(120)));
        s.store.renew(node, &[]).await.expect("renew answers");
    }
}

async fn two_stores_at_a_hundred_a_second_come_within_two_percent(s: &Scene) {
    const SECONDS: u32 = 30;
    let node = s.join().await;
    s.configure(QueueChange::Rate(vec![Rate::even(100, SECOND)])).await;
    let stores: [Arc<dyn Store>; 2] = [Arc::clone(&s.store), s.fixture.second().await];
    add(s, None, 4_000).await;
    let (began, mut taken, mut chance) = (s.now(), 0, Seed::new(5));
    while s.now() < began.after(SECOND * SECONDS) {
        // Each claim comes at the returned time or a little later.
        let answer = stores[usize::from(chance.chance(50))].claim(s.asks(node, 10)).await;
        let Ok(ClaimAnswer::Tasks { tasks, next }) = answer else { panic!("{answer:?}") };
        taken += tasks.len();
        let due = next.map_or(Duration::ZERO, |next| next.since(s.now()));
        s.pass(due + Duration::from_millis(chance.below(40)));
        s.store.renew(node, &[]).await.expect("renew answers");
    }
    let wanted = 100 * SECONDS as usize;
    assert!(taken.abs_diff(wanted) * 50 <= wanted, "{taken} in {SECONDS} s");
}

async fn rates_and_costs_that_cannot_work_are_refused(s: &Scene) {
    let before = s.picture().await;
    let good = rate(1)[0];
    let wrong = [
        ("no amount", vec![Rate { amount: 0, ..good }]),
        ("too large an amount", vec![Rate { amount: MAX_AMOUNT + 1, ..good }]),
        ("no burst", vec![Rate { burst: 0, ..good }]),
        ("too large a burst", vec![Rate { burst: MAX_AMOUNT + 1, ..good }]),
        ("no time", vec![good, Rate { per: Duration::ZERO, ..good }]),
        ("half a millisecond", vec![Rate { per: Duration::from_micros(1_500), ..good }]),
        ("too long a time", vec![Rate { per: MAX_WINDOW + SECOND, ..good }]),
        ("too many windows", vec![good; MAX_WINDOWS + 1]),
    ];
    for (what, rates) in wrong {
        invalid(what, s.store.configure("mail", vec![QueueChange::Rate(rates.clone())]).await);
        invalid(what, s.store.configure("mail", vec![QueueChange::KeyRate(rates)]).await);
    }
    for cost in [0, MAX_COST + 1] {
        invalid("a cost", s.store.enqueue(vec![NewTask { cost: Some(cost), ..s.draft() }]).await);
    }
    assert_eq!(s.picture().await, before, "what was refused changed nothing");
    // The largest accepted values are stored exactly.
    let extreme = Rate { amount: MAX_AMOUNT, per: MAX_WINDOW, burst: MAX_AMOUNT };
    s.configure(QueueChange::Rate(vec![extreme; MAX_WINDOWS])).await;
    let node = s.join().await;
    let id = s.add_with(|task| task.cost = Some(MAX_COST)).await;
    assert_eq!(look(s, node, 10).await, (vec![id], None::<Timestamp>));
    let second = s.fixture.second().await;
    let kept = second.queue_settings("mail").await.expect("configure answers");
    assert_eq!(kept.rate, vec![extreme; MAX_WINDOWS]);
}
