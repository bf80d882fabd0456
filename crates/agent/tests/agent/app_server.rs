//! The dialogue with the app server of codex: which line is sent when, and what becomes of a turn that does not complete.

use jiff::tz::TimeZone;
use ostler_agent::lines::Line;
use ostler_agent::settings::SessionStart;
use ostler_agent::{
    AgentEnd, AgentRun, AgentSettings, Dialect, Fact, FollowUp, ProcessEnd, ProcessExit, Reason, StopCause,
};
use ostler_core::{EventBody, ToolStatus};
use serde_json::{Value, json};

use crate::recording::NOW;

const THREAD: &str = "01a1e4b2-ad9a-74f1-abfc-c75d55da4e50";

struct Server {
    run: AgentRun,
    facts: Vec<Fact>,
}

impl Server {
    fn new(settings: &AgentSettings) -> Self {
        let mut run = Dialect::Codex.run(settings);
        let facts = run.open();
        Self { run, facts }
    }

    fn fresh() -> Self {
        Self::new(&AgentSettings::new("Do it.", SessionStart::New { id: "unused".into() }))
    }

    fn resumed() -> Self {
        Self::new(&AgentSettings::new("Go on.", SessionStart::Resume { id: THREAD.into() }))
    }

    /// What a line of the server leads to.
    fn says(&mut self, line: &Value) -> Vec<Fact> {
        let facts = self.run.line(&Line::Whole(line.to_string().into_bytes()));
        self.facts.extend(facts.clone());
        facts
    }

    /// Up to the start of the turn.
    fn begin(mut self) -> Self {
        self.says(&json!({"id": 0, "result": {}}));
        self.says(&json!({"id": 1, "result": {"thread": {"id": THREAD}, "model": "gpt-x"}}));
        self.says(&json!({"id": 2, "result": {"turn": {"id": "turn-1"}}}));
        self.says(&json!({"method": "turn/started", "params": {"turn": {"id": "turn-1"}}}));
        self
    }

    fn end(self, stop: StopCause) -> AgentEnd {
        let (exit, zone) = (ProcessExit::Code(0), &TimeZone::UTC);
        self.run.end(&ProcessEnd { exit, stop, stderr: "", now: NOW, zone }).end
    }

    fn reason(self) -> Reason {
        let AgentEnd::Failed(trouble) = self.end(StopCause::None) else { panic!("it failed") };
        trouble.reason
    }
}

/// The methods of the requests among these facts.
fn sent(facts: &[Fact]) -> Vec<String> {
    let method = |fact: &Fact| {
        let Fact::Send(line) = fact else { return None };
        let line: Value = serde_json::from_str(line).expect("JSON");
        Some(line["method"].as_str().unwrap_or("answer").to_owned())
    };
    facts.iter().filter_map(method).collect()
}

fn usage(input: u64, cached: u64, output: u64) -> Value {
    let total = json!({"inputTokens": input, "cachedInputTokens": cached, "outputTokens": output});
    json!({"method": "thread/tokenUsage/updated", "params": {"tokenUsage": {"total": total}}})
}

fn turn_ended(status: &str, error: &Value) -> Value {
    json!({"method": "turn/completed", "params": {"turn": {"id": "turn-1", "status": status, "error": error}}})
}

#[test]
fn each_request_follows_the_answer_to_the_last_and_the_thread_is_stored_before_the_turn() {
    let mut server = Server::fresh();
    assert_eq!(sent(&server.facts), ["initialize"]);
    assert_eq!(sent(&server.says(&json!({"id": 0, "result": {}}))), ["initialized", "thread/start"]);
    let opened = server.says(&json!({"id": 1, "result": {"thread": {"id": THREAD}}}));
    let stored =
        opened.iter().position(|fact| *fact == Fact::Event(EventBody::Session { id: THREAD.into() }));
    let turn = opened.iter().position(|fact| matches!(fact, Fact::Send(line) if line.contains("turn/start")));
    assert!(stored.is_some() && stored < turn, "{opened:?}");
    let Fact::Send(line) = &opened[turn.expect("it is sent")] else { panic!("a line") };
    let request: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(request["params"]["threadId"], THREAD);
    assert_eq!(request["params"]["input"], json!([{"type": "text", "text": "Do it."}]));
}

