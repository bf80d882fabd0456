//! The executor with a stand-in for an agent of the Agent Client Protocol: sessions over attempts, permissions, cancels, costs and ends.

use std::sync::Arc;
use std::time::Duration;

use ostler_agent::settings::Permission;
use ostler_core::{Conversation, Cost, ErrorClass, EventBody, Outcome};
use serde_json::json;

use crate::bench::{Bench, Earlier, Ran, runs, until};

/// What an attempt leaves to the next one.
fn earlier(ran: &Ran) -> Earlier {
    let usage = ran
        .events
        .iter()
        .filter_map(|event| if let EventBody::Usage(usage) = event { Some(usage.clone()) } else { None });
    let (session, usage) = (ran.sessions().last().cloned(), usage.collect());
    Earlier(vec![Conversation { session, usage, ..Conversation::default() }])
}

fn costs(ran: &Ran) -> Vec<Option<Cost>> {
    let of = |event: &EventBody| if let EventBody::Usage(usage) = event { Some(usage.cost) } else { None };
    ran.events.iter().filter_map(of).collect()
}

fn can(bench: &mut Bench, abilities: &str) {
    bench.policy.environment.set.push(("STAND_IN_CAN".into(), abilities.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_an_agent_of_the_protocol_is_a_conversation_whose_answer_is_the_output() {
    let bench = Bench::acp().await;
    let ran = bench.run(&json!("[[text]] please")).await;
    assert_eq!((ran.output(), ran.messages()), (json!("Hello."), vec!["Hello.".to_owned()]));
    assert_eq!(bench.requests()[0]["session"], json!(ran.sessions()[0]));
    assert_eq!(
        bench.run(&json!("[[files]]")).await.output(),
        json!("-32601"),
        "it has no files of the client"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_and_what_is_replayed_of_it_is_not_recorded_twice() {
    for abilities in ["resume", "load"] {
        let mut bench = Bench::acp().await;
        can(&mut bench, abilities);
        let running = bench.start(&json!("[[hang]]"), Earlier::default());
        let begins = |event: &EventBody| event.text().is_some_and(|text| text.contains("plan: "));
        until("it works", || running.events.lock().expect("no test panicked").iter().any(begins)).await;
        running.control.cancel.cancel();
        let first = running.end().await;
        assert_eq!(
            (&first.ended.outcome, first.messages()),
            (&Outcome::Cancelled, vec!["It begins.".to_owned()])
        );
        bench.logged("cancelled").await;
        let again = bench.run_after(&json!("[[hang]]"), earlier(&first)).await;
        assert_eq!(again.output(), json!("Prompts: 2, last: Go on."), "{abilities}");
        assert_eq!(again.messages(), ["Prompts: 2, last: Go on."], "{abilities}");
        assert_eq!(again.sessions(), first.sessions());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_resume_begins_anew_with_the_whole_prompt_and_a_warning() {
    let mut bench = Bench::acp().await;
    can(&mut bench, "");
    let first = bench.run(&json!("[[stop cancelled]]")).await;
    let again = bench.run_after(&json!("[[text]] two"), earlier(&first)).await;
    assert_eq!(again.output(), json!("Hello."));
    assert!(
        again.warnings().iter().any(|text| text.contains("it cannot resume a session")),
        "{:?}",
        again.warnings()
    );
    assert_ne!(again.sessions().last(), first.sessions().last());
    assert_eq!(bench.requests()[1]["prompt"], json!("[[text]] two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_by_the_permission_of_the_pool_or_the_task() {
    let mut bench = Bench::acp().await;
    bench.policy.permission = Permission::Edit;
    let edit = bench.run(&json!("[[ask edit a.txt]]")).await;
    assert_eq!(edit.output(), json!("Answered: y"));
    assert!(edit.statuses().contains(&"allowed: edit (edit a.txt)".to_owned()), "{:?}", edit.statuses());
    let outside = bench.run(&json!("[[ask edit /etc/passwd]]")).await;
    assert_eq!(outside.output(), json!("Answered: n"));
    assert!(
        outside.warnings().contains(&"denied: edit (edit /etc/passwd)".to_owned()),
        "{:?}",
        outside.warnings()
    );
    let shell = bench.run(&json!({"prompt": "[[ask execute x]]", "permission": "everything"})).await;
    assert_eq!(shell.output(), json!("Answered: y"));
    let strict = bench.run(&json!({"prompt": "[[ask execute x]]", "on_denied": "fail"})).await;
    assert!(strict.failure().message.contains("not allowed to use execute"), "{:?}", strict.failure());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cost_of_a_session_is_counted_once_over_a_resume() {
    let bench = Bench::acp().await;
    let first = bench.run(&json!("[[cost]]")).await;
    let dime = Cost::from_usd(0.1);
    assert_eq!(costs(&first), [dime], "{:?}", first.events);
    let session = first.sessions().remove(0);
    let again = bench.run_after(&json!({"prompt": "[[cost]]", "session": session}), earlier(&first)).await;
    assert_eq!(again.output(), json!("Prompts: 2"));
    assert_eq!(costs(&again), [dime], "the agent reports twenty cents: {:?}", again.events);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_is_not_answered_ends_in_a_kill() {
    let bench = Bench::acp().await;
    let running = bench.start(&json!("[[deaf]]"), Earlier::default());
    bench.logged("waits").await;
    let pid = bench.logged("pid").await;
    running.control.cancel.cancel();
    assert_eq!(running.end().await.ended.outcome, Outcome::Cancelled);
    assert!(!runs(&pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stays_after_its_answer_is_ended_and_one_that_is_silent_is_stuck() {
    let mut bench = Bench::acp().await;
    let stays = bench.run(&json!("[[stay]]")).await;
    assert_eq!(stays.output(), json!("Done."));
    let pid = bench.logged("pid").await;
    assert!(!runs(&pid));
    bench.policy.idle_watchdog = Duration::from_millis(500);
    let silent = bench.run(&json!("[[hang]]")).await;
    assert_eq!(silent.failure().class, ErrorClass::Stuck, "{:?}", silent.failure());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_keeps_what_was_said_and_the_last_words() {
    let bench = Bench::acp().await;
    let crashed = bench.run(&json!("[[crash]]")).await;
    assert_eq!(crashed.messages(), ["Half a sent"]);
    let failure = crashed.failure();
    assert_eq!(failure.message, "it exited with 3 without a result: it broke in the middle");
    assert_eq!(failure.class, ErrorClass::Transient);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_reasons_and_errors_have_their_classes() {
    let bench = Bench::acp().await;
    for (prompt, class, message) in [
        ("[[stop refusal]]", ErrorClass::Permanent, "it refused"),
        ("[[stop max_tokens]]", ErrorClass::Permanent, "longer than the model may write"),
        ("[[stop max_turn_requests]]", ErrorClass::Permanent, "as many model requests as it may"),
        ("[[nothing]]", ErrorClass::Transient, "it ended its turn without a word"),
        ("[[error -32000 Authentication required]]", ErrorClass::QueueStop, "Authentication required"),
        ("[[error -32003 Rate limited]]", ErrorClass::RateLimited, "Rate limited"),
        ("[[error -32603 You have hit your usage limit.]]", ErrorClass::UsageLimit, "usage limit"),
        ("[[error -32603 Something else]]", ErrorClass::Transient, "Something else"),
    ] {
        let ran = bench.run(&json!(prompt)).await;
        let failure = ran.failure();
        assert!(failure.class == class && failure.message.contains(message), "{prompt}: {failure:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_refused_stops_the_queue_unless_it_has_worked_before() {
    let bench = Bench::acp().await;
    let executor = Arc::new(bench.executor());
    let run = async |prompt: &str| {
        bench.start_by(Arc::clone(&executor), bench.work(&json!(prompt)), Earlier::default()).end().await
    };
    const REFUSED: &str = "[[error -32000 Authentication required]]";
    assert_eq!(run(REFUSED).await.failure().class, ErrorClass::QueueStop, "nothing has worked yet");
    assert_eq!(run("[[text]]").await.output(), json!("Hello."));
    assert_eq!(run(REFUSED).await.failure().class, ErrorClass::Transient, "the login has worked");
    let missing = run("[[error -32000 The API key is missing]]").await;
    assert_eq!(missing.failure().class, ErrorClass::QueueStop, "it says what is wrong");

    // Another node, which knows only the session: it was held with this login.
    let mut other = Bench::acp().await;
    let first = other.run(&json!("[[text]]")).await;
    other.policy.environment.set.push(("STAND_IN_REFUSES".into(), "Authentication required".into()));
    let again = other.run_after(&json!("[[text]]"), earlier(&first)).await;
    let failure = again.failure();
    assert_eq!(failure.class, ErrorClass::Transient, "{failure:?}");
    assert!(failure.message.contains("Authentication required"), "{failure:?}");
    assert_eq!(again.sessions(), first.sessions(), "no other session is begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_goes_on_for_too_many_rounds_of_tools_is_cancelled() {
    let mut bench = Bench::acp().await;
    bench.policy.max_turns = 3;
    let ran = bench.run(&json!("[[tools 5]]")).await;
    // Those that it wrote before it read the cancel count too.
    assert!(ran.failure().message.contains("it made 5 model requests"), "{:?}", ran.failure());
    assert_eq!(ran.failure().class, ErrorClass::Permanent);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ignores_the_cancel_at_its_limit_is_killed() {
    let mut bench = Bench::acp().await;
    bench.policy.max_turns = 3;
    bench.has_killed_at_the_turn_limit("session/cancel").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_schema_does_not_allow_is_sent_back_in_the_same_session() {
    let bench = Bench::acp().await;
    let schema =
        json!({"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]});
    let ran = bench.run(&json!({"prompt": "[[schema 1]]", "schema": schema})).await;
    assert_eq!(ran.output(), json!({"score": 7}));
    let requests = bench.requests();
    assert_eq!((requests.len(), &requests[0]["session"]), (2, &requests[1]["session"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_writes_lines_and_opens_no_session_is_stopped_and_tried_again() {
    let mut bench = Bench::acp().await;
    bench.has_no_session_in_time().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_the_protocol_is_a_sentence() {
    let mut bench = Bench::acp().await;
    bench.policy.environment.set.push(("STAND_IN_SPEAKS".into(), "2".into()));
    let ran = bench.run(&json!("[[text]]")).await;
    assert_eq!(
        ran.failure().message,
        "it speaks version 2 of the Agent Client Protocol, and version 1 is needed"
    );
    assert_eq!(bench.requests().len(), 0);
}
