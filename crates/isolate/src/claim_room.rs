//! Workers and claimed tasks of a pool of functions: what `WORKER_POOL_SIZE`, `MAX_QUEUED_WORKERS` and the config ask for.
//!
//! A durable pool has no queue of its own: tasks wait in the store. What it holds is what it has claimed, and that is bounded here.

use ostler_config::{ClaimRoom, PoolDefaults};
use ostler_exec::SizeVariables;

/// Tasks that a pool may have claimed for each of its workers, if nothing else is set.
const CLAIMED_PER_WORKER: u32 = 10;

/// The workers of a pool that does not set them: `WORKER_POOL_SIZE`, or the cores up to a bound.
pub(crate) fn defaults(variables: Option<SizeVariables>, most_by_cores: u32) -> PoolDefaults {
    let by_cores = PoolDefaults::by_cores(most_by_cores);
    let asked = variables.and_then(|variables| variables.workers).map(count);
    PoolDefaults { max_workers: asked.unwrap_or(by_cores.max_workers), ..by_cores }
}

/// How many tasks a pool with so many workers may have claimed: what its config says, or `MAX_QUEUED_WORKERS`, or ten for each.
pub(crate) fn room(variables: SizeVariables, max_claimed: Option<u32>, workers: u32) -> ClaimRoom {
    let (most, most_from) = match (max_claimed, variables.most) {
        (Some(most), _) => (most, "max_claimed".to_owned()),
        (None, Some(most)) => (count(most), SizeVariables::MAX_QUEUED.to_owned()),
        (None, None) => {
            (workers.saturating_mul(CLAIMED_PER_WORKER), format!("{CLAIMED_PER_WORKER} for each worker"))
        }
    };
    let workers_from = match variables.workers {
        Some(asked) if count(asked) == workers => SizeVariables::POOL_SIZE,
        Some(_) => "max_workers",
        None if workers == PoolDefaults::by_cores(u32::MAX).max_workers => "one for each core",
        None => "max_workers",
    };
    ClaimRoom { most, most_from, workers_from: workers_from.to_owned() }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(workers: Option<usize>, most: Option<usize>) -> SizeVariables {
        SizeVariables { workers, most }
    }

    #[test]
    fn the_environment_has_the_number_of_workers_unless_the_config_has() {
        assert_eq!(defaults(Some(variables(Some(3), None)), 256).max_workers, 3);
        assert_eq!(defaults(Some(variables(None, Some(9))), 256), PoolDefaults::by_cores(256));
        assert_eq!(defaults(None, 256), PoolDefaults::by_cores(256), "a value that is refused elsewhere");
    }

    #[test]
    fn ten_tasks_for_each_worker_unless_something_else_is_said() {
        for (set, max_claimed, workers, most, from) in [
            (variables(None, None), None, 7, 70, "10 for each worker"),
            (variables(Some(7), None), None, 7, 70, "10 for each worker"),
            (variables(Some(7), Some(9)), None, 7, 9, "MAX_QUEUED_WORKERS"),
            (variables(Some(7), Some(9)), Some(12), 7, 12, "max_claimed"),
        ] {
            let room = room(set, max_claimed, workers);
            assert_eq!((room.most, room.most_from.as_str()), (most, from));
            assert_eq!(room.check(workers), Ok(()));
        }
    }

    #[test]
    fn fewer_claimed_tasks_than_workers_are_refused_with_a_sentence() {
        let room = room(variables(Some(4), Some(3)), None, 4);
        assert_eq!(
            room.check(4).unwrap_err(),
            "at most 3 tasks may be claimed (MAX_QUEUED_WORKERS), but there are 4 workers (WORKER_POOL_SIZE), and each needs room \
             for one: allow at least 4, or have fewer workers"
        );
        assert_eq!(super::room(variables(Some(4), None), None, 5).workers_from, "max_workers");
    }
}