#[test]
fn a_resumed_thread_is_asked_for_and_its_earlier_usage_is_the_baseline() {
    let mut server = Server::resumed();
    let asked = server.says(&json!({"id": 0, "result": {}}));
    assert!(
        matches!(&asked[2], Fact::Send(line) if line.contains("thread/resume") && line.contains(THREAD)),
        "{asked:?}"
    );
    server.says(&json!({"id": 1, "result": {"thread": {"id": THREAD}, "model": "gpt-x"}}));
    server.says(&usage(1_000, 400, 50));
    server.says(&json!({"method": "turn/started", "params": {"turn": {"id": "turn-1"}}}));
    let spent = server.says(&usage(1_500, 600, 70));
    let event = spent
        .iter()
        .find_map(|fact| if let Fact::Event(EventBody::Usage(usage)) = fact { Some(usage) } else { None });
    let event = event.expect("usage");
    assert_eq!((event.input_tokens, event.cache_read_tokens, event.output_tokens), (300, 200, 20));
    assert_eq!((event.model.as_deref(), event.cost), (Some("gpt-x"), None), "its price is not known");
}

#[test]
fn a_thread_that_is_not_there_is_begun_anew_by_the_next_attempt() {
    let mut refused = Server::resumed();
    refused.says(&json!({"id": 0, "result": {}}));
    let facts = refused
        .says(&json!({"id": 1, "error": {"code": -32600, "message": "no rollout found for thread id"}}));
    assert!(facts.ends_with(&[Fact::ResultSeen, Fact::CloseStdin]), "{facts:?}");
    let mut other = Server::resumed();
    other.says(&json!({"id": 0, "result": {}}));
    let facts = other.says(&json!({"id": 1, "result": {"thread": {"id": "another"}}}));
    assert_eq!(sent(&facts), [] as [&str; 0], "no turn is paid for in another conversation");
    for server in [refused, other] {
        let reason = server.reason();
        assert_eq!((reason, reason.follow_up()), (Reason::UnknownSession, FollowUp::StartNew));
    }
}

#[test]
fn an_interrupt_is_sent_once_and_only_while_a_turn_runs() {
    let mut early = Server::fresh();
    assert_eq!(early.run.interrupt(), []);
    let mut server = Server::fresh().begin();
    assert_eq!(sent(&server.run.interrupt()), ["turn/interrupt"]);
    assert_eq!(server.run.interrupt(), []);
    server.says(&json!({"id": 3, "error": {"code": -32600, "message": "no active turn"}}));
    server.says(&turn_ended("interrupted", &Value::Null));
    assert_eq!(server.end(StopCause::Cancelled), AgentEnd::Cancelled);
}

#[test]
fn an_interrupted_turn_has_the_reason_of_the_executor() {
    for (stop, reason) in [
        (StopCause::Timeout, Reason::TimedOut),
        (StopCause::Idle, Reason::Idle),
        (StopCause::Budget, Reason::Budget),
        (StopCause::TurnLimit, Reason::TurnLimit),
        (StopCause::None, Reason::Interrupted),
    ] {
        let mut server = Server::fresh().begin();
        server.says(&turn_ended("interrupted", &Value::Null));
        let AgentEnd::Failed(trouble) = server.end(stop) else { panic!("it failed") };
        assert_eq!(trouble.reason, reason);
    }
}

#[test]
fn a_turn_is_over_the_limit_when_it_goes_on() {
    let mut settings = AgentSettings::new("Do it.", SessionStart::New { id: "unused".into() });
    settings.max_turns = 2;
    let mut server = Server::new(&settings).begin();
    let tool = |id: &str| {
        let item = json!({"type": "commandExecution", "id": id, "command": "ls", "status": "inProgress"});
        json!({"method": "item/started", "params": {"item": item}})
    };
    server.says(&tool("1"));
    assert!(!server.says(&usage(100, 0, 1)).contains(&Fact::TurnLimit));
    let mut late = Server::new(&settings).begin();
    for input in [100, 200] {
        assert!(!late.says(&usage(input, 0, 1)).contains(&Fact::TurnLimit), "no tool was called");
    }
    server.says(&tool("2"));
    let goes_on = server.says(&usage(200, 0, 1));
    assert!(goes_on.contains(&Fact::TurnLimit), "its tool has run: {goes_on:?}");
    assert!(late.says(&tool("3")).contains(&Fact::TurnLimit));
}

