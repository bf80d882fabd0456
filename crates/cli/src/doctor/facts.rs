//! The facts the doctor examines. All of its I/O is here and in `site.rs`, and all of it is bounded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{StateName, Task, Timestamp};
use ostler_postgres::{Address, Listening, Postgres};
use ostler_process::supervisor::Contained;
use ostler_runtime::{RedisAddress, RedisFault};
use ostler_sqlite::{Options, Sqlite, integrity};
use ostler_store::jobs::{JobFilter, JobRecord};
use ostler_store::schedules::ScheduleRecord;
use ostler_store::views::{Filter, LaneRecord, LeaseFilter, Survey};
use ostler_store::{Clock, Error, ErrorKind, Store};

use super::Subject;
use super::site::{self, SiteFacts};
use crate::config::sandbox::{OpenDoor, open_doors};
use crate::config::{Config, ExecutorSettings, StoreUrl};
use crate::map::job;

/// The timeout for opening a store, and for each query.
const MAX_ANSWER: Duration = Duration::from_secs(10);
/// The maximum number of tasks examined in one list.
const MAX_LOOKED_AT: usize = 200;
/// The maximum number of lanes whose waiting tasks are examined, fullest first.
const MAX_LANES: usize = 20;
/// The maximum number of unfinished jobs examined.
const MAX_JOBS: usize = 20;

/// Everything the rules depend on.
#[derive(Clone, Debug)]
pub(crate) struct DoctorFacts {
    pub(crate) now: Timestamp,
    /// Where the store is; `None` if it is unknown which store to examine.
    pub(crate) site: Option<Site>,
    pub(crate) look: StoreLook,
    /// The config, if there is one.
    pub(crate) config: Option<ConfigFacts>,
    /// How children would be contained here, or why they cannot be.
    pub(crate) containment: Option<Result<Contained, String>>,
    /// Whether presence works, if it is configured.
    pub(crate) presence: Option<PresenceFacts>,
}

/// The result of asking the Redis server for presence.
#[derive(Clone, Debug)]
pub(crate) struct PresenceFacts {
    /// Without the password.
    pub(crate) address: String,
    pub(crate) probed: Result<(), RedisFault>,
}

#[derive(Clone, Debug)]
pub(crate) enum Site {
    File(SiteFacts),
    /// On a server, by its address without the password.
    Server(String),
}

/// The result of examining the store.
#[derive(Clone, Debug)]
pub(crate) enum StoreLook {
    /// Unknown store: the config that would name it is invalid.
    Unnamed,
    Absent,
    /// The store could not be opened or read.
    Refused(Error),
    /// The store did not answer in time.
    Silent(Duration),
    /// An older version created it. It was not opened, because that would migrate it.
    Outdated {
        /// Its schema version.
        found: i64,
        /// The schema version of this program.
        newest: i64,
    },
    Seen(Box<StoreFacts>),
}

/// What was read from the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFacts {
    pub(crate) survey: Survey,
    /// The newest tasks.
    pub(crate) newest: Sample,
    pub(crate) failed: Sample,
    /// Tasks held by a dead or overdue node.
    pub(crate) stale: Sample,
    /// Waiting tasks of the fullest lanes.
    pub(crate) waiting: Vec<Sample>,
    pub(crate) schedules: Vec<ScheduleRecord>,
    /// Unfinished jobs, those with the most items left first.
    pub(crate) jobs: Vec<JobRecord>,
}

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) tasks: Vec<Task>,
    /// Whether there may be more tasks.
    pub(crate) more: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ConfigFacts {
    /// The config is invalid; the text says why.
    Broken(String),
    Good {
        /// The queues that its pools serve.
        queues: Vec<String>,
        /// Pools whose program was not found, with the program.
        missing_programs: Vec<(String, String)>,
        /// Openings in its sandboxes.
        open_doors: Vec<OpenDoor>,
        /// Valid but dangerous settings.
        warnings: Vec<String>,
    },
}

