//! Simulated queues: what a rank guarantees about the order of tasks.
//!
//! Nothing here looks into a rank. Tasks are placed and claimed as a store does it, and the tests check the
//! order in which they are claimed. Where a guarantee is "within N claims", the number is computed from the
//! public constants and asserted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use ostler_core::{
    Fairness, NEW_KEY_MS, PRIORITY_MS, Priority, PriorityOrder, Rank, STEP_MS, Seed, Timestamp, VirtualTime,
    place,
};
use proptest::prelude::*;

use crate::fixed::cases;

/// The limit key of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Owner {
    Unkeyed,
    Key(u32),
}

const A: Owner = Owner::Key(1);
const B: Owner = Owner::Key(2);
const LOW: Owner = Owner::Key(3);
/// Owners from here on are used once.
const FRESH: u32 = 1_000;

const NORMAL: i64 = 0;
const START: i64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    rank: Rank,
    /// The order of ids: equal ranks are claimed in the order they were enqueued.
    number: usize,
    owner: Owner,
    priority: Priority,
}

/// A queue in which every task is ready.
#[derive(Default)]
struct Queue {
    clock: VirtualTime,
    last: HashMap<Owner, i64>,
    ready: BinaryHeap<Reverse<Task>>,
    enqueued: usize,
    fresh: u32,
    order: PriorityOrder,
}

impl Queue {
    fn enqueue(&mut self, owner: Owner, points: i64, arrival: i64) -> usize {
        let priority = Priority::new(points).expect("a priority in range");
        let last = self.last.get(&owner).copied();
        let turn = match owner {
            Owner::Unkeyed => Fairness::Unkeyed { last },
            Owner::Key(_) => Fairness::Keyed { last },
        };
        let placed = place(self.clock, turn, Timestamp::from_millis(arrival), priority, self.order);
        assert!(placed.clock.0 >= self.clock.0, "the virtual time went back");
        self.clock = placed.clock;
        if let Some(laid) = placed.last {
            self.last.insert(owner, laid);
        }
        let number = self.enqueued;
        self.enqueued += 1;
        self.ready.push(Reverse(Task { rank: placed.rank, number, owner, priority }));
        number
    }

    fn enqueue_many(&mut self, count: usize, owner: Owner, points: i64) {
        for _ in 0..count {
            self.enqueue(owner, points, START);
        }
    }

    /// A key that was never used before.
    fn fresh(&mut self) -> Owner {
        self.fresh += 1;
        Owner::Key(FRESH + self.fresh)
    }

    fn claim(&mut self) -> Option<Task> {
        let Reverse(task) = self.ready.pop()?;
        let clock = self.clock.advanced(task.rank, task.priority);
        assert!(clock.0 >= self.clock.0, "the virtual time went back");
        self.clock = clock;
        Some(task)
    }

    fn claim_many(&mut self, count: usize) -> Vec<Owner> {
        (0..count).map_while(|_| self.claim()).map(|task| task.owner).collect()
    }

    /// The number of claims until this task is claimed.
    fn claims_until(&mut self, number: usize) -> usize {
        let mut claims = 0;
        while let Some(task) = self.claim() {
            claims += 1;
            if task.number == number {
                return claims;
            }
        }
        panic!("task {number} is not in the queue");
    }
}

fn share(owners: &[Owner], owner: Owner) -> usize {
    owners.iter().filter(|one| **one == owner).count()
}

