//! Gathers the facts the doctor examines. All of its I/O is here and in the files beside, and all of it is bounded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_config::{ClaimRoom, FindingLevel, PoolFinding};
use ostler_exec::{BadThreadPolicy, SettingSource, ThreadEnvironment};
use ostler_ops::doctor::facts::{
    ConfigFacts, ContainedBy, DoctorFacts, KeptLeftover, Site, StoreFacts, StoreLook, ThreadFacts,
};
use ostler_postgres::{Address, Listening, Postgres};
use ostler_process::supervisor::Contained;
use ostler_sqlite::{Options, Sqlite, integrity};
use ostler_store::{Clock, Error, ErrorKind, Store};
use ostler_wire::system::FindingView;

use super::Subject;
use super::presence::probe;
use super::site;
use crate::config::{Config, PoolSettings, StoreUrl};
use crate::leftovers::Leftovers;

/// The timeout for opening a store, and for each query.
const MAX_ANSWER: Duration = Duration::from_secs(10);

/// Gathers all facts.
pub(crate) async fn gather(subject: Subject) -> DoctorFacts {
    let Subject { store, config, containment, threads, clock } = subject;
    let now = clock.now();
    let redis = config
        .as_ref()
        .and_then(|read| read.as_ref().ok())
        .and_then(|config| Some(config.presence.as_ref()?.redis.clone()));
    let pools = config.as_ref().and_then(|read| read.as_ref().ok()).map(|config| config.pools.clone());
    let leftovers = store.as_ref().map(|store| Leftovers::new(&pools.unwrap_or_default(), store));
    // Without a node here, and if nothing is set, the defaults are no news.
    let is_news = |read: &ThreadEnvironment| read.is_set() || matches!(config, Some(Ok(_)));
    let threads = threads.filter(|read| read.as_ref().map_or(true, is_news)).map(thread_facts);
    let config = match config {
        Some(Ok(config)) => Some(good_config(&config).await),
        Some(Err(error)) => Some(ConfigFacts::Broken(error.to_string())),
        None => None,
    };
    let (site, opened) = match store {
        None => (None, Err(StoreLook::Unnamed)),
        Some(StoreUrl::Sqlite(path)) => (Some(Site::File(site::look(&path))), open(path, clock).await),
        Some(StoreUrl::Postgres(address)) => {
            (Some(Site::Server(address.to_string())), connect(&address).await)
        }
    };
    let ((look, leftovers), presence) = tokio::join!(look(opened, leftovers), probe(redis));
    let containment = containment.map(|contained| {
        contained.map(|contained| match contained {
            Contained::Cgroup => ContainedBy::Cgroup,
            Contained::Group => ContainedBy::Group,
        })
    });
    DoctorFacts { now, site, look, config, containment, presence, threads, leftovers }
}

fn thread_facts(read: Result<ThreadEnvironment, BadThreadPolicy>) -> Result<ThreadFacts, String> {
    let variable = |source: SettingSource| match source {
        SettingSource::Variable(name) => Some(name),
        SettingSource::Default => None,
    };
    let ThreadEnvironment { policy, threads_from, most_from } = read.map_err(|bad| bad.to_string())?;
    Ok(ThreadFacts {
        threads: policy.threads,
        threads_from: variable(threads_from),
        most: policy.most,
        most_from: variable(most_from),
    })
}

async fn look(
    opened: Result<Box<dyn Store>, StoreLook>,
    leftovers: Option<Leftovers>,
) -> (StoreLook, Vec<KeptLeftover>) {
    let opened = match opened {
        Ok(opened) => opened,
        Err(look) => return (look, Vec::new()),
    };
    let kept = match leftovers {
        // What cannot be looked at in time, or without the store, is left out.
        Some(leftovers) => tokio::time::timeout(MAX_ANSWER, leftovers.blocked(&*opened)).await,
        None => Ok(Ok(Vec::new())),
    };
    let kept = kept.ok().and_then(Result::ok).unwrap_or_default();
    (look_at(opened).await, kept)
}

async fn look_at(opened: Box<dyn Store>) -> StoreLook {
    match tokio::time::timeout(MAX_ANSWER, StoreFacts::read(&*opened)).await {
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

async fn good_config(config: &Config) -> ConfigFacts {
    let queues = config.pools.iter().map(|pool| pool.name.clone()).collect();
    let missing = |pool: &PoolSettings| {
        let programs = pool.executor.programs().into_iter().filter(|program| !is_program(program));
        programs.map(|program| (pool.name.clone(), program)).collect::<Vec<_>>()
    };
    let mut pools = Vec::new();
    for pool in &config.pools {
        pools.extend(pool.findings().into_iter().map(view));
        pools.extend(claim_room(pool).map(view));
        pools.extend(examined(pool).await.into_iter().map(view));
    }
    pools.extend(config.secret_findings().into_iter().map(view));
    ConfigFacts::Good { queues, missing_programs: config.pools.iter().flat_map(missing).collect(), pools }
}

/// The workers and claimed tasks of a pool with a bound of its own.
fn claim_room(pool: &PoolSettings) -> Option<PoolFinding> {
    let (name, workers) = (&pool.name, pool.scale.max);
    let room = pool.executor.claim_room(workers);
    let checked =
        room.and_then(|room| room.map_or(Ok(None), |room| room.check(workers).map(|()| Some(room))));
    Some(match checked {
        Ok(None) => return None,
        Ok(Some(ClaimRoom { most, most_from, workers_from })) => PoolFinding {
            code: "claim-room",
            level: FindingLevel::Info,
            sentence: format!(
                "Pool \"{name}\" has up to {workers} workers ({workers_from}), and at most {most} tasks claimed ({most_from})"
            ),
            advice: "",
        },
        Err(why) => PoolFinding {
            code: "claim-room-refused",
            level: FindingLevel::Error,
            sentence: format!("pool.{name}: {why}"),
            advice: "The pool does not start. Correct the config or the variable",
        },
    })
}

fn view(found: PoolFinding) -> FindingView {
    let PoolFinding { code, level, sentence, advice } = found;
    match level {
        FindingLevel::Error => FindingView::error(code, sentence, advice),
        FindingLevel::Warning => FindingView::warning(code, sentence, advice),
        FindingLevel::Info => FindingView::info(code, sentence, advice),
    }
}

/// What the kind of a pool finds on this machine, within the time of a query.
pub(crate) async fn examined(pool: &PoolSettings) -> Vec<PoolFinding> {
    let examining = pool.executor.examine(&pool.name);
    tokio::time::timeout(MAX_ANSWER, examining).await.unwrap_or_else(|_| {
        vec![PoolFinding {
            code: "pool-silent",
            level: FindingLevel::Warning,
            sentence: format!(
                "Pool \"{}\" could not be examined within {} s",
                pool.name,
                MAX_ANSWER.as_secs()
            ),
            advice: "",
        }]
    })
}

/// Whether a program of this name would be found.
pub(crate) fn is_program(name: &str) -> bool {
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
