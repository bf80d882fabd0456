//! Thread policy: the number of threads, the choice of the next one, and the queue limit.

/// Environment variable: the number of threads.
const POOL_SIZE: &str = "WORKER_POOL_SIZE";
/// Environment variable: the maximum of running and waiting attempts.
const MAX_QUEUED: &str = "MAX_QUEUED_WORKERS";
/// The default of running and waiting attempts per thread.
const MOST_PER_THREAD: usize = 10;

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// In turn.
    #[default]
    RoundRobin,
    /// The thread with the fewest attempts.
    LeastLoaded,
}

/// The runtime of each thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtimes {
    /// A runtime with two worker threads of its own for what the work spawns.
    #[default]
    TwoWorkers,
    /// A runtime on the thread itself.
    CurrentThread,
}

/// The layout of a thread pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// The number of threads.
    pub threads: usize,
    /// The maximum of running and waiting attempts together. A pool has no more workers than this, even if there are more threads.
    pub most: usize,
    /// How the next thread is chosen.
    pub choice: Choice,
    /// The runtime of each thread.
    pub runtimes: Runtimes,
}

impl ThreadPolicy {
    /// One thread per core, and ten attempts per thread.
    #[must_use]
    pub fn for_cores(cores: usize) -> Self {
        let threads = cores.max(1);
        let most = threads.saturating_mul(MOST_PER_THREAD);
        Self { threads, most, choice: Choice::default(), runtimes: Runtimes::default() }
    }

    /// The same, overridden by `WORKER_POOL_SIZE` and `MAX_QUEUED_WORKERS`.
    ///
    /// # Errors
    /// A sentence, when one of them is not a number above zero.
    pub fn from_environment(cores: usize, read: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str| match read(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<usize>() {
                Ok(number) if number > 0 => Ok(Some(number)),
                Ok(_) | Err(_) => Err(format!("{name} is \"{text}\", but must be a whole number above zero")),
            },
        };
        let policy = Self::for_cores(number(POOL_SIZE)?.unwrap_or(cores));
        Ok(Self { most: number(MAX_QUEUED)?.unwrap_or(policy.most), ..policy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_for_each_core_and_ten_attempts_for_each_thread() {
        let policy = ThreadPolicy::for_cores(8);
        assert_eq!((policy.threads, policy.most), (8, 80));
        assert_eq!(ThreadPolicy::for_cores(0).threads, 1);
    }

    #[test]
    fn the_environment_has_the_last_word() {
        let read = |name: &str| match name {
            "WORKER_POOL_SIZE" => Some("3".to_owned()),
            _ => None,
        };
        let policy = ThreadPolicy::from_environment(8, read).unwrap();
        assert_eq!((policy.threads, policy.most), (3, 30));
        let read = |name: &str| Some(if name == "WORKER_POOL_SIZE" { "2" } else { "5" }.to_owned());
        let policy = ThreadPolicy::from_environment(8, read).unwrap();
        assert_eq!((policy.threads, policy.most), (2, 5));
    }

    #[test]
    fn what_is_not_a_number_above_zero_is_refused_with_a_sentence() {
        for text in ["0", "-1", "many", "", "1.5"] {
            let error = ThreadPolicy::from_environment(8, |_| Some(text.to_owned())).unwrap_err();
            assert!(error.contains("WORKER_POOL_SIZE") && error.contains("whole number"), "{error}");
        }
    }
}