// Without keys: age and priority.

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn a_point_of_priority_is_worth_exactly_a_minute(
        early in -100..=100_i64, late in -100..=100_i64, apart in 0..20_000_000_i64,
    ) {
        let mut queue = Queue::default();
        let first = queue.enqueue(Owner::Unkeyed, early, START);
        queue.enqueue(Owner::Unkeyed, late, START + apart);
        let overtakes = (late - early) * PRIORITY_MS > apart;
        let claimed = queue.claim().expect("two were enqueued");
        prop_assert_eq!(claimed.number != first, overtakes);
        prop_assert_eq!(queue.clock, VirtualTime(None), "no key was seen, so no claim has to keep a clock");
    }

    #[test]
    fn equals_come_out_in_the_order_they_came(points in -100..=100_i64, gaps in prop::collection::vec(0..3_i64, 1..200)) {
        let mut queue = Queue::default();
        let mut now = START;
        for gap in &gaps {
            now += gap;
            queue.enqueue(Owner::Unkeyed, points, now);
        }
        for number in 0..gaps.len() {
            prop_assert_eq!(queue.claim().map(|task| task.number), Some(number));
        }
    }

    #[test]
    fn equals_of_one_key_come_out_in_the_order_they_came_whatever_the_others_do(
        points in -100..=100_i64, ops in prop::collection::vec((0..4_u32, -100..=100_i64, 0..3_usize), 1..200),
    ) {
        let mut queue = Queue::default();
        let mut out = Vec::new();
        let claim = |queue: &mut Queue, count: usize| {
            (0..count).map_while(|_| queue.claim()).filter(|task| task.owner == A).map(|task| task.number).collect::<Vec<_>>()
        };
        for (who, others, claims) in ops {
            match who {
                0 => drop(queue.enqueue(Owner::Unkeyed, others, START)),
                1 => drop(queue.enqueue(A, points, START)),
                2 => drop(queue.enqueue(B, others, START)),
                _ => {
                    let fresh = queue.fresh();
                    queue.enqueue(fresh, others, START);
                }
            }
            out.extend(claim(&mut queue, claims));
        }
        out.extend(claim(&mut queue, usize::MAX));
        prop_assert!(out.is_sorted(), "{:?}", out);
    }
}

// Nothing starves: a task of priority −100 in an endless flood of priority 100.

/// The largest distance that priorities can put between two tasks.
const WHOLE_GAP_MS: i64 = (Priority::MAX - Priority::MIN) * PRIORITY_MS;

/// The number of later tasks that can run before another, when each is placed at least `apart_ms` after the
/// previous one.
fn ahead_of_it(gap_ms: i64, apart_ms: i64) -> usize {
    usize::try_from(gap_ms.div_euclid(apart_ms)).expect("a small number")
}

/// A backlog, then the low task, then `per_claim` more before every claim; returns how many claims the low task waits.
fn waits_in_flood(
    low_owner: Owner,
    backlog: usize,
    per_claim: usize,
    points: i64,
    mut flood: impl FnMut(&mut Queue, i64) -> Owner,
    tick_ms: i64,
) -> usize {
    let mut queue = Queue::default();
    let mut now = START;
    let mut one_more = |queue: &mut Queue| {
        now += tick_ms;
        let owner = flood(queue, now);
        queue.enqueue(owner, points, now);
    };
    for _ in 0..backlog {
        one_more(&mut queue);
    }
    let low = queue.enqueue(low_owner, -points, START + tick_ms * i64::try_from(backlog).expect("small"));
    for claims in 1.. {
        for _ in 0..per_claim {
            one_more(&mut queue);
        }
        if queue.claim().is_some_and(|task| task.number == low) {
            return claims;
        }
    }
    unreachable!("the loop above ends only when the task is claimed")
}

#[test]
fn without_keys_the_lowest_waits_for_what_comes_within_two_hundred_minutes() {
    for (per_claim, tick_ms) in [(1, 1_000), (2, 1_000), (3, 7_001)] {
        let waited = waits_in_flood(Owner::Unkeyed, 100, per_claim, 100, |_, _| Owner::Unkeyed, tick_ms);
        let bound = 100 + ahead_of_it(WHOLE_GAP_MS, tick_ms);
        assert!(waited <= bound + 1, "{waited} claims, at most {bound} expected");
    }
}

#[test]
fn with_a_few_keys_the_lowest_waits_for_two_hundred_minutes_of_steps_of_each() {
    for keys in [1, 3] {
        for per_claim in [1, 2] {
            for low_owner in [LOW, Owner::Unkeyed, Owner::Key(FRESH)] {
                let mut turn = 0;
                let flood = |_: &mut Queue, _| {
                    turn += 1;
                    Owner::Key(FRESH + turn % keys)
                };
                let waited = waits_in_flood(low_owner, 50, per_claim, 100, flood, 0);
                let bound = 50 + keys as usize * (ahead_of_it(WHOLE_GAP_MS, STEP_MS) + 1);
                assert!(waited <= bound + 1, "{waited} claims, at most {bound} expected");
            }
        }
    }
}

