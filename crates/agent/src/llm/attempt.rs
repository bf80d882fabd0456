//! One attempt: what is asked of a model, how often, and what comes of it.

use ostler_core::{
    AccountChange, Cost, ErrorClass, EventBody, MAX_ACCOUNT_WINDOW, Outcome, Usage, UsageSource,
};
use ostler_exec::{AttemptResult, Control, Work};
use tokio::time::Instant;

use super::api::Question;
use super::exchange::{Asked, Exchange, FailedRequest};
use super::executor::LlmExecutor;
use super::payload::{LlmTask, said};
use super::rate_headers::{RateHeaders, RequestTokens, Retry};
use super::unanswered::UnansweredRequest;
use crate::ending::{AgentAnswer, Trouble};
use crate::executor::attempt::estimated;
use crate::executor::limits::{AttemptLimits, Early, away};
use crate::executor::recorder::Recorder;
use crate::executor::verdict::{failed, output, send_back};
use crate::fact::Fact;
use crate::reason::Reason;
use crate::transcript::warning;

/// Output tokens that an answer without a maximum is expected to have.
const USUAL_OUTPUT_TOKENS: u64 = 1_000;

pub(super) struct LlmAttempt<'a> {
    pub(super) executor: &'a LlmExecutor,
    pub(super) limits: AttemptLimits<'a>,
}

impl<'a> LlmAttempt<'a> {
    pub(super) fn new(executor: &'a LlmExecutor, work: &'a Work, control: &'a Control) -> Self {
        Self { executor, limits: AttemptLimits::new(work, control) }
    }

    pub(super) async fn run(self) -> AttemptResult {
        self.converse().await.unwrap_or_else(|ended| *ended)
    }

    async fn converse(&self) -> Result<AttemptResult, Early> {
        let LlmExecutor { policy, template, schema, .. } = self.executor;
        let (work, control) = (self.limits.work, self.limits.control);
        let task = LlmTask::read(&work.payload, policy, template.as_ref(), schema.as_ref());
        let mut task = task.map_err(|message| AttemptResult::failed_with(ErrorClass::Permanent, message))?;
        self.limits.check_price(policy, Some(&task.model), policy.max_task_cost)?;
        let earlier = self.limits.within(control.steps.earlier_conversations()).await?.map_err(away)?;
        let cost_before: Cost = earlier.iter().filter_map(|talk| talk.cost()).sum();
        let task_id = work.task.to_string();
        let mut recorder =
            Recorder::of_transcript(control.events.clone(), task_id, Instant::now(), cost_before);
        let mut request = UnansweredRequest::of(work.task, policy.requests_folder.as_deref());
        let lost: Vec<Usage> = request.lost().into_iter().map(estimated).collect();
        let mut usage = earlier.iter().flat_map(|talk| &talk.usage).chain(&lost);
        if usage.any(|usage| usage.source == UsageSource::Estimated) {
            recorder.take([warning(
                "an earlier attempt has lost its answer, and no API can be asked for one again: this request is paid for \
                 besides that one",
            )]);
        }
        recorder.count_lost(lost);
        recorder.take([EventBody::Prompt { text: task.prompt.clone() }.into()]);
        // The prompt is stored before anything is asked.
        self.limits.within(recorder.drained()).await?;
        if recorder.is_closed() {
            return Err(AttemptResult::cancelled().into());
        }
        request.is_reported();
        let mut retries = policy.schema_retries;
        let ended = loop {
            self.check_budget(&recorder)?;
            let asked = self.ask(&task, &mut recorder, &mut request).await;
            self.limits.record_rest(&mut recorder).await;
            // What is not stored of an attempt whose lease is lost, the next one counts.
            if !recorder.is_closed() {
                request.is_reported();
            }
            recorder.next_run();
            let answer = match asked {
                Asked::Answered(answer) => answer,
                Asked::Refused(refusal) => break self.refused(&refusal),
                Asked::Stopped(ended) => break ended,
            };
            match output(&answer, task.schema.as_ref(), policy.max_output_bytes) {
                Ok(output) => break AttemptResult::success(Some(output)),
                Err(why) if retries > 0 => {
                    retries -= 1;
                    recorder.note(format!("the schema does not allow the answer, which is sent back: {why}"));
                    let prompt = send_back(&why);
                    recorder.take([EventBody::Prompt { text: prompt.clone() }.into()]);
                    task.messages.extend([said("assistant", &answer.text), said("user", &prompt)]);
                }
                Err(why) => break self.not_allowed(&answer, &why),
            }
        };
        self.limits.record_rest(&mut recorder).await;
        Ok(AttemptResult { reading: recorder.take_reading(), ..ended })
    }

