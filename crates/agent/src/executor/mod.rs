//! The agent executor: an attempt is a conversation with an agent, held by one process after another under the supervisor.
//!
//! - `policy.rs`: the settings of a pool. `payload.rs`: those of a task. `schema.rs`: the form of an answer.
//! - `home.rs`: where a conversation lives, and how the next attempt goes on with it. `keeper.rs`: how long. `login.rs`: whose login it uses.
//! - `attempt.rs`: one attempt. `process.rs`: one process of it. `recorder.rs`: its transcript. `verdict.rs`: what follows.
//! - `refusals.rs`: what an agent means that asks for a login.
//! - `limits.rs`: how long it may take. `stagger.rs`: when it starts. `probe.rs`: whether the program can be used.

pub(crate) mod attempt;
pub(crate) mod home;
pub(crate) mod keeper;
pub(crate) mod limits;
pub(crate) mod login;
mod pacing;
pub(crate) mod payload;
mod policy;
pub(crate) mod probe;
mod process;
pub(crate) mod recorder;
mod refusals;
pub(crate) mod schema;
mod stagger;
pub(crate) mod verdict;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use jiff::tz::TimeZone;
use ostler_config::state_folder;
use ostler_core::{Timestamp, WorkerId};
use ostler_exec::{AttemptResult, Control, Executor, Served, Vitals, Work};
use ostler_process::supervisor::Supervisor;
use ostler_process::{FilePatterns, Links, RunningChildren, TaskFolders, children};
use regex::Regex;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::OnceCell;

use crate::dialect::Dialect;
use crate::launch::PlanError;
use crate::prompt::{PromptError, PromptTemplate};
use crate::settings::LinePatterns;
use crate::version::VersionError;
use attempt::AgentAttempt;
pub(crate) use attempt::Talk;
use home::Homes;
pub use policy::{AgentPolicy, IDLE_WATCHDOG, MAX_AGENT_LOG_BYTES, SCHEMA_RETRIES, STAGGER, SchemaSource};
use refusals::Refusals;
use schema::AnswerSchema;
use stagger::Stagger;

/// The folder of conversations, in the user's state folder.
const AGENTS: &str = "agents";

/// Executor that gives each task to an agent, whatever its kind.
///
/// The prompt goes to the agent's standard input, what it writes becomes the transcript, and what its stream and its exit say becomes the
/// outcome. When it is to stop it is asked in its own words if it has some, then gets SIGTERM, and is killed after the grace period;
/// whatever it has started is killed with it.
#[derive(Debug)]
pub struct AgentExecutor {
    supervisor: Supervisor,
    policy: AgentPolicy,
    template: Option<PromptTemplate>,
    schema: Option<AnswerSchema>,
    patterns: LinePatterns,
    folders: TaskFolders,
    files: Option<FilePatterns>,
    /// `None`: its agents keep no conversations.
    homes: Option<Homes>,
    stagger: Stagger,
    /// Set when the program was found and is new enough.
    probed: OnceCell<()>,
    has_swept: AtomicBool,
    refusals: Refusals,
    running: RunningChildren,
    now: fn() -> Timestamp,
    zone: TimeZone,
}

