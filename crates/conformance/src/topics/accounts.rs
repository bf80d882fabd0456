//! Accounts: limits that queues share. A usage limit holds all of them, and throttling narrows what they may lease.

use std::time::Duration;

use ostler_core::{
    Account, AccountChange, AccountReading, ErrorClass, Failure, Outcome, Readiness, SessionId, TaskId,
    Timestamp, Wait,
};

use super::super::scene::{QUEUE, Scene, TICK, heard, invalid, one, report};
use super::holds::{look, too_many};
use super::runner::cases;
use ostler_store::accounts::{AccountRecord, MAX_ACCOUNTS};
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, QueueChange, Report};
use ostler_store::{ErrorKind, Lease, Store};

cases![
    a_usage_limit_holds_every_queue_of_the_account_in_every_process,
    what_reached_the_limit_is_ready_and_has_used_no_attempt,
    a_queue_without_an_account_is_held_itself,
    a_key_without_an_account_is_held_itself,
    a_usage_limit_without_a_reset_is_held_for_a_bounded_time,
    a_hold_by_hand_lasts_until_it_is_released,
    the_cap_counts_the_leased_tasks_of_all_queues,
    what_a_provider_allows_limits_all_queues_at_once,
    throttling_halves_what_is_in_flight_and_does_not_hold_the_queue,
    one_burst_of_refusals_counts_once,
    successes_widen_the_window_until_it_is_forgotten,
    a_dead_node_gives_its_places_back,
    a_reading_is_kept_until_its_allowance_resets,
    accounts_are_shown_with_their_queues_and_forgotten_without_state,
    the_survey_and_the_backlog_know_of_the_account,
    a_queue_may_change_its_account,
    impossible_accounts_are_refused,
    accounts_above_the_bound_are_refused,
];

const ACCOUNT: &str = "claude";
const OTHER: &str = "parcels";

async fn share(s: &Scene, queue: &str) {
    let change = vec![QueueChange::Account(Some(ACCOUNT.to_owned()))];
    s.store.configure(queue, change).await.expect("the account is set");
}

async fn change(s: &Scene, change: AccountChange) -> Account {
    s.store.change_account(ACCOUNT, change).await.expect("the account is changed")
}

fn hold(until: Option<Timestamp>) -> AccountChange {
    AccountChange::Hold { until, why: "by hand".to_owned() }
}

fn used_up(ms: u64) -> Outcome {
    let failure = Failure::new(ErrorClass::UsageLimit, "limit reached");
    Outcome::Failed(Failure { retry_after: Some(Duration::from_millis(ms)), ..failure })
}

async fn add_to(s: &Scene, queue: &str) -> TaskId {
    s.add_with(|task| task.queue = queue.to_owned()).await
}

/// What a claim of this queue gets.
async fn claim_of(
    s: &Scene,
    store: &dyn Store,
    queue: &str,
    node: SessionId,
) -> (Vec<Lease>, Option<Timestamp>) {
    let asked = Claim { queue: queue.to_owned(), ..s.asks(node, 10) };
    match store.claim(asked).await.expect("a claim is answered") {
        ClaimAnswer::Tasks { tasks, next } => {
            (tasks.into_iter().map(|claimed| claimed.lease).collect(), next)
        }
        ClaimAnswer::SessionEnded => panic!("the session should not be over"),
    }
}

/// Takes one of several ready tasks, and starts it.
async fn begin(s: &Scene, node: SessionId) -> Lease {
    let lease = one(s.claim(node, 1).await).lease;
    s.start(&lease).await;
    lease
}

async fn account(s: &Scene) -> Option<AccountRecord> {
    let all = s.store.accounts().await.expect("accounts answers");
    all.into_iter().find(|record| record.name == ACCOUNT)
}

async fn most(s: &Scene) -> Option<u32> {
    account(s).await.and_then(|record| record.account.most())
}

async fn a_usage_limit_holds_every_queue_of_the_account_in_every_process(s: &Scene) {
    share(s, QUEUE).await;
    share(s, OTHER).await;
    let node = s.join().await;
    let (first, free, elsewhere) = (s.running(node).await, add_to(s, "free").await, add_to(s, OTHER).await);
    let until = s.in_ms(50);
    s.finish(first, used_up(50)).await;
    let waiting = s.add().await;
    let second = s.fixture.second().await;
    for (store, queue) in [(&s.store, QUEUE), (&s.store, OTHER), (&second, QUEUE), (&second, OTHER)] {
        assert_eq!(claim_of(s, store.as_ref(), queue, node).await, (Vec::new(), Some(until)), "{queue}");
    }
    let (taken, next) = claim_of(s, s.store.as_ref(), "free", node).await;
    assert_eq!((taken[0].task(), next), (free, None), "other queues go on");
    s.pass(Duration::from_millis(50));
    let (taken, next) = claim_of(s, second.as_ref(), OTHER, node).await;
    assert_eq!((taken[0].task(), next), (elsewhere, None));
    assert_eq!(s.claim_ids(node, 10).await.len(), 2, "nothing has to make {waiting} ready");
}

