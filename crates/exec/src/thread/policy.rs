//! Thread policy: the number of threads, the choice of the next one, and the queue limit.

/// Environment variable: the number of threads.
const POOL_SIZE: &str = SizeVariables::POOL_SIZE;
/// Environment variable: the maximum of running and queued work.
const MAX_QUEUED: &str = SizeVariables::MAX_QUEUED;
/// The default of running and queued work per thread.
const MOST_PER_THREAD: usize = SizeVariables::MOST_PER_WORKER;

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// In turn.
    #[default]
    RoundRobin,
    /// The thread with the least to do.
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
    /// The number of threads, above zero.
    pub threads: usize,
    /// The maximum of running and queued work together, at least the number of threads.
    pub most: usize,
    /// How the next thread is chosen.
    pub choice: Choice,
    /// The runtime of each thread.
    pub runtimes: Runtimes,
}

/// Why a policy or a variable of the environment cannot be used, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadThreadPolicy(String);

/// The sizes that the environment asks for, for pools of threads and of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeVariables {
    /// `WORKER_POOL_SIZE`: the number of workers.
    pub workers: Option<usize>,
    /// `MAX_QUEUED_WORKERS`: the maximum of running and queued work.
    pub most: Option<usize>,
}

/// The policy that the environment asks for, and which of its variables are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadEnvironment {
    /// The policy.
    pub policy: ThreadPolicy,
    /// Where the number of threads comes from.
    pub threads_from: SettingSource,
    /// Where the maximum of running and queued work comes from.
    pub most_from: SettingSource,
}

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// A variable of the environment, by its name.
    Variable(&'static str),
    /// It is not set: the number of cores, or ten for each thread.
    Default,
}

impl ThreadPolicy {
    /// One thread per core, and ten running or queued for each.
    #[must_use]
    pub fn for_cores(cores: usize) -> Self {
        let threads = cores.max(1);
        let most = threads.saturating_mul(MOST_PER_THREAD);
        Self { threads, most, choice: Choice::default(), runtimes: Runtimes::default() }
    }

    /// The same, overridden by `WORKER_POOL_SIZE` and `MAX_QUEUED_WORKERS`.
    ///
    /// # Errors
    /// When one of them is not a number above zero, or the limit is below the number of threads.
    pub fn from_environment(
        cores: usize,
        read: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, BadThreadPolicy> {
        Ok(ThreadEnvironment::read(cores, read)?.policy)
    }

    /// The policy of this machine and of the environment of this process.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn here() -> Result<Self, BadThreadPolicy> {
        Ok(ThreadEnvironment::here()?.policy)
    }

    /// Checks that every thread may have something to do.
    ///
    /// # Errors
    /// When there is no thread, or the limit is below the number of threads: some of them could never run anything.
    pub fn check(&self) -> Result<(), BadThreadPolicy> {
        let Self { threads, most, .. } = *self;
        if threads == 0 {
            return Err(BadThreadPolicy("a pool of threads must have at least one thread".to_owned()));
        }
        if most < threads {
            return Err(BadThreadPolicy(format!(
                "at most {most} running and queued are too few for {threads} threads: \
                 allow at least {threads}, or have fewer threads"
            )));
        }
        Ok(())
    }
}

impl SizeVariables {
    /// The variable with the number of workers.
    pub const POOL_SIZE: &str = "WORKER_POOL_SIZE";
    /// The variable with the maximum of running and queued work.
    pub const MAX_QUEUED: &str = "MAX_QUEUED_WORKERS";
    /// The default of running and queued work, for each worker.
    pub const MOST_PER_WORKER: usize = 10;

    /// Reads the variables.
    ///
    /// # Errors
    /// When one of them is not a number above zero.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Result<Self, BadThreadPolicy> {
        let number = |name: &str| match read(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<usize>() {
                Ok(number) if number > 0 => Ok(Some(number)),
                Ok(_) | Err(_) => Err(BadThreadPolicy(format!(
                    "{name} is \"{text}\", but must be a whole number above zero"
                ))),
            },
        };
        Ok(Self { workers: number(Self::POOL_SIZE)?, most: number(Self::MAX_QUEUED)? })
    }

    /// Reads the variables of this process.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn here() -> Result<Self, BadThreadPolicy> {
        // Text that is not UTF-8 is no number, and refused as such.
        Self::read(|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }
}

impl ThreadEnvironment {
    /// Reads the variables.
    ///
    /// # Errors
    /// When one of them is not a number above zero, or the limit is below the number of threads.
    pub fn read(cores: usize, read: impl Fn(&str) -> Option<String>) -> Result<Self, BadThreadPolicy> {
        Self::of(cores, SizeVariables::read(read)?)
    }

