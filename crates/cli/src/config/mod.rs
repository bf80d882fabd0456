//! The config: `ostler.toml`, read once and valid by construction.
//!
//! [`reference()`] has every key, with its default. A [`Config`] is plain data that needs no further checks.

mod account;
mod api;
mod budget;
mod folders;
mod hooks;
mod kind;
pub(crate) mod limits;
mod log;
mod pool;
mod schedule;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_config::{ConfigReader, FoundValue, PoolFinding, PoolKind, PoolSpec, SecretValues, Section};
use ostler_core::price::PriceTable;
use ostler_core::{Overrides, ScalePolicy};
use ostler_exec::{Secret, Secrets};
use ostler_postgres::Failover;
use ostler_process::supervisor::Containment;
use ostler_runtime::{LeaseTimes, PlannedSchedule, Presence, PresenceTimes, RedisAddress, Unclassed};
use ostler_store::calls::Retention;
use ostler_store::{Bounds, MAX_WORKERS};
use toml::de::DeTable;

use account::AccountSettings;
pub(crate) use api::{ApiSettings, Listen};
use limits::LimitSettings;
pub(crate) use limits::Replaces;
pub(crate) use ostler::StoreUrl;
pub(crate) use ostler_config::{ConfigError, ConfigErrors, duration, nearest, size};
pub(crate) use schedule::UTC;

use crate::hooks::Hook;
use crate::log::LogSettings;

/// The kinds of pools that a config may have.
pub(crate) type Kinds<'k> = &'k [&'k dyn PoolKind];

/// The reference without the parts that the pool kinds bring, for which it has a line each.
const DEFAULT: &str = include_str!("default.toml");
/// Where the first kind's example begins the table that goes on with the keys of all pools.
const FIRST_KIND: &str = "#@ first kind\n";
/// Where the examples of the other kinds stand.
const OTHER_KINDS: &str = "#@ other kinds\n";

/// The maximum size of a config file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The maximum number of syntax errors reported: most follow from the first ones.
const MAX_SYNTAX_FAULTS: usize = 5;
/// The range of `payload_limit`.
const PAYLOAD_LIMITS: RangeInclusive<u64> = 1..=256 << 20;
/// The range of `keep.most`.
const KEPT: RangeInclusive<u64> = 1..=1_000_000_000;
/// The default of `keep.strays`: how long orphaned rows are kept.
pub(crate) const STRAYS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The values of `containment`.
const CONTAINMENTS: [(&str, Containment); 3] =
    [("auto", Containment::Auto), ("cgroup", Containment::Cgroup), ("group", Containment::Group)];
/// The values of `lease.failover`.
const FAILOVERS: [(&str, Failover); 2] = [("known", Failover::Known), ("strict", Failover::Strict)];

/// The contents of `ostler.toml`, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) store: Option<StoreUrl>,
    pub(crate) name: Option<String>,
    /// How long a drain waits for running tasks.
    pub(crate) shutdown_timeout: Duration,
    pub(crate) lease: LeaseTimes,
    /// When the tasks of a dead node are reassigned, where the store has a choice.
    pub(crate) failover: Failover,
    /// How long finished tasks are kept.
    pub(crate) keep: Retention,
    /// Orphaned rows younger than this are kept.
    pub(crate) strays: Duration,
    /// In bytes.
    pub(crate) payload_limit: usize,
    pub(crate) containment: Containment,
    pub(crate) log: LogSettings,
    /// Where nodes publish their presence. Shown without its password.
    pub(crate) presence: Option<PresenceSettings>,
    pub(crate) jobs: DetachedJobs,
    pub(crate) api: ApiSettings,
    pub(crate) secrets: Vec<Secret>,
    /// What models cost.
    pub(crate) prices: Arc<PriceTable>,
    pub(crate) pools: Vec<PoolSettings>,
    pub(crate) accounts: Vec<AccountSettings>,
    pub(crate) schedules: Vec<PlannedSchedule>,
}

/// Whether a node runs the jobs of `ostler map --detach`. They bring commands of their own, so it is off by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetachedJobs {
    Served,
    Left,
}

/// A pool: how the tasks of one queue are run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolSettings {
    /// The name of the pool and of its queue.
    pub(crate) name: String,
    /// How its tasks are run, as its kind has read it.
    pub(crate) executor: Box<dyn PoolSpec>,
    pub(crate) scale: ScalePolicy,
    /// How long an attempt may take to stop after a request.
    pub(crate) grace: Duration,
    /// Timeout and retry settings of the queue's tasks; unset ones have defaults.
    pub(crate) overrides: Overrides,
    /// The same for single kinds, which take precedence.
    pub(crate) kinds: BTreeMap<String, Overrides>,
    pub(crate) limits: LimitSettings,
    /// The account whose limits its tasks share with those of other queues.
    pub(crate) account: Option<String>,
    /// The class of failures without one.
    pub(crate) unclassed: Unclassed,
    /// Hooks for ends of its attempts.
    pub(crate) hooks: Vec<Hook>,
    /// Values for its work that are not recorded.
    pub(crate) secrets: Secrets,
    /// What models cost, for usage without a cost.
    pub(crate) prices: Arc<PriceTable>,
}

