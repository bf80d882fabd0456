//! The dialogue of the Agent Client Protocol: which line is sent when, what is recorded, and what becomes of a turn that does not complete.

use jiff::tz::TimeZone;
use ostler_agent::lines::Line;
use ostler_agent::settings::{Denials, Permission, SessionStart};
use ostler_agent::{
    AgentAnswer, AgentEnd, AgentRun, AgentSettings, Dialect, Fact, FollowUp, LogLine, ProcessEnd,
    ProcessExit, Reason, StopCause, Trouble,
};
use ostler_core::{ErrorClass, EventBody, ToolStatus};
use serde_json::{Value, json};

use crate::recording::NOW;

const SESSION: &str = "sess_1";

struct Client {
    run: AgentRun,
    facts: Vec<Fact>,
}

fn fresh() -> AgentSettings {
    AgentSettings::new("Do it.", SessionStart::New { id: "unused".into() })
}

impl Client {
    fn of(dialect: Dialect, settings: &AgentSettings) -> Self {
        let mut run = dialect.run(settings);
        let facts = run.open();
        Self { run, facts }
    }

    fn resumed() -> Self {
        Self::of(Dialect::Acp, &AgentSettings::new("Go on.", SessionStart::Resume { id: SESSION.into() }))
    }

    /// What a line of the agent leads to.
    fn says(&mut self, line: &Value) -> Vec<Fact> {
        let facts = self.run.line(&Line::Whole(line.to_string().into_bytes()));
        self.facts.extend(facts.clone());
        facts
    }

    fn hello(&mut self, capabilities: &Value) -> Vec<Fact> {
        self.says(&json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1, "agentCapabilities": capabilities}}))
    }

    /// Up to the prompt.
    fn begun(dialect: Dialect, settings: &AgentSettings) -> Self {
        let mut client = Self::of(dialect, settings);
        client.hello(&json!({}));
        client.says(&json!({"id": 1, "result": {"sessionId": SESSION}}));
        client
    }

    fn update(&mut self, update: &Value) -> Vec<Fact> {
        self.says(&json!({"method": "session/update", "params": {"sessionId": SESSION, "update": update}}))
    }

    fn message(&mut self, text: &str) -> Vec<Fact> {
        self.update(
            &json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}),
        )
    }

    fn tool(&mut self, id: &str, status: &str) -> Vec<Fact> {
        self.update(&json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "ls", "kind": "execute",
            "status": status, "rawInput": {"command": "ls"}}))
    }

    fn stops(&mut self, reason: &str) -> Vec<Fact> {
        self.says(&json!({"id": 3, "result": {"stopReason": reason}}))
    }

    fn end_with(self, exit: ProcessExit, stop: StopCause, stderr: &str) -> AgentEnd {
        self.run.end(&ProcessEnd { exit, stop, stderr, now: NOW, zone: &TimeZone::UTC }).end
    }

    fn end(self) -> AgentEnd {
        self.end_with(ProcessExit::Code(0), StopCause::None, "")
    }

    fn trouble(self) -> Trouble {
        match self.end() {
            AgentEnd::Failed(trouble) => trouble,
            other @ (AgentEnd::Done(_) | AgentEnd::Cancelled) => panic!("it ended with {other:?}"),
        }
    }

    fn answer(self) -> AgentAnswer {
        match self.end() {
            AgentEnd::Done(answer) => answer,
            other @ (AgentEnd::Failed(_) | AgentEnd::Cancelled) => panic!("it ended with {other:?}"),
        }
    }
}

/// What is sent, with the method of requests.
fn sent(facts: &[Fact]) -> Vec<Value> {
    let line = |fact: &Fact| {
        let Fact::Send(line) = fact else { return None };
        Some(serde_json::from_str(line).expect("JSON"))
    };
    facts.iter().filter_map(line).collect()
}

fn methods(facts: &[Fact]) -> Vec<String> {
    sent(facts).iter().map(|line| line["method"].as_str().unwrap_or("answer").to_owned()).collect()
}

/// The events that were read, without the lines themselves.
fn events(facts: &[Fact]) -> Vec<&EventBody> {
    let mut read = Vec::new();
    for fact in facts {
        if let Fact::Event(body) = fact
            && !matches!(body, EventBody::Raw { .. })
        {
            read.push(body);
        }
    }
    read
}

