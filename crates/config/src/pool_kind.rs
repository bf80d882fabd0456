//! The contract of a pool kind: how the word in `executor = "…"` becomes an executor.
//!
//! Adding a kind takes one file, in the crate of its executor, and one line in the program's list of kinds.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::price::PriceTable;
use ostler_core::{Cost, Overrides};
use ostler_exec::{Executor, Resources, Secrets};
use serde_json::{Map, Value};

use crate::leftovers::LeftoverKeeper;
use crate::section::Section;

/// A kind of pool.
pub trait PoolKind: Send + Sync {
    /// The word in `executor = "…"`.
    fn name(&self) -> &'static str;

    /// Whether its pools may have `budget.per_task`.
    fn task_budgets(&self) -> TaskBudgets {
        TaskBudgets::Unsupported
    }

    /// Reads the keys that only this kind has. Faults are recorded in the section; `None` if it cannot be used.
    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>>;

    /// Its part of the commented default file: an example pool, with every key of its own.
    fn reference(&self) -> &'static str;

    /// Owners of what pools of this kind keep for tasks in the user's state folder, also pools that a config no longer has.
    fn keepers(&self) -> Vec<Arc<dyn LeftoverKeeper>> {
        Vec::new()
    }
}

/// Defaults of settings that all pools share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolDefaults {
    pub min_workers: u32,
    pub max_workers: u32,
    /// Timeout and retries; what is not set has the default of all kinds.
    pub overrides: Overrides,
}

impl PoolDefaults {
    /// One worker at least, and at most one for each core, up to `bound`.
    #[must_use]
    pub fn by_cores(bound: u32) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let max_workers = u32::try_from(cores).unwrap_or(u32::MAX).min(bound);
        Self { min_workers: 1, max_workers, overrides: Overrides::NONE }
    }
}

/// Whether a kind of pool ends an attempt that costs too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskBudgets {
    /// It does not know what its attempts cost while they run.
    Unsupported,
    /// It stops an attempt at [`PoolCommon::max_task_cost`].
    Enforced,
}

/// What a kind may depend on when it reads its keys.
#[derive(Clone, Copy, Debug)]
pub struct PoolCommon<'a> {
    /// The name of the pool and of its queue.
    pub name: &'a str,
    /// How long an attempt may take to stop after a request.
    pub grace: Duration,
    /// The largest output that a store accepts, in bytes.
    pub output_limit: u64,
    /// The most workers that the config asks for.
    pub max_workers: Option<u32>,
    /// The secrets of the pool. An executor with child processes sets them as environment variables. The node redacts all
    /// records, whatever the kind of pool. An executor that truncates a text must redact it before.
    pub secrets: &'a Secrets,
    /// What models cost: the built-in prices, and those of `[prices]`.
    pub prices: &'a PriceTable,
    /// The budget of each task, `budget.per_task`.
    pub max_task_cost: Option<Cost>,
}

/// What a spec may depend on when it is built.
#[derive(Clone, Copy)]
pub struct BuildContext<'a> {
    /// The name of the pool.
    pub pool: &'a str,
    pub resources: &'a Resources,
}

impl BuildContext<'_> {
    /// A resource that the executor cannot work without; `what` names it.
    ///
    /// # Errors
    /// When the program does not have it.
    pub fn need<T: Send + Sync + 'static>(&self, what: &str) -> Result<&T, BuildError> {
        self.resources.get().ok_or_else(|| BuildError::new(format!("it needs {what}, which is not there")))
    }
}

/// Why an executor cannot be built, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(String);

impl BuildError {
    #[must_use]
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

/// Something about a pool that deserves attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFinding {
    /// For programs; never changes.
    pub code: &'static str,
    pub level: FindingLevel,
    pub sentence: String,
    /// What to do about it; may be empty.
    pub advice: &'static str,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingLevel {
    /// The pool cannot work.
    Error,
    Warning,
    Info,
}

/// A path that the work of a pool may change, although it is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritablePath<'a> {
    /// The key that allows it.
    pub key: &'static str,
    pub path: &'a Path,
}

/// Whether the payload of a task may be a prompt: then `ostler run` can submit to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesPrompts {
    Yes,
    No,
}

/// Whether tasks may be claimed before a worker is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAhead {
    /// Starting the work always takes longer than claiming it.
    Never,
    /// While the pool's attempts are short.
    WhenShort,
}

/// How many tasks a pool may have claimed at once, running ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRoom {
    pub most: u32,
    /// Where this number and that of the workers come from, in words for people.
    pub most_from: String,
    pub workers_from: String,
}