async fn what_reached_the_limit_is_ready_and_has_used_no_attempt(s: &Scene) {
    share(s, QUEUE).await;
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.finish(lease, used_up(50)).await;
    assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::UsageLimit));
    let task = s.task(id).await;
    assert_eq!((task.failures, task.runs), (0, 1));
    assert_eq!(task.last_failure.expect("it is recorded").class, ErrorClass::UsageLimit);
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    change(s, AccountChange::Release).await;
    heard("a release", &mut wakeups).await;
    assert_eq!(s.claim_ids(node, 10).await, [id], "a release lets it start at once");
}

async fn a_queue_without_an_account_is_held_itself(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let (id, until) = (lease.task(), s.in_ms(50));
    s.finish(lease, used_up(50)).await;
    assert_eq!(s.waits(id).await, (Readiness::Waiting, Wait::UsageLimit));
    s.add().await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
    assert_eq!(s.store.accounts().await, Ok(Vec::new()));
}

async fn a_key_without_an_account_is_held_itself(s: &Scene) {
    let node = s.join().await;
    s.add_keyed("k").await;
    let lease = s.run(node).await;
    s.finish(lease, used_up(50)).await;
    let [held, other] = [s.add_keyed("k").await, s.add_keyed("other").await];
    assert_eq!(look(s, node, 10).await, (vec![other], Some(s.in_ms(50))));
    assert_eq!(s.waits(held).await.0, Readiness::Parked);
}

async fn a_usage_limit_without_a_reset_is_held_for_a_bounded_time(s: &Scene) {
    share(s, QUEUE).await;
    let node = s.join().await;
    let quarter = Duration::from_secs(15 * 60);
    let lease = s.running(node).await;
    s.finish(lease, Outcome::Failed(Failure::new(ErrorClass::UsageLimit, "limit reached"))).await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(s.now().after(quarter))));
    change(s, AccountChange::Release).await;
    let lease = s.run(node).await;
    s.finish(lease, used_up(1_000_000_000_000)).await;
    let week = Duration::from_secs(8 * 24 * 3_600);
    assert_eq!(
        look(s, node, 10).await,
        (vec![], Some(s.now().after(week))),
        "no reset is believed to be later"
    );
}

async fn a_hold_by_hand_lasts_until_it_is_released(s: &Scene) {
    share(s, QUEUE).await;
    let node = s.join().await;
    let id = s.add().await;
    change(s, hold(None)).await;
    change(s, hold(Some(s.in_ms(5)))).await;
    s.pass(Duration::from_secs(30));
    assert_eq!(look(s, node, 10).await, (vec![], None));
    assert_eq!(change(s, AccountChange::Release).await, Account::default());
    assert_eq!(s.claim_ids(node, 10).await, [id]);
}

async fn what_a_provider_allows_limits_all_queues_at_once(s: &Scene) {
    share(s, QUEUE).await;
    share(s, OTHER).await;
    let node = s.join().await;
    for _ in 0..4 {
        s.add().await;
        add_to(s, OTHER).await;
    }
    let (mut here, _) = claim_of(s, s.store.as_ref(), QUEUE, node).await;
    assert_eq!(here.len(), 4);
    s.pass(Duration::from_millis(5));
    assert_eq!(change(s, AccountChange::Allowance(2)).await.most(), Some(2));
    assert_eq!(claim_of(s, s.store.as_ref(), OTHER, node).await.0, Vec::new());
    for lease in here.drain(..) {
        s.finish(lease, Outcome::HandedBack).await;
    }
    assert_eq!(claim_of(s, s.store.as_ref(), OTHER, node).await.0.len(), 2);
    assert_eq!(change(s, AccountChange::Allowance(1_000)).await.most(), Some(4));
    assert_eq!(claim_of(s, s.store.as_ref(), OTHER, node).await.0.len(), 2);
}