impl PoolSettings {
    /// Settings that are valid but deserve attention, of its executor and of its hooks.
    pub(crate) fn findings(&self) -> Vec<PoolFinding> {
        let hooks = hooks::findings(&self.name, &self.hooks);
        self.executor.findings(&self.name).into_iter().chain(hooks).collect()
    }
}

/// Where nodes publish their presence, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresenceSettings {
    pub(crate) redis: RedisAddress,
    pub(crate) times: PresenceTimes,
}

impl PresenceSettings {
    pub(crate) fn of_a_node(&self) -> Presence {
        Presence::new(self.redis.clone()).beating(self.times)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: None,
            name: None,
            shutdown_timeout: Duration::from_secs(30),
            lease: LeaseTimes::default(),
            failover: Failover::default(),
            keep: Retention::default(),
            strays: STRAYS,
            payload_limit: Bounds::default().payload_bytes,
            containment: Containment::Auto,
            log: LogSettings::default(),
            presence: None,
            jobs: DetachedJobs::Left,
            api: ApiSettings::default(),
            secrets: Vec::new(),
            prices: Arc::new(PriceTable::built_in()),
            pools: Vec::new(),
            accounts: Vec::new(),
            schedules: Vec::new(),
        }
    }
}

/// The reference: every key with its default, commented out.
pub(crate) fn reference(kinds: Kinds<'_>) -> String {
    let parts: Vec<&str> = kinds.iter().map(|kind| kind.reference()).collect();
    let (first, others) =
        parts.split_first().map_or(("", String::new()), |(first, rest)| (*first, rest.join("\n")));
    DEFAULT.replace(FIRST_KIND, first).replace(OTHER_KINDS, &others)
}

/// Reads a config file. Relative paths in it are resolved from the file's folder.
pub(crate) fn read(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    kinds: Kinds<'_>,
    secrets: SecretValues,
) -> Result<Config, ConfigError> {
    let origin = path.display().to_string();
    let unreadable = |why: String| ConfigError::Unreadable { path: origin.clone(), why };
    let mut bytes = Vec::new();
    let open = std::fs::File::open(path);
    open.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(why_unread(&error)))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(format!(
            "larger than {}, which is too large for a config",
            size::show(MAX_FILE_BYTES)
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line =
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count();
        unreadable(format!("not UTF-8 text, at line {line}"))
    })?;
    let reading = ConfigReader::new(&text, env).secrets(secrets);
    let mut config = finish(reading, &text, &origin, kinds, PriceTable::built_in())?;
    let folder = path.parent().unwrap_or(Path::new(""));
    config.store = config.store.map(|store| store.beside(folder));
    config.pools.iter_mut().for_each(|pool| pool.executor.beside(folder));
    let shared = folders::shared(&config.pools);
    if !shared.is_empty() {
        return Err(ConfigErrors::new(&origin, shared).into());
    }
    folders::distrust(&mut config.pools);
    Ok(config)
}

fn why_unread(error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound {
        "no such file; to create one: ostler config --default > ostler.toml".to_owned()
    } else if error.kind() == std::io::ErrorKind::IsADirectory {
        "this is a folder; expected a file".to_owned()
    } else {
        format!("cannot be read: {error}")
    }
}

/// Parses a config. `origin` names the source in messages; `prices` are those of models that the text does not name.
pub(crate) fn parse(
    text: &str,
    origin: &str,
    env: &dyn Fn(&str) -> Option<String>,
    kinds: Kinds<'_>,
    prices: PriceTable,
) -> Result<Config, ConfigErrors> {
    finish(ConfigReader::new(text, env), text, origin, kinds, prices)
}

fn finish(
    reading: ConfigReader<'_>,
    text: &str,
    origin: &str,
    kinds: Kinds<'_>,
    prices: PriceTable,
) -> Result<Config, ConfigErrors> {
    let config = document(&reading, text, kinds, prices);
    let faults = reading.into_faults();
    if faults.is_empty() { Ok(config) } else { Err(ConfigErrors::new(origin, faults)) }
}

fn document(reading: &ConfigReader<'_>, text: &str, kinds: Kinds<'_>, prices: PriceTable) -> Config {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return whole_file(Section::root(reading, table.get_ref()), kinds, prices);
    }
    for error in errors.iter().take(MAX_SYNTAX_FAULTS) {
        reading.fault(error.span().map(|span| span.start), error.message());
    }
    Config::default()
}

