//! One attempt of an agent: how its conversation begins, which processes hold it, and what comes of it.

use std::future::Future;
use std::sync::Arc;

use ostler_core::{Cost, ErrorClass, EventBody, Failure, Usage, UsageSource, add_usage};
use ostler_exec::{AttemptResult, Control, Work};
use ostler_process::supervisor::{Child, Launch, Socket, SpawnError, Stdin, Variables};
use ostler_process::{OutputFiles, TaskFolder, not_spawned};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::AgentExecutor;
use super::home::{Asked, Beginning, FirstPrompt, Home, NoHome};
use super::limits::{AttemptLimits, Early, away};
use super::login::{node_env, user_folder};
use super::payload::AgentTask;
use super::process::{AgentProcess, Followed, ProcessLimits};
use super::recorder::Recorder;
use super::verdict::{AfterRun, Chances, Turn};
use crate::ending::{AgentEnd, ProcessEnd, RunReport, StopCause, Trouble};
use crate::environment::inherited;
use crate::launch::{LaunchPlan, PromptInput};
use crate::prompt::GO_ON;
use crate::reason::Reason;
use crate::settings::{AgentSettings, DEFAULT_MAX_RETRIES, SessionStart};

/// Which conversation is held.
#[derive(Clone, Debug)]
pub(crate) enum Talk {
    /// That of the task: another attempt resumes it.
    Task,
    /// A session of a gateway, in which a handler asks several things.
    Session {
        /// The name of its home.
        home: String,
        /// The query, by a name that is the same in another attempt.
        query: String,
    },
}

pub(super) struct AgentAttempt<'a> {
    pub(super) executor: &'a AgentExecutor,
    pub(super) work: &'a Work,
    control: &'a Control,
    task: String,
    talk: Talk,
    began: Instant,
    deadline: Instant,
    /// What is recorded of its folder at the end.
    files: Option<OutputFiles>,
}

/// What was spent before this attempt.
struct SpentBefore {
    cost: Cost,
    /// In the conversation that is resumed.
    usage: Vec<Usage>,
}

impl<'a> AgentAttempt<'a> {
    pub(super) fn new(executor: &'a AgentExecutor, work: &'a Work, control: &'a Control, talk: Talk) -> Self {
        let began = Instant::now();
        let deadline = AttemptLimits::new(work, control).deadline;
        Self { executor, work, control, task: work.task.to_string(), talk, began, deadline, files: None }
    }

    /// The name of the conversation's home, unless the payload names another one.
    pub(super) fn home_name(&self) -> &str {
        match &self.talk {
            Talk::Task => &self.task,
            Talk::Session { home, .. } => home,
        }
    }

    /// What is asked in it.
    fn query_name(&self) -> &str {
        match &self.talk {
            Talk::Task => &self.task,
            Talk::Session { query, .. } => query,
        }
    }

    pub(super) async fn run(mut self) -> AttemptResult {
        let ended = self.hold_all().await.unwrap_or_else(|ended| *ended);
        if let Some(files) = self.files {
            files.record(&ended).await;
        }
        ended
    }