async fn the_cap_counts_the_leased_tasks_of_all_queues(s: &Scene) {
    share(s, QUEUE).await;
    share(s, OTHER).await;
    change(s, AccountChange::Cap(Some(3))).await;
    let node = s.join().await;
    for _ in 0..4 {
        s.add().await;
        add_to(s, OTHER).await;
    }
    let (mut here, _) = claim_of(s, s.store.as_ref(), QUEUE, node).await;
    assert_eq!(here.len(), 3);
    let second = s.fixture.second().await;
    assert_eq!(claim_of(s, second.as_ref(), OTHER, node).await, (Vec::new(), None));
    let mut wakeups = second.wakeups();
    wakeups.arm();
    s.finish(here.remove(0), Outcome::Success).await;
    heard("a free place", &mut wakeups).await;
    let (mut there, _) = claim_of(s, second.as_ref(), OTHER, node).await;
    assert_eq!(there.len(), 1);
    assert_eq!(account(s).await.expect("it is shown").leased, 3);
    s.finish(there.remove(0), Outcome::HandedBack).await;
    assert_eq!(claim_of(s, s.store.as_ref(), QUEUE, node).await.0.len(), 1);
    change(s, AccountChange::Cap(None)).await;
    assert_eq!(
        claim_of(s, s.store.as_ref(), OTHER, node).await.0.len(),
        4,
        "the one that was handed back, too"
    );
}

async fn throttling_halves_what_is_in_flight_and_does_not_hold_the_queue(s: &Scene) {
    share(s, QUEUE).await;
    let node = s.join().await;
    for _ in 0..8 {
        s.add().await;
    }
    let mut leases: Vec<Lease> = s.claim(node, 4).await.into_iter().map(|claimed| claimed.lease).collect();
    for lease in &leases {
        s.start(lease).await;
    }
    let limited = leases.remove(0);
    let id = limited.task();
    s.finish(limited, too_many(50)).await;
    assert_eq!(s.waits(id).await, (Readiness::Waiting, Wait::RateLimited), "its own task waits");
    assert_eq!(most(s).await, Some(2));
    assert_eq!(look(s, node, 10).await, (vec![], None), "three are leased, and two may be");
    for lease in leases.drain(..2) {
        s.finish(lease, Outcome::HandedBack).await;
    }
    assert_eq!(look(s, node, 10).await.0.len(), 1, "the queue is not held");
}

async fn one_burst_of_refusals_counts_once(s: &Scene) {
    share(s, QUEUE).await;
    let node = s.join().await;
    for _ in 0..8 {
        s.add().await;
    }
    let leases: Vec<Lease> = s.claim(node, 8).await.into_iter().map(|claimed| claimed.lease).collect();
    for lease in &leases {
        s.start(lease).await;
    }
    s.pass(TICK);
    for lease in leases {
        s.finish(lease, too_many(1)).await;
    }
    assert_eq!(most(s).await, Some(4));
    s.pass(TICK);
    s.store.make_ready(100).await.expect("make_ready answers");
    let lease = begin(s, node).await;
    s.finish(lease, too_many(1)).await;
    assert_eq!(most(s).await, Some(1), "an attempt that began since then counts");
}

async fn successes_widen_the_window_until_it_is_forgotten(s: &Scene) {
    share(s, QUEUE).await;
    change(s, AccountChange::Cap(Some(3))).await;
    let node = s.join().await;
    for _ in 0..9 {
        s.add().await;
    }
    let lease = begin(s, node).await;
    s.finish(lease, too_many(1)).await;
    assert_eq!(most(s).await, Some(1));
    // A round adds one place at most: what ends last finds less than half of the window in use.
    for expected in [2, 2, 2, 3] {
        for claimed in s.claim(node, 10).await {
            s.finish(claimed.lease, Outcome::Success).await;
        }
        assert_eq!(most(s).await, Some(expected));
    }
    let record = account(s).await.expect("it is shown");
    assert_eq!((record.account.cap, record.account.window), (Some(3), None));
}

async fn a_dead_node_gives_its_places_back(s: &Scene) {
    share(s, QUEUE).await;
    change(s, AccountChange::Cap(Some(2))).await;
    let (dies, lives) = (s.join().await, s.join().await);
    for _ in 0..3 {
        s.add().await;
    }
    assert_eq!(s.claim_ids(dies, 10).await.len(), 2);
    assert_eq!(s.claim_ids(lives, 10).await.len(), 0);
    s.fixture.kill(dies).await;
    s.store.expire(100).await.expect("expire answers");
    assert_eq!(s.claim_ids(lives, 10).await.len(), 2);
}

