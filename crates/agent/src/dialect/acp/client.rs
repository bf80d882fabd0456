//! The dialogue with an agent: initialize, open a session, send one prompt, read until it is answered.
//!
//! A state machine without I/O: each line that is read says which lines to send. The id of the session is stored before the prompt is
//! sent. What an agent replays of a session that is loaded is in the transcripts of earlier attempts, and is not recorded again.

use ostler_core::{Cost, EventBody, Usage};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::AcpAgent;
use super::ending::{answer, is_about_the_session, stopped, trouble};
use super::ledger::{Ledger, has_used_nothing};
use super::messages::{
    self, AcpHello, AcpSession, AcpTurn, FIRST_PING, INITIALIZE, MODEL, PROMPT, PROTOCOL_VERSION,
    PermissionQuestion, RpcError, SESSION,
};
use super::opencode_log::{self, LogEntry, RequestCount};
use super::permission::{Decision, decide, option};
use super::tools::name;
use super::updates::Updates;
use crate::dialect::{LogLine, Speech};
use crate::ending::{ProcessEnd, ProcessExit, RunReport, StopCause, Trouble, conclude};
use crate::fact::Fact;
use crate::json::text;
use crate::launch::is_session_id;
use crate::reason::Reason;
use crate::settings::{AgentSettings, Denials, SessionStart};
use crate::transcript::{error, raw, status, unreadable, warning};

/// Rounds in which the end of a replay is waited for.
const MAX_PINGS: u64 = 10_000;
/// Tools that were denied and are named at the end.
const MAX_DENIED: usize = 100;

#[derive(Debug)]
pub(in crate::dialect) struct AcpClient {
    agent: AcpAgent,
    settings: AgentSettings,
    stage: AcpStage,
    session: Option<String>,
    updates: Updates,
    ledger: Ledger,
    /// Requests that opencode tells in its log.
    logged: RequestCount,
    denied: Vec<String>,
    /// Whether the last thing that the agent tried was denied.
    is_denied_last: bool,
    has_warned_of_currency: bool,
    is_cancelled: bool,
    end: Option<TurnEnd>,
    /// Why it was killed before it repeated a request.
    hopeless: Option<Trouble>,
}

/// Where the dialogue is.
#[derive(Debug)]
enum AcpStage {
    Initializing,
    /// A session is opened: what comes before the answer is its history.
    Opening,
    /// A session was loaded. Some agents answer before they have replayed all of it: only when nothing came between a ping and its answer
    /// is the replay over.
    Replaying {
        ping: u64,
        has_heard: bool,
        opened: AcpSession,
    },
    Choosing,
    /// The prompt was sent.
    Prompted {
        /// Whether the agent has begun to work on it.
        is_begun: bool,
    },
    Over,
}

#[derive(Debug)]
enum TurnEnd {
    Answered {
        turn: AcpTurn,
        line: String,
    },
    /// `opens`: it was the answer to the opening of an earlier session.
    Failed {
        error: RpcError,
        request: FailedRequest,
    },
    Refused(Trouble),
}

/// Which request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailedRequest {
    /// The one that goes on with an earlier session.
    Reopening,
    Other,
}

impl AcpClient {
    pub(in crate::dialect) fn new(agent: AcpAgent, settings: &AgentSettings) -> Self {
        Self {
            agent,
            stage: AcpStage::Initializing,
            session: None,
            updates: Updates::default(),
            ledger: Ledger::new(settings),
            logged: RequestCount::default(),
            denied: Vec::new(),
            is_denied_last: false,
            has_warned_of_currency: false,
            is_cancelled: false,
            end: None,
            hopeless: None,
            settings: settings.clone(),
        }
    }

    pub(in crate::dialect) fn open(&mut self) -> Vec<Fact> {
        vec![send(&messages::initialize())]
    }

    /// Whether the prompt waits for the session.
    pub(in crate::dialect) const fn is_opening(&self) -> bool {
        match self.stage {
            AcpStage::Initializing | AcpStage::Opening | AcpStage::Replaying { .. } | AcpStage::Choosing => {
                true
            }
            AcpStage::Prompted { .. } | AcpStage::Over => false,
        }
    }