#[test]
fn tasks_without_a_key_count_as_one_key_and_starve_no_key_either() {
    let mut queue = Queue::default();
    // One key is enough to make the queue take turns.
    queue.enqueue(A, NORMAL, START);
    queue.claim();
    queue.enqueue_many(2 * ahead_of_it(WHOLE_GAP_MS, STEP_MS), Owner::Unkeyed, 100);
    let low = queue.enqueue(LOW, -100, START);
    // One more than the steps, because the two keys are not placed at the same millisecond.
    let bound = ahead_of_it(WHOLE_GAP_MS, STEP_MS) + 1;
    let waited = queue.claims_until(low);
    assert!(waited <= bound + 1, "{waited} claims, at most {bound} expected");
}

#[test]
fn with_new_keys_only_each_round_is_a_step_while_the_queue_keeps_up() {
    for backlog in [0, 1, 5] {
        let waited = waits_in_flood(LOW, backlog, 1, 100, |queue, _| queue.fresh(), 0);
        let bound = (backlog + 1) * (ahead_of_it(WHOLE_GAP_MS, STEP_MS) + 1);
        assert!(waited <= bound + 1, "{waited} claims, at most {bound} expected");
    }
}

#[test]
fn with_more_new_keys_than_can_be_claimed_the_wait_is_still_bounded() {
    // Two points of priority each way, to keep it short; the next test covers the whole range.
    let gap_ms = 4 * PRIORITY_MS;
    for per_claim in [2, 5] {
        let waited = waits_in_flood(LOW, 100, per_claim, 2, |queue, _| queue.fresh(), 0);
        let bound = 100 + ahead_of_it(gap_ms, NEW_KEY_MS);
        assert!(waited <= bound + 1, "{waited} claims, at most {bound} expected");
    }
}

#[test]
fn even_if_nothing_is_ever_claimed_new_keys_come_behind_the_lowest_in_the_end() {
    let new_key = |clock, points| {
        let priority = Priority::new(points).expect("in range");
        place(
            clock,
            Fairness::Keyed { last: None },
            Timestamp::from_millis(START),
            priority,
            PriorityOrder::Aging,
        )
    };
    let low = new_key(VirtualTime(Some(START)), -100);
    let mut clock = low.clock;
    for _ in 0..ahead_of_it(WHOLE_GAP_MS, NEW_KEY_MS) {
        clock = new_key(clock, 100).clock;
    }
    assert!(new_key(clock, 100).rank > low.rank);
}

// Fairness: keys take turns.

