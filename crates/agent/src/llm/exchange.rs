//! One request and its answer: sends it, reads the stream piece by piece into the transcript, and counts what was used.

use std::time::Duration;

use ostler_core::{EventBody, Usage};
use ostler_exec::AttemptResult;
use ostler_http::{HttpAnswer, HttpError, HttpFault, HttpLimits, HttpRequest, SseParser, Stage, header};
use tokio::time::{Instant, sleep_until};

use super::answer::{Answer, StreamEnd, estimated_tokens};
use super::api::Server;
use super::attempt::{LlmAttempt, limit_facts};
use super::errors::body_trouble;
use super::rate_headers::RateHeaders;
use super::unanswered::UnansweredRequest;
use crate::ending::{AgentAnswer, Trouble};
use crate::executor::recorder::Recorder;
use crate::meter::Meter;
use crate::reason::Reason;
use crate::transcript::warning;

/// Bytes of an answer, after decompression.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Bytes of an error that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Bytes of a request: that is what providers accept.
const MAX_REQUEST_BYTES: usize = 32 << 20;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Pieces of an answer wait this long for more, so that a word is not an event of the transcript.
const PIECE_INTERVAL: Duration = Duration::from_millis(250);
/// This many bytes do not wait.
const PIECE_BYTES: usize = 8 << 10;
/// The name of the request, for the meter.
const REQUEST: &str = "request";
/// A prompt is cut by its server if fewer tokens than one in this many of the estimate were read.
const CUT_SHARE: u64 = 3;
/// Estimates of short prompts say nothing.
const MIN_JUDGED_TOKENS: u64 = 2_000;

/// What became of a request.
pub(super) enum Asked {
    Answered(AgentAnswer),
    Refused(Box<FailedRequest>),
    /// The attempt is to end.
    Stopped(AttemptResult),
}

/// A request without an answer.
pub(super) struct FailedRequest {
    pub(super) trouble: Trouble,
    pub(super) headers: RateHeaders,
}

impl FailedRequest {
    fn of(trouble: Trouble, headers: RateHeaders) -> Asked {
        Asked::Refused(Box::new(Self { trouble, headers }))
    }
}

/// Why reading stopped.
enum Stopped {
    End(StreamEnd),
    /// It was to stop, or took too long.
    Attempt(AttemptResult),
    OverBudget,
}

