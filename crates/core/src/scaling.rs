//! Autoscaling: how many workers a pool should have. The pool asks at every change of its load and applies the answer;
//! no state is kept between two calls, so an answer must never undo the previous one.

use std::time::Duration;

/// The bounds of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScalePolicy {
    /// The minimum number of workers.
    pub min: u32,
    /// The maximum number of workers; ignored when below the minimum.
    pub max: u32,
    /// Workers are added when this many tasks wait.
    pub scale_up_at: u32,
    /// A worker above the minimum is stopped after being idle for this long.
    pub idle_timeout: Duration,
}

/// Whether the machine has memory for more workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryPressure {
    /// Below the threshold.
    Free,
    /// Above the threshold: workers are added only up to the minimum.
    Tight,
}

/// The current load of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolLoad {
    /// All its workers: starting, idle and busy.
    pub total: u32,
    pub idle: u32,
    /// Workers that are still starting. Each will take `per_worker` tasks, so that a slow start does not demand more workers.
    pub starting: u32,
    /// How many tasks a worker runs at once.
    pub per_worker: u32,
    /// Ready tasks without a worker.
    pub waiting: u32,
    /// How long the longest-idle worker has been idle.
    pub oldest_idle_for: Duration,
    pub memory: MemoryPressure,
}

/// How the pool should change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    Hold,
    /// Start this many workers, all at once.
    Up(u32),
    /// Stop the worker that has been idle longest, and only that one.
    Down,
}

/// Decides how the pool should change.
#[must_use]
pub fn scale(policy: &ScalePolicy, load: &PoolLoad) -> Scale {
    // A minimum above the maximum is a mistake; keeping the minimum does not flap.
    let max = policy.max.max(policy.min);
    let missing = policy.min.saturating_sub(load.total);
    let more = missing.max(demanded(policy, load).min(max.saturating_sub(load.total)));
    if more > 0 {
        Scale::Up(more)
    } else if may_shrink(policy, load, max) {
        Scale::Down
    } else {
        Scale::Hold
    }
}

/// The number of workers that the waiting tasks demand.
fn demanded(policy: &ScalePolicy, load: &PoolLoad) -> u32 {
    match load.memory {
        MemoryPressure::Tight => return 0,
        MemoryPressure::Free => {}
    }
    if load.idle > 0 {
        return 0;
    }
    // With no worker at all, one task is enough: otherwise it would wait indefinitely for more tasks.
    let enough = if load.total == 0 { 1 } else { policy.scale_up_at.max(1) };
    let per_worker = load.per_worker.max(1);
    let unserved = load.waiting.saturating_sub(load.starting.saturating_mul(per_worker));
    if unserved >= enough { unserved.div_ceil(per_worker) } else { 0 }
}

