//! `ostler logs`.

use ostler_core::{Cost, ErrorClass, EventBody, Failure, Outcome, Role, Usage};
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
