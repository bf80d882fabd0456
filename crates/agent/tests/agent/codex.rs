//! The executor with a stand-in for `codex app-server`: a dialogue, an interruption in its own words, and a resume.

use ostler_core::{Conversation, EventBody, Outcome};
use serde_json::json;

use crate::bench::{Bench, Earlier, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_dialogue_is_held_until_the_turn_is_completed() {
    let bench = Bench::codex().await;
    let ran = bench.run(&json!("Say something")).await;
    assert_eq!(ran.output(), json!("Prompts: 1"));
    assert_eq!(ran.sessions().len(), 1);
    assert_eq!(bench.requests()[0]["session"], json!(ran.sessions()[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_turn_is_interrupted_in_the_words_of_the_agent_and_can_be_resumed() {
    let bench = Bench::codex().await;
    let running = bench.start(&json!("[[hang]]"), Earlier::default());
    // The turn can be interrupted once its start was read.
    let is_read = |event: &EventBody| event.text().is_some_and(|text| text.contains("turn/started"));
    until("the turn runs", || running.events.lock().expect("no test panicked").iter().any(is_read)).await;
    running.control.cancel.cancel();
    let ran = running.end().await;
    assert_eq!(ran.ended.outcome, Outcome::Cancelled);
    bench.logged("interrupted").await;
    let session = ran.sessions().remove(0);
    let talk = Conversation { session: Some(session.clone()), ..Conversation::default() };
    let again = bench.run_after(&json!("[[hang]]"), Earlier(vec![talk])).await;
    assert_eq!(again.output(), json!("Prompts: 2"));
    assert_eq!(bench.requests()[1]["prompt"], json!("Go on."));
    assert_eq!(again.sessions(), [session]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_goes_on_after_its_interruption_at_the_limit_is_killed() {
    let mut bench = Bench::codex().await;
    bench.policy.max_turns = 3;
    bench.has_killed_at_the_turn_limit("turn/interrupt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_nothing_is_stopped_and_tried_again() {
    let mut bench = Bench::codex().await;
    bench.has_no_session_in_time().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_lost_begins_anew() {
    let bench = Bench::codex().await;
    let session = bench.run(&json!("One")).await.sessions().remove(0);
    std::fs::remove_dir_all(bench.config().join("sessions")).expect("it is there");
    let talk = Conversation { session: Some(session), ..Conversation::default() };
    let again = bench.run_after(&json!("Two"), Earlier(vec![talk])).await;
    assert_eq!(again.output(), json!("Prompts: 1"));
    assert_eq!(bench.requests()[1]["prompt"], json!("Two"));
}