/// Gathers all facts.
pub(crate) async fn gather(subject: Subject) -> DoctorFacts {
    let Subject { store, config, containment, clock } = subject;
    let now = clock.now();
    let redis = config
        .as_ref()
        .and_then(|read| read.as_ref().ok())
        .and_then(|config| Some(config.presence.as_ref()?.redis.clone()));
    let config = config.map(|read| match read {
        Ok(config) => good_config(&config),
        Err(error) => ConfigFacts::Broken(error.to_string()),
    });
    let (site, opened) = match store {
        None => (None, Err(StoreLook::Unnamed)),
        Some(StoreUrl::Sqlite(path)) => (Some(Site::File(site::look(&path))), open(path, clock).await),
        Some(StoreUrl::Postgres(address)) => {
            (Some(Site::Server(address.to_string())), connect(&address).await)
        }
    };
    let (look, presence) = tokio::join!(look(opened), probe(redis));
    DoctorFacts { now, site, look, config, containment, presence }
}

/// Asks the Redis server, with a timeout.
async fn probe(redis: Option<RedisAddress>) -> Option<PresenceFacts> {
    let redis = redis?;
    Some(PresenceFacts { address: redis.to_string(), probed: redis.probe().await })
}

async fn look(opened: Result<Box<dyn Store>, StoreLook>) -> StoreLook {
    let opened = match opened {
        Ok(opened) => opened,
        Err(look) => return look,
    };
    match tokio::time::timeout(MAX_ANSWER, see(&*opened)).await {
        Ok(Ok(seen)) => StoreLook::Seen(Box::new(seen)),
        Ok(Err(error)) => StoreLook::Refused(error),
        Err(_) => {
            // Closing it would wait for the query without an answer. The connection ends with the program.
            std::mem::forget(opened);
            StoreLook::Silent(MAX_ANSWER)
        }
    }
}

/// Opens the store, if there is one that needs no migration.
///
/// On its own thread, not on one of the runtime: another process may hold the file's lock for any time, and waiting for it cannot
/// be cancelled. The thread then ends with the program.
async fn open(path: PathBuf, clock: Arc<dyn Clock>) -> Result<Box<dyn Store>, StoreLook> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let opening = std::thread::Builder::new().name("doctor".to_owned());
    let opening = opening.spawn(move || drop(answer.send(open_what_is_there(&path, clock))));
    if let Err(error) = opening {
        return Err(StoreLook::Refused(Error::new(
            ErrorKind::Unavailable,
            format!("cannot start a thread: {error}"),
        )));
    }
    match tokio::time::timeout(MAX_ANSWER, answered).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => Err(StoreLook::Refused(Error::new(
            ErrorKind::Internal,
            "the doctor panicked while opening the store",
        ))),
        Err(_) => Err(StoreLook::Silent(MAX_ANSWER)),
    }
}

fn open_what_is_there(path: &Path, clock: Arc<dyn Clock>) -> Result<Box<dyn Store>, StoreLook> {
    let versions = integrity::versions(path).map_err(|error| {
        // If the whole folder is missing, so is the store.
        let missing = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let gone =
            error.kind() == ErrorKind::Unavailable && std::fs::symlink_metadata(path).is_err_and(missing);
        if gone { StoreLook::Absent } else { StoreLook::Refused(error) }
    })?;
    match versions.found {
        None => Err(StoreLook::Absent),
        Some(found) if found < versions.newest => Err(StoreLook::Outdated { found, newest: versions.newest }),
        Some(_) => match Sqlite::open(path, clock, Options::default()) {
            Ok(store) => Ok(Box::new(store)),
            Err(error) => Err(StoreLook::Refused(error)),
        },
    }
}