    fn of(cores: usize, variables: SizeVariables) -> Result<Self, BadThreadPolicy> {
        let from = |set: Option<usize>, name| match set {
            Some(_) => SettingSource::Variable(name),
            None => SettingSource::Default,
        };
        let (threads_from, most_from) =
            (from(variables.workers, POOL_SIZE), from(variables.most, MAX_QUEUED));
        let usual = ThreadPolicy::for_cores(variables.workers.unwrap_or(cores));
        let most = variables.most.unwrap_or(usual.most);
        let policy = ThreadPolicy { most, ..usual };
        if most < policy.threads {
            let threads = policy.threads;
            let (whose, other) = match threads_from {
                SettingSource::Variable(name) => {
                    (format!("{name} is {threads}"), format!(", or a smaller {name}"))
                }
                SettingSource::Default => {
                    (format!("there are {threads} threads, one for each core"), String::new())
                }
            };
            return Err(BadThreadPolicy(format!(
                "{MAX_QUEUED} is {most}, but {whose}: each thread needs room for one; set at least {threads}{other}"
            )));
        }
        Ok(Self { policy, threads_from, most_from })
    }

    /// Reads the variables of this process, and counts the cores of this machine.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn here() -> Result<Self, BadThreadPolicy> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of(cores, SizeVariables::here()?)
    }

    /// Whether any of the variables is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        [self.threads_from, self.most_from].iter().any(|from| *from != SettingSource::Default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(size: Option<&'a str>, most: Option<&'a str>) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| match name {
            POOL_SIZE => size.map(str::to_owned),
            MAX_QUEUED => most.map(str::to_owned),
            other => panic!("{other} is none of the variables"),
        }
    }

    #[test]
    fn a_thread_for_each_core_and_ten_attempts_for_each_thread() {
        let policy = ThreadPolicy::for_cores(8);
        assert_eq!((policy.threads, policy.most), (8, 80));
        assert_eq!(ThreadPolicy::for_cores(0).threads, 1);
    }

    #[test]
    fn the_environment_has_the_last_word() {
        for (size, most, expected) in [
            (None, None, (8, 80)),
            (Some("3"), None, (3, 30)),
            (None, Some("9"), (8, 9)),
            (Some(" 2 "), Some("5"), (2, 5)),
            (Some("4"), Some("4"), (4, 4)),
        ] {
            let policy = ThreadPolicy::from_environment(8, environment(size, most)).unwrap();
            assert_eq!((policy.threads, policy.most), expected, "{size:?} {most:?}");
        }
    }

    #[test]
    fn each_value_says_where_it_comes_from() {
        let read = ThreadEnvironment::read(8, environment(Some("3"), None)).unwrap();
        assert_eq!(read.threads_from, SettingSource::Variable("WORKER_POOL_SIZE"));
        assert_eq!(read.most_from, SettingSource::Default);
        assert!(read.is_set());
        assert!(!ThreadEnvironment::read(8, environment(None, None)).unwrap().is_set());
    }

    #[test]
    fn what_is_not_a_number_above_zero_is_refused_with_a_sentence() {
        for text in ["0", "-1", "many", "", "1.5"] {
            let error = ThreadPolicy::from_environment(8, environment(Some(text), None)).unwrap_err();
            let sentence = format!("WORKER_POOL_SIZE is \"{text}\", but must be a whole number above zero");
            assert_eq!(error.to_string(), sentence);
            let error = ThreadPolicy::from_environment(8, environment(None, Some(text))).unwrap_err();
            assert!(error.to_string().starts_with("MAX_QUEUED_WORKERS is "), "{error}");
        }
    }

    #[test]
    fn a_limit_below_the_threads_is_refused_with_a_sentence() {
        let refused = |size, most| {
            ThreadPolicy::from_environment(8, environment(size, Some(most))).unwrap_err().to_string()
        };
        assert_eq!(
            refused(Some("4"), "3"),
            "MAX_QUEUED_WORKERS is 3, but WORKER_POOL_SIZE is 4: each thread needs room for one; \
             set at least 4, or a smaller WORKER_POOL_SIZE"
        );
        assert_eq!(
            refused(None, "7"),
            "MAX_QUEUED_WORKERS is 7, but there are 8 threads, one for each core: each thread needs room for one; \
             set at least 8"
        );
        let policy = ThreadPolicy { most: 1, ..ThreadPolicy::for_cores(2) };
        assert!(policy.check().unwrap_err().to_string().contains("too few for 2 threads"));
        let policy = ThreadPolicy { threads: 0, ..policy };
        assert!(policy.check().unwrap_err().to_string().contains("at least one thread"));
        assert_eq!(ThreadPolicy::for_cores(1).check(), Ok(()));
    }
}
