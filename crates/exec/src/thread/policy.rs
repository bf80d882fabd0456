//! How many threads there are, which one is next, and how much may wait.

/// Names how many threads there are.
const POOL_SIZE: &str = "WORKER_POOL_SIZE";
/// Names how many attempts may run and wait.
const MAX_QUEUED: &str = "MAX_QUEUED_WORKERS";
/// Attempts that may run and wait, for each thread.
const MOST_PER_THREAD: usize = 10;

/// Which thread is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the least to do.
    LeastLoaded,
}

/// What runtime each thread has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtimes {
    /// One with two threads of its own for what the work spawns.
    #[default]
    TwoWorkers,
    /// One on the thread itself.
    CurrentThread,
}

/// How a pool of threads is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// How many threads.
    pub threads: usize,
    /// How many attempts may run and wait together. A pool has no more workers than this, also where there are more threads.
    pub most: usize,
    /// Which thread is next.
    pub choice: Choice,
    /// What runtime each has.
    pub runtimes: Runtimes,
}

impl ThreadPolicy {
    /// A thread for each core, and ten attempts for each thread.
    #[must_use]
    pub fn for_cores(cores: usize) -> Self {
        let threads = cores.max(1);
        let most = threads.saturating_mul(MOST_PER_THREAD);
        Self { threads, most, choice: Choice::default(), runtimes: Runtimes::default() }
    }

    /// The same, where `WORKER_POOL_SIZE` and `MAX_QUEUED_WORKERS` have the last word.
    ///
    /// # Errors
    /// A sentence, when one of them is not a number above zero.
    pub fn from_environment(cores: usize, read: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str| match read(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<usize>() {
                Ok(number) if number > 0 => Ok(Some(number)),
                Ok(_) | Err(_) => Err(format!("{name} is \"{text}\", and must be a whole number above zero")),
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