#[test]
fn each_request_follows_the_answer_to_the_last_and_the_session_is_stored_before_the_prompt() {
    let mut client = Client::of(Dialect::Acp, &AgentSettings { folder: "/srv/site".into(), ..fresh() });
    assert_eq!(methods(&client.facts), ["initialize"]);
    let hello = &sent(&client.facts)[0];
    assert_eq!((&hello["jsonrpc"], &hello["params"]["protocolVersion"]), (&json!("2.0"), &json!(1)));
    assert_eq!(hello["params"]["clientCapabilities"]["terminal"], json!(false));
    let opens = client.hello(&json!({"loadSession": true}));
    assert_eq!(methods(&opens), ["session/new"]);
    assert_eq!(sent(&opens)[0]["params"], json!({"cwd": "/srv/site", "mcpServers": []}));
    let facts = client.says(&json!({"id": 1, "result": {"sessionId": SESSION}}));
    let stored = facts.iter().position(|fact| *fact == EventBody::Session { id: SESSION.into() }.into());
    let prompted = facts.iter().position(|fact| matches!(fact, Fact::Send(_)));
    assert!(stored.is_some() && stored < prompted, "{facts:?}");
    assert_eq!(sent(&facts)[0]["params"]["prompt"], json!([{"type": "text", "text": "Do it."}]));
}

#[test]
fn another_version_of_the_protocol_is_refused_in_a_sentence() {
    let mut client = Client::of(Dialect::Acp, &fresh());
    let facts = client.says(&json!({"id": 0, "result": {"protocolVersion": 2}}));
    assert!(facts.ends_with(&[Fact::ResultSeen, Fact::CloseStdin]) && sent(&facts).is_empty(), "{facts:?}");
    let trouble = client.trouble();
    assert_eq!(trouble.message, "it speaks version 2 of the Agent Client Protocol, and version 1 is needed");
    assert_eq!(trouble.reason.class(), ErrorClass::Permanent);
}

#[test]
fn pieces_become_one_message_and_the_last_one_is_the_answer() {
    let mut client = Client::begun(Dialect::Acp, &fresh());
    let first = client.message("I will ");
    assert_eq!(first, [Fact::TurnStarted, Fact::Turns(1)], "its line is not kept: its text is");
    client.message("look.");
    let thought = json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "Hm."}});
    client.update(&thought);
    client.tool("t", "in_progress");
    client.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed",
        "content": [{"type": "content", "content": {"type": "text", "text": "a.rs"}}]}));
    client.message("There is ");
    client.message("a.rs.");
    let end = client.stops("end_turn");
    let said = |text: &str| EventBody::Message { role: ostler_core::Role::Assistant, text: text.into() };
    let facts = client.facts.clone();
    let all = events(&facts);
    let kinds: Vec<&str> = all.iter().map(|event| event.kind().name()).collect();
    assert_eq!(
        kinds,
        ["prompt", "session", "message", "thinking", "tool_call", "tool_result", "message", "result"]
    );
    assert!(all.contains(&&said("I will look.")) && all.contains(&&said("There is a.rs.")), "{all:?}");
    assert!(end.ends_with(&[Fact::ResultSeen, Fact::CloseStdin]), "{end:?}");
    assert_eq!(client.answer().text, "There is a.rs.");
}

#[test]
fn a_tool_is_in_flight_from_its_first_line_and_recorded_when_its_input_is_known() {
    let mut client = Client::begun(Dialect::Acp, &fresh());
    let pending = client.tool("t", "pending");
    assert!(pending.contains(&Fact::ToolStarted { call: "t".into() }), "{pending:?}");
    assert_eq!(events(&pending), [] as [&EventBody; 0]);
    let update = |status: &str, input: Value| json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": status, "rawInput": input});
    let runs = client.update(&update("in_progress", json!({"command": "make"})));
    assert!(
        matches!(events(&runs)[..], [EventBody::ToolCall { input, .. }] if input.contains("make")),
        "{runs:?}"
    );
    assert_eq!(client.update(&update("in_progress", json!({"command": "make"}))), [], "it says nothing new");
    let failed = client.update(&update("failed", Value::Null));
    assert!(failed.contains(&Fact::ToolFinished { call: "t".into() }), "{failed:?}");
    assert!(
        matches!(events(&failed)[..], [EventBody::ToolResult { status: ToolStatus::Error, .. }]),
        "{failed:?}"
    );
    let again = client.update(&update("failed", Value::Null));
    assert_eq!(events(&again), [] as [&EventBody; 0], "an end is recorded once");
}