    /// Cancels the turn, once.
    pub(in crate::dialect) fn interrupt(&mut self) -> Option<Fact> {
        let (Some(session), AcpStage::Prompted { .. }) = (&self.session, &self.stage) else { return None };
        let was_cancelled = std::mem::replace(&mut self.is_cancelled, true);
        (!was_cancelled).then(|| send(&messages::cancel(session)))
    }

    pub(in crate::dialect) fn unreported(&self) -> Vec<Usage> {
        self.ledger.unreported()
    }

    /// Bytes of words that are not in the transcript yet.
    pub(in crate::dialect) fn unsaid(&self) -> usize {
        self.updates.unsaid()
    }

    /// Those words, as far as they are whole.
    pub(in crate::dialect) fn say(&mut self, speech: Speech) -> Option<Fact> {
        self.updates.say(speech)
    }

    /// What is not in the transcript yet, when the agent has written its last line.
    pub(in crate::dialect) fn flush(&mut self) -> Vec<Fact> {
        self.updates.flush()
    }

    pub(in crate::dialect) fn line(&mut self, line: &[u8]) -> Vec<Fact> {
        let Ok(value @ Value::Object(_)) = serde_json::from_slice(line) else { return unreadable(line) };
        let params = value.get("params").unwrap_or(&Value::Null);
        match (text(&value, "method"), value.get("id")) {
            (Some("session/update"), None) => self.updated(params, line),
            (Some(_), None) => vec![raw(line).into()],
            (Some("session/request_permission"), Some(id)) => self.asked(id, params, line),
            (Some(method), Some(id)) => vec![raw(line).into(), send(&messages::unsupported(id, method))],
            (None, Some(id)) => self.answered(id.as_u64(), &value, line),
            (None, None) => vec![raw(line).into()],
        }
    }

    /// A line of its standard error, for opencode: its log.
    pub(in crate::dialect) fn log_line(&mut self, line: &str) -> LogLine {
        let entry = opencode_log::read(line);
        if let LogEntry::Request { session } = entry
            && Some(session) == self.session.as_deref()
        {
            let mut facts = Vec::new();
            if self.logged.add() && self.end.is_none() {
                let message = "it asked the model again and again, and got no answer that it could use";
                self.hopeless = Some(Trouble::new(Reason::BrokenStream, message));
                facts.extend([Fact::Hopeless, error(message)]);
            }
            facts.push(Fact::Turns(self.requests()));
            return LogLine::Noise(facts);
        }
        match entry {
            LogEntry::Request { .. } | LogEntry::Noise => LogLine::Noise(Vec::new()),
            LogEntry::Shown => LogLine::Shown,
        }
    }

    /// Whether [`log_line`](Self::log_line) is to be called.
    pub(in crate::dialect) fn reads_log(&self) -> bool {
        self.agent == AcpAgent::OpenCode
    }

    pub(in crate::dialect) fn end(mut self, end: &ProcessEnd<'_>) -> RunReport {
        let unreported = self.unreported();
        let terminal = self.end.take().map(|of_turn| match of_turn {
            TurnEnd::Answered { turn, line } => self.judge(&turn, line, end.stop),
            TurnEnd::Failed { error, request: FailedRequest::Reopening }
                if is_about_the_session(&error, end) =>
            {
                let trouble = trouble(&error, end);
                Err(Trouble { reason: Reason::UnknownSession, ..trouble })
            }
            TurnEnd::Failed { error, request: FailedRequest::Reopening | FailedRequest::Other } => {
                Err(trouble(&error, end))
            }
            TurnEnd::Refused(trouble) => Err(trouble),
        });
        let terminal = terminal.or(self.hopeless.map(Err));
        // The answer is the end of a turn: the protocol gives an exit code no meaning.
        let exit = if matches!(terminal, Some(Ok(_))) { ProcessExit::Code(0) } else { end.exit };
        RunReport { end: conclude(terminal, &ProcessEnd { exit, ..*end }, |_| None), unreported }
    }