    async fn hold_all(&mut self) -> Result<AttemptResult, Early> {
        let AgentExecutor { policy, template, schema, .. } = self.executor;
        let task = AgentTask::read(&self.work.payload, policy, template.as_ref(), schema.as_ref());
        let task = task.map_err(|message| AttemptResult::failed_with(ErrorClass::Permanent, message))?;
        self.limits().check_price(policy, task.model.as_deref(), policy.max_task_cost)?;
        let ready = self.within(self.executor.ready()).await?;
        ready.map_err(|error| AttemptResult::failed_with(error.class(), error.to_string()))?;
        let (supervisor, events) = (&self.executor.supervisor, &self.control.events);
        let own = self.within(self.executor.folders.open(self.work, supervisor, events)).await?;
        let own = own.map_err(AttemptResult::failed)?;
        let patterns = self.executor.files.clone();
        self.files = patterns.map(|patterns| OutputFiles::of(patterns, own.clone(), self.work, self.control));

        let previous = match &self.talk {
            Talk::Task => self.within(self.control.steps.previous_session()).await?.map_err(away)?,
            // Its home knows.
            Talk::Session { .. } => None,
        };
        let earlier = self.within(self.control.steps.earlier_conversations()).await?.map_err(away)?;
        let mut before = SpentBefore {
            cost: earlier.iter().filter_map(|talk| talk.cost()).sum(),
            usage: earlier
                .into_iter()
                .filter(|talk| talk.session.is_some() && talk.session == previous)
                .fold(Vec::new(), |mut sums, talk| {
                    talk.usage.iter().for_each(|usage| add_usage(&mut sums, usage));
                    sums
                }),
        };
        let (mut home, beginning) = self.open(&task, previous.as_deref())?;
        // Another task may have begun the conversation.
        if let Some(spent) = home.as_ref().map(Home::spent).filter(|spent| !spent.is_empty()) {
            before.usage = spent;
        }
        let lost = home.as_mut().map(Home::take_seen).transpose().map_err(no_folder)?.unwrap_or_default();
        let elapsed =
            home.as_mut().map(Home::take_elapsed).transpose().map_err(no_folder)?.unwrap_or_default();
        // The time of an attempt that died with its node goes on.
        self.deadline = self.deadline.checked_sub(elapsed).unwrap_or(self.began).max(self.began);
        let began = self.began.checked_sub(elapsed).unwrap_or(self.began);
        let mut recorder = Recorder::new(
            self.control.events.clone(),
            home,
            self.query_name().to_owned(),
            began,
            before.cost,
        );
        recorder.count_lost(lost.into_iter().map(estimated).collect());
        if let Some(note) = beginning.note {
            recorder.note(note);
        }
        self.limits().record_rest(&mut recorder).await;
        let mut turn = Turn {
            session: beginning.session,
            prompt: match beginning.prompt {
                FirstPrompt::Whole => task.prompt.clone(),
                FirstPrompt::GoOn => GO_ON.to_owned(),
            },
        };
        let mut chances = Chances::new(policy.schema_retries);
        loop {
            self.check_limits(&task, &recorder)?;
            let settings = self.settings(&task, &turn, own.as_ref(), &recorder, &before);
            let report = self.hold(&settings, own.as_ref(), &mut recorder).await?;
            recorder
                .take(report.unreported.into_iter().map(|usage| EventBody::Usage(estimated(usage)).into()));
            self.limits().record_rest(&mut recorder).await;
            match self.next(report.end, &task, &settings, &mut recorder, &mut chances) {
                AfterRun::Another(next) => turn = next,
                AfterRun::End(ended, follow_up) => {
                    recorder.ended(follow_up);
                    return Ok(AttemptResult { reading: recorder.take_reading(), ..ended });
                }
            }
            recorder.next_run();
        }
    }

    /// Awaits something, but no longer than the attempt may take.
    async fn within<T>(&self, waited: impl Future<Output = T>) -> Result<T, Early> {
        self.limits().within(waited).await
    }