/// Opens the store of a server, if there is one that needs no migration.
async fn connect(address: &Address) -> Result<Box<dyn Store>, StoreLook> {
    let opening = async {
        let versions = ostler_postgres::integrity::versions(address).await.map_err(StoreLook::Refused)?;
        match versions.found {
            None => return Err(StoreLook::Absent),
            Some(found) if found < versions.newest => {
                return Err(StoreLook::Outdated { found, newest: versions.newest });
            }
            Some(_) => {}
        }
        let options =
            ostler_postgres::Options { listening: Listening::Brief, ..ostler_postgres::Options::default() };
        match Postgres::open_existing(address.secret(), options).await {
            Ok(Some(store)) => Ok(Box::new(store) as Box<dyn Store>),
            Ok(None) => Err(StoreLook::Absent),
            Err(error) => Err(StoreLook::Refused(error)),
        }
    };
    tokio::time::timeout(MAX_ANSWER, opening).await.unwrap_or(Err(StoreLook::Silent(MAX_ANSWER)))
}

async fn see(store: &dyn Store) -> Result<StoreFacts, Error> {
    let survey = store.survey().await?;
    let in_state = |state| Filter { state: Some(state), ..Filter::default() };
    let stale = Filter { lease: LeaseFilter::Stale, ..Filter::default() };
    let mut waiting = Vec::new();
    for lane in fullest(&survey) {
        let (queue, kind) = (Some(lane.queue.clone()), Some(lane.kind.clone()));
        waiting.push(sample(store, Filter { queue, kind, ..in_state(StateName::Queued) }).await?);
    }
    Ok(StoreFacts {
        newest: sample(store, Filter::default()).await?,
        failed: sample(store, in_state(StateName::Failed)).await?,
        stale: sample(store, stale).await?,
        waiting,
        schedules: store.schedules().await?,
        jobs: open_jobs(store, &survey).await?,
        survey,
    })
}

/// The jobs with the most unfinished items.
async fn open_jobs(store: &dyn Store, survey: &Survey) -> Result<Vec<JobRecord>, Error> {
    let left = |lane: &&LaneRecord| lane.counts.queued + lane.counts.claimed + lane.counts.running;
    let mut lanes: Vec<&LaneRecord> = survey.lanes.iter().filter(|lane| left(lane) > 0).collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse(left(lane)));
    let mut jobs = Vec::new();
    for id in lanes.into_iter().filter_map(|lane| job::of_queue(&lane.queue)).take(MAX_JOBS) {
        jobs.extend(store.jobs(JobFilter { id: Some(id), ..JobFilter::default() }, 1).await?);
    }
    Ok(jobs)
}

/// The lanes with the most waiting tasks.
fn fullest(survey: &Survey) -> Vec<&LaneRecord> {
    let mut lanes: Vec<&LaneRecord> = survey.lanes.iter().filter(|lane| lane.counts.queued > 0).collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.counts.queued));
    lanes.truncate(MAX_LANES);
    lanes
}

async fn sample(store: &dyn Store, filter: Filter) -> Result<Sample, Error> {
    let page = store.list(filter, None, MAX_LOOKED_AT).await?;
    Ok(Sample { tasks: page.tasks, more: page.next.is_some() })
}

fn good_config(config: &Config) -> ConfigFacts {
    let queues = config.pools.iter().map(|pool| pool.name.clone()).collect();
    let program = |pool: &crate::config::PoolSettings| {
        let argv = match &pool.executor {
            ExecutorSettings::Command(command) => &command.argv,
            ExecutorSettings::Process(process) => &process.argv,
        };
        let program = argv.first()?;
        // A template is only a program once there is a task.
        (!program.contains("{{") && !is_program(program)).then(|| (pool.name.clone(), program.clone()))
    };
    ConfigFacts::Good {
        queues,
        missing_programs: config.pools.iter().filter_map(program).collect(),
        open_doors: open_doors(&config.pools),
        warnings: config.pools.iter().flat_map(crate::config::PoolSettings::warnings).collect(),
    }
}

/// Whether a program of this name would be found.
fn is_program(name: &str) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let runs = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return runs(Path::new(name));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| runs(&folder.join(name)))
}
