//! What the doctor sees. All of the doctor's I/O is here and in `place.rs`, and all of it is bounded.

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

/// How long a store may take to open, or to answer one question.
const MAX_ANSWER: Duration = Duration::from_secs(10);
/// Tasks of one list that are looked at.
const MAX_LOOKED_AT: usize = 200;
/// Lanes whose waiting tasks are looked at, those with the most first.
const MAX_LANES: usize = 20;
/// Jobs with items left that are looked at.
const MAX_JOBS: usize = 20;

/// All that the rules decide by.
#[derive(Clone, Debug)]
pub(crate) struct DoctorFacts {
    /// The wall clock.
    pub(crate) now: Timestamp,
    /// Where the store is; `None`: nobody can tell which one is meant.
    pub(crate) site: Option<Site>,
    /// What became of looking into it.
    pub(crate) look: StoreLook,
    /// The config, if one was named.
    pub(crate) config: Option<ConfigFacts>,
    /// How children would be contained here, or why they cannot be.
    pub(crate) containment: Option<Result<Contained, String>>,
    /// Whether presence can be kept, if the config wants it.
    pub(crate) presence: Option<PresenceFacts>,
}

/// What is known of the Redis server in which nodes say that they are there.
#[derive(Clone, Debug)]
pub(crate) struct PresenceFacts {
    /// Its address, without the password.
    pub(crate) address: String,
    /// Whether it could be asked.
    pub(crate) probed: Result<(), RedisFault>,
}

/// Where the store is.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    /// In a file.
    File(SiteFacts),
    /// On a server, by its address without the password.
    Server(String),
}

/// What became of looking into the store.
#[derive(Clone, Debug)]
pub(crate) enum StoreLook {
    /// Nobody can tell which one is meant: the config that would name it cannot be used.
    Unnamed,
    /// There is none.
    Absent,
    /// It could not be opened or read.
    Refused(Error),
    /// It did not answer in time.
    Silent(Duration),
    /// An older program made it. It was not opened, since that would bring it up to date.
    Outdated {
        /// The version of its tables.
        found: i64,
        /// The version that this program writes.
        newest: i64,
    },
    /// It was looked into.
    Seen(Box<StoreFacts>),
}

/// What was seen in the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFacts {
    /// The system as a whole.
    pub(crate) survey: Survey,
    /// The tasks that were enqueued last.
    pub(crate) newest: Sample,
    /// Dead letters.
    pub(crate) failed: Sample,
    /// Tasks that a dead or overdue node has.
    pub(crate) stale: Sample,
    /// Tasks that wait, for the fullest lanes.
    pub(crate) waiting: Vec<Sample>,
    /// The schedules.
    pub(crate) schedules: Vec<ScheduleRecord>,
    /// Jobs that have items left, those with the most first.
    pub(crate) jobs: Vec<JobRecord>,
}

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// The tasks.
    pub(crate) tasks: Vec<Task>,
    /// Whether there may be more.
    pub(crate) more: bool,
}

/// What is known of the config.
#[derive(Clone, Debug)]
pub(crate) enum ConfigFacts {
    /// It cannot be used; the sentences say why.
    Broken(String),
    /// It is good.
    Good {
        /// The queues that its pools serve.
        queues: Vec<String>,
        /// Pools whose program is not there, with the program.
        missing_programs: Vec<(String, String)>,
        /// What its sandboxes leave open.
        open_doors: Vec<OpenDoor>,
        /// What is allowed and dangerous.
        warnings: Vec<String>,
    },
}

/// Looks at everything.
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

/// Asks the Redis server, within seconds.
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
            // To close it would be to wait for the question that has no answer. It ends with the program.
            std::mem::forget(opened);
            StoreLook::Silent(MAX_ANSWER)
        }
    }
}

/// Opens the store, if there is one and nothing has to be changed for it.
///
/// On a thread of its own, and not on one of the runtime: the file's lock may be held for as long as another process
/// likes, and nobody can be made to stop waiting for it. The thread then ends with the program.
async fn open(path: PathBuf, clock: Arc<dyn Clock>) -> Result<Box<dyn Store>, StoreLook> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let opening = std::thread::Builder::new().name("doctor".to_owned());
    let opening = opening.spawn(move || drop(answer.send(open_what_is_there(&path, clock))));
    if let Err(error) = opening {
        return Err(StoreLook::Refused(Error::new(
            ErrorKind::Unavailable,
            format!("no thread to look with: {error}"),
        )));
    }
    match tokio::time::timeout(MAX_ANSWER, answered).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => Err(StoreLook::Refused(Error::new(
            ErrorKind::Internal,
            "the doctor panicked while it opened the store",
        ))),
        Err(_) => Err(StoreLook::Silent(MAX_ANSWER)),
    }
}

fn open_what_is_there(path: &Path, clock: Arc<dyn Clock>) -> Result<Box<dyn Store>, StoreLook> {
    let versions = integrity::versions(path).map_err(|error| {
        // Where the whole folder is missing, so is the store.
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

/// Opens the store of a server, if there is one and nothing has to be changed for it.
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

/// The jobs with the most items that are left.
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
        // A template is a name only when there is a task.
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