pub(super) struct Exchange<'a> {
    attempt: &'a LlmAttempt<'a>,
    model: &'a str,
    body: &'a str,
    recorder: &'a mut Recorder,
    request: &'a mut UnansweredRequest,
    meter: Meter,
    has_failed_to_keep: bool,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        attempt: &'a LlmAttempt<'a>,
        model: &'a str,
        body: &'a str,
        recorder: &'a mut Recorder,
        request: &'a mut UnansweredRequest,
    ) -> Self {
        let meter = Meter::new(attempt.executor.policy.prices.clone(), Vec::new());
        Self { attempt, model, body, recorder, request, meter, has_failed_to_keep: false }
    }

    pub(super) async fn run(mut self, max_tokens: Option<u32>) -> Asked {
        let executor = self.attempt.executor;
        let idle = executor.policy.idle_watchdog;
        let limits = HttpLimits {
            connect: CONNECT,
            answer: idle,
            idle,
            total: None,
            request_bytes: MAX_REQUEST_BYTES,
            answer_bytes: MAX_ANSWER_BYTES,
        };
        let mut request =
            HttpRequest::post(executor.endpoint.clone(), self.body.to_owned()).with_limits(limits);
        request.headers = executor.headers.clone();
        self.keep(&Answer::default(), UnansweredRequest::begins);
        let sent = match self.attempt.limits.within(executor.client.0.send(request)).await {
            Ok(sent) => sent,
            Err(ended) => {
                self.count_lost(&Answer::default());
                return Asked::Stopped(*ended);
            }
        };
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) => {
                if may_have_arrived(&error) {
                    self.count_lost(&Answer::default());
                }
                return FailedRequest::of(unsent(&error), RateHeaders::default());
            }
        };
        let (status, headers) = (answer.status.as_u16(), self.headers(&answer));
        self.recorder.take(limit_facts(&headers));
        let tokens = LlmAttempt::expected(estimated_tokens(self.body.len()), max_tokens);
        if let Err(ended) = self.attempt.limits.within(self.attempt.heed(&headers, status, tokens)).await {
            self.count_lost(&Answer::default());
            return Asked::Stopped(*ended);
        }
        if !answer.status.is_success() {
            return self.error(answer, headers).await;
        }
        self.stream(answer, headers).await
    }

    fn headers(&self, answer: &HttpAnswer) -> RateHeaders {
        let value = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
        RateHeaders::read(value, (self.attempt.executor.now)())
    }

    /// An answer with an error status: it costs nothing.
    async fn error(self, answer: HttpAnswer, headers: RateHeaders) -> Asked {
        let status = answer.status;
        if status.is_redirection() {
            let to = answer.location().unwrap_or("elsewhere").to_owned();
            let to = ostler_core::visible(ostler_core::beginning(&to, 200));
            let message =
                format!("the server redirects to {to}, and the key is not sent there: set base_url to it");
            return FailedRequest::of(Trouble::new(Reason::BadRequest, message), headers);
        }
        let read = async {
            let mut answer = answer.decoded()?;
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await? {
                body.extend_from_slice(&piece);
                if body.len() >= MAX_ERROR_BYTES {
                    break;
                }
            }
            Ok::<_, HttpError>(body)
        };
        let body = match self.attempt.limits.within(read).await {
            Ok(body) => body.unwrap_or_default(),
            Err(ended) => return Asked::Stopped(*ended),
        };
        let body = self.redact(&String::from_utf8_lossy(&body));
        let mut trouble = body_trouble(&body, status.as_u16());
        if let (Reason::Throttled, Some(resets_at)) = (trouble.reason, headers.rejected_until) {
            trouble.reason = Reason::UsageLimit { resets_at };
        }
        trouble.details = Some(match &headers.request_id {
            Some(id) => format!("HTTP {status}, request {id}: {body}"),
            None => format!("HTTP {status}: {body}"),
        });
        FailedRequest::of(trouble, headers)
    }

    async fn stream(mut self, answer: HttpAnswer, headers: RateHeaders) -> Asked {
        let mut read = Answer::default();
        let stopped = match answer.decoded() {
            Ok(body) => self.read(body, &mut read).await,
            Err(error) => Stopped::End(StreamEnd::Broken(error.to_string())),
        };
        self.recorder.take(read.flush());
        let end = match stopped {
            Stopped::End(end) => end,
            Stopped::Attempt(ended) => {
                self.count(&read);
                return Asked::Stopped(ended);
            }
            Stopped::OverBudget => {
                self.count(&read);
                let most = self.attempt.executor.policy.max_task_cost.unwrap_or_default();
                let message = format!("the task has cost {}, and its budget is {most}", self.recorder.cost());
                return FailedRequest::of(Trouble::new(Reason::Budget, message), RateHeaders::default());
            }
        };
        let concluded = read.conclude(&end);
        match concluded {
            Ok(answered) => {
                self.count(&read);
                self.warn_of_cut(&read);
                self.recorder.take([EventBody::Result { text: answered.text.clone() }.into()]);
                Asked::Answered(answered)
            }
            Err(mut trouble) => {
                if read.has_begun() {
                    self.count(&read);
                }
                trouble.message = self.redact(&trouble.message);
                FailedRequest::of(trouble, headers)
            }
        }
    }

    /// Reads the stream to its end. The transcript has its pieces when this returns, except the last ones.
    async fn read(&mut self, mut body: HttpAnswer, answer: &mut Answer) -> Stopped {
        let (api, limits) = (self.attempt.executor.policy.api, self.attempt.limits);
        let kind = body.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        // A server that does not stream, or an error with a status of success.
        let is_whole = kind.is_some_and(|kind| kind.starts_with("application/json"));
        let (mut parser, mut whole) = (SseParser::default(), Vec::new());
        let mut flush_at = Instant::now() + PIECE_INTERVAL;
        loop {
            let waits_for_more = answer.pending_bytes() > 0;
            let piece = tokio::select! {
                biased;
                () = limits.control.cancel.cancelled() => return Stopped::Attempt(AttemptResult::cancelled()),
                () = sleep_until(limits.deadline) => {
                    return Stopped::Attempt(AttemptResult::too_long(limits.work.timeout));
                }
                () = sleep_until(flush_at), if waits_for_more => None,
                piece = body.chunk() => Some(piece),
            };
            match piece {
                None => {}
                Some(Err(error)) => return Stopped::End(StreamEnd::Broken(error.to_string())),
                Some(Ok(None)) => {
                    if is_whole {
                        api.read(answer, &String::from_utf8_lossy(&whole));
                    }
                    return Stopped::End(StreamEnd::Closed);
                }
                Some(Ok(Some(bytes))) if is_whole => whole.extend_from_slice(&bytes),
                Some(Ok(Some(bytes))) => match parser.push(&bytes) {
                    Ok(events) => events.iter().for_each(|event| api.read(answer, &event.data)),
                    Err(error) => return Stopped::End(StreamEnd::Broken(error.to_string())),
                },
            }
            if answer.is_over() {
                return Stopped::End(StreamEnd::Closed);
            }
            if Instant::now() >= flush_at || answer.pending_bytes() >= PIECE_BYTES {
                flush_at = Instant::now() + PIECE_INTERVAL;
                if let Some(stopped) = self.record(answer).await {
                    return stopped;
                }
            }
        }
    }

    /// Stores the pieces so far, and looks at what they cost.
    async fn record(&mut self, answer: &mut Answer) -> Option<Stopped> {
        self.recorder.take(answer.flush());
        let so_far = answer.usage_so_far(self.billed(answer), self.body.len());
        let cost = self.meter.seen(REQUEST, so_far);
        self.recorder.take(cost);
        self.keep(answer, UnansweredRequest::has_used);
        if let Err(ended) = self.attempt.limits.within(self.recorder.drained()).await {
            return Some(Stopped::Attempt(*ended));
        }
        if self.recorder.is_closed() {
            return Some(Stopped::Attempt(AttemptResult::cancelled()));
        }
        let most = self.attempt.executor.policy.max_task_cost;
        most.is_some_and(|most| self.recorder.cost() > most).then_some(Stopped::OverBudget)
    }

    /// Writes down what the request has used so far. Without that, it is not counted if the node is killed.
    fn keep(
        &mut self,
        answer: &Answer,
        write: impl FnOnce(&mut UnansweredRequest, &Usage) -> std::io::Result<()>,
    ) {
        let mut usage = answer.usage_so_far(self.billed(answer), self.body.len());
        usage.cost = self.attempt.executor.policy.prices.cost(&usage);
        if let Err(error) = write(self.request, &usage)
            && !std::mem::replace(&mut self.has_failed_to_keep, true)
        {
            let text = format!("it cannot be written down what the request has used: {error}");
            self.recorder.take([warning(text)]);
        }
    }

    /// Counts what the request has used: as reported, or at least as seen.
    fn count(&mut self, answer: &Answer) {
        match answer.final_usage(self.billed(answer)) {
            Some(usage) => {
                let facts = self.meter.spent([usage]);
                self.recorder.take(facts);
            }
            None => self.count_lost(answer),
        }
    }

    /// Counts what was seen of an answer whose usage was lost.
    fn count_lost(&mut self, answer: &Answer) {
        let so_far = answer.usage_so_far(self.billed(answer), self.body.len());
        let cost = self.meter.seen(REQUEST, so_far);
        self.recorder.take(cost);
        let unreported: Vec<Usage> = self.meter.unreported_yet();
        self.recorder.take(unreported.into_iter().map(|usage| EventBody::Usage(usage).into()));
        self.recorder.take([warning(
            "the answer ended before it said what it used: its cost is estimated, and if the request is repeated, it is paid for \
             again",
        )]);
    }

    /// The model under whose name usage is counted: the one that answered, if its price is known.
    fn billed<'b>(&'b self, answer: &'b Answer) -> &'b str {
        let answered = answer.model(self.model);
        let is_priced = self.attempt.executor.policy.prices.of(answered).is_some();
        if is_priced { answered } else { self.model }
    }

    /// Local servers cut a prompt that is too long for them, and say nothing.
    fn warn_of_cut(&mut self, answer: &Answer) {
        let Some(usage) = answer.final_usage(self.model) else { return };
        let read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        let sent = estimated_tokens(self.body.len());
        let is_other = self.attempt.executor.policy.server() == Server::Other;
        if is_other && read > 0 && sent > MIN_JUDGED_TOKENS && read * CUT_SHARE < sent {
            self.recorder.take([warning(format!(
                "the server read {read} tokens of a prompt of about {sent}: it may have cut it to the size of its context"
            ))]);
        }
    }

    fn redact(&self, text: &str) -> String {
        self.attempt.executor.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }
}

/// Whether a provider may have worked on a request that was not answered.
const fn may_have_arrived(error: &HttpError) -> bool {
    match error {
        HttpError::Broken(_)
        | HttpError::TimedOut { stage: Stage::Answering | Stage::Reading | Stage::Request, .. } => true,
        HttpError::TimedOut { stage: Stage::Connecting, .. }
        | HttpError::Address(_)
        | HttpError::RequestTooLarge { .. }
        | HttpError::Forbidden { .. }
        | HttpError::Unresolved { .. }
        | HttpError::Unreachable { .. }
        | HttpError::Tls { .. }
        | HttpError::Proxy { .. }
        | HttpError::Undecodable(_)
        | HttpError::AnswerTooLarge { .. } => false,
    }
}

/// Why a request was not answered.
fn unsent(error: &HttpError) -> Trouble {
    let reason = match error.fault() {
        HttpFault::Address => Reason::BadSettings,
        HttpFault::RequestTooLarge => Reason::ContextTooLong,
        HttpFault::TimedOut | HttpFault::AnswerTooLarge | HttpFault::Connection => Reason::BrokenStream,
    };
    Trouble::new(reason, error.to_string())
}