impl ClaimRoom {
    /// Checks that every worker may have something to do.
    ///
    /// # Errors
    /// When there are more workers than tasks may be claimed.
    pub fn check(&self, workers: u32) -> Result<(), String> {
        let Self { most, most_from, workers_from } = self;
        if *most >= workers {
            return Ok(());
        }
        Err(format!(
            "at most {most} tasks may be claimed ({most_from}), but there are {workers} workers ({workers_from}), and each needs \
             room for one: allow at least {workers}, or have fewer workers"
        ))
    }
}

/// The settings of one pool, as its kind has read them.
#[async_trait]
pub trait PoolSpec: SpecObject + fmt::Debug + Send + Sync {
    /// The workers, timeout and retries of a pool that does not set them, in a config or in a program that uses the library.
    fn defaults(&self) -> PoolDefaults;

    /// Resolves relative paths from this folder, which is that of the config file.
    fn beside(&mut self, _folder: &Path) {}

    /// Hides these paths from the sandbox, if the pool has one.
    ///
    /// # Errors
    /// When its sandbox cannot be as configured.
    fn confine(&mut self, _hidden: &[PathBuf]) -> Result<(), String> {
        Ok(())
    }

    /// Where each of its tasks gets a folder of its own.
    fn task_folders(&self) -> Option<&Path> {
        None
    }

    /// What its work may change in its sandbox. Without a sandbox: nothing, since no limit is promised.
    fn writable(&self) -> Vec<WritablePath<'_>> {
        Vec::new()
    }

    /// Paths in which sandboxed work of any pool may have left symbolic links.
    fn distrust(&mut self, _writable: &[PathBuf]) {}

    /// The programs that it runs, as names on the PATH or as paths.
    fn programs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Why it is not known what its work costs with this model (`None`: that of the pool), if so. Such work cannot have a budget.
    fn unpriced(&self, _model: Option<&str>) -> Option<String> {
        None
    }

    /// Settings that are valid but deserve attention: for `ostler config --check` and `ostler doctor`.
    fn findings(&self, _pool: &str) -> Vec<PoolFinding> {
        Vec::new()
    }

    /// What is wrong on this machine, for `ostler doctor`: a login that is missing, a service that does not answer. It changes
    /// nothing, and has some seconds.
    async fn examine(&self, _pool: &str) -> Vec<PoolFinding> {
        Vec::new()
    }

    /// Owners of what it keeps for tasks elsewhere.
    fn keepers(&self) -> Vec<Arc<dyn LeftoverKeeper>> {
        Vec::new()
    }

    /// The account whose limits its work uses, if the pool's key `account` does not name one.
    fn account(&self) -> Option<String> {
        None
    }

    /// Whether its tasks are prompts, as those of agents are.
    fn takes_prompts(&self) -> TakesPrompts {
        TakesPrompts::No
    }

    /// What it asks of a model besides what is in the payload: its `prompt`, its `model`. With it, a complete job was paid for and is not
    /// run anew, and a job that asks something else is another one. `None`: a complete job runs anew.
    fn question(&self) -> Option<Map<String, Value>> {
        None
    }

    fn claim_ahead(&self) -> ClaimAhead {
        ClaimAhead::Never
    }

    /// The most tasks that the pool may hold claimed or running with this number of workers; `None`: the default of the node.
    ///
    /// # Errors
    /// When the environment asks for what cannot be.
    fn claim_room(&self, _workers: u32) -> Result<Option<ClaimRoom>, String> {
        Ok(None)
    }

    /// Tests that the sandbox holds, before anything runs in it. What is hidden exists by now.
    ///
    /// # Errors
    /// When the pool must not be used.
    async fn prove(&self, _context: BuildContext<'_>) -> Result<(), String> {
        Ok(())
    }

    /// The executor of the pool.
    ///
    /// # Errors
    /// When there can be none with these settings.
    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError>;
}

/// What lets a boxed spec be cloned and compared. Every spec that can be has it.
pub trait SpecObject {
    /// For tests, which know the type.
    fn as_any(&self) -> &dyn Any;
    fn boxed(&self) -> Box<dyn PoolSpec>;
    fn equals(&self, other: &dyn PoolSpec) -> bool;
}

impl<T: PoolSpec + Clone + PartialEq + 'static> SpecObject for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn boxed(&self) -> Box<dyn PoolSpec> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn PoolSpec) -> bool {
        other.as_any().downcast_ref::<T>() == Some(self)
    }
}

impl Clone for Box<dyn PoolSpec> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl PartialEq for Box<dyn PoolSpec> {
    fn eq(&self, other: &Self) -> bool {
        (**self).equals(&**other)
    }
}

/// A derived comparison of a struct with a boxed spec needs this one: without it, the box would be moved.
impl PartialEq<&Self> for Box<dyn PoolSpec> {
    fn eq(&self, other: &&Self) -> bool {
        self == *other
    }
}
