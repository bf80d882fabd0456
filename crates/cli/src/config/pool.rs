//! The tables `[pool.NAME]`: the executor, workers, retries and limits of a queue.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ostler_config::{FoundValue, PoolCommon, PoolDefaults, PoolKind, Section, TaskBudgets, nearest};
use ostler_core::price::PriceTable;
use ostler_core::{Backoff, Jitter, Overrides, ScalePolicy};
use ostler_runtime::{PoolSize, Unclassed};
use ostler_store::{Bounds, MAX_CLAIM};

use super::limits::LimitSettings;
use super::secrets::{self, DeclaredSecrets};
use super::{Kinds, PoolSettings, account, budget, hooks, kind, limits};

/// The range of attempts, crashes and node deaths.
pub(super) const COUNTS: RangeInclusive<u32> = 1..=1_000_000;
/// The range of `queue_limit`.
const LIMITS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The default of `scale_up_at`.
const SCALE_UP_AT: u32 = 1;
/// Executors that need Rust functions, and are for programs that use the library.
const IN_RUST: [&str; 2] = ["inline", "thread"];

pub(super) fn read_all(
    section: &Section<'_>,
    kinds: Kinds<'_>,
    declared: &DeclaredSecrets,
    prices: &Arc<PriceTable>,
) -> Vec<PoolSettings> {
    let entries = section.entries().into_iter();
    entries.filter_map(|(name, found)| read(name, &found, kinds, declared, prices)).collect()
}

fn read(
    name: String,
    found: &FoundValue<'_>,
    kinds: Kinds<'_>,
    declared: &DeclaredSecrets,
    prices: &Arc<PriceTable>,
) -> Option<PoolSettings> {
    let named = ostler_store::check_name(found.path(), &name).map_err(|error| found.fault(error.to_string()));
    let mut section = found.table()?;
    let executor = section.find("executor");
    if executor.is_none() {
        section.fault("executor", format!("is missing; this version has {}", words(kinds).join(", ")));
    }
    let kind = executor.and_then(|found| kind_named(&found, kinds));
    let scale = ScaleKeys::read(&mut section);
    let grace = section.find("grace").and_then(|found| found.duration()).unwrap_or(PoolSettings::GRACE);
    let overrides = overrides(&mut section);
    let kinds = kind::read_all(&section.section("kind"));
    let budgets = budget::read(&mut section, kind.map_or(TaskBudgets::Unsupported, PoolKind::task_budgets));
    let limits = LimitSettings { budget: budgets.queue, ..limits::read(&mut section, LIMITS) };
    let account = account::of_pool(&mut section);
    let assumptions = [("transient", Unclassed::Transient), ("permanent", Unclassed::Permanent)];
    let unclassed =
        section.find("unclassed").and_then(|found| found.one_of(&assumptions)).unwrap_or_default();
    let hooks = hooks::read_all(&mut section);
    let secrets = secrets::of_pool(&mut section, declared);
    let output_limit = Bounds::default().output_bytes as u64;
    let max_task_cost = budgets.per_task;
    let common = PoolCommon {
        name: &name,
        grace,
        output_limit,
        max_workers: scale.max,
        secrets: &secrets,
        prices,
        max_task_cost,
    };
    // The keys of an unknown kind are unknown too; refusing each of them would say nothing new.
    let executor = kind?.read(&common, &mut section)?;
    if (limits.budget.is_some() || max_task_cost.is_some())
        && let Some(why) = executor.unpriced(None)
    {
        section.fault("budget", format!("cannot be kept: {why}"));
    }
    section.close(&[]);
    named.ok()?;
    let account = account.or_else(|| executor.account());
    let defaults = executor.defaults();
    Some(PoolSettings {
        name,
        executor,
        scale: scale.or(&defaults),
        grace,
        overrides: overrides.or(&defaults.overrides),
        kinds,
        unclassed,
        hooks,
        limits,
        account,
        secrets,
        prices: Arc::clone(prices),
    })
}

fn words(kinds: Kinds<'_>) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.name()).collect()
}

fn kind_named<'k>(found: &FoundValue<'_>, kinds: Kinds<'k>) -> Option<&'k dyn PoolKind> {
    let text = found.text()?;
    if let Some(kind) = kinds.iter().find(|kind| kind.name() == text) {
        return Some(*kind);
    }
    let has = words(kinds).join(", ");
    match text.as_str() {
        rust if IN_RUST.contains(&rust) => found.refuse(format!(
            "\"{rust}\" runs Rust functions, and is only for programs that use the library; available here: {has}"
        )),
        other => {
            let guess = match nearest(other, &words(kinds)) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("available: {has}"),
            };
            found.refuse(format!("{} does not exist; {guess}", found.shown()))
        }
    }
}

/// The keys that size a pool, as far as the file has them.
struct ScaleKeys {
    min: Option<u32>,
    max: Option<u32>,
    scale_up_at: Option<u32>,
    idle_timeout: Option<Duration>,
}

impl ScaleKeys {
    fn read(section: &mut Section<'_>) -> Self {
        let most = u32::try_from(MAX_CLAIM).unwrap_or(u32::MAX);
        let min = section.find("min_workers").and_then(|found| found.count(0..=most));
        let max = section.find("max_workers").and_then(|found| found.count(1..=most));
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            section.fault("min_workers", format!("({min}) must not exceed max_workers ({max})"));
        }
        Self {
            min,
            max,
            scale_up_at: section.find("scale_up_at").and_then(|found| found.count(COUNTS)),
            idle_timeout: section.find("idle_timeout").and_then(|found| found.duration()),
        }
    }

    /// Only explicit values are compared with each other: a file is not wrong because a machine has few cores.
    fn or(&self, default: &PoolDefaults) -> ScalePolicy {
        let max =
            self.max.unwrap_or_else(|| default.max_workers.max(self.min.unwrap_or(default.min_workers)));
        ScalePolicy {
            min: self.min.unwrap_or(default.min_workers.min(max)),
            max,
            scale_up_at: self.scale_up_at.unwrap_or(SCALE_UP_AT),
            idle_timeout: self.idle_timeout.unwrap_or(PoolSize::IDLE_TIMEOUT),
        }
    }
}

pub(super) fn overrides(section: &mut Section<'_>) -> Overrides {
    let timeout = section.find("timeout").and_then(|found| found.duration());
    let mut retry = section.section("retry");
    let shapes = Backoff::ALL.map(|shape| (shape.name(), shape));
    let overrides = Overrides {
        attempts: retry.find("attempts").and_then(|found| found.count(COUNTS)),
        backoff: retry.find("backoff").and_then(|found| found.one_of(&shapes)),
        base: retry.find("base").and_then(|found| found.duration()),
        max: retry.find("max").and_then(|found| found.duration()),
        jitter: retry.find("jitter").and_then(|found| found.choice(Jitter::Half, Jitter::Off)),
        max_crashes: retry.find("max_crashes").and_then(|found| found.count(COUNTS)),
        max_node_deaths: retry.find("max_node_deaths").and_then(|found| found.count(COUNTS)),
        timeout,
    };
    if let (Some(base), Some(max)) = (overrides.base, overrides.max)
        && base > max
    {
        retry.fault("base", "must not be longer than max");
    }
    retry.close(&[]);
    overrides
}

impl PoolSettings {
    /// The default of `grace`.
    pub(super) const GRACE: Duration = Duration::from_secs(5);
}
