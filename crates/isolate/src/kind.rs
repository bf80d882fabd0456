//! `executor = "isolate"`: the keys of a pool of functions.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, ClaimAhead, ClaimRoom, FindingLevel, FoundValue, PoolCommon, PoolDefaults,
    PoolFinding, PoolKind, PoolSpec, Section,
};
use ostler_core::Overrides;
use ostler_exec::{Executor, SizeVariables};
use ostler_process::supervisor::Supervisor;
use ostler_process::{Folders, SUPERVISOR, children};

use crate::claim_room;
use crate::engine::quickjs::QuickJs;
use crate::engine_name::EngineName;
use crate::executor::{IsolateExecutor, IsolatePolicy, Isolation, MAX_KINDS};
use crate::fetch::FetchRules;
use crate::function::{FunctionFault, FunctionFolder};
use crate::limits::FunctionLimits;
use crate::worker::{Reuse, WarmPolicy};

/// The default of `timeout`, which is the wall time of a call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The default of `max_workers` is the number of cores, up to this.
const MOST_BY_CORES: u32 = 256;
/// The range of `memory` and `reuse.memory`. With less, an isolate does not come up.
const MEMORY: RangeInclusive<u64> = 1 << 20..=16 << 30;
/// The range of `stack`.
const STACK: RangeInclusive<u64> = 64 << 10..=64 << 20;
/// The range of `log_lines`, `timers` and `reuse.calls`.
const COUNTS: RangeInclusive<u32> = 1..=1_000_000;
/// Functions that the doctor parses.
const MAX_EXAMINED: usize = MAX_KINDS;

/// JavaScript functions in isolates.
#[derive(Clone, Copy, Debug)]
pub struct IsolateKind;

impl PoolKind for IsolateKind {
    fn name(&self) -> &'static str {
        "isolate"
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        let scripts = section.required("scripts", "the folder of functions, such as \"functions\"");
        let scripts = scripts.and_then(|found| one_path(&found));
        let default = IsolatePolicy::new(pool.name, scripts.clone().unwrap_or_default());
        let engine = section.find("engine").and_then(|found| engine(&found));
        let isolations = Isolation::ALL.map(|isolation| (isolation.name(), isolation));
        let isolation = section.find("isolation").and_then(|found| {
            let isolation = found.one_of(&isolations)?;
            match (isolation, engine) {
                (Isolation::Thread, Some(EngineName::V8)) => {
                    found.refuse("is \"thread\", which is possible with engine = \"quickjs\" only")
                }
                (Isolation::Thread | Isolation::Process, _) => Some(isolation),
            }
        });
        let policy = IsolatePolicy {
            engine: engine.unwrap_or(default.engine),
            isolation: isolation.unwrap_or(default.isolation),
            reuse: section.find("reuse").and_then(|found| reuse(&found)).unwrap_or(default.reuse),
            limits: limits(pool, section, &default.limits),
            fetch: section.find("fetch").and_then(|found| fetch(&found)).unwrap_or(default.fetch.clone()),
            secrets: pool.secrets.clone(),
            folders: folders(pool.name, section),
            grace: pool.grace,
            max_claimed: max_claimed(pool, section),
            ..default
        };
        scripts.map(|_| Box::new(policy) as Box<dyn PoolSpec>)
    }

    fn reference(&self) -> &'static str {
        include_str!("isolate.toml")
    }
}

#[async_trait]
impl PoolSpec for IsolatePolicy {
    fn defaults(&self) -> PoolDefaults {
        let overrides = Overrides { timeout: Some(TIMEOUT), ..Overrides::NONE };
        PoolDefaults { overrides, ..claim_room::defaults(SizeVariables::here().ok(), MOST_BY_CORES) }
    }

    fn beside(&mut self, folder: &Path) {
        for path in [Some(&mut self.scripts), self.folders.each.as_mut()].into_iter().flatten() {
            let joined = folder.join(&path);
            *path = std::path::absolute(&joined).unwrap_or(joined);
        }
    }

    fn task_folders(&self) -> Option<&Path> {
        self.folders.each.as_deref()
    }

    fn distrust(&mut self, writable: &[PathBuf]) {
        self.folders.guarded = writable.to_vec();
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        match self.isolation {
            Isolation::Process => Vec::new(),
            Isolation::Thread => vec![PoolFinding {
                code: "functions-on-threads",
                level: FindingLevel::Info,
                sentence: format!(
                    "pool.{pool}.isolation = \"thread\": its functions run in the process of the node, and one that cannot be \
                     interrupted keeps its thread"
                ),
                advice: "Use it for code that you trust, and leave it out for any other",
            }],
        }
    }

    async fn examine(&self, pool: &str) -> Vec<PoolFinding> {
        let (scripts, pool) = (self.scripts.clone(), pool.to_owned());
        let examined = tokio::task::spawn_blocking(move || examine_folder(&pool, &scripts));
        examined.await.unwrap_or_default()
    }

    fn claim_ahead(&self) -> ClaimAhead {
        ClaimAhead::WhenShort
    }

    fn claim_room(&self, workers: u32) -> Result<Option<ClaimRoom>, String> {
        let variables = SizeVariables::here().map_err(|bad| bad.to_string())?;
        Ok(Some(claim_room::room(variables, self.max_claimed, workers)))
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let built = match self.isolation {
            Isolation::Process => {
                let supervisor = context.need::<Supervisor>(SUPERVISOR)?.clone();
                IsolateExecutor::in_hosts(self, supervisor)
            }
            Isolation::Thread => IsolateExecutor::on_threads(self),
        };
        built.map_err(|fault| BuildError::new(fault.to_string()))
    }
}