/// Why a policy cannot be used.
#[derive(Debug, Error)]
pub enum AgentPolicyError {
    #[error("prompt: {0}")]
    Prompt(#[from] PromptError),
    #[error("schema: {0}")]
    Schema(String),
    #[error("{0}: {1}")]
    Pattern(&'static str, regex::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("files: {0}")]
    Files(String),
    #[error("there is no folder for conversations: set config_folders, or one of XDG_STATE_HOME and HOME")]
    NoFolder,
}

impl AgentExecutor {
    /// Creates an executor that runs agents by this policy, as children of this supervisor. `now` is the wall clock, for the times at
    /// which usage limits reset.
    ///
    /// # Errors
    /// When the policy is not valid, or its schema cannot be read.
    pub fn new(
        supervisor: Supervisor,
        policy: AgentPolicy,
        now: fn() -> Timestamp,
    ) -> Result<Self, AgentPolicyError> {
        if policy.dialect.needs_command() && policy.command.is_empty() {
            let is_acp = policy.dialect == Dialect::Acp;
            return Err(if is_acp { PlanError::NoAcpCommand } else { PlanError::NoCommand }.into());
        }
        let pattern = |name, text: &Option<String>| {
            let read = text.as_deref().map(Regex::new).transpose();
            read.map_err(|error| AgentPolicyError::Pattern(name, error))
        };
        let patterns = LinePatterns {
            cost: pattern("cost_pattern", &policy.cost_pattern)?,
            session: pattern("session_pattern", &policy.session_pattern)?,
        };
        let homes = if policy.dialect.resumes() {
            let all =
                policy.config_folders.clone().or_else(usual_folder).ok_or(AgentPolicyError::NoFolder)?;
            // Agents run in other folders.
            let all = std::path::absolute(&all).unwrap_or(all);
            Some(Homes::new(all.join(children::subfolder(&policy.pool))))
        } else {
            None
        };
        Ok(Self {
            template: policy.prompt.as_deref().map(PromptTemplate::new).transpose()?,
            schema: policy
                .schema
                .as_ref()
                .map(SchemaSource::read)
                .transpose()
                .map_err(AgentPolicyError::Schema)?,
            folders: TaskFolders::new(&policy.folders, Links::Trusted),
            files: FilePatterns::new(&policy.files).map_err(AgentPolicyError::Files)?,
            stagger: Stagger::new(policy.stagger),
            probed: OnceCell::new(),
            has_swept: AtomicBool::new(false),
            refusals: Refusals::default(),
            running: RunningChildren::default(),
            zone: TimeZone::system(),
            supervisor,
            patterns,
            homes,
            now,
            policy,
        })
    }

    /// The settings of the pool.
    pub(crate) const fn policy(&self) -> &AgentPolicy {
        &self.policy
    }

    /// Holds a conversation to its end.
    pub(crate) async fn hold(&self, work: &Work, control: &Control, talk: Talk) -> AttemptResult {
        if control.cancel.is_cancelled() {
            return AttemptResult::cancelled();
        }
        self.sweep();
        let lapses = self.supervisor.lapses();
        let ended = AgentAttempt::new(self, work, control, talk).run().await;
        self.supervisor.unless_lapsed(lapses, ended)
    }

    /// Looks once whether the program can be used. One that cannot, or that does not answer, is looked at again with the next attempt.
    async fn ready(&self) -> Result<(), VersionError> {
        self.probed
            .get_or_try_init(|| probe::program_version(&self.policy, Some(&self.supervisor)))
            .await
            .copied()
    }

    /// Removes old conversations that do not go with tasks: once in the life of an executor, beside its work.
    fn sweep(&self) {
        if let Some(homes) = self.homes.clone()
            && !self.has_swept.swap(true, Ordering::Relaxed)
        {
            drop(tokio::task::spawn_blocking(move || homes.sweep()));
        }
    }
}

impl SchemaSource {
    pub(crate) fn read(&self) -> Result<AnswerSchema, String> {
        AnswerSchema::new(&self.load()?).map_err(|error| self.named(&error))
    }

    /// The schema, whether or not it is valid. `None`: it cannot be read, which `read` explains.
    pub(crate) fn value(&self) -> Option<Value> {
        self.load().ok()
    }

    fn load(&self) -> Result<Value, String> {
        match self {
            Self::Inline(schema) => Ok(schema.clone()),
            Self::File(path) => {
                let text = std::fs::read(path).map_err(|error| self.named(&error))?;
                serde_json::from_slice(&text).map_err(|error| self.named(&error))
            }
        }
    }

    /// An error with the file that it is about.
    fn named(&self, error: &dyn std::fmt::Display) -> String {
        match self {
            Self::Inline(_) => error.to_string(),
            Self::File(path) => format!("{}: {error}", path.display()),
        }
    }
}

/// The folder of the conversations of all pools that do not say where theirs are.
fn usual_folder() -> Option<PathBuf> {
    Some(state_folder()?.join(AGENTS))
}

#[async_trait]
impl Executor for AgentExecutor {
    fn served(&self) -> Served {
        Served::Any
    }

    fn vitals(&self, worker: WorkerId) -> Vitals {
        self.running.vitals(worker)
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        self.hold(&work, &control, Talk::Task).await
    }
}