#[test]
fn what_is_replayed_is_not_recorded_even_after_the_answer() {
    let mut client = Client::resumed();
    let opens = client.hello(&json!({"loadSession": true}));
    assert_eq!(methods(&opens), ["session/load"]);
    assert_eq!(sent(&opens)[0]["params"]["sessionId"], json!(SESSION));
    assert_eq!(client.message("An old"), []);
    let pinged = client.says(&json!({"id": 1, "result": {}}));
    assert_eq!(methods(&pinged), ["_ostler/ping"], "no prompt yet: the replay may go on");
    assert_eq!(client.message(" answer."), []);
    let unknown = json!({"code": -32601, "message": "Method not found"});
    let again = client.says(&json!({"id": 100, "error": unknown}));
    assert_eq!(methods(&again), ["_ostler/ping"], "something came: there may be more");
    client.update(&json!({"sessionUpdate": "available_commands_update", "availableCommands": []}));
    let quiet = client.says(&json!({"id": 101, "error": unknown}));
    assert_eq!(methods(&quiet), ["session/prompt"]);
    client.message("A new answer.");
    client.stops("end_turn");
    let messages: Vec<_> =
        client.facts.iter().filter(|fact| matches!(fact, Fact::Event(EventBody::Message { .. }))).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(client.answer().text, "A new answer.");
}

#[test]
fn a_session_is_resumed_rather_than_loaded_and_an_agent_that_can_neither_is_named() {
    let mut client = Client::resumed();
    let both = client.hello(&json!({"loadSession": true, "sessionCapabilities": {"resume": {}}}));
    assert_eq!(methods(&both), ["session/resume"]);
    let mut lost = Client::resumed();
    lost.hello(&json!({"loadSession": true}));
    lost.says(&json!({"id": 1, "error": {"code": -32603, "message": "Internal error", "data": {"details": "Invalid session"}}}));
    let mut none = Client::resumed();
    let facts = none.hello(&json!({}));
    assert!(
        facts.iter().any(|fact| matches!(fact, Fact::Event(EventBody::Warning { text }) if text.contains("a new one begins"))),
        "{facts:?}"
    );
    for client in [lost, none] {
        let reason = client.trouble().reason;
        assert_eq!((reason, reason.follow_up()), (Reason::UnknownSession, FollowUp::StartNew));
    }
    let mut limited = Client::resumed();
    limited.hello(&json!({"loadSession": true}));
    limited.says(&json!({"id": 1, "error": {"code": -32000, "message": "Authentication required"}}));
    assert_eq!(limited.trouble().reason, Reason::LoginNeeded, "the session may be there");
}

fn question(kind: &str, path: &str) -> Value {
    json!({"id": "q1", "method": "session/request_permission", "params": {"sessionId": SESSION,
        "toolCall": {"toolCallId": "t", "kind": kind, "title": "A tool", "locations": [{"path": path}]},
        "options": [{"optionId": "always", "name": "", "kind": "allow_always"}, {"optionId": "yes", "name": "", "kind": "allow_once"},
            {"optionId": "no", "name": "", "kind": "reject_once"}]}})
}

#[test]
fn a_question_is_answered_at_once_by_the_permission_and_the_transcript_says_how() {
    let settings = AgentSettings { permission: Permission::Edit, folder: "/srv/site".into(), ..fresh() };
    for (kind, path, option, noted) in [
        ("edit", "/srv/site/a.rs", "yes", "allowed: edit (A tool)"),
        ("edit", "/etc/passwd", "no", "denied: edit (A tool)"),
        ("execute", "/srv/site", "no", "denied: execute (A tool)"),
    ] {
        let mut client = Client::begun(Dialect::Acp, &settings);
        let facts = client.says(&question(kind, path));
        let answer = &sent(&facts)[0];
        assert_eq!(answer["id"], "q1");
        assert_eq!(
            answer["result"]["outcome"],
            json!({"outcome": "selected", "optionId": option}),
            "{kind} {path}"
        );
        assert!(events(&facts).iter().any(|event| event.text() == Some(noted)), "{facts:?}");
    }
}