/// Whether one idle worker should stop. Not while a task waits: the idle worker is about to take it, and without
/// it the pool might grow again at once.
fn may_shrink(policy: &ScalePolicy, load: &PoolLoad, max: u32) -> bool {
    let too_many = load.total > max;
    let not_needed =
        load.total > policy.min && load.waiting == 0 && load.oldest_idle_for >= policy.idle_timeout;
    load.idle > 0 && (too_many || not_needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);
    const POLICY: ScalePolicy = ScalePolicy { min: 2, max: 10, scale_up_at: 3, idle_timeout: TIMEOUT };
    const QUIET: PoolLoad = PoolLoad {
        total: 2,
        idle: 2,
        starting: 0,
        per_worker: 1,
        waiting: 0,
        oldest_idle_for: Duration::ZERO,
        memory: MemoryPressure::Free,
    };

    #[test]
    fn the_minimum_comes_at_once_also_when_memory_is_tight() {
        for memory in [MemoryPressure::Free, MemoryPressure::Tight] {
            assert_eq!(scale(&POLICY, &PoolLoad { total: 0, idle: 0, memory, ..QUIET }), Scale::Up(2));
            assert_eq!(scale(&POLICY, &PoolLoad { total: 1, idle: 1, memory, ..QUIET }), Scale::Up(1));
            assert_eq!(scale(&POLICY, &PoolLoad { memory, ..QUIET }), Scale::Hold);
        }
    }

    #[test]
    fn as_many_come_at_once_as_tasks_wait_up_to_the_maximum() {
        let busy = PoolLoad { idle: 0, ..QUIET };
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 2, ..busy }), Scale::Hold, "below scale_up_at");
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 3, ..busy }), Scale::Up(3));
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 1_000, ..busy }), Scale::Up(8));
        assert_eq!(scale(&POLICY, &PoolLoad { total: 10, waiting: 1_000, ..busy }), Scale::Hold);
        assert_eq!(scale(&POLICY, &PoolLoad { total: 0, waiting: 7, ..busy }), Scale::Up(7), "not two steps");
    }

    #[test]
    fn no_worker_is_added_while_one_is_idle_or_memory_is_tight() {
        assert_eq!(scale(&POLICY, &PoolLoad { idle: 1, waiting: 9, ..QUIET }), Scale::Hold);
        assert_eq!(
            scale(&POLICY, &PoolLoad { idle: 0, waiting: 9, memory: MemoryPressure::Tight, ..QUIET }),
            Scale::Hold
        );
    }

    #[test]
    fn a_slow_start_does_not_ask_for_more() {
        let starting = PoolLoad { total: 6, idle: 0, starting: 4, ..QUIET };
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 4, ..starting }), Scale::Hold);
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 6, ..starting }), Scale::Hold);
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 7, ..starting }), Scale::Up(3));
    }

    #[test]
    fn as_many_workers_come_as_the_tasks_fill() {
        let busy = PoolLoad { idle: 0, per_worker: 50, ..QUIET };
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 3, ..busy }), Scale::Up(1));
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 50, ..busy }), Scale::Up(1));
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 51, ..busy }), Scale::Up(2));
        let starting = PoolLoad { total: 3, starting: 1, ..busy };
        assert_eq!(
            scale(&POLICY, &PoolLoad { waiting: 52, ..starting }),
            Scale::Hold,
            "one of them is coming"
        );
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 53, ..starting }), Scale::Up(1));
    }

    #[test]
    fn a_pool_with_no_worker_starts_one_for_one_task() {
        let from_zero = ScalePolicy { min: 0, ..POLICY };
        let empty = PoolLoad { total: 0, idle: 0, ..QUIET };
        assert_eq!(scale(&from_zero, &PoolLoad { waiting: 1, ..empty }), Scale::Up(1));
        assert_eq!(scale(&from_zero, &empty), Scale::Hold);
        assert_eq!(scale(&ScalePolicy { scale_up_at: 0, ..from_zero }, &empty), Scale::Hold);
    }

    #[test]
    fn one_goes_after_the_timeout_when_it_is_not_needed() {
        let idle = PoolLoad { total: 5, idle: 3, oldest_idle_for: TIMEOUT, ..QUIET };
        assert_eq!(scale(&POLICY, &idle), Scale::Down);
        let fresh = PoolLoad { oldest_idle_for: TIMEOUT - Duration::from_millis(1), ..idle };
        assert_eq!(scale(&POLICY, &fresh), Scale::Hold);
        assert_eq!(scale(&POLICY, &PoolLoad { total: 2, idle: 2, ..idle }), Scale::Hold, "the minimum stays");
        assert_eq!(scale(&POLICY, &PoolLoad { waiting: 1, ..idle }), Scale::Hold, "it is about to take it");
        assert_eq!(scale(&POLICY, &PoolLoad { idle: 0, ..idle }), Scale::Hold, "no worker is idle");
    }

    #[test]
    fn above_a_new_maximum_the_idle_go_at_once() {
        let resized = PoolLoad { total: 12, idle: 1, waiting: 50, ..QUIET };
        assert_eq!(scale(&POLICY, &resized), Scale::Down);
        assert_eq!(scale(&POLICY, &PoolLoad { idle: 0, ..resized }), Scale::Hold, "the busy finish first");
    }

    /// Every small pool under every small policy: (policy, load).
    fn small_world() -> Vec<(ScalePolicy, PoolLoad)> {
        let mut all = Vec::new();
        let timeouts = [Duration::ZERO, TIMEOUT];
        for (min, max, scale_up_at) in triples(3) {
            for (total, idle, starting) in
                triples(5).filter(|(total, idle, starting)| idle + starting <= *total)
            {
                for waiting in 0..6 {
                    for (idle_timeout, oldest_idle_for) in
                        timeouts.iter().flat_map(|a| timeouts.map(|b| (*a, b)))
                    {
                        for memory in [MemoryPressure::Free, MemoryPressure::Tight] {
                            for per_worker in [1, 2] {
                                let policy = ScalePolicy { min, max, scale_up_at, idle_timeout };
                                let load = PoolLoad { total, idle, starting, per_worker, waiting, ..QUIET };
                                all.push((policy, PoolLoad { oldest_idle_for, memory, ..load }));
                            }
                        }
                    }
                }
            }
        }
        all
    }

    fn triples(most: u32) -> impl Iterator<Item = (u32, u32, u32)> {
        (0..=most).flat_map(move |a| (0..=most).flat_map(move |b| (0..=most).map(move |c| (a, b, c))))
    }

    #[test]
    fn an_answer_that_was_followed_is_never_undone_by_the_next() {
        for (policy, load) in small_world() {
            match scale(&policy, &load) {
                Scale::Hold => {}
                Scale::Up(more) => {
                    let grown = PoolLoad { total: load.total + more, ..load };
                    let coming = PoolLoad { starting: load.starting + more, ..grown };
                    let up = PoolLoad { idle: load.idle + more, ..grown };
                    // While it starts it is enough; once it is up, no worker stops and no other starts.
                    assert_eq!(scale(&policy, &coming), Scale::Hold, "{policy:?} {load:?}");
                    assert_eq!(scale(&policy, &up), Scale::Hold, "{policy:?} {load:?}");
                }
                Scale::Down => {
                    let shrunk = PoolLoad { total: load.total - 1, idle: load.idle - 1, ..load };
                    let next = scale(&policy, &shrunk);
                    assert!(!matches!(next, Scale::Up(_)), "{policy:?} {load:?} then {next:?}");
                }
            }
        }
    }

    #[test]
    fn no_answer_leaves_the_bounds() {
        for (policy, load) in small_world() {
            match scale(&policy, &load) {
                Scale::Hold => {}
                Scale::Up(more) => {
                    assert!(
                        more > 0 && load.total + more <= policy.max.max(policy.min),
                        "{policy:?} {load:?}"
                    );
                }
                Scale::Down => assert!(load.total > policy.min && load.idle > 0, "{policy:?} {load:?}"),
            }
        }
    }
}
