//! `ostler logs`.

use ostler_core::{Cost, ErrorClass, EventBody, Failure, Level, LogStream, Outcome, Role, Usage};
use ostler_store::Store as _;
use ostler_testkit::ProcessSignal;
use serde_json::Value;

use crate::hands::Hands;
use crate::ostler::{Place, Running};

#[test]
fn lines_are_printed_as_they_were_written() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    for line in ["one", "  two\twith a tab\n", "three\nfour"] {
        hands.log(task.lease.as_ref(), line);
    }
    let warning = EventBody::warning("careful");
    hands.wait(hands.store.append(task.lease.as_ref(), vec![warning])).expect("it is appended");
    assert_eq!(place.done(["logs", &id]), "one\n  two\twith a tab\nthree\nfour\n[warning] careful\n");
    let lines = place.done(["logs", &id, "--json"]);
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((events.len(), &events[3]["kind"], &events[3]["number"]), (4, &"warning".into(), &4.into()));
    let mut fields: Vec<&str> =
        events[0].as_object().expect("an object").keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["at", "cut", "data", "kind", "level", "number", "stream", "token"]);
}

#[test]
fn the_lines_of_an_agent_are_hidden_unless_they_are_asked_for() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("reviews", "review", "1").to_string();
    let task = hands.begin("reviews");
    let events = vec![
        EventBody::Raw { text: r#""{\"type\":\"result\"}""#.to_owned() },
        EventBody::Status { text: "retry 1 of 10".to_owned() },
        EventBody::Error { text: "overloaded".to_owned() },
        EventBody::Result { text: "All is well.".to_owned() },
    ];
    hands.wait(hands.store.append(task.lease.as_ref(), events)).expect("they are appended");
    let read = "[status] retry 1 of 10\n[error] overloaded\n[result] All is well.\n";
    assert_eq!(place.done(["logs", &id]), read);
    assert_eq!(place.done(["logs", &id, "--raw"]), format!("[raw] {{\"type\":\"result\"}}\n{read}"));
    let hidden = place.done(["logs", &id, "--json"]);
    assert!(!hidden.contains(r#""kind":"raw""#), "{hidden}");
    assert!(place.done(["logs", &id, "--raw", "--json"]).contains(r#""kind":"raw""#));
}

#[test]
fn a_transcript_is_one_page_that_needs_nothing_else_and_runs_nothing() {
    const HOSTILE: &str = "<script>alert(1)</script><img src=https://example.org/x>";
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("reviews", "review", &format!(r#""{HOSTILE}""#)).to_string();
    let task = hands.begin("reviews");
    let usage = Usage { cost: Cost::from_usd(0.25), input_tokens: 10, ..Usage::default() };
    let long = "a line\n".repeat(40_000);
    let events = vec![
        EventBody::Session { id: "s-1".to_owned() },
        EventBody::Prompt { text: "Review <this> & that".to_owned() },
        EventBody::Message { role: Role::Assistant, text: HOSTILE.to_owned() },
        EventBody::ToolCall { call: "c".into(), tool: HOSTILE.into(), input: HOSTILE.into() },
        EventBody::Thinking { text: long.clone() },
        EventBody::Usage(usage),
    ];
    hands.wait(hands.store.append(task.lease.as_ref(), events)).expect("they are appended");
    hands.end(task, Outcome::Failed(Failure::new(ErrorClass::Transient, HOSTILE)), None);
    let page = place.done(["logs", &id, "--html"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</main></body></html>\n"), "{page}");
    assert_eq!((page.matches("<html").count(), page.matches("</html>").count()), (1, 1));
    for part in ["Review &lt;this&gt; &amp; that", "Attempt 1: failed", "$0.25", "session s-1", "transient: "]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(page.contains(&long), "texts are whole");
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("http:"), "{page}");
    assert!(page.contains("default-src 'none'"));
    let refused = place.run(["logs", &id, "--html", "--json"]);
    assert_eq!(refused.code, Some(2));
}

#[test]
fn more_than_a_page_of_lines_comes_whole_and_in_order() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    for part in 0..3 {
        let events = (0..900).map(|at| EventBody::line(format!("line {}", part * 900 + at)));
        hands.wait(hands.store.append(task.lease.as_ref(), events.collect())).expect("they are appended");
    }
    let text = place.done(["logs", &id]);
    assert!(text.lines().enumerate().all(|(at, line)| line == format!("line {at}")));
    assert_eq!(text.lines().count(), 2_700);
}

#[test]
fn a_follower_sees_what_comes_and_ends_with_the_task() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    hands.log(task.lease.as_ref(), "before");
    let following = Running::start(place.command(["logs", "-f", &id]));
    assert_eq!(following.line(), "before");
    hands.log(task.lease.as_ref(), "while");
    assert_eq!(following.line(), "while");
    hands.log(task.lease.as_ref(), "last");
    hands.end(task, Outcome::Success, None);
    assert_eq!(following.end(), (Some(0), vec!["last".to_owned()]));
}

#[test]
fn an_interrupt_ends_with_its_own_code() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    hands.log(task.lease.as_ref(), "before");
    let following = Running::start(place.command(["logs", "--follow", &id]));
    assert_eq!(following.line(), "before");
    following.signal(ProcessSignal::INT);
    assert_eq!(following.end().0, Some(130));
}

#[test]
fn a_follower_sees_the_stdout_of_a_command_as_it_comes_and_a_short_command_logs_nothing() {
    let place = Place::new();
    let script = "echo begins; until test -e go; do sleep 0.01; done; printf ends";
    place.write(
        "ostler.toml",
        "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\n",
    );
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let payload = serde_json::to_string(script).expect("JSON");
    let id = place.done(["submit", "shell", "run", "--payload", &payload]).trim().to_owned();
    let following = Running::start(place.command(["logs", "-f", &id]));
    assert_eq!(following.line(), "begins");
    let shown = place.json(["show", &id]);
    assert_eq!(shown["attempts"][0]["stdout"], "begins\n", "so far");
    place.write("go", "");
    assert_eq!(following.end(), (Some(0), vec!["ends".to_owned()]));
    let shown = place.json(["show", &id]);
    assert_eq!((&shown["output"], &shown["attempts"][0]["stdout"]), (&"begins\nends".into(), &Value::Null));
    // No write of the store that the task would not have without.
    let short = place.json(["submit", "shell", "run", "--payload", "\"echo short\"", "--wait"]);
    let id = short["id"].as_str().expect("an id");
    let log = place.run(["logs", id]);
    assert_eq!((log.code, log.out.as_str()), (Some(0), ""));
    assert!(log.err.contains("wrote nothing to its log; its output: ostler show"), "{log:?}");
}

#[test]
fn an_empty_log_says_why() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let silent = place.run(["logs", &id]);
    assert_eq!((silent.code, silent.out.as_str()), (Some(0), ""));
    assert!(
        silent.err.contains("has written nothing to its log so far; to follow it: ostler logs -f"),
        "{silent:?}"
    );
    assert_eq!(place.run(["logs", &id, "--json"]).err, "");
    let task = hands.begin("mail");
    hands.end(task, Outcome::Success, None);
    assert!(place.run(["logs", &id]).err.contains("wrote nothing to its log; more about it: ostler show"));
}

#[test]
fn lines_are_chosen_by_attempt_level_and_number_and_have_time_and_attempt_in_front() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    let log = |level, text: &str| EventBody::Log { level, stream: LogStream::Log, text: text.to_owned() };
    let piece = |text: &str| EventBody::Stdout { text: serde_json::to_string(text).expect("JSON") };
    let first = vec![log(Level::Debug, "fine"), log(Level::Warn, "hot"), piece("a\nb"), piece("c\n")];
    hands.wait(hands.store.append(task.lease.as_ref(), first)).expect("they are appended");
    hands.end(task, Outcome::HandedBack, None);
    let task = hands.begin("mail");
    let second = vec![log(Level::Error, "broken"), EventBody::warning("careful")];
    hands.wait(hands.store.append(task.lease.as_ref(), second)).expect("they are appended");
    let logs = |words: &[&str]| place.done([&["logs", &id], words].concat());
    assert_eq!(logs(&["--level", "warn"]), "warn: hot\nerror: broken\n[warning] careful\n");
    assert_eq!(logs(&["--attempt", "2"]), "error: broken\n[warning] careful\n");
    assert_eq!(logs(&["-n", "2"]), "error: broken\n[warning] careful\n");
    let ended = logs(&["--attempt", "1", "--level", "info", "--tail", "2"]);
    assert!(
        ended.starts_with("bc\n[transition] queued: handed_back, next attempt at ")
            && ended.lines().count() == 2,
        "{ended}"
    );
    let numbered = logs(&["--attempt-numbers", "--attempt", "1"]);
    assert!(
        numbered.starts_with("#1 debug: fine\n#1 warn: hot\n#1 a\n#1 bc\n#1 [transition] queued"),
        "{numbered}"
    );
    let timed = logs(&["--time", "--attempt-numbers", "--level", "error"]);
    assert!(timed.starts_with("20") && timed.ends_with("Z #2 error: broken\n"), "{timed}");
    assert_eq!(place.done(["logs", &id, "--json", "--tail", "1"]).lines().count(), 1);
    place.refused(["logs", &id, "--attempt", "3"], 4, "has no attempt 3; the last one is 2");
    place.refused(["logs", &id, "--level", "loud"], 2, "expected one of debug, info, warn, error");
    let none = place.run(["logs", &id, "--level", "error", "--attempt", "1"]);
    assert!(none.out.is_empty() && none.err.contains("nothing in the log of"), "{none:?}");
    // Of a log that is followed, the last lines and what comes.
    let following = Running::start(place.command(["logs", "-f", "-n1", "--attempt-numbers", &id]));
    assert_eq!(following.line(), "#2 [warning] careful");
    hands.log(task.lease.as_ref(), "more");
    assert_eq!(following.line(), "#2 more");
    hands.end(task, Outcome::Success, None);
    assert_eq!(following.end(), (Some(0), Vec::new()));
}

#[test]
fn progress_is_in_lists_and_details_of_a_running_task() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    let progress = |done| EventBody::Progress { done, total: Some(5_000), note: Some("pages".to_owned()) };
    for part in 0..3 {
        let events = (0..900).map(|at| progress(part * 900 + at + 1)).collect();
        hands.wait(hands.store.append(task.lease.as_ref(), events)).expect("they are appended");
        hands.log(task.lease.as_ref(), "a line between");
    }
    let seen = serde_json::json!({ "done": 2_700, "total": 5_000, "note": "pages" });
    assert_eq!(place.json(["ls"])[0]["progress"], seen);
    assert_eq!(place.json(["show", &id])["progress"], seen);
    assert!(place.done(["ls"]).contains("running 2700/5000 pages"));
    assert!(place.done(["show", &id]).contains("running 2700/5000 pages"));
    hands.end(task, Outcome::HandedBack, None);
    let _next = hands.begin("mail");
    assert_eq!(place.json(["ls"])[0]["progress"], Value::Null, "of an earlier attempt");
}
