//! Properties of all dialects: reads cut anywhere, bytes of any sort, fields and types that are not known, lines of megabytes.

use jiff::tz::TimeZone;
use ostler_agent::settings::{Denials, LinePatterns, SessionStart};
use ostler_agent::{
    AgentEnd, AgentSettings, Dialect, Fact, LineSplitter, ProcessEnd, ProcessExit, Reason, RunReport,
    StopCause,
};
use ostler_core::{Cost, EventBody, Role};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::recording::{Case, NOW, cases, named};

const SEED: [u8; 32] = [7; 32];

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &SEED))
}

/// All recordings, with the dialect of each.
fn recordings() -> Vec<(Dialect, Case)> {
    let files = [
        ("claude.txt", Dialect::Claude),
        ("claude-2.1.197.txt", Dialect::Claude),
        ("codex.txt", Dialect::CodexExec),
        ("app-server.txt", Dialect::Codex),
    ];
    files
        .into_iter()
        .flat_map(|(file, dialect)| cases(file).into_iter().map(move |case| (dialect, case)))
        .collect()
}

/// The facts without the lines as they were written.
fn read(facts: Vec<Fact>) -> Vec<Fact> {
    facts.into_iter().filter(|fact| !matches!(fact, Fact::Event(EventBody::Raw { .. }))).collect()
}

fn text(run: impl FnOnce(&mut Vec<Fact>) -> RunReport) -> (Vec<Fact>, RunReport) {
    let mut facts = Vec::new();
    let report = run(&mut facts);
    (facts, report)
}

/// Runs a dialect over these bytes.
fn run_bytes(dialect: Dialect, settings: &AgentSettings, bytes: &[u8], exit: i32) -> (Vec<Fact>, RunReport) {
    text(|facts| {
        let (mut run, mut lines) = (dialect.run(settings), LineSplitter::default());
        facts.extend(run.open());
        for line in lines.push(bytes).into_iter().chain(lines.end()) {
            facts.extend(run.line(&line));
        }
        let (exit, stop, zone) = (ProcessExit::Code(exit), StopCause::None, &TimeZone::UTC);
        run.end(&ProcessEnd { exit, stop, stderr: "", now: NOW, zone })
    })
}

fn fresh() -> AgentSettings {
    AgentSettings::new("Do it.", SessionStart::New { id: "a".into() })
}