#[test]
fn a_denied_tool_is_a_failure_if_the_settings_say_so_or_if_the_agent_stops_there() {
    let denied = |settings: &AgentSettings, last: &str| {
        let mut client = Client::begun(Dialect::Acp, settings);
        client.message("I will run it.");
        client.says(&question("execute", "x"));
        if !last.is_empty() {
            client.message(last);
        }
        client.stops("end_turn");
        client
    };
    let answer = denied(&fresh(), "I could not.").answer();
    assert_eq!((answer.text.as_str(), &answer.denied[..]), ("I could not.", &["execute".to_owned()][..]));
    assert_eq!(denied(&fresh(), "").trouble().reason, Reason::PermissionDenied);
    let strict = AgentSettings { denials: Denials::Fail, ..fresh() };
    assert_eq!(denied(&strict, "I could not.").trouble().reason, Reason::PermissionDenied);
}

#[test]
fn other_requests_of_the_agent_are_answered_with_method_not_found() {
    let mut client = Client::begun(Dialect::Acp, &fresh());
    for method in ["fs/read_text_file", "fs/write_text_file", "terminal/create", "elicitation/create"] {
        let facts = client.says(&json!({"id": 9, "method": method, "params": {}}));
        let answer = &sent(&facts)[0];
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(9), &json!(-32601)), "{method}");
    }
}

#[test]
fn each_stop_reason_has_its_reason() {
    for (stop, reason) in [
        ("max_tokens", Reason::OutputLimit),
        ("max_turn_requests", Reason::TurnLimit),
        ("refusal", Reason::Refused),
        ("cancelled", Reason::Interrupted),
        ("something_new", Reason::Unknown),
    ] {
        let mut client = Client::begun(Dialect::Acp, &fresh());
        client.message("Some words.");
        client.stops(stop);
        let trouble = client.trouble();
        assert_eq!(trouble.reason, reason, "{stop}");
        assert!(trouble.details.is_some_and(|line| line.contains(stop)));
    }
}

#[test]
fn a_turn_that_ends_with_nothing_is_a_transient_failure_with_its_line() {
    let mut client = Client::begun(Dialect::Acp, &fresh());
    client.stops("end_turn");
    let trouble = client.trouble();
    assert_eq!(trouble.reason.class(), ErrorClass::Transient);
    assert!(trouble.details.is_some_and(|line| line.contains("end_turn")));
    let mut quiet = Client::begun(Dialect::Acp, &fresh());
    quiet.tool("t", "completed");
    quiet.stops("end_turn");
    assert_eq!(quiet.answer().text, "", "it did something");
}

#[test]
fn gemini_that_gives_up_on_a_broken_answer_has_not_succeeded() {
    let tokens = json!({"input_tokens": 0, "output_tokens": 0});
    let end = json!({"id": 3, "result": {"stopReason": "end_turn", "_meta": {"quota": {"token_count": tokens, "model_usage": []}}}});
    let mut gemini = Client::begun(Dialect::Gemini, &fresh());
    gemini.message("Half an ans");
    gemini.says(&end);
    assert_eq!(gemini.trouble().reason, Reason::BrokenStream);
}

#[test]
fn a_cancel_is_sent_once_while_a_prompt_is_worked_on_and_its_end_has_the_cause_of_the_executor() {
    assert_eq!(Client::of(Dialect::Acp, &fresh()).run.interrupt(), []);
    for (stop, reason) in [
        (StopCause::Timeout, Some(Reason::TimedOut)),
        (StopCause::Budget, Some(Reason::Budget)),
        (StopCause::TurnLimit, Some(Reason::TurnLimit)),
        (StopCause::Cancelled, None),
    ] {
        let mut client = Client::begun(Dialect::Acp, &fresh());
        assert_eq!(methods(&client.run.interrupt()), ["session/cancel"]);
        assert_eq!(client.run.interrupt(), []);
        client.stops("cancelled");
        match (client.end_with(ProcessExit::Code(0), stop, ""), reason) {
            (AgentEnd::Failed(trouble), Some(reason)) => assert_eq!(trouble.reason, reason),
            (AgentEnd::Cancelled, None) => {}
            (other, _) => panic!("{stop:?}: {other:?}"),
        }
    }
}

