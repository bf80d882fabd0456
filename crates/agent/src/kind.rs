//! `executor = "agent"`: the keys of a pool of agents.

mod acp_findings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, FindingLevel, FoundValue, LeftoverKeeper, PoolCommon, PoolDefaults,
    PoolFinding, PoolKind, PoolSpec, Section, StoreMark, TakesPrompts, TaskBudgets,
};
use ostler_core::{Overrides, Timestamp};
use ostler_exec::{Executor, is_variable_name};
use ostler_process::supervisor::Supervisor;
use ostler_process::{MAX_LOG_BYTES, SUPERVISOR, children};
use regex::Regex;
use serde_json::{Map, Value};

use crate::dialect::Dialect;
use crate::executor::keeper::HomeKeeper;
use crate::executor::login::{Login, node_env};
use crate::executor::payload::{DENIALS, PERMISSIONS, TURNS};
use crate::executor::probe::program_version;
use crate::executor::schema::AnswerSchema;
use crate::executor::{AgentExecutor, AgentPolicy, SchemaSource};
use crate::prompt::PromptTemplate;
use crate::settings::{ModelProvider, Permission, ToolRules};
use crate::version::VersionError;

/// The default of `max_workers`.
const MAX_WORKERS: u32 = 4;
/// The default of `timeout`: the whole execution.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The default of `retry.base`: an agent has retried by itself before it fails.
const RETRY_BASE: Duration = Duration::from_secs(30);
/// The maximum of `schema_retries`.
pub(crate) const MAX_SCHEMA_RETRIES: u32 = 10;

/// Agents: claude, codex, gemini, opencode, any that speaks the Agent Client Protocol, or any other program.
#[derive(Clone, Copy, Debug)]
pub struct AgentKind;

impl PoolKind for AgentKind {
    fn name(&self) -> &'static str {
        "agent"
    }

    fn task_budgets(&self) -> TaskBudgets {
        TaskBudgets::Enforced
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        Self::read_policy(pool, section).map(|policy| Box::new(policy) as Box<dyn PoolSpec>)
    }

    fn reference(&self) -> &'static str {
        include_str!("kind.toml")
    }

    fn keepers(&self) -> Vec<Arc<dyn LeftoverKeeper>> {
        HomeKeeper::usual().map(|keeper| Arc::new(keeper) as _).into_iter().collect()
    }
}

impl AgentKind {
    /// Reads the keys of agents, of a pool or of a gateway.
    pub(crate) fn read_policy(pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<AgentPolicy> {
        let dialects = Dialect::ALL.map(|dialect| (dialect.name(), dialect));
        let dialect = section
            .required("agent", "\"claude\", \"codex\", \"gemini\", \"opencode\", \"acp\" or \"command\"")?
            .one_of(&dialects);
        let default = AgentPolicy::new(pool.name, dialect.unwrap_or(Dialect::Command));
        let texts = |section: &mut Section<'_>, key, example| {
            section.find(key).and_then(|found| found.texts(example)).unwrap_or_default()
        };
        let policy = AgentPolicy {
            command: texts(section, "command", "[\"npx\", \"claude\"]"),
            prompt: section.find("prompt").and_then(|found| prompt(&found)),
            model: text(section, "model"),
            max_turns: section
                .find("max_iterations")
                .and_then(|found| found.count(TURNS))
                .unwrap_or(default.max_turns),
            permission: section
                .find("permission")
                .and_then(|found| found.one_of(&PERMISSIONS))
                .unwrap_or(default.permission),
            tools: ToolRules {
                allowed: texts(section, "tools", "[\"Read\", \"Bash(git *)\"]"),
                denied: texts(section, "denied_tools", "[\"WebFetch\"]"),
            },
            denials: section
                .find("on_denied")
                .and_then(|found| found.one_of(&DENIALS))
                .unwrap_or(default.denials),
            schema: section.find("schema").and_then(|found| schema(&found)),
            schema_retries: section
                .find("schema_retries")
                .and_then(|found| found.count(0..=MAX_SCHEMA_RETRIES))
                .unwrap_or(default.schema_retries),
            mcp_config: text(section, "mcp_config"),
            setting_sources: text(section, "setting_sources"),
            provider: provider(section, dialect),
            idle_watchdog: section
                .find("idle_watchdog")
                .and_then(|found| found.duration())
                .unwrap_or(default.idle_watchdog),
            version_timeout: default.version_timeout,
            stagger: section.find("stagger").and_then(|found| found.duration()).unwrap_or(default.stagger),
            max_task_cost: pool.max_task_cost,
            prices: pool.prices.clone(),
            extra: texts(section, "extra", "[\"--flag=value\"]"),
            environment: children::environment(pool, section, default.environment.clone()),
            secrets: pool.secrets.clone(),
            folders: children::folders_or_worktrees(pool.name, section, None),
            files: children::files(section),
            config_folders: text(section, "config_folders").map(PathBuf::from),
            cost_pattern: pattern(section, "cost_pattern"),
            session_pattern: pattern(section, "session_pattern"),
            max_log_bytes: children::bytes(section.find("max_log"), MAX_LOG_BYTES)
                .unwrap_or(default.max_log_bytes),
            max_output_bytes: usize::try_from(pool.output_limit).unwrap_or(default.max_output_bytes),
            ..default
        };
        if dialect == Some(Dialect::Command) && policy.command.is_empty() {
            section.fault("command", "is missing: the program that reads a prompt from its standard input");
            return None;
        }
        if dialect == Some(Dialect::Acp) && policy.command.is_empty() {
            section.fault("command", "is missing: the program that speaks the Agent Client Protocol");
            return None;
        }
        dialect.map(|_| policy)
    }
}