    /// What the stop reason of a turn means.
    fn judge(
        &self,
        turn: &AcpTurn,
        line: String,
        stop: StopCause,
    ) -> Result<crate::ending::AgentAnswer, Trouble> {
        // Some agents end a turn that was cancelled like any other.
        let reason = if stop == StopCause::TurnLimit { "cancelled" } else { &turn.stop_reason };
        if reason != "end_turn" {
            return Err(Trouble { details: Some(line), ..stopped(reason) });
        }
        let has_words = !self.updates.answer.trim().is_empty();
        if !has_words && !self.updates.has_called {
            let message = "it ended its turn without a word, and without having done anything";
            return Err(Trouble { details: Some(line), ..Trouble::new(Reason::NoAnswer, message) });
        }
        if self.agent == AcpAgent::Gemini && has_used_nothing(turn) {
            let message = "the answer of the model broke off, and gemini gave up";
            return Err(Trouble { details: Some(line), ..Trouble::new(Reason::BrokenStream, message) });
        }
        let names = self.denied.join(", ");
        if !self.denied.is_empty() && self.settings.denials == Denials::Fail {
            return Err(Trouble::new(Reason::PermissionDenied, format!("it was not allowed to use {names}")));
        }
        if self.is_denied_last && !self.updates.has_last_word() {
            let message = format!("it stopped when it was not allowed to use {names}");
            return Err(Trouble::new(Reason::PermissionDenied, message));
        }
        let answer = answer(self.updates.answer.clone(), self.settings.schema.as_deref())?;
        Ok(crate::ending::AgentAnswer { denied: self.denied.clone(), ..answer })
    }

    /// An update of the session.
    fn updated(&mut self, params: &Value, line: &[u8]) -> Vec<Fact> {
        let update = params.get("update").unwrap_or(&Value::Null);
        let what = text(update, "sessionUpdate").unwrap_or_default();
        match &mut self.stage {
            // History.
            AcpStage::Opening => return Vec::new(),
            AcpStage::Replaying { has_heard, .. } => {
                // Commands are told whenever they are known.
                *has_heard |= what != "available_commands_update";
                return Vec::new();
            }
            AcpStage::Initializing | AcpStage::Choosing | AcpStage::Over => {}
            AcpStage::Prompted { is_begun } => {
                let is_work = matches!(
                    what,
                    "agent_message_chunk" | "agent_thought_chunk" | "tool_call" | "tool_call_update" | "plan"
                );
                if is_work && !std::mem::replace(is_begun, true) {
                    let mut facts = vec![Fact::TurnStarted];
                    facts.extend(self.read(what, update, params, line));
                    return facts;
                }
            }
        }
        self.read(what, update, params, line)
    }

    fn read(&mut self, what: &str, update: &Value, params: &Value, line: &[u8]) -> Vec<Fact> {
        // Of a session that the agent has opened for itself.
        if text(params, "sessionId") != self.session.as_deref() {
            return vec![raw(line).into()];
        }
        if what == "usage_update" {
            let mut facts = vec![raw(line).into()];
            facts.extend(self.cost(update));
            return facts;
        }
        if matches!(what, "tool_call" | "tool_call_update") {
            self.logged.tool();
        }
        let mut facts = self.updates.read(update, line);
        if self.updates.has_last_word() {
            self.is_denied_last = false;
        }
        self.check_turns(&mut facts);
        facts
    }

    fn cost(&mut self, update: &Value) -> Option<Fact> {
        let cost = update.get("cost")?;
        let currency = text(cost, "currency").unwrap_or("USD");
        if currency != "USD" {
            let has_warned = std::mem::replace(&mut self.has_warned_of_currency, true);
            return (!has_warned)
                .then(|| warning(format!("its costs are in {currency}, and are not counted")));
        }
        self.ledger.session_cost(cost.get("amount").and_then(Value::as_f64).and_then(Cost::from_usd)?)
    }