fn whole_file(mut top: Section<'_>, kinds: Kinds<'_>, prices: PriceTable) -> Config {
    let default = Config::default();
    let store = top.find("store").and_then(|found| {
        let text = found.text()?;
        StoreUrl::parse(&text).map_err(|error| found.refuse::<()>(format!("is invalid: {error}"))).ok()
    });
    let (kept, strays) = keep(top.section("keep"));
    let (lease, failover) = lease(top.section("lease"));
    let listen = top.find("listen");
    let api = api::read(listen, top.section("api"));
    let secrets = secrets::read_all(&top.section("secrets"));
    let prices = Arc::new(budget::prices(&top.section("prices"), prices));
    let config = Config {
        store,
        name: top.find("name").and_then(|found| name(&found)),
        shutdown_timeout: top
            .find("shutdown_timeout")
            .and_then(|found| found.duration())
            .unwrap_or(default.shutdown_timeout),
        lease,
        failover,
        keep: kept,
        strays,
        payload_limit: top
            .find("payload_limit")
            .and_then(|found| found.size(PAYLOAD_LIMITS))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(default.payload_limit),
        containment: top
            .find("containment")
            .and_then(|found| found.one_of(&CONTAINMENTS))
            .unwrap_or(default.containment),
        log: log::read(top.section("log")),
        presence: presence(top.section("presence")),
        jobs: top
            .find("serve_jobs")
            .and_then(|found| found.choice(DetachedJobs::Served, DetachedJobs::Left))
            .unwrap_or(default.jobs),
        api,
        pools: pool::read_all(&top.section("pool"), kinds, &secrets, &prices),
        prices,
        secrets: secrets.into_values().flatten().collect(),
        accounts: account::read_all(&top.section("account")),
        schedules: schedule::read_all(&top.section("schedule")),
    };
    let workers: u64 = config.pools.iter().map(|pool| u64::from(pool.scale.max)).sum();
    if workers > MAX_WORKERS as u64 {
        top.fault("pool", format!("has {workers} workers in total; the maximum for a node is {MAX_WORKERS}"));
    }
    if let Some(pool) = hooks::circle(&config.pools) {
        top.fault(
            "pool",
            format!(
                "has a cycle: hooks of \"{pool}\" enqueue tasks in the same pool, themselves or through other pools"
            ),
        );
    }
    top.close(&[]);
    config
}

/// The name of a node, pool or queue.
fn name(found: &FoundValue<'_>) -> Option<String> {
    let name = found.text()?;
    ostler_store::check_name(found.path(), &name).map_err(|error| found.fault(error.to_string())).ok()?;
    Some(name)
}

fn lease(mut section: Section<'_>) -> (LeaseTimes, Failover) {
    let default = LeaseTimes::default();
    let lease = LeaseTimes {
        ttl: section.find("ttl").and_then(|found| found.duration()).unwrap_or(default.ttl),
        heartbeat: section.find("heartbeat").and_then(|found| found.duration()).unwrap_or(default.heartbeat),
        poll: section.find("poll").and_then(|found| found.duration()).unwrap_or(default.poll),
    };
    if lease.ttl < lease.heartbeat * 2 {
        let (ttl, heartbeat) = (duration::show(lease.ttl), duration::show(lease.heartbeat));
        section.fault("ttl", format!("is {ttl}, but must be at least two heartbeats of {heartbeat}"));
    }
    let failover = section.find("failover").and_then(|found| found.one_of(&FAILOVERS)).unwrap_or_default();
    section.close(&[]);
    (lease, failover)
}

fn presence(mut section: Section<'_>) -> Option<PresenceSettings> {
    let default = PresenceTimes::default();
    let times = PresenceTimes {
        interval: section.find("interval").and_then(|found| found.duration()).unwrap_or(default.interval),
        ttl: section.find("ttl").and_then(|found| found.duration()).unwrap_or(default.ttl),
    };
    if times.ttl < times.interval.saturating_mul(2) {
        let (ttl, interval) = (duration::show(times.ttl), duration::show(times.interval));
        section.fault("ttl", format!("is {ttl}, but must be at least two intervals of {interval}"));
    }
    let address = section.find("redis").and_then(|found| {
        let text = found.text()?;
        RedisAddress::parse(&text).map_err(|error| found.refuse::<()>(format!("is invalid: {error}"))).ok()
    });
    section.close(&[]);
    address.map(|redis| PresenceSettings { redis, times })
}

/// How long finished tasks and orphaned rows are kept.
fn keep(mut section: Section<'_>) -> (Retention, Duration) {
    let default = Retention::default();
    let kept = Retention {
        completed: section.find("completed").and_then(|found| found.duration()).unwrap_or(default.completed),
        failed: section.find("failed").and_then(|found| found.duration()).unwrap_or(default.failed),
        most: section.find("most").and_then(|found| found.whole(KEPT)).unwrap_or(default.most),
        batch: default.batch,
    };
    let strays = section.find("strays").and_then(|found| found.duration()).unwrap_or(STRAYS);
    section.close(&[]);
    (kept, strays)
}
