//! Ids: text round trip, order by time, uniqueness.

use std::collections::HashSet;

use ostler_core::{Id, Minter, Seed, SessionId, TaskId, Timestamp, WorkerId};
use proptest::prelude::*;

use crate::fixed::cases;

fn chance(seed: &mut Seed) -> u128 {
    (u128::from(seed.next()) << 64) | u128::from(seed.next())
}

/// A bad clock: it stalls, creeps, jumps ahead and steps back.
fn clock_steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![4 => Just(0_i64), 4 => 0..5_i64, 1 => -100_000..0_i64, 1 => 0..100_000_i64];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn an_id_comes_back_from_its_text_and_its_bytes(bits in any::<u128>()) {
        let id = Id::from_bits(bits);
        let text = id.to_string();
        prop_assert_eq!(text.len(), 26);
        prop_assert_eq!(text.parse::<Id>(), Ok(id));
        prop_assert_eq!(text.to_lowercase().parse::<Id>(), Ok(id));
        prop_assert_eq!(Id::from_bytes(id.to_bytes()), id);
        prop_assert_eq!(id.bits(), bits);
        prop_assert_eq!(text.parse::<TaskId>(), Ok(TaskId(id)));
        prop_assert_eq!(text.parse::<SessionId>(), Ok(SessionId(id)));
        prop_assert_eq!(text.parse::<WorkerId>(), Ok(WorkerId(id)));
    }

    #[test]
    fn bits_bytes_and_text_sort_alike(a in any::<u128>(), b in any::<u128>(), near in 0..3_u128) {
        for (a, b) in [(a, b), (a, a.wrapping_add(near))] {
            let (a, b) = (Id::from_bits(a), Id::from_bits(b));
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }

    #[test]
    fn a_foreign_text_is_refused_or_names_one_id_and_never_panics(text in "\\PC{0,60}|[0-9A-Za-z]{26}") {
        if let Ok(id) = text.parse::<Id>() {
            prop_assert_eq!(id.to_string().parse::<Id>(), Ok(id));
        }
    }

    #[test]
    fn a_minter_rises_whatever_its_clock_and_chance_do(
        start in any::<i32>(), steps in clock_steps(), seed in any::<u64>(),
    ) {
        let mut minter = Minter::new();
        let mut seed = Seed::new(seed);
        let mut now = i64::from(start);
        let mut last: Option<Id> = None;
        for step in steps {
            now += step;
            // All ones is the worst case: the next id must carry into the time.
            let chance = if seed.chance(10) { u128::MAX } else { chance(&mut seed) };
            let id = minter.mint(Timestamp::from_millis(now), chance);
            prop_assert!(last.is_none_or(|last| id > last));
            last = Some(id);
        }
    }

    #[test]
    fn ids_of_different_milliseconds_sort_by_time_across_minters(
        early in 0..1_i64 << 47, later in 1..1_000_000_i64, a in any::<u128>(), b in any::<u128>(),
    ) {
        let first = Minter::new().mint(Timestamp::from_millis(early), a);
        let second = Minter::new().mint(Timestamp::from_millis(early + later), b);
        prop_assert!(first < second);
    }
}

#[test]
fn many_minters_in_the_same_milliseconds_never_make_the_same_id() {
    let mut seed = Seed::new(2_026);
    let mut minters = vec![Minter::new(); 200];
    let mut seen = HashSet::new();
    for round in 0..100_i64 {
        for minter in &mut minters {
            let now = Timestamp::from_millis(1_700_000_000_000 + round / 10);
            assert!(seen.insert(minter.mint(now, chance(&mut seed))));
        }
    }
    assert_eq!(seen.len(), 20_000);
}

#[test]
fn a_restarted_minter_does_not_repeat_itself() {
    let mut seed = Seed::new(7);
    let now = Timestamp::from_millis(1_700_000_000_000);
    let ids: HashSet<Id> = (0..10_000).map(|_| Minter::new().mint(now, chance(&mut seed))).collect();
    assert_eq!(ids.len(), 10_000);
}

#[test]
fn the_last_moments_of_the_clock_do_not_panic() {
    let mut minter = Minter::new();
    let ends = [i64::MIN, (1 << 48) - 1, 1 << 48, i64::MAX];
    let ids: HashSet<Id> =
        ends.map(|millis| minter.mint(Timestamp::from_millis(millis), u128::MAX - 5)).into_iter().collect();
    assert_eq!(ids.len(), ends.len());
}