#[test]
fn a_newcomer_goes_within_two_claims_whenever_it_comes() {
    for claimed_before in [0, 1, 2, 10, 5_000, 9_990] {
        let mut queue = Queue::default();
        queue.enqueue_many(10_000, A, NORMAL);
        queue.claim_many(claimed_before);
        let number = queue.enqueue(B, NORMAL, START);
        let claims = queue.claims_until(number);
        assert!(claims <= 2, "{claims} claims after {claimed_before}");
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_guest_who_comes_again_and_again_goes_within_two_claims_each_time(
        pauses in prop::collection::vec(0..400_usize, 1..40), without_key in any::<bool>(),
    ) {
        let guest = if without_key { Owner::Unkeyed } else { B };
        let mut queue = Queue::default();
        queue.enqueue_many(10_000, A, NORMAL);
        for pause in pauses {
            queue.claim_many(pause.min(queue.ready.len().saturating_sub(2)));
            let number = queue.enqueue(guest, NORMAL, START);
            let claims = queue.claims_until(number);
            prop_assert!(claims <= 2, "{} claims", claims);
        }
    }

    #[test]
    fn among_many_backlogged_keys_a_newcomer_waits_one_round(
        keys in 1..30_u32, claimed_before in 0..500_usize,
    ) {
        let mut queue = Queue::default();
        for key in 0..keys {
            queue.enqueue_many(40, Owner::Key(FRESH + key), NORMAL);
        }
        queue.claim_many(claimed_before.min(20 * keys as usize));
        let number = queue.enqueue(B, NORMAL, START);
        let claims = queue.claims_until(number);
        prop_assert!(claims <= keys as usize + 1, "{} claims among {} keys", claims, keys);
    }

    #[test]
    fn two_backlogged_keys_alternate_whichever_came_first_and_whatever_was_before(
        alone in 0..300_usize, earlier_visit in any::<bool>(), idle in 0..300_usize,
    ) {
        let mut queue = Queue::default();
        queue.enqueue_many(2_000, A, NORMAL);
        if earlier_visit {
            queue.enqueue(B, NORMAL, START);
        }
        // A has the queue to itself: that is neither held against it nor a credit for B.
        queue.claim_many(alone + idle);
        queue.enqueue_many(500, B, NORMAL);
        let owners = queue.claim_many(1_000);
        let (mut a, mut b) = (0_usize, 0_usize);
        for owner in owners {
            a += usize::from(owner == A);
            b += usize::from(owner == B);
            prop_assert!(a.abs_diff(b) <= 1, "{} to {}", a, b);
        }
        prop_assert_eq!((a, b), (500, 500));
    }

    #[test]
    fn every_backlogged_key_gets_its_share_of_any_stretch(
        sizes in prop::collection::vec(50..200_usize, 2..8), skip in 0..40_usize, seed in any::<u64>(),
    ) {
        let mut queue = Queue::default();
        let mut seed = Seed::new(seed);
        let mut left: Vec<usize> = sizes.clone();
        while left.iter().any(|left| *left > 0) {
            let at = usize::try_from(seed.below(left.len() as u64)).expect("small");
            if left[at] > 0 {
                left[at] -= 1;
                queue.enqueue(Owner::Key(at as u32), NORMAL, START);
            }
        }
        queue.claim_many(skip);
        // No key runs out within this stretch.
        let rounds = (50 - skip) / 2;
        let owners = queue.claim_many(rounds * sizes.len());
        for at in 0..sizes.len() {
            let got = share(&owners, Owner::Key(at as u32));
            prop_assert!(got.abs_diff(rounds) <= 1, "{} of {} rounds", got, rounds);
        }
    }
}

#[test]
fn tasks_without_a_key_take_turns_with_the_keys() {
    let mut queue = Queue::default();
    queue.enqueue_many(100, A, NORMAL);
    queue.enqueue_many(100, Owner::Unkeyed, NORMAL);
    queue.enqueue_many(100, B, NORMAL);
    let owners = queue.claim_many(150);
    for owner in [A, B, Owner::Unkeyed] {
        assert!(share(&owners, owner).abs_diff(50) <= 1, "{owner:?} got {}", share(&owners, owner));
    }
}

#[test]
fn a_crowd_of_new_keys_costs_each_of_them_next_to_nothing() {
    let crowd = 5_000;
    let mut queue = Queue::default();
    queue.enqueue_many(10_000, A, NORMAL);
    queue.claim_many(100);
    for _ in 0..crowd {
        let fresh = queue.fresh();
        queue.enqueue(fresh, NORMAL, START);
    }
    let number = queue.enqueue(B, NORMAL, START);
    let claims = queue.claims_until(number);
    // The whole crowd came first; A gets its turn and no more than the crowd's advance of the virtual time.
    let a_may_have = 2 + ahead_of_it(NEW_KEY_MS * crowd, STEP_MS);
    assert!(claims <= usize::try_from(crowd).expect("small") + 1 + a_may_have, "{claims} claims");
}

#[test]
fn one_urgent_task_of_a_long_key_does_not_throw_newcomers_behind_that_key() {
    let mut queue = Queue::default();
    queue.enqueue_many(10_000, A, NORMAL);
    let urgent = queue.enqueue(A, 100, START);
    let claims = queue.claims_until(urgent);
    assert!(claims < 5_000, "a head start of 6,000 steps, and {claims} claims");
    let number = queue.enqueue(B, NORMAL, START);
    let claims = queue.claims_until(number);
    assert!(claims <= 3, "{claims} claims");
}

#[test]
fn within_a_key_a_point_is_worth_a_minute_of_steps() {
    let mut queue = Queue::default();
    queue.enqueue_many(1_000, A, NORMAL);
    let urgent = queue.enqueue(A, 5, START);
    let steps = ahead_of_it(5 * PRIORITY_MS, STEP_MS);
    assert_eq!(queue.claims_until(urgent), 1_001 - steps + 1);
}

// Strict priorities.

#[test]
fn strict_priorities_come_highest_first_and_by_age_within_one() {
    let mut queue = Queue { order: PriorityOrder::Strict, ..Queue::default() };
    let year_ms = 365 * 24 * 60 * PRIORITY_MS;
    let mut expected = Vec::new();
    for (points, age_years) in [(-100, 200), (0, 100), (0, 99), (1, 0), (-1, 0), (100, 0), (99, 100)] {
        expected.push((
            Reverse(points),
            Reverse(age_years),
            queue.enqueue(Owner::Unkeyed, points, START - age_years * year_ms),
        ));
    }
    expected.sort_unstable();
    let claimed: Vec<usize> = std::iter::from_fn(|| queue.claim()).map(|task| task.number).collect();
    assert_eq!(claimed, expected.into_iter().map(|(_, _, number)| number).collect::<Vec<_>>());
}

#[test]
fn within_a_strict_priority_keys_take_turns() {
    let mut queue = Queue { order: PriorityOrder::Strict, ..Queue::default() };
    queue.enqueue_many(100, A, 1);
    queue.enqueue_many(100, LOW, 0);
    queue.claim_many(50);
    queue.enqueue_many(10, B, 1);
    let owners = queue.claim_many(20);
    assert!(share(&owners, A).abs_diff(share(&owners, B)) <= 2, "{owners:?}");
    assert_eq!(share(&queue.claim_many(40), LOW), 0, "the low ones wait for all of the others");
    assert_eq!(queue.claim_many(200), [LOW; 100]);
}

/// A queue whose order was changed while tasks wait: those keep their places, and nothing of it upsets later ones.
#[test]
fn a_changed_order_leaves_the_virtual_time_in_place() {
    for (before, after) in
        [(PriorityOrder::Strict, PriorityOrder::Aging), (PriorityOrder::Aging, PriorityOrder::Strict)]
    {
        let mut queue = Queue { order: before, ..Queue::default() };
        for points in [-100, -1, 0, 1, 100] {
            queue.enqueue(A, points, START);
        }
        queue.order = after;
        queue.enqueue_many(5, A, NORMAL);
        queue.claim_many(10);
        let hour = START + 60 * PRIORITY_MS;
        assert!(queue.clock.0.is_some_and(|time| (START..hour).contains(&time)), "{:?}", queue.clock);
    }
}

// Extreme numbers.

#[test]
fn an_absurd_first_date_leaves_room_for_turns() {
    for arrival in [i64::MIN, i64::MAX] {
        let mut queue = Queue::default();
        queue.enqueue(Owner::Unkeyed, -100, arrival);
        queue.enqueue(A, 100, arrival);
        queue.enqueue_many(100, A, NORMAL);
        queue.enqueue_many(100, B, NORMAL);
        let owners = queue.claim_many(200);
        let (a, b) = (share(&owners[100..], A), share(&owners[100..], B));
        assert!(a.abs_diff(b) <= 2, "{a} to {b}");
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn no_number_makes_it_panic_or_go_back(
        clock in prop::option::of(any::<i64>()), last in prop::option::of(any::<i64>()),
        arrival in any::<i64>(), rank in any::<i64>(), points in -100..=100_i64, keyed in any::<bool>(),
        order in prop::sample::select(&PriorityOrder::ALL),
    ) {
        let priority = Priority::new(points).expect("in range");
        let turn = if keyed { Fairness::Keyed { last } } else { Fairness::Unkeyed { last } };
        let clock = VirtualTime(clock);
        let placed = place(clock, turn, Timestamp::from_millis(arrival), priority, order);
        prop_assert!(placed.clock.0 >= clock.0);
        prop_assert!(placed.last.is_none() || placed.last >= last, "a key's last place went back");
        prop_assert!(clock.advanced(Rank(rank), priority).0 >= clock.0);
    }

    #[test]
    fn a_priority_is_what_it_was_made_of_and_in_range(points in any::<i64>(), near in -110..=110_i64) {
        for points in [points, near] {
            let priority = Priority::new(points);
            prop_assert_eq!(priority.is_some(), (-100..=100).contains(&points));
            prop_assert!(priority.is_none_or(|priority| priority.points() == points));
        }
    }
}