    /// A question for permission, which is answered at once.
    fn asked(&mut self, id: &Value, params: &Value, line: &[u8]) -> Vec<Fact> {
        let Ok(question) = serde_json::from_value::<PermissionQuestion>(params.clone()) else {
            return vec![raw(line).into(), send(&messages::chosen(id, None))];
        };
        let PermissionQuestion { tool_call, options } = question;
        let (call, mut facts) = self.updates.asked(&tool_call);
        facts.insert(0, raw(line).into());
        let chosen = option(decide(&call, &self.settings), &options);
        let decision = match chosen {
            Some(option) if option.kind.starts_with("allow") => Decision::Allow,
            Some(_) | None => Decision::Deny,
        };
        let what = match &call.title {
            Some(title) => format!("{} ({title})", name(&call)),
            None => name(&call).to_owned(),
        };
        self.logged.tool();
        match decision {
            Decision::Allow => {
                facts.extend(self.updates.allowed(call));
                facts.push(status(format!("allowed: {what}")));
            }
            Decision::Deny => {
                self.is_denied_last = true;
                if self.denied.len() < MAX_DENIED {
                    self.denied.push(name(&call).to_owned());
                }
                facts.extend(self.updates.denied(call));
                facts.push(warning(format!("denied: {what}")));
            }
        }
        facts.push(send(&messages::chosen(id, chosen)));
        facts
    }

    /// An answer to one of the requests.
    fn answered(&mut self, id: Option<u64>, value: &Value, line: &[u8]) -> Vec<Fact> {
        let mut facts = Vec::new();
        match id {
            // No agent knows it.
            Some(ping) if ping >= FIRST_PING => {
                self.replayed(ping, &mut facts);
                return facts;
            }
            Some(_) | None => facts.push(raw(line).into()),
        }
        if let Some(refusal) = value.get("error").filter(|refusal| !refusal.is_null()) {
            let mut refusal = part::<RpcError>(refusal);
            if refusal.message.is_empty() {
                refusal.message = "it refused a request".to_owned();
            }
            self.refused(id, refusal, &mut facts);
            return facts;
        }
        let result = value.get("result").unwrap_or(&Value::Null);
        match id {
            Some(INITIALIZE) => self.initialized(&part(result), &mut facts),
            Some(SESSION) => self.opened(part(result), &mut facts),
            Some(MODEL) => self.prompt(&mut facts),
            Some(PROMPT) => self.turn_ended(part(result), line, &mut facts),
            _ => {}
        }
        facts
    }

    fn initialized(&mut self, hello: &AcpHello, facts: &mut Vec<Fact>) {
        if hello.protocol_version.as_u64() != Some(PROTOCOL_VERSION) {
            let message = format!(
                "it speaks version {} of the Agent Client Protocol, and version {PROTOCOL_VERSION} is needed",
                hello.protocol_version
            );
            facts.push(error(&*message));
            return self.finish(TurnEnd::Refused(Trouble::new(Reason::BadSettings, message)), facts);
        }
        let capabilities = &hello.agent_capabilities;
        let request = match &self.settings.session {
            SessionStart::New { .. } => messages::open_session("session/new", None, &self.settings),
            SessionStart::Resume { id } => {
                let method = if capabilities.resumes() {
                    "session/resume"
                } else if capabilities.load_session {
                    "session/load"
                } else {
                    // The prompt that goes on means nothing in a new session: the executor begins one with the whole prompt.
                    let message = "it cannot resume a session";
                    facts.push(warning(format!("{message}: a new one begins, and knows nothing of {id}")));
                    let trouble = Trouble::new(Reason::UnknownSession, message);
                    return self.finish(TurnEnd::Refused(trouble), facts);
                };
                messages::open_session(method, Some(id), &self.settings)
            }
        };
        self.stage = AcpStage::Opening;
        facts.push(send(&request));
    }