fn examine_folder(pool: &str, scripts: &Path) -> Vec<PoolFinding> {
    let finding = |code, level, sentence, advice| PoolFinding { code, level, sentence, advice };
    let unread = |error: std::io::Error| {
        let sentence =
            format!("pool.{pool}.scripts: the folder \"{}\" cannot be read: {error}", scripts.display());
        vec![finding("functions-missing", FindingLevel::Error, sentence, "Create it, or correct the path")]
    };
    let mut folder = match FunctionFolder::open(scripts) {
        Ok(folder) => folder,
        Err(error) => return unread(error),
    };
    let kinds = match folder.kinds() {
        Ok(kinds) => kinds,
        Err(error) => return unread(error),
    };
    if kinds.is_empty() {
        let sentence = format!(
            "pool.{pool}.scripts: the folder \"{}\" has no functions, so the pool runs no task",
            scripts.display()
        );
        let advice = "Add a file such as resize.js, which serves the kind \"resize\"";
        return vec![finding("functions-missing", FindingLevel::Warning, sentence, advice)];
    }
    let mut findings = Vec::new();
    if kinds.len() > MAX_KINDS {
        let sentence = format!(
            "pool.{pool}.scripts: the folder \"{}\" has {} functions, and only the first {MAX_KINDS} are served",
            scripts.display(),
            kinds.len()
        );
        findings.push(finding("too-many-functions", FindingLevel::Warning, sentence, "Use several pools"));
    }
    for kind in kinds.into_iter().take(MAX_EXAMINED) {
        let fault = match folder.function(&kind, &QuickJs::default()) {
            // One that was removed meanwhile is no fault.
            Ok(_) | Err(FunctionFault::Missing(_)) => continue,
            Err(fault @ (FunctionFault::Module(_) | FunctionFault::Unreadable(_))) => fault,
        };
        let sentence = format!("pool.{pool}.scripts: the function \"{kind}\" cannot be used: {fault}");
        findings.push(finding(
            "function-unusable",
            FindingLevel::Error,
            sentence,
            "Correct the file; its tasks fail until then",
        ));
    }
    findings
}

fn engine(found: &FoundValue<'_>) -> Option<EngineName> {
    let engine = found.one_of(&EngineName::ALL.map(|engine| (engine.name(), engine)))?;
    match engine.missing() {
        None => Some(engine),
        Some(why) => found.refuse(format!("is \"{}\", but {why}", engine.name())),
    }
}

fn reuse(found: &FoundValue<'_>) -> Option<Reuse> {
    let words = [("fresh", Reuse::Fresh), ("warm", Reuse::Warm(WarmPolicy::default()))];
    if found.json()?.is_object() {
        let mut table = found.table()?;
        let default = WarmPolicy::default();
        let policy = WarmPolicy {
            calls: table.find("calls").and_then(|found| found.count(COUNTS)).unwrap_or(default.calls),
            memory_bytes: table
                .find("memory")
                .and_then(|found| found.size(MEMORY))
                .unwrap_or(default.memory_bytes),
        };
        table.close(&[]);
        return Some(Reuse::Warm(policy));
    }
    found.one_of(&words)
}

fn limits(pool: &PoolCommon<'_>, section: &mut Section<'_>, default: &FunctionLimits) -> FunctionLimits {
    let bytes =
        |found: Option<FoundValue<'_>>, range: RangeInclusive<u64>| usize::try_from(found?.size(range)?).ok();
    FunctionLimits {
        memory_bytes: bytes(section.find("memory"), MEMORY).unwrap_or(default.memory_bytes),
        cpu: section.find("cpu").and_then(|found| found.duration()).unwrap_or(default.cpu),
        wall: default.wall,
        stack_bytes: bytes(section.find("stack"), STACK).unwrap_or(default.stack_bytes),
        output_bytes: bytes(section.find("output"), 1..=pool.output_limit).unwrap_or(default.output_bytes),
        log_lines: section
            .find("log_lines")
            .and_then(|found| found.count(COUNTS))
            .unwrap_or(default.log_lines),
        timers: section.find("timers").and_then(|found| found.count(COUNTS)).unwrap_or(default.timers),
    }
}

fn max_claimed(pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<u32> {
    let found = section.find("max_claimed")?;
    let most = found.count(COUNTS)?;
    match pool.max_workers {
        Some(workers) if most < workers => {
            found.refuse(format!("({most}) must not be below max_workers ({workers})"))
        }
        Some(_) | None => Some(most),
    }
}

fn fetch(found: &FoundValue<'_>) -> Option<FetchRules> {
    let list = found.texts("[\"api.example.org\"]")?;
    FetchRules::parse(&list).map_or_else(|why| found.refuse(why), Some)
}

fn folders(pool: &str, section: &mut Section<'_>) -> Folders {
    let all = section.find("folders").and_then(|found| one_path(&found));
    Folders { each: all.map(|all| all.join(children::subfolder(pool))), ..Folders::default() }
}

fn one_path(found: &FoundValue<'_>) -> Option<PathBuf> {
    let text = found.text()?;
    if text.is_empty() {
        found.refuse("is empty, but must be the path of a folder")
    } else {
        Some(text.into())
    }
}