    const fn limits(&self) -> AttemptLimits<'a> {
        AttemptLimits { work: self.work, control: self.control, deadline: self.deadline }
    }

    /// Opens the home of the conversation, and decides how it begins.
    fn open(&self, task: &AgentTask, previous: Option<&str>) -> Result<(Option<Home>, Beginning), Early> {
        let fresh = session_id(self.home_name(), self.work.token, 0);
        let Some(homes) = &self.executor.homes else {
            let session = SessionStart::New { id: fresh };
            return Ok((None, Beginning { session, prompt: FirstPrompt::Whole, note: None }));
        };
        let dialect = self.executor.policy.dialect.name();
        let mut asked = Asked {
            task: &self.task,
            home: self.home_name(),
            query: self.query_name(),
            dialect,
            previous,
            given: task.session.as_deref(),
            prompt: &task.prompt,
            mark: self.executor.policy.folders.mark.as_ref(),
        };
        let mut home = homes.open(&asked).map_err(|error| {
            let class = match &error {
                NoHome::NotHere(_) => ErrorClass::Permanent,
                NoHome::InUse | NoHome::System(..) => ErrorClass::Transient,
            };
            AttemptResult::failed_with(class, error.to_string())
        })?;
        let own = match &self.talk {
            Talk::Task => None,
            Talk::Session { .. } => home.session(),
        };
        asked.previous = asked.previous.or(own.as_deref());
        let beginning = home.begin(&asked, fresh).map_err(no_folder)?;
        Ok((Some(home), beginning))
    }

    /// Limits of the task, which go on over its attempts and its processes.
    fn check_limits(&self, task: &AgentTask, recorder: &Recorder) -> Result<(), Early> {
        let (most, cost) = (self.executor.policy.max_task_cost, recorder.cost());
        let trouble = if let Some(most) = most.filter(|most| cost >= *most) {
            Trouble::new(Reason::Budget, format!("the task has cost {cost}, and its budget is {most}"))
        } else if recorder.turns() >= task.max_turns {
            Trouble::new(Reason::TurnLimit, over_turns(recorder.turns()))
        } else {
            return Ok(());
        };
        Err(AttemptResult::failed(trouble.failure((self.executor.now)())).into())
    }

    fn settings(
        &self,
        task: &AgentTask,
        turn: &Turn,
        own: Option<&TaskFolder>,
        recorder: &Recorder,
        before: &SpentBefore,
    ) -> AgentSettings {
        let policy = &self.executor.policy;
        let folder = own.map(|own| own.path.clone()).or_else(|| policy.folders.start());
        let mut spent_before = before.usage.clone();
        recorder.spent().iter().for_each(|usage| add_usage(&mut spent_before, usage));
        AgentSettings {
            command: policy.command.clone(),
            prompt: turn.prompt.clone(),
            session: turn.session.clone(),
            folder: folder.map_or_else(|| std::env::current_dir().unwrap_or_default(), Into::into),
            config_folder: recorder.home().map(Home::config).unwrap_or_default(),
            model: task.model.clone(),
            max_turns: task.max_turns.saturating_sub(recorder.turns()),
            tools: task.tools.clone(),
            permission: task.permission,
            denials: task.denials,
            schema: task.schema.as_ref().map(|schema| schema.text().to_owned()),
            mcp_config: policy.mcp_config.clone(),
            setting_sources: policy.setting_sources.clone(),
            provider: policy.provider.clone(),
            max_retries: DEFAULT_MAX_RETRIES,
            extra: task.extra.clone(),
            spent_before,
            prices: policy.prices.clone(),
            patterns: self.executor.patterns.clone(),
        }
    }

    /// Runs one process to its end.
    async fn hold(
        &self,
        settings: &AgentSettings,
        own: Option<&TaskFolder>,
        recorder: &mut Recorder,
    ) -> Result<RunReport, Early> {
        let executor = self.executor;
        let plan = executor.policy.dialect.plan(settings);
        let plan =
            plan.map_err(|error| AttemptResult::failed_with(ErrorClass::Permanent, error.to_string()))?;
        if let Some(home) = recorder.home() {
            let login = user_folder(executor.policy.dialect, &node_env);
            home.furnish(&plan, login.as_deref()).map_err(no_folder)?;
        }
        let mut run = executor.policy.dialect.run(settings);
        // The session and the prompt are stored before anything can be asked of a model.
        recorder.take(run.open());
        self.within(recorder.drained()).await?;
        if recorder.is_closed() {
            return Err(AttemptResult::cancelled().into());
        }
        self.within(executor.stagger.turn()).await?;
        let child = self.spawn(&plan, own).await?;
        let _listed = executor.running.list(self.work.worker, child.pid());
        if let PromptInput::Whole(prompt) = &plan.input {
            recorder.say_all(prompt);
        }
        let limits = ProcessLimits {
            deadline: self.deadline,
            grace: self.work.grace,
            budget: executor.policy.max_task_cost,
        };
        let (control, policy) = (self.control, &executor.policy);
        let followed =
            AgentProcess { child, run: &mut run, recorder, control, policy, limits }.follow().await;
        match followed {
            Followed::Ended { exit, stop, stderr } => {
                let (now, zone) = ((executor.now)(), &executor.zone);
                let report = run.end(&ProcessEnd { exit, stop, stderr: &stderr, now, zone });
                Ok(self.with_limit(report, stop, recorder.turns()))
            }
            Followed::Lost => Err(AttemptResult::cancelled().into()),
            Followed::Unresponsive => Err(AttemptResult::too_long(self.work.timeout).unresponsive().into()),
            Followed::Unsupervised(gone) => Err(AttemptResult::failed_with(ErrorClass::Crash, gone).into()),
        }
    }

    /// Names the limit that was reached.
    fn with_limit(&self, mut report: RunReport, stop: StopCause, turns: u32) -> RunReport {
        if let AgentEnd::Failed(trouble) = &mut report.end {
            match stop {
                StopCause::Timeout if trouble.reason == Reason::TimedOut => {
                    trouble.message = format!("it took longer than {:?}", self.work.timeout);
                }
                StopCause::Idle if trouble.reason == Reason::Idle => {
                    let most = self.executor.policy.idle_watchdog;
                    trouble.message = format!("it was silent for {most:?}, and no tool was running");
                }
                StopCause::Unopened if trouble.reason == Reason::NoResult => {
                    let most = self.executor.policy.opening_time();
                    trouble.message = format!("it did not open a session within {most:?}");
                }
                StopCause::TurnLimit if trouble.reason == Reason::TurnLimit => {
                    trouble.message = over_turns(turns);
                }
                StopCause::None
                | StopCause::AfterResult
                | StopCause::Cancelled
                | StopCause::Timeout
                | StopCause::Idle
                | StopCause::Unopened
                | StopCause::Budget
                | StopCause::TurnLimit
                | StopCause::Hopeless => {}
            }
        }
        report
    }

    async fn spawn(&self, plan: &LaunchPlan, own: Option<&TaskFolder>) -> Result<Child, Early> {
        let policy = &self.executor.policy;
        let own_key = policy.provider.iter().map(|provider| provider.key_variable.clone());
        let keep: Vec<String> = policy.environment.keep.iter().cloned().chain(own_key).collect();
        let names = inherited(policy.dialect, std::env::vars_os(), &keep);
        let environment = policy.environment.of_task(&policy.secrets, self.work.traceparent.as_ref());
        let set = plan.set.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let folder = own.map(|own| own.path.clone()).or_else(|| policy.folders.start());
        let launch = Launch {
            argv: [&plan.program]
                .into_iter()
                .chain(&plan.arguments)
                .map(|word| word.as_str().into())
                .collect(),
            start: own.map(|own| Arc::clone(&own.opened)),
            own: None,
            folder: folder.clone(),
            keep: names.filter_map(|(name, _)| name.into_string().ok()).collect(),
            // What the pool sets wins.
            set: Variables(set.chain(environment).collect()),
            stdin: Stdin::Pipe,
            socket: Socket::None,
            confinement: None,
        };
        match self.within(self.executor.supervisor.spawn(launch)).await? {
            Ok(child) => Ok(child),
            Err(error @ SpawnError::Short { .. }) => Err(AttemptResult::short(error.to_string()).into()),
            Err(error) => {
                Err(AttemptResult::failed(not_spawned(&plan.program, folder.as_deref(), &error)).into())
            }
        }
    }
}

/// Usage that was seen, and that the agent did not come to report.
pub(crate) fn estimated(usage: Usage) -> Usage {
    Usage { source: UsageSource::Estimated, ..usage }
}

fn over_turns(turns: u32) -> String {
    format!("it made {turns} model requests, and was not done")
}

fn no_folder(error: impl std::fmt::Display) -> AttemptResult {
    let message = format!("the folder of the conversation cannot be written: {error}");
    AttemptResult::failed(Failure::new(ErrorClass::Transient, message))
}

/// The id of the conversation that an attempt begins, in the form of a UUID. A claim has a token of its own, so no id is used twice.
pub(super) fn session_id(task: &str, token: u64, number: u32) -> String {
    let digest = Sha256::digest(format!("{task}\n{token}\n{number}"));
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    // Version 4, which every agent accepts.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_has_a_session_id_of_its_own_in_the_form_of_a_uuid() {
        let id = session_id("01T", 1, 0);
        assert_eq!(id.len(), 36);
        assert!(id.as_bytes()[14] == b'4' && "89ab".contains(char::from(id.as_bytes()[19])), "{id}");
        assert_ne!(id, session_id("01T", 2, 0));
        assert_ne!(id, session_id("01T", 1, 1));
    }
}
