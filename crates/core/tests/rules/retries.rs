//! Retry delays, for any number of failures and any duration a user may write.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_core::{Backoff, Jitter, RetryPolicy, millis};
use proptest::prelude::*;

use crate::fixed::cases;

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0..10_000_000_u64).prop_map(Duration::from_millis),
        2 => (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
    ]
}

fn any_failures() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..70_u32, 2 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn any_policy(jitter: Jitter) -> impl Strategy<Value = RetryPolicy> {
    let shapes = prop::sample::select(Backoff::ALL.to_vec());
    (shapes, any_duration(), any_duration()).prop_map(move |(backoff, base, max)| RetryPolicy {
        attempts: 4,
        backoff,
        base,
        max,
        jitter,
    })
}

/// The delay as documented in the config, in whole nanoseconds, computed naively.
fn spelled_out(policy: &RetryPolicy, failures: u32) -> u128 {
    let failures = failures.max(1);
    let factor = match policy.backoff {
        Backoff::Fixed => 1,
        Backoff::Linear => u128::from(failures),
        Backoff::Exponential => 1 << (failures - 1).min(31),
    };
    (policy.base.as_nanos() * factor).min(policy.max.as_nanos())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn without_jitter_it_is_exactly_what_the_config_says(
        policy in any_policy(Jitter::Off), failures in any_failures(), seed in any::<u64>(),
    ) {
        prop_assert_eq!(policy.delay(failures, seed).as_nanos(), spelled_out(&policy, failures));
    }

    #[test]
    fn with_jitter_it_lies_between_half_and_all_of_it(
        policy in any_policy(Jitter::Half), failures in any_failures(), seed in any::<u64>(),
    ) {
        let whole = RetryPolicy { jitter: Jitter::Off, ..policy }.delay(failures, seed);
        let spread = policy.delay(failures, seed);
        prop_assert!(spread <= whole);
        // Timestamps are whole milliseconds, so only those count.
        prop_assert!(i128::from(millis(spread)) * 2 >= i128::from(millis(whole)));
    }

    #[test]
    fn the_same_seed_gives_the_same_wait(
        policy in any_policy(Jitter::Half), failures in any_failures(), seed in any::<u64>(),
    ) {
        prop_assert_eq!(policy.delay(failures, seed), policy.delay(failures, seed));
    }

    #[test]
    fn it_is_never_longer_than_the_cap_and_never_shrinks_with_failures(
        policy in any_policy(Jitter::Off), failures in 0..u32::MAX, seed in any::<u64>(),
    ) {
        prop_assert!(policy.delay(failures, seed) <= policy.max);
        prop_assert!(policy.delay(failures, seed) <= policy.delay(failures + 1, seed));
    }
}

#[test]
fn the_three_shapes_grow_as_their_names_say() {
    let waits = |backoff| {
        let policy = RetryPolicy {
            backoff,
            base: Duration::from_secs(30),
            max: Duration::from_secs(300),
            jitter: Jitter::Off,
            attempts: 6,
        };
        [1, 2, 3, 4, 10, 11].map(|failures| policy.delay(failures, 0).as_secs())
    };
    assert_eq!(waits(Backoff::Fixed), [30, 30, 30, 30, 30, 30]);
    assert_eq!(waits(Backoff::Linear), [30, 60, 90, 120, 300, 300]);
    assert_eq!(waits(Backoff::Exponential), [30, 60, 120, 240, 300, 300]);
}

#[test]
fn jitter_uses_the_whole_range_and_nothing_else() {
    let waits = |base_ms| {
        let policy = RetryPolicy { base: Duration::from_millis(base_ms), ..RetryPolicy::default() };
        let seen: BTreeSet<u128> = (0..1_000).map(|seed| policy.delay(1, seed).as_millis()).collect();
        seen.into_iter().collect::<Vec<u128>>()
    };
    assert_eq!(waits(10), [5, 6, 7, 8, 9, 10]);
    assert_eq!(waits(11), [6, 7, 8, 9, 10, 11]);
    assert_eq!(waits(1), [1]);
    assert_eq!(waits(0), [0]);
}

#[test]
fn a_shape_is_known_by_its_name() {
    for shape in Backoff::ALL {
        assert_eq!(Backoff::named(shape.name()), Some(shape));
    }
    assert_eq!(Backoff::named("quadratic"), None);
}