async fn a_reading_is_kept_until_its_allowance_resets(s: &Scene) {
    share(s, QUEUE).await;
    let node = s.join().await;
    let reading = AccountReading {
        window: "five_hour".to_owned(),
        utilization_permille: 950,
        resets_at: Some(s.in_ms(50)),
    };
    for outcome in [Outcome::Success, used_up(50)] {
        let lease = s.running(node).await;
        let ended = Report { reading: Some(reading.clone()), ..report(lease, outcome) };
        one(s.store.finish(vec![ended]).await.expect("finish answers"));
        let record = account(s).await.expect("it is shown");
        assert_eq!(record.account.near_limit(s.now()), Some(&reading));
        change(s, AccountChange::Release).await;
    }
    s.pass(Duration::from_millis(50));
    assert_eq!(account(s).await.map(|record| record.account), Some(Account::default()));
}

async fn accounts_are_shown_with_their_queues_and_forgotten_without_state(s: &Scene) {
    assert_eq!(s.store.accounts().await, Ok(Vec::new()));
    change(s, AccountChange::Cap(Some(8))).await;
    let shown = account(s).await.expect("it has state");
    assert_eq!((shown.account.cap, shown.leased, shown.queues), (Some(8), 0, Vec::new()));
    share(s, QUEUE).await;
    share(s, OTHER).await;
    let node = s.join().await;
    s.leased(node).await;
    let shown = account(s).await.expect("queues use it");
    assert_eq!((shown.leased, shown.queues), (1, vec![QUEUE.to_owned(), OTHER.to_owned()]));
    for queue in [QUEUE, OTHER] {
        s.store.configure(queue, vec![QueueChange::Account(None)]).await.expect("the account is removed");
    }
    change(s, AccountChange::Cap(None)).await;
    change(s, hold(Some(s.in_ms(5)))).await;
    assert!(account(s).await.is_some());
    s.pass(Duration::from_millis(5));
    assert_eq!(s.store.accounts().await, Ok(Vec::new()), "a hold that is over is no state");
}

async fn the_survey_and_the_backlog_know_of_the_account(s: &Scene) {
    share(s, QUEUE).await;
    for _ in 0..3 {
        s.add().await;
    }
    let backlog = async || s.store.backlog(QUEUE, &Kinds::Any, 10).await;
    let shut = async || s.store.survey().await.expect("survey answers").queues[0].shut;
    assert_eq!((backlog().await, shut().await), (Ok(3), None));
    change(s, AccountChange::Cap(Some(2))).await;
    assert_eq!((backlog().await, shut().await), (Ok(2), None));
    let node = s.join().await;
    s.claim(node, 10).await;
    let full = shut().await.expect("it is closed");
    assert_eq!((backlog().await, full.why, full.until), (Ok(0), Wait::Concurrency, None));
    change(s, AccountChange::Cap(None)).await;
    let until = s.in_ms(50);
    change(s, hold(Some(until))).await;
    let held = shut().await.expect("it is closed");
    assert_eq!((backlog().await, held.why, held.until), (Ok(0), Wait::UsageLimit, Some(until)));
}

async fn a_queue_may_change_its_account(s: &Scene) {
    share(s, QUEUE).await;
    change(s, hold(None)).await;
    let node = s.join().await;
    let id = s.add().await;
    assert_eq!(s.claim_ids(node, 10).await, []);
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    s.configure(QueueChange::Account(Some("codex".to_owned()))).await;
    heard("another account", &mut wakeups).await;
    assert_eq!(s.claim_ids(node, 10).await, [id]);
}

async fn impossible_accounts_are_refused(s: &Scene) {
    let empty = Some(String::new());
    invalid("an account without a name", s.store.configure(QUEUE, vec![QueueChange::Account(empty)]).await);
    invalid("a change without a name", s.store.change_account("", AccountChange::Release).await);
    invalid("no concurrency", s.store.change_account(ACCOUNT, AccountChange::Cap(Some(0))).await);
    let long = AccountChange::Hold { until: None, why: "x".repeat(100_000) };
    invalid("a long reason", s.store.change_account(ACCOUNT, long).await);
    assert_eq!(s.store.accounts().await, Ok(Vec::new()));
}

async fn accounts_above_the_bound_are_refused(s: &Scene) {
    let cap = || AccountChange::Cap(Some(1));
    for number in 0..MAX_ACCOUNTS {
        s.store.change_account(&format!("a{number}"), cap()).await.expect("there is room");
    }
    let refused = s.store.change_account("one more", cap()).await.expect_err("there is none");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    s.store.change_account("a7", AccountChange::Cap(None)).await.expect("one is forgotten");
    s.store.change_account("one more", cap()).await.expect("there is room again");
}
