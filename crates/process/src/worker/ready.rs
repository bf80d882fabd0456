//! What a worker announces in its ready frame: its kinds, their options, and how many tasks it takes at once.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use ostler_core::{Backoff, Jitter, Overrides};

use super::incoming::{KindOptions, ReadyFrame, whole};

/// Kinds that a worker may announce: a claim asks for no more.
const MAX_KINDS: usize = 1_000;
/// The range of attempts and crashes, as in the config.
const COUNTS: RangeInclusive<u32> = 1..=1_000_000;
/// The longest time of an option: a hundred years. No clock overflows.
const MAX_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The kinds that a worker announced; `None`: any.
pub(super) type WorkerKinds = Option<Vec<String>>;

/// What a worker announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub(super) kinds: WorkerKinds,
    /// Policy values by kind.
    pub(super) options: BTreeMap<String, Overrides>,
    /// How many tasks it gets at once.
    pub(super) slots: usize,
    /// It takes fewer tasks at once than its pool has configured.
    pub(super) warning: Option<String>,
}

/// What a worker of a pool with this `per_worker` announces.
///
/// # Errors
/// What is wrong with it, to be read after "the worker".
pub(super) fn announced(ready: ReadyFrame, per_worker: usize) -> Result<Announced, String> {
    let ReadyFrame { kinds, per_worker: can, options, .. } = ready;
    let named = kinds.as_ref().map_or(0, Vec::len).max(options.len());
    if named > MAX_KINDS {
        return Err(format!("names {named} kinds; the maximum is {MAX_KINDS}"));
    }
    let can = usize::try_from(whole(can.unwrap_or(1.0))).unwrap_or(usize::MAX).max(1);
    let slots = can.min(per_worker);
    let warning = (slots < per_worker).then(|| {
        format!("the pool has per_worker = {per_worker}, but its worker takes {slots} at once: are all its handlers async?")
    });
    let overrides = |(kind, options): (String, KindOptions)| match overrides(&options) {
        Ok(overrides) => Ok((kind, overrides)),
        Err(wrong) => Err(format!("has a wrong option for the kind \"{}\": {wrong}", kind.escape_debug())),
    };
    let options = options.into_iter().map(overrides).collect::<Result<_, _>>()?;
    Ok(Announced { kinds, options, slots, warning })
}

fn overrides(options: &KindOptions) -> Result<Overrides, String> {
    let count = |name: &str, value: Option<f64>| match value {
        None => Ok(None),
        Some(value) => match u32::try_from(whole(value)) {
            Ok(number) if f64::from(number) == value && COUNTS.contains(&number) => Ok(Some(number)),
            Ok(_) | Err(_) => {
                Err(format!("{name} is {value}, but must be from {} to {}", COUNTS.start(), COUNTS.end()))
            }
        },
    };
    let time = |name: &str, value: Option<f64>| match value {
        None => Ok(None),
        Some(value) => match Duration::from_millis(whole(value)) {
            time if !time.is_zero() && time <= MAX_TIME => Ok(Some(time)),
            _ => Err(format!("{name} is {value}, but must be at least 1 ms, and at most a hundred years")),
        },
    };
    let backoff = match &options.backoff {
        None => None,
        Some(name) => {
            let known = Backoff::ALL.map(Backoff::name).join(", ");
            let unknown = || format!("backoff is \"{}\", but must be one of {known}", name.escape_debug());
            Some(Backoff::named(name).ok_or_else(unknown)?)
        }
    };
    let overrides = Overrides {
        attempts: count("attempts", options.attempts)?,
        backoff,
        base: time("base_ms", options.base_ms)?,
        max: time("max_ms", options.max_ms)?,
        jitter: options.jitter.map(|on| if on { Jitter::Half } else { Jitter::Off }),
        max_crashes: count("max_crashes", options.max_crashes)?,
        max_node_deaths: None,
        timeout: time("timeout_ms", options.timeout_ms)?,
    };
    match (overrides.base, overrides.max) {
        (Some(base), Some(max)) if base > max => Err("base_ms must not be longer than max_ms".to_owned()),
        (Some(_) | None, Some(_) | None) => Ok(overrides),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: KindOptions) -> Result<Announced, String> {
        let ready = ReadyFrame { options: [("x".to_owned(), options)].into(), ..ReadyFrame::default() };
        announced(ready, 1)
    }

    #[test]
    fn a_worker_gets_as_many_tasks_at_once_as_it_can_take_and_its_pool_allows() {
        for (can, per_worker, slots) in
            [(None, 1, 1), (None, 50, 1), (Some(50.0), 50, 50), (Some(9.0), 1, 1), (Some(0.0), 5, 1)]
        {
            let ready = ReadyFrame { per_worker: can, ..ReadyFrame::default() };
            let Announced { slots: got, warning, .. } = announced(ready, per_worker).expect("it is right");
            assert_eq!((got, warning.is_some()), (slots, slots < per_worker), "{can:?} of {per_worker}");
        }
    }

    #[test]
    fn options_are_policy_values_and_wrong_ones_are_refused_with_their_range() {
        let good = KindOptions {
            attempts: Some(5.0),
            timeout_ms: Some(30_000.0),
            backoff: Some("fixed".into()),
            jitter: Some(false),
            ..KindOptions::default()
        };
        let overrides = Overrides {
            attempts: Some(5),
            timeout: Some(Duration::from_secs(30)),
            backoff: Some(Backoff::Fixed),
            jitter: Some(Jitter::Off),
            ..Overrides::NONE
        };
        assert_eq!(with(good).expect("it is right").options["x"], overrides);
        let none = KindOptions::default;
        for (wrong, says) in [
            (KindOptions { attempts: Some(0.0), ..none() }, "attempts is 0, but must be from 1 to 1000000"),
            (KindOptions { attempts: Some(1.5), ..none() }, "attempts is 1.5"),
            (KindOptions { timeout_ms: Some(0.0), ..none() }, "timeout_ms is 0"),
            (
                KindOptions { backoff: Some("wild".into()), ..none() },
                "must be one of fixed, linear, exponential",
            ),
            (KindOptions { base_ms: Some(9.0), max_ms: Some(8.0), ..none() }, "base_ms must not be longer"),
        ] {
            let error = with(wrong).expect_err("it is wrong");
            assert!(
                error.starts_with("has a wrong option for the kind \"x\": ") && error.contains(says),
                "{error}"
            );
        }
    }
}