#[test]
fn rounds_of_tools_are_counted_up_to_the_limit() {
    let mut client = Client::begun(Dialect::Acp, &AgentSettings { max_turns: 2, ..fresh() });
    let completed =
        |id: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed"});
    client.tool("a", "in_progress");
    client.tool("b", "in_progress");
    client.update(&completed("a"));
    assert!(!client.update(&completed("b")).contains(&Fact::TurnLimit), "two tools of one request");
    let next = client.tool("c", "in_progress");
    assert!(next.contains(&Fact::Turns(2)), "{next:?}");
    assert!(client.update(&completed("c")).contains(&Fact::TurnLimit), "another request would follow");
    client.message("Half of an answer.");
    client.stops("end_turn");
    let AgentEnd::Failed(trouble) = client.end_with(ProcessExit::Code(0), StopCause::TurnLimit, "") else {
        panic!("what it says after a cancel is no answer")
    };
    assert_eq!(trouble.reason, Reason::TurnLimit);
}

#[test]
fn requests_in_the_log_of_opencode_count_and_a_loop_of_them_is_ended() {
    let mut client = Client::begun(Dialect::OpenCode, &fresh());
    let line = |session: &str| {
        format!(
            "timestamp=x level=INFO run=1 message=stream providerID=p modelID=m session.id={session} small=false agent=build"
        )
    };
    assert_eq!(client.run.log_line(&line("ses_of_a_subagent")), LogLine::Noise(Vec::new()));
    for count in 1..=4 {
        assert_eq!(client.run.log_line(&line(SESSION)), LogLine::Noise(vec![Fact::Turns(count)]));
    }
    let LogLine::Noise(last) = client.run.log_line(&line(SESSION)) else { panic!("it is no line for users") };
    assert_eq!(last[0], Fact::Hopeless);
    let AgentEnd::Failed(trouble) = client.end_with(ProcessExit::Signal(9), StopCause::Hopeless, "") else {
        panic!("it failed")
    };
    assert_eq!(trouble.reason, Reason::BrokenStream);
    let mut works = Client::begun(Dialect::OpenCode, &fresh());
    for at in 0..20 {
        let LogLine::Noise(facts) = works.run.log_line(&line(SESSION)) else {
            panic!("it is no line for users")
        };
        assert!(!facts.contains(&Fact::Hopeless), "it calls tools");
        works.tool(&at.to_string(), "completed");
    }
    assert_eq!(works.run.log_line("level=ERROR message=broken"), LogLine::Shown);
}

#[test]
fn a_model_is_chosen_where_the_agent_has_a_way_and_a_warning_where_it_has_none() {
    let settings = AgentSettings { model: Some("m-1".into()), ..fresh() };
    let opened = |result: Value| {
        let mut client = Client::of(Dialect::Acp, &settings);
        client.hello(&json!({}));
        let facts = client.says(&json!({"id": 1, "result": result}));
        (client, facts)
    };
    let (mut client, facts) = opened(
        json!({"sessionId": SESSION, "configOptions": [{"id": "model", "category": "model", "type": "select"}]}),
    );
    assert_eq!(sent(&facts)[0]["params"], json!({"sessionId": SESSION, "configId": "model", "value": "m-1"}));
    assert_eq!(methods(&client.says(&json!({"id": 2, "result": {}}))), ["session/prompt"]);
    let (_, facts) =
        opened(json!({"sessionId": SESSION, "models": {"availableModels": [{"modelId": "m-1"}]}}));
    assert_eq!(methods(&facts), ["session/set_model"]);
    let (_, facts) = opened(json!({"sessionId": SESSION}));
    assert_eq!(methods(&facts), ["session/prompt"]);
    assert!(
        events(&facts)
            .iter()
            .any(|event| event.text().is_some_and(|text| text.contains("m-1 is not asked for")))
    );
}

#[test]
fn a_process_that_dies_in_the_middle_is_a_crash_with_its_last_words() {
    let mut client = Client::begun(Dialect::Acp, &fresh());
    client.message("Half a sent");
    let rest = client.run.flush();
    assert!(
        matches!(events(&rest)[..], [EventBody::Message { text, .. }] if text == "Half a sent"),
        "{rest:?}"
    );
    let AgentEnd::Failed(trouble) = client.end_with(ProcessExit::Signal(11), StopCause::None, "it broke\n")
    else {
        panic!("it failed")
    };
    assert_eq!((trouble.reason.class(), trouble.details.as_deref()), (ErrorClass::Crash, Some("it broke")));
    let mut done = Client::begun(Dialect::Acp, &fresh());
    done.message("Done.");
    done.stops("end_turn");
    let late = done.end_with(ProcessExit::Code(1), StopCause::None, "");
    assert!(matches!(late, AgentEnd::Done(_)), "the answer was there: {late:?}");
}