impl AgentPolicy {
    /// A config folder that all agents of the pool would share, because its variables win over those of each conversation.
    fn shared_folder(&self, pool: &str) -> Option<PoolFinding> {
        let names = self.dialect.config_variables();
        let (name, _) = self.environment.set.iter().find(|(name, _)| names.contains(&name.as_str()))?;
        Some(PoolFinding {
            code: "agent-shared-config",
            level: FindingLevel::Warning,
            sentence: format!(
                "pool.{pool}.env sets {name}: all of its agents share that folder, can break each other's files in it, and leave their \
                 conversations there"
            ),
            advice: "Leave it out: each conversation has a folder of its own, below \"config_folders\"",
        })
    }
}

#[async_trait]
impl PoolSpec for AgentPolicy {
    fn defaults(&self) -> PoolDefaults {
        let overrides = Overrides { timeout: Some(TIMEOUT), base: Some(RETRY_BASE), ..Overrides::NONE };
        PoolDefaults { min_workers: 1, max_workers: MAX_WORKERS, overrides }
    }

    fn beside(&mut self, folder: &Path) {
        children::beside(&mut self.folders, None, folder);
        let schema = self.schema.iter_mut().filter_map(|schema| match schema {
            SchemaSource::File(path) => Some(path),
            SchemaSource::Inline(_) => None,
        });
        for path in schema.chain(&mut self.config_folders) {
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

    fn programs(&self) -> Vec<String> {
        // An agent that is missing is named by its examination, with what to install.
        if self.dialect.product().is_some() {
            Vec::new()
        } else {
            self.program().map(str::to_owned).into_iter().collect()
        }
    }

    fn unpriced(&self, model: Option<&str>) -> Option<String> {
        match (self.dialect, model.or(self.model.as_deref())) {
            (Dialect::Command, _) if self.cost_pattern.is_none() => {
                Some("\"cost_pattern\" is missing, so that nothing says what its work costs".to_owned())
            }
            (Dialect::Command | Dialect::Acp, _) | (Dialect::Claude | Dialect::OpenCode, None) => None,
            // It says what it costs, but only at the end of a turn, which is too late to stop it at the budget of its task.
            (Dialect::Claude, Some(_)) if self.max_task_cost.is_none() => None,
            // It knows the prices of its own providers.
            (Dialect::OpenCode, Some(_)) if self.provider.is_none() => None,
            (Dialect::Codex | Dialect::CodexExec | Dialect::Gemini, None) => {
                let program = self.dialect.program().unwrap_or_default();
                Some(format!("{program} does not say what it costs: set \"model\""))
            }
            (
                Dialect::Claude | Dialect::Codex | Dialect::CodexExec | Dialect::Gemini | Dialect::OpenCode,
                Some(model),
            ) => self.prices.lacks(model),
        }
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        let schema = self.schema.as_ref().and_then(|schema| schema.read().err()).map(|why| PoolFinding {
            code: "agent-schema",
            level: FindingLevel::Error,
            sentence: format!("pool.{pool}.schema: {why}"),
            advice: "Correct the schema, or the path to it",
        });
        let everything = (self.permission == Permission::Everything).then(|| PoolFinding {
            code: "agent-everything",
            level: FindingLevel::Warning,
            sentence: format!(
                "pool.{pool}.permission = \"everything\": its agents can do whatever the node's user can, and what they read can tell \
                 them to"
            ),
            advice: "List what they need in \"tools\", or run the node in a container or as a user of its own",
        });
        let has_patterns = self.cost_pattern.is_some() || self.session_pattern.is_some();
        let patterns = (has_patterns && self.dialect != Dialect::Command).then(|| PoolFinding {
            code: "agent-patterns",
            level: FindingLevel::Info,
            sentence: format!(
                "pool.{pool}: \"cost_pattern\" and \"session_pattern\" are only for agent = \"command\""
            ),
            advice: "Leave them out",
        });
        let worktrees = children::worktree_finding(pool, &self.folders);
        let unkept = acp_findings::of(self, pool);
        let shared = self.shared_folder(pool);
        schema
            .into_iter()
            .chain(everything)
            .chain(patterns)
            .chain(unkept)
            .chain(worktrees)
            .chain(shared)
            .collect()
    }

    async fn examine(&self, pool: &str) -> Vec<PoolFinding> {
        let finding = |code, level, sentence, advice| PoolFinding {
            code,
            level,
            sentence: format!("Pool \"{pool}\": {sentence}"),
            advice,
        };
        if let Err(error) = program_version(self, None).await {
            let (level, advice) = match &error {
                VersionError::NotStarted { .. } | VersionError::Silent { .. } => {
                    (FindingLevel::Warning, "Run it by hand, and see how long it takes")
                }
                VersionError::Missing { .. }
                | VersionError::TooOld { .. }
                | VersionError::TooNew { .. }
                | VersionError::Other { .. } => (FindingLevel::Error, "Or set \"command\" to where it is"),
            };
            return vec![finding("agent-program", level, error.to_string(), advice)];
        }
        let Some(place) = self.dialect.login() else { return Vec::new() };
        match Login::of(self, &node_env) {
            Login::Key { .. } | Login::Folder(_) => Vec::new(),
            Login::Missing => {
                let program = self.program().unwrap_or_default();
                let keys = place.keys.first().copied().unwrap_or_default();
                let file = Path::new("~").join(place.folder).join(place.file);
                let sentence = format!(
                    "`{program}` has no login: run it and log in, or set {keys} (there is no {})",
                    file.display()
                );
                let level =
                    if self.dialect.needs_login() { FindingLevel::Error } else { FindingLevel::Warning };
                vec![finding("agent-login", level, sentence, "Or give the pool a key in \"secrets\"")]
            }
        }
    }

    fn keepers(&self) -> Vec<Arc<dyn LeftoverKeeper>> {
        let folder = self.config_folders.iter().cloned();
        folder.map(|folder| Arc::new(HomeKeeper::new(folder)) as _).collect()
    }

    fn account(&self) -> Option<String> {
        // The account of a program that is not known is not known either.
        self.dialect.login().map(|_| Login::of(self, &node_env).account(self.dialect))
    }

    fn takes_prompts(&self) -> TakesPrompts {
        TakesPrompts::Yes
    }

    fn question(&self) -> Option<Map<String, Value>> {
        Some(question([
            ("agent", Some(self.dialect.name().into())),
            ("prompt", self.prompt.clone().map(Value::from)),
            ("model", self.model.clone().map(Value::from)),
            ("schema", self.schema.as_ref().and_then(SchemaSource::value)),
        ]))
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let supervisor = context.need::<Supervisor>(SUPERVISOR)?.clone();
        let mut policy = self.clone();
        policy.folders.mark = context.resources.get::<StoreMark>().cloned();
        let agents = AgentExecutor::new(supervisor, policy, now);
        Ok(Arc::new(agents.map_err(|error| BuildError::new(error.to_string()))?))
    }
}

/// What a pool asks, as far as it is set.
pub(crate) fn question<const N: usize>(parts: [(&str, Option<Value>); N]) -> Map<String, Value> {
    parts.into_iter().filter_map(|(name, part)| Some((name.to_owned(), part?))).collect()
}

/// The wall clock, for the times at which usage limits reset.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

pub(crate) fn text(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    let found = section.find(key)?;
    let text = found.text()?;
    if text.trim().is_empty() { found.refuse("is empty") } else { Some(text) }
}

pub(crate) fn prompt(found: &FoundValue<'_>) -> Option<String> {
    let text = found.text()?;
    match PromptTemplate::new(&text) {
        Ok(_) => Some(text),
        Err(error) => found.refuse(format!("is not a template: {error}")),
    }
}

pub(crate) fn schema(found: &FoundValue<'_>) -> Option<SchemaSource> {
    let schema = found.json()?;
    match schema.as_str() {
        Some("") => found.refuse("is empty, but must be the path of a file, or a table"),
        Some(path) => Some(SchemaSource::File(path.into())),
        None => match AnswerSchema::new(&schema) {
            Ok(_) => Some(SchemaSource::Inline(schema)),
            Err(error) => found.refuse(format!("is not a JSON schema: {error}")),
        },
    }
}

fn pattern(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    let found = section.find(key)?;
    let text = found.text()?;
    match Regex::new(&text) {
        Ok(_) => Some(text),
        Err(error) => found.refuse(format!("is not a regular expression: {error}")),
    }
}

fn provider(section: &mut Section<'_>, dialect: Option<Dialect>) -> Option<ModelProvider> {
    let base_url = text(section, "base_url");
    if dialect == Some(Dialect::Acp) && base_url.is_some() {
        section.fault(
            "base_url",
            "is not known to agent = \"acp\": set it in the config of the program, or in \"env\"",
        );
    }
    let usual = dialect.and_then(Dialect::login).and_then(|place| place.keys.first().copied());
    let key_variable = section.find("key_variable").and_then(|found| {
        let name = found.text()?;
        if !is_variable_name(&name) {
            return found.refuse("is not the name of a variable, such as \"OPENAI_API_KEY\"");
        }
        match (dialect, usual) {
            (Some(dialect @ (Dialect::Claude | Dialect::Gemini)), Some(usual)) if usual != name => found
                .refuse(format!(
                    "is not read by {}: set env = {{ {usual} = \"${{{name}}}\" }}, or use \"secrets\"",
                    dialect.name()
                )),
            (_, _) => Some(name),
        }
    });
    let key_variable = key_variable.or_else(|| usual.map(str::to_owned))?;
    base_url.map(|base_url| ModelProvider { base_url, key_variable })
}