    /// One request, and what its head says about the account.
    async fn ask(&self, task: &LlmTask, recorder: &mut Recorder, request: &mut UnansweredRequest) -> Asked {
        let policy = &self.executor.policy;
        let question = Question {
            model: &task.model,
            system: task.system.as_deref(),
            messages: &task.messages,
            max_tokens: task.max_tokens,
            extra: &task.extra,
            server: policy.server(),
        };
        let body = policy.api.request(&question).to_string();
        Exchange::new(self, &task.model, &body, recorder, request).run(task.max_tokens).await
    }

    /// Tells the account what the head of an answer says, so that other attempts heed it at once.
    pub(super) async fn heed(&self, headers: &RateHeaders, status: u16, tokens: RequestTokens) {
        let control = self.limits.control;
        if let Some(requests) = headers.allowance(tokens) {
            // A large number lifts a window that an earlier answer has set.
            control.account.tell(AccountChange::Allowance(requests.min(MAX_ACCOUNT_WINDOW))).await;
        }
        let now = (self.executor.now)();
        if let (429, Some(wait), None) = (status, headers.wait(now), headers.rejected_until) {
            let why = format!("the provider of {} limits its rate", self.executor.policy.api.name());
            control.account.tell(AccountChange::Hold { until: Some(now.after(wait)), why }).await;
        }
    }

    /// The tokens that a request needs, about.
    pub(super) fn expected(input: u64, max_tokens: Option<u32>) -> RequestTokens {
        RequestTokens { input, output: max_tokens.map_or(USUAL_OUTPUT_TOKENS, u64::from) }
    }

    /// The budget of the task goes on over its attempts and requests.
    fn check_budget(&self, recorder: &Recorder) -> Result<(), Early> {
        let (most, cost) = (self.executor.policy.max_task_cost, recorder.cost());
        match most.filter(|most| cost >= *most) {
            None => Ok(()),
            Some(most) => {
                let message = format!("the task has cost {cost}, and its budget is {most}");
                Err(failed(&Trouble::new(Reason::Budget, message), (self.executor.now)()).into())
            }
        }
    }

    fn not_allowed(&self, answer: &AgentAnswer, why: &str) -> AttemptResult {
        let message = format!("the schema does not allow the answer: {why}");
        let trouble = Trouble { details: Some(answer.text.clone()), ..Trouble::new(Reason::Schema, message) };
        failed(&trouble, (self.executor.now)())
    }

    /// The end of an attempt whose request failed.
    fn refused(&self, refusal: &FailedRequest) -> AttemptResult {
        let now = (self.executor.now)();
        let ended = failed(&refusal.trouble, now);
        let Outcome::Failed(mut failure) = ended.outcome else { return ended };
        failure.class = class(failure.class, refusal.headers.should_retry);
        failure.retry_after = match failure.class {
            ErrorClass::RateLimited => refusal.headers.wait(now),
            ErrorClass::Transient | ErrorClass::Timeout => refusal.headers.plain_wait(),
            ErrorClass::UsageLimit
            | ErrorClass::Partial
            | ErrorClass::Stuck
            | ErrorClass::Permanent
            | ErrorClass::QueueStop
            | ErrorClass::Crash
            | ErrorClass::Budget => failure.retry_after,
        };
        AttemptResult { outcome: Outcome::Failed(failure), ..ended }
    }
}

/// The server knows better whether another attempt can work. Limits and bad credentials are no question of that.
const fn class(class: ErrorClass, retry: Option<Retry>) -> ErrorClass {
    match (class, retry) {
        (ErrorClass::Transient | ErrorClass::Timeout, Some(Retry::No)) => ErrorClass::Permanent,
        (ErrorClass::Permanent, Some(Retry::Yes)) => ErrorClass::Transient,
        (class, Some(Retry::Yes | Retry::No) | None) => class,
    }
}

/// The facts about limits of a subscription in a head.
pub(super) fn limit_facts(headers: &RateHeaders) -> impl Iterator<Item = Fact> {
    headers.windows.iter().cloned().map(Fact::Limit)
}