    /// The session is there: it is stored before the prompt is sent.
    fn opened(&mut self, mut opened: AcpSession, facts: &mut Vec<Fact>) {
        if let SessionStart::Resume { id } = &self.settings.session {
            self.session = Some(id.clone());
            let ping = FIRST_PING;
            self.stage = AcpStage::Replaying { ping, has_heard: false, opened };
            facts.push(send(&messages::ping(ping)));
            return;
        }
        let Some(id) = opened.session_id.take() else {
            let trouble = Trouble::new(Reason::Unknown, "it opened a session without an id");
            return self.finish(TurnEnd::Refused(trouble), facts);
        };
        if is_session_id(&id) {
            facts.push(EventBody::Session { id: id.clone() }.into());
        } else {
            facts.push(warning("the id of its session cannot be kept: the next attempt begins a new one"));
        }
        self.session = Some(id);
        self.choose(&opened, facts);
    }

    /// A ping was answered.
    fn replayed(&mut self, answered: u64, facts: &mut Vec<Fact>) {
        let AcpStage::Replaying { ping, has_heard, opened } = &mut self.stage else { return };
        if *ping != answered {
            return;
        }
        if *has_heard && *ping < FIRST_PING + MAX_PINGS {
            *ping += 1;
            *has_heard = false;
            facts.push(send(&messages::ping(*ping)));
            return;
        }
        let opened = std::mem::take(opened);
        self.choose(&opened, facts);
    }

    /// Chooses the model, where that is not an argument of the program.
    fn choose(&mut self, opened: &AcpSession, facts: &mut Vec<Fact>) {
        let (AcpAgent::Other, Some(model), Some(session)) = (self.agent, &self.settings.model, &self.session)
        else {
            return self.prompt(facts);
        };
        match opened.choose(session, model) {
            Some(request) => {
                self.stage = AcpStage::Choosing;
                facts.push(send(&request));
            }
            None => {
                facts.push(warning(format!("it does not let its model be chosen: {model} is not asked for")));
                self.prompt(facts);
            }
        }
    }

    fn prompt(&mut self, facts: &mut Vec<Fact>) {
        let Some(session) = &self.session else { return };
        facts.push(send(&messages::prompt(session, &self.settings)));
        self.stage = AcpStage::Prompted { is_begun: false };
    }

    fn turn_ended(&mut self, turn: AcpTurn, line: &[u8], facts: &mut Vec<Fact>) {
        facts.extend(self.updates.flush());
        facts.extend(self.ledger.turn(&turn));
        if turn.stop_reason == "end_turn" {
            facts.push(EventBody::Result { text: self.updates.answer.clone() }.into());
        } else {
            facts.push(status(format!("it stopped: {}", turn.stop_reason)));
        }
        let line = String::from_utf8_lossy(line).into_owned();
        self.finish(TurnEnd::Answered { turn, line }, facts);
    }

    /// A request failed: there will be no answer.
    fn refused(&mut self, id: Option<u64>, refusal: RpcError, facts: &mut Vec<Fact>) {
        facts.extend(self.updates.flush());
        facts.push(error(&*refusal.message));
        let is_resume = matches!(self.settings.session, SessionStart::Resume { .. });
        let request =
            if id == Some(SESSION) && is_resume { FailedRequest::Reopening } else { FailedRequest::Other };
        self.finish(TurnEnd::Failed { error: refusal, request }, facts);
    }

    /// There is nothing more to ask: an agent exits when its input ends.
    fn finish(&mut self, end: TurnEnd, facts: &mut Vec<Fact>) {
        self.end.get_or_insert(end);
        self.stage = AcpStage::Over;
        facts.extend([Fact::ResultSeen, Fact::CloseStdin]);
    }

    fn requests(&self) -> u32 {
        self.updates.requests.max(self.logged.all)
    }

    /// When all tools of a request have returned, another one follows.
    fn check_turns(&self, facts: &mut Vec<Fact>) {
        let returns = facts.iter().any(|fact| matches!(fact, Fact::ToolFinished { .. }));
        if returns && !self.updates.tools.is_running() && self.requests() >= self.settings.max_turns {
            facts.push(Fact::TurnLimit);
        }
    }
}

/// A part of a message. What is not as it should be is as good as missing.
fn part<T: DeserializeOwned + Default>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

fn send(message: &Value) -> Fact {
    Fact::Send(message.to_string())
}