#[test]
fn any_split_into_reads_gives_the_same_facts() {
    let recordings = recordings();
    let whole: Vec<_> =
        recordings.iter().map(|(dialect, case)| case.replay(*dialect, &[usize::MAX])).collect();
    let strategy = (0..recordings.len(), prop::collection::vec(1_usize..2_000, 1..8));
    let checked = runner(200).run(&strategy, |(at, reads)| {
        let (dialect, case) = &recordings[at];
        let replay = case.replay(*dialect, &reads);
        prop_assert_eq!(&replay.facts, &whole[at].facts, "{}", case.name);
        prop_assert_eq!(&replay.report, &whole[at].report);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn no_bytes_and_no_json_make_a_dialect_panic() {
    let word = prop::sample::select(vec![
        "type",
        "subtype",
        "system",
        "init",
        "assistant",
        "user",
        "result",
        "message",
        "content",
        "usage",
        "id",
        "method",
        "params",
        "item",
        "item/completed",
        "turn/completed",
        "turn",
        "status",
        "error",
        "thread.started",
        "turn.failed",
        "turn.completed",
        "item.started",
        "rate_limit_event",
        "rate_limit_info",
        "modelUsage",
        "stream_event",
        "event",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        word.clone().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let json = leaf.prop_recursive(4, 32, 6, move |inner| {
        let fields = prop::collection::vec((word.clone(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    });
    let line = prop_oneof![
        json.prop_map(|value| value.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..60),
    ];
    let strategy =
        (prop::sample::select(Dialect::ALL.to_vec()), prop::collection::vec(line, 0..12), -2_i32..200);
    let checked = runner(500).run(&strategy, |(dialect, lines, exit)| {
        let (facts, _) = run_bytes(dialect, &fresh(), &lines.join(&b'\n'), exit);
        prop_assert!(!facts.is_empty());
        Ok(())
    });
    checked.unwrap();
}

/// The line with unknown fields everywhere, and its fields in another order.
fn disguised(line: &[u8]) -> Vec<u8> {
    fn add(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(add);
                fields.insert("a_new_field".to_owned(), json!({"type": "result", "is_error": true}));
            }
            Value::Array(all) => all.iter_mut().for_each(add),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let Ok(mut value @ Value::Object(_)) = serde_json::from_slice(line) else { return line.to_vec() };
    // Lists by model or window have no unknown fields, and the input of a tool is shown whole: there, only the outermost gets one.
    let shown = ["modelUsage", "rate_limit_info", "tool_use", "\"command\"", "file_change", "fileChange"];
    let text = value.to_string();
    if shown.iter().any(|word| text.contains(word)) {
        value["a_new_field"] = json!([1, 2, 3]);
        return value.to_string().into_bytes();
    }
    add(&mut value);
    value.to_string().into_bytes()
}

#[test]
fn unknown_types_and_fields_are_ignored_and_the_order_of_fields_does_not_matter() {
    for (dialect, case) in recordings() {
        let plain = case.replay(dialect, &[usize::MAX]);
        let mut stdout = Vec::new();
        for line in case.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            stdout
                .extend_from_slice(b"{\"type\":\"a.new.type\",\"result\":1}\n{\"method\":\"new/thing\"}\n\n");
            stdout.extend(disguised(line));
            stdout.push(b'\n');
        }
        let other = case.writing(stdout).replay(dialect, &[usize::MAX]);
        assert_eq!(read(other.facts), read(plain.facts));
        assert_eq!(other.report.end, plain.report.end);
    }
}

#[test]
fn a_missing_last_line_break_changes_nothing() {
    for (dialect, case) in recordings() {
        let plain = case.replay(dialect, &[usize::MAX]);
        let stdout = case.stdout.strip_suffix(b"\n").unwrap_or(&case.stdout).to_vec();
        let other = case.writing(stdout).replay(dialect, &[usize::MAX]);
        assert_eq!(other.report, plain.report);
    }
}

#[test]
fn a_line_of_four_megabytes_is_read_whole() {
    let long = "The quick brown fox. ".repeat(200_000);
    assert!(long.len() > 4_000_000);
    let message = json!({"type": "assistant", "message": {"id": "m", "model": "x", "content": [{"type": "text", "text": long}]}});
    let result = json!({"type": "result", "subtype": "success", "is_error": false, "result": long});
    let (facts, report) = run_bytes(Dialect::Claude, &fresh(), format!("{message}\n{result}").as_bytes(), 0);
    assert!(facts.contains(&Fact::Event(EventBody::Message { role: Role::Assistant, text: long.clone() })));
    let AgentEnd::Done(answer) = report.end else { panic!("it is done") };
    assert!(answer.text == long);
}

#[test]
fn a_command_has_its_text_as_answer_and_its_patterns_for_cost_and_session() {
    let pattern = |pattern: &str| Some(regex::Regex::new(pattern).expect("a pattern"));
    let mut settings = fresh();
    settings.patterns =
        LinePatterns { cost: pattern(r"cost: \$?([0-9.]+)"), session: pattern("session ([a-z0-9]+)") };
    let output = b"session ab12\nThe first line.\ncost: $0.25\n\n\xff\ncost: 0.40\nsession ab12\n";
    let (facts, report) = run_bytes(Dialect::Command, &settings, output, 0);
    let events: Vec<&EventBody> = facts
        .iter()
        .filter_map(|fact| if let Fact::Event(event) = fact { Some(event) } else { None })
        .collect();
    let sessions = events.iter().filter(|event| ***event == EventBody::Session { id: "ab12".into() }).count();
    assert_eq!(sessions, 1);
    let spent: Cost = events
        .iter()
        .filter_map(|event| if let EventBody::Usage(usage) = event { usage.cost } else { None })
        .sum();
    assert_eq!(Some(spent), Cost::from_usd(0.40), "the second is a total");
    assert!(events.contains(&&EventBody::Raw { text: "[255]".into() }));
    let AgentEnd::Done(answer) = report.end else { panic!("it is done") };
    assert_eq!(
        answer.text,
        "session ab12\nThe first line.\ncost: $0.25\n\n\u{fffd}\ncost: 0.40\nsession ab12"
    );

    let long = format!("{}\n", "0123456789abcdef".repeat(64)).repeat(5_000);
    let (facts, report) = run_bytes(Dialect::Command, &settings, long.as_bytes(), 0);
    let warnings = facts.iter().filter(|fact| matches!(fact, Fact::Event(EventBody::Warning { .. }))).count();
    let AgentEnd::Done(answer) = report.end else { panic!("it is done") };
    assert!(warnings == 1 && long.starts_with(&answer.text) && answer.text.len() > 4_000_000);

    let (_, failed) = run_bytes(Dialect::Command, &settings, b"half", 3);
    let AgentEnd::Failed(trouble) = failed.end else { panic!("it failed") };
    assert_eq!((trouble.reason, trouble.message.as_str()), (Reason::Unknown, "it exited with 3"));
}

#[test]
fn a_denied_tool_fails_the_run_only_where_the_settings_say_so() {
    let case = named("claude.txt", "bash_denied");
    let mut settings = case.settings();
    settings.denials = Denials::Fail;
    let report = case.replay_with(Dialect::Claude, &settings, &[usize::MAX]).report;
    let AgentEnd::Failed(trouble) = report.end else { panic!("it failed") };
    assert_eq!(
        (trouble.reason, trouble.message.as_str()),
        (Reason::PermissionDenied, "it was not allowed to use Bash")
    );
}

/// Cost and session of a run that was killed are what its lines said.
#[test]
fn a_killed_run_reports_the_usage_that_it_had_shown() {
    let report = named("claude.txt", "bash_sleep_sigkill_pid").replay(Dialect::Claude, &[usize::MAX]).report;
    assert_eq!(report.unreported.len(), 1);
    assert_eq!(report.unreported[0].input_tokens, 1_200);
    assert_eq!(report.unreported[0].cost, Cost::from_usd(0.003_855));
    let done = named("claude.txt", "session_new").replay(Dialect::Claude, &[usize::MAX]).report;
    assert_eq!(done.unreported, []);
}
