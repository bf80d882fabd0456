//! What follows a process of an agent: the end of the attempt, or another process in the same conversation or a new one.

use ostler_core::{Timestamp, cut};
use ostler_exec::AttemptResult;

use super::attempt::{AgentAttempt, session_id};
use super::payload::AgentTask;
use super::recorder::Recorder;
use super::schema::AnswerSchema;
use crate::ending::{AgentAnswer, AgentEnd, Trouble};
use crate::prompt::GO_ON;
use crate::reason::{FollowUp, Reason};
use crate::settings::{AgentSettings, SessionStart};

/// How often an attempt tries another way into its conversation: a new one, or the one that is there.
const MAX_OTHER_WAYS: u32 = 1;

/// What a process is started for.
pub(super) struct Turn {
    pub(super) session: SessionStart,
    pub(super) prompt: String,
}

/// What follows a process.
pub(super) enum AfterRun {
    Another(Turn),
    End(AttemptResult, FollowUp),
}

/// How often something may still be tried.
pub(super) struct Chances {
    schema: u32,
    other_ways: u32,
}

impl AgentAttempt<'_> {
    /// What follows a process that ended like this.
    pub(super) fn next(
        &self,
        end: AgentEnd,
        task: &AgentTask,
        settings: &AgentSettings,
        recorder: &mut Recorder,
        chances: &mut Chances,
    ) -> AfterRun {
        let mut trouble = match end {
            AgentEnd::Cancelled => return AfterRun::End(AttemptResult::cancelled(), FollowUp::Resume),
            AgentEnd::Done(answer) => {
                self.executor.refusals.login_works();
                match output(&answer, task.schema.as_ref(), self.executor.policy.max_output_bytes) {
                    Ok(output) => {
                        return AfterRun::End(AttemptResult::success(Some(output)), FollowUp::Resume);
                    }
                    Err(why) => Trouble { details: Some(answer.text), ..Trouble::new(Reason::Schema, why) },
                }
            }
            AgentEnd::Failed(trouble) => trouble,
        };
        let is_new = matches!(settings.session, SessionStart::New { .. });
        if trouble.reason == Reason::LoginNeeded && is_new && !self.executor.refusals.may_pass() {
            trouble.reason = Reason::BadCredentials;
        }
        let fresh = || session_id(self.home_name(), self.work.token, 1);
        match (trouble.reason, &settings.session) {
            (Reason::Schema, _) => return self.mended(trouble, task, recorder, chances),
            (Reason::UnknownSession, SessionStart::Resume { id }) if chances.try_another_way() => {
                recorder.note(format!("the conversation {id} is not there: a new one begins"));
                let session = SessionStart::New { id: fresh() };
                return AfterRun::Another(Turn { session, prompt: task.prompt.clone() });
            }
            (Reason::SessionInUse, SessionStart::New { id }) if chances.try_another_way() => {
                let session = SessionStart::Resume { id: id.clone() };
                return AfterRun::Another(Turn { session, prompt: GO_ON.to_owned() });
            }
            (_, SessionStart::New { .. } | SessionStart::Resume { .. }) => {}
        }
        AfterRun::End(self.failed(&trouble), trouble.reason.follow_up())
    }

    /// An answer that the schema does not allow is sent back with what is wrong with it.
    fn mended(
        &self,
        trouble: Trouble,
        task: &AgentTask,
        recorder: &mut Recorder,
        chances: &mut Chances,
    ) -> AfterRun {
        let checked = match (&task.schema, &trouble.details) {
            (Some(schema), Some(text)) => schema.check_text(text),
            (_, _) => Err(trouble.message.clone()),
        };
        let why = match checked {
            Ok(output) => return AfterRun::End(AttemptResult::success(Some(output)), FollowUp::Resume),
            Err(why) => why,
        };
        let session = recorder.session().map(str::to_owned);
        match session.filter(|_| self.executor.policy.dialect.resumes() && chances.schema > 0) {
            Some(id) => {
                chances.schema -= 1;
                recorder.note(format!("the schema does not allow the answer, which is sent back: {why}"));
                AfterRun::Another(Turn { session: SessionStart::Resume { id }, prompt: send_back(&why) })
            }
            None => {
                let trouble =
                    Trouble { message: format!("the schema does not allow the answer: {why}"), ..trouble };
                AfterRun::End(self.failed(&trouble), trouble.reason.follow_up())
            }
        }
    }

    pub(super) fn failed(&self, trouble: &Trouble) -> AttemptResult {
        failed(trouble, (self.executor.now)())
    }
}

/// The output of a task: the value that the schema asks for, or the text of the answer. The error says what the schema does not allow.
pub(crate) fn output(
    answer: &AgentAnswer,
    schema: Option<&AnswerSchema>,
    max_bytes: usize,
) -> Result<String, String> {
    match schema {
        Some(schema) => schema.check(answer),
        None => {
            let output = serde_json::Value::from(answer.text.as_str()).to_string();
            if output.len() <= max_bytes {
                return Ok(output);
            }
            // Each character takes at most six bytes in JSON.
            let text = cut(&answer.text, max_bytes / 6);
            Ok(serde_json::Value::from(text).to_string())
        }
    }
}

/// The end of an attempt that failed like this.
pub(crate) fn failed(trouble: &Trouble, now: Timestamp) -> AttemptResult {
    let mut failure = trouble.failure(now);
    if trouble.reason == Reason::Schema {
        failure.step = Some("schema".to_owned());
    }
    let ended = AttemptResult::failed(failure);
    if trouble.reason == Reason::Unknown { ended.unclassed() } else { ended }
}

/// The prompt that sends an answer back.
pub(crate) fn send_back(why: &str) -> String {
    format!(
        "Your last answer does not match the JSON schema that was asked for: {why}\n\
         Answer again with only the JSON value."
    )
}

impl Chances {
    pub(super) const fn new(schema_retries: u32) -> Self {
        Self { schema: schema_retries, other_ways: MAX_OTHER_WAYS }
    }

    fn try_another_way(&mut self) -> bool {
        let is_left = self.other_ways > 0;
        self.other_ways = self.other_ways.saturating_sub(1);
        is_left
    }
}
