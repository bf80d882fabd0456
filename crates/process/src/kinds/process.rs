//! `executor = "process"`: the keys of a pool of persistent workers.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, ClaimAhead, PoolCommon, PoolDefaults, PoolFinding, PoolKind, PoolSpec, Section,
    WritablePath, duration,
};
use ostler_core::Overrides;
use ostler_exec::Executor;

use super::{MAX_LOG_BYTES, SUPERVISOR, children};
use crate::supervisor::Supervisor;
use crate::{MAX_FRAME_BYTES, MAX_PER_WORKER, Process, ProcessPolicy, Recycle};

/// The default of `min_workers`.
const MIN_WORKERS: u32 = 2;
/// The default of `max_workers`.
const MAX_WORKERS: u32 = 10;
/// The maximum of `ready_timeout`. A node that waits longer seems to hang.
const MAX_READY: Duration = Duration::from_secs(10 * 60);
/// The range of `recycle.after_tasks`.
const TASKS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The range of `recycle.above_memory`.
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Persistent workers, which speak the worker protocol.
#[derive(Clone, Copy, Debug)]
pub struct ProcessKind;

impl PoolKind for ProcessKind {
    fn name(&self) -> &'static str {
        "process"
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        let argv = command(section);
        let default = ProcessPolicy::new(pool.name, argv.clone().unwrap_or_default());
        let max_output = pool.output_limit.min(MAX_FRAME_BYTES as u64);
        let policy = ProcessPolicy {
            environment: children::environment(pool, section, default.environment.clone()),
            secrets: pool.secrets.clone(),
            ready_timeout: ready_timeout(section).unwrap_or(default.ready_timeout),
            grace: pool.grace,
            stuck_after: children::stuck_after(section),
            recycle: recycle(section.section("recycle")),
            per_worker: per_worker(section).unwrap_or(default.per_worker),
            max_output_bytes: children::bytes(section.find("max_output"), max_output)
                .unwrap_or(default.max_output_bytes),
            max_log_bytes: children::bytes(section.find("max_log"), MAX_LOG_BYTES)
                .unwrap_or(default.max_log_bytes),
            folders: children::folders(pool.name, section),
            sandbox: children::sandbox(section),
            ..default
        };
        argv.map(|_| Box::new(policy) as Box<dyn PoolSpec>)
    }

    fn reference(&self) -> &'static str {
        include_str!("process.toml")
    }
}

#[async_trait]
impl PoolSpec for ProcessPolicy {
    fn defaults(&self) -> PoolDefaults {
        PoolDefaults { min_workers: MIN_WORKERS, max_workers: MAX_WORKERS, overrides: Overrides::NONE }
    }

    fn beside(&mut self, folder: &Path) {
        children::beside(&mut self.folders, self.sandbox.as_mut(), folder);
    }

    fn confine(&mut self, hidden: &[PathBuf]) -> Result<(), String> {
        children::confine(self.sandbox.as_mut(), hidden)
    }

    fn task_folders(&self) -> Option<&Path> {
        self.folders.each.as_deref()
    }

    fn writable(&self) -> Vec<WritablePath<'_>> {
        children::writable(&self.folders, self.sandbox.as_ref())
    }

    fn distrust(&mut self, writable: &[PathBuf]) {
        self.folders.guarded = writable.to_vec();
    }

    fn programs(&self) -> Vec<String> {
        self.argv.first().cloned().into_iter().collect()
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        children::findings(pool, self.sandbox.as_ref())
    }

    /// A worker that is already running may be fast enough.
    fn claim_ahead(&self) -> ClaimAhead {
        ClaimAhead::WhenShort
    }

    async fn prove(&self, context: BuildContext<'_>) -> Result<(), String> {
        children::prove(self.sandbox.as_ref(), context).await
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let process = Process::new(context.need::<Supervisor>(SUPERVISOR)?.clone(), self.clone());
        Ok(Arc::new(process.map_err(|error| BuildError::new(error.to_string()))?))
    }
}

fn command(section: &mut Section<'_>) -> Option<Vec<String>> {
    const EXAMPLE: &str = "[\"python3\", \"worker.py\"]";
    let Some(found) = section.find("command") else {
        section.fault("command", format!("is missing: the program and its arguments, such as {EXAMPLE}"));
        return None;
    };
    let argv = found.texts(EXAMPLE)?;
    if argv.first().is_none_or(String::is_empty) {
        return found.refuse("has no program");
    }
    if argv.iter().any(|word| word.contains("{{")) {
        return found
            .refuse("contains {{, but a worker starts before there is a task: nothing can be replaced");
    }
    Some(argv)
}

fn ready_timeout(section: &mut Section<'_>) -> Option<Duration> {
    let found = section.find("ready_timeout")?;
    let time = found.duration()?;
    if time > MAX_READY {
        let (time, most) = (duration::show(time), duration::show(MAX_READY));
        return found.refuse(format!("is {time}, but must be at most {most}"));
    }
    Some(time)
}

fn per_worker(section: &mut Section<'_>) -> Option<usize> {
    let most = u32::try_from(MAX_PER_WORKER).unwrap_or(u32::MAX);
    usize::try_from(section.find("per_worker")?.count(1..=most)?).ok()
}

fn recycle(mut section: Section<'_>) -> Recycle {
    let recycle = Recycle {
        after_tasks: section.find("after_tasks").and_then(|found| found.whole(TASKS)),
        above_memory: section.find("above_memory").and_then(|found| found.size(MEMORY)),
    };
    section.close(&[]);
    recycle
}
