//! The facts the doctor examines: what it reads from an open store, and what the caller knows of the machine and the config.

use std::path::PathBuf;
use std::time::Duration;

use ostler_core::{StateName, Task, Timestamp};
use ostler_store::accounts::AccountRecord;
use ostler_store::jobs::{JobRecord, job_of};
use ostler_store::schedules::ScheduleRecord;
use ostler_store::views::{Filter, LaneRecord, LeaseFilter, Survey};
use ostler_store::{Error, Store};
use ostler_wire::system::FindingView;

use crate::jobs::by_id;

/// The maximum number of tasks examined in one list.
const MAX_LOOKED_AT: usize = 200;
/// The maximum number of lanes whose waiting tasks are examined, fullest first.
const MAX_LANES: usize = 20;
/// The maximum number of unfinished jobs examined.
const MAX_JOBS: usize = 20;

/// Everything the rules depend on.
#[derive(Clone, Debug)]
pub struct DoctorFacts {
    pub now: Timestamp,
    /// Where the store is; `None` if it is unknown which store to examine.
    pub site: Option<Site>,
    pub look: StoreLook,
    /// The config, if there is one.
    pub config: Option<ConfigFacts>,
    /// How children would be contained here, or why they cannot be.
    pub containment: Option<Result<ContainedBy, String>>,
    /// Whether presence works, if it is configured.
    pub presence: Option<PresenceFacts>,
    /// The threads that the environment asks for, or why it cannot be followed; `None` if it does not matter here.
    pub threads: Option<Result<ThreadFacts, String>>,
    /// What is kept on this machine for tasks that are gone, because something is in the way of its removal.
    pub leftovers: Vec<KeptLeftover>,
}

/// The threads of a program whose work runs on threads and which sets nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    pub threads: usize,
    /// The variable that sets them; `None`: one for each core.
    pub threads_from: Option<&'static str>,
    /// The maximum of running and queued work.
    pub most: usize,
    /// The variable that sets it; `None`: ten for each thread.
    pub most_from: Option<&'static str>,
}

/// Something that was kept for a task that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLeftover {
    pub path: PathBuf,
    /// Why it was not removed.
    pub why: String,
    pub advice: String,
}

/// The result of asking the Redis server for presence.
#[derive(Clone, Debug)]
pub struct PresenceFacts {
    /// Without the password.
    pub address: String,
    /// `None`: presence works.
    pub fault: Option<PresenceFault>,
}

/// Why presence does not work, and what helps.
#[derive(Clone, Debug)]
pub struct PresenceFault {
    pub sentence: String,
    pub advice: &'static str,
}

/// How the children of a node are contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainedBy {
    /// Control groups.
    Cgroup,
    /// Process groups.
    Group,
}

#[derive(Clone, Debug)]
pub enum Site {
    File(SiteFacts),
    /// On a server, by its address without the password.
    Server(String),
}

/// The result of examining the store.
#[derive(Clone, Debug)]
pub enum StoreLook {
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
pub struct StoreFacts {
    pub survey: Survey,
    /// The newest tasks.
    pub newest: Sample,
    pub failed: Sample,
    /// Tasks held by a dead or overdue node.
    pub stale: Sample,
    /// Waiting tasks of the fullest lanes.
    pub waiting: Vec<Sample>,
    pub schedules: Vec<ScheduleRecord>,
    pub accounts: Vec<AccountRecord>,
    /// Unfinished jobs, those with the most items left first.
    pub jobs: Vec<JobRecord>,
}

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub tasks: Vec<Task>,
    /// Whether there may be more tasks.
    pub more: bool,
}

#[derive(Clone, Debug)]
pub enum ConfigFacts {
    /// The config is invalid; the text says why.
    Broken(String),
    Good {
        /// The queues that its pools serve.
        queues: Vec<String>,
        /// Pools whose program was not found, with the program.
        missing_programs: Vec<(String, String)>,
        /// Settings that are valid but deserve attention.
        pools: Vec<FindingView>,
    },
}

/// Facts about the site, as far as they could be determined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteFacts {
    pub path: PathBuf,
    pub folder: PathBuf,
    /// The permission bits of the file, if it exists.
    pub file_mode: Option<u32>,
    /// The permission bits of the folder.
    pub folder_mode: Option<u32>,
    /// The paths that are not writable, and why: the file, the folder, or both.
    pub not_writable: Vec<(PathBuf, String)>,
    /// A sentence about the lock files of nodes that this user cannot open.
    pub locked_out: Option<String>,
    pub room: Option<DiskSpace>,
    /// The file system, if it is one that SQLite should not be on.
    pub remote: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Files that may still be created; `None` if the file system does not count them.
    pub free_files: Option<u64>,
}

impl StoreFacts {
    /// Reads them from an open store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(store: &dyn Store) -> Result<Self, Error> {
        let survey = store.survey().await?;
        let in_state = |state| Filter { state: Some(state), ..Filter::default() };
        let stale = Filter { lease: LeaseFilter::Stale, ..Filter::default() };
        let mut waiting = Vec::new();
        for lane in fullest(&survey) {
            let (queue, kind) = (Some(lane.queue.clone()), Some(lane.kind.clone()));
            waiting.push(sample(store, Filter { queue, kind, ..in_state(StateName::Queued) }).await?);
        }
        Ok(Self {
            newest: sample(store, Filter::default()).await?,
            failed: sample(store, in_state(StateName::Failed)).await?,
            stale: sample(store, stale).await?,
            waiting,
            schedules: store.schedules().await?,
            accounts: store.accounts().await?,
            jobs: open_jobs(store, &survey).await?,
            survey,
        })
    }
}

/// The jobs with the most unfinished items.
async fn open_jobs(store: &dyn Store, survey: &Survey) -> Result<Vec<JobRecord>, Error> {
    let mut lanes: Vec<&LaneRecord> = survey.lanes.iter().filter(|lane| lane.counts.open() > 0).collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.counts.open()));
    let mut jobs = Vec::new();
    for id in lanes.into_iter().filter_map(|lane| job_of(&lane.queue)).take(MAX_JOBS) {
        jobs.extend(by_id(store, id).await?);
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