#[test]
fn requests_of_the_server_are_answered_at_once() {
    let mut server = Server::fresh().begin();
    let asked =
        server.says(&json!({"id": 7, "method": "item/commandExecution/requestApproval", "params": {}}));
    assert!(matches!(&asked[1], Fact::Send(line) if line.contains("decline") && line.contains("\"id\":7")));
    let unknown = server.says(&json!({"id": "x", "method": "item/tool/requestUserInput", "params": {}}));
    assert!(
        matches!(&unknown[1], Fact::Send(line) if line.contains("-32601") && line.contains("\"id\":\"x\""))
    );
}

#[test]
fn tools_are_in_flight_from_their_start_to_their_end() {
    let mut server = Server::fresh().begin();
    let item = |status: &str, code: Value| {
        json!({"type": "commandExecution", "id": "i1", "command": "make", "status": status,
            "exitCode": code, "aggregatedOutput": "no rule"})
    };
    let started =
        server.says(&json!({"method": "item/started", "params": {"item": item("inProgress", Value::Null)}}));
    assert!(started.contains(&Fact::ToolStarted { call: "i1".into() }));
    let pieces =
        server.says(&json!({"method": "item/commandExecution/outputDelta", "params": {"delta": "no"}}));
    assert_eq!(pieces, [], "what comes whole later is not kept twice");
    let ended =
        server.says(&json!({"method": "item/completed", "params": {"item": item("failed", json!(2))}}));
    assert!(ended.contains(&Fact::ToolFinished { call: "i1".into() }));
    let result = |fact: &Fact| {
        let Fact::Event(EventBody::ToolResult { status, output, .. }) = fact else { return false };
        *status == ToolStatus::Error && output == "no rule"
    };
    assert!(ended.iter().any(result), "{ended:?}");
}

#[test]
fn what_the_server_says_of_an_error_decides_its_class() {
    for (info, reason) in [
        (json!("contextWindowExceeded"), Reason::ContextTooLong),
        (json!("unauthorized"), Reason::BadCredentials),
        (json!("usageLimitExceeded"), Reason::UsageLimit { resets_at: None }),
        (json!("sessionBudgetExceeded"), Reason::Budget),
        (json!({"httpConnectionFailed": {"httpStatusCode": 429}}), Reason::Throttled),
        (json!({"responseStreamDisconnected": {"httpStatusCode": null}}), Reason::BrokenStream),
        (json!({"responseTooManyFailedAttempts": {"httpStatusCode": 529}}), Reason::Overloaded),
        (json!("internalServerError"), Reason::ServerError),
        (json!("other"), Reason::Unknown),
        (json!("somethingNew"), Reason::Unknown),
        (Value::Null, Reason::Unknown),
    ] {
        let mut server = Server::fresh().begin();
        server.says(&turn_ended("failed", &json!({"message": "It failed.", "codexErrorInfo": info})));
        assert_eq!(server.reason(), reason, "{info}");
    }
    let mut busy = Server::fresh();
    busy.says(&json!({"id": 0, "result": {}}));
    busy.says(&json!({"id": 1, "error": {"code": -32001, "message": "busy"}}));
    assert_eq!(busy.reason(), Reason::Overloaded);
}

#[test]
fn a_turn_that_never_completes_is_no_success() {
    let mut server = Server::fresh().begin();
    let message = json!({"type": "agentMessage", "id": "m", "text": "All done."});
    server.says(&json!({"method": "item/completed", "params": {"item": message}}));
    let AgentEnd::Failed(silent) = server.end(StopCause::Idle) else { panic!("it failed") };
    assert_eq!(silent.reason, Reason::Idle);
    assert_eq!(Server::fresh().begin().reason(), Reason::NoResult);
}
