//! Conversations over attempts: resumed where they are, begun anew where they are not, with limits that go on.

use ostler_core::{Conversation, Cost, EventBody, Usage};
use serde_json::json;

use crate::bench::{Bench, Earlier, Ran, until};

/// An earlier attempt that had this conversation, and spent this much.
fn earlier(session: &str, usd: f64) -> Earlier {
    let usage = vec![Usage { cost: Cost::from_usd(usd), ..Usage::default() }];
    Earlier(vec![Conversation { session: Some(session.to_owned()), usage, ..Conversation::default() }])
}

/// The first attempt of a task, which ended without a result.
async fn first(bench: &Bench, prompt: &str) -> Ran {
    let ran = bench.run(&json!(prompt)).await;
    assert!(ran.ended.outcome.failure().is_some(), "{:?}", ran.ended);
    ran
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_attempt_goes_on_with_the_conversation() {
    let bench = Bench::claude().await;
    let begun = first(&bench, "[[nothing]]").await;
    let session = begun.sessions().remove(0);
    let again = bench.run_after(&json!("[[nothing]]"), earlier(&session, 0.1)).await;
    assert_eq!(again.sessions(), std::slice::from_ref(&session));
    assert!(
        again.statuses().contains(&format!("resumes the conversation {session}")),
        "{:?}",
        again.statuses()
    );
    let requests = bench.requests();
    assert_eq!((&requests[1]["session"], &requests[1]["prompt"]), (&json!(session), &json!("Go on.")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_is_not_here_begins_anew_with_its_prompt() {
    let bench = Bench::claude().await;
    let elsewhere =
        bench.run_after(&json!("[[text]] one"), earlier("11111111-2222-4333-8444-555555555555", 0.1)).await;
    assert_eq!(elsewhere.output(), json!("Hello."));
    assert!(elsewhere.statuses().iter().any(|text| text.contains("is not on this machine")));

    // The agent has lost it, although its folder is here.
    let session = first(&bench, "[[nothing]] two").await.sessions().remove(0);
    std::fs::remove_dir_all(bench.config().join("projects")).expect("it is there");
    let lost = bench.run_after(&json!("[[text]] three"), earlier(&session, 0.1)).await;
    assert_eq!(lost.output(), json!("Hello."));
    assert_eq!(lost.sessions().len(), 2, "the lost one, and a new one");
    assert_eq!(bench.requests().last().map(|line| line["prompt"].clone()), Some(json!("[[text]] three")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_can_go_on_with_the_conversation_of_another() {
    let bench = Bench::claude().await;
    let session = bench.run(&json!("[[text]] first")).await.sessions().remove(0);
    let next = bench.run(&json!({"prompt": "And now?", "session": session})).await;
    assert_eq!(next.sessions(), [session]);
    assert_eq!(bench.requests()[1]["prompt"], json!("And now?"));
    let unknown = bench.run(&json!({"prompt": "And now?", "session": "elsewhere"})).await;
    assert!(
        unknown.failure().message.contains("elsewhere is not on this machine"),
        "{:?}",
        unknown.failure()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_attempt_had_used_when_its_node_died_is_counted_by_the_next() {
    let bench = Bench::claude().await;
    let prompt = format!("[[gate {}]]", bench.folder.path().join("gate").display());
    let dies = bench.start(&json!(prompt), Earlier::default());
    let session = bench.logged("session").await;
    let record = bench.config().with_file_name("conversation.json");
    let is_seen = || std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"input\":1000"));
    until("its usage is written down", is_seen).await;
    dies.ended.abort();
    let session = session.as_str().expect("an id");
    let next = bench.run_after(&json!(prompt), earlier(session, 0.0)).await;
    assert_eq!(next.output(), json!("Prompts: 2, last: Go on."));
    let counted: Vec<Option<Cost>> = next.events.iter().filter_map(usage).collect();
    assert_eq!(counted.len(), 2, "{:?}", next.events);
    assert_eq!(counted[0], Cost::from_usd(0.003_15), "1,000 tokens in, 10 out");
    assert!(!is_seen());
}

/// The cost of a usage event.
fn usage(event: &EventBody) -> Option<Option<Cost>> {
    if let EventBody::Usage(usage) = event { Some(usage.cost) } else { None }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_task_go_on_over_its_attempts() {
    let mut bench = Bench::claude().await;
    bench.policy.max_turns = 3;
    let session = first(&bench, "[[words 3]]").await.sessions().remove(0);
    let most = bench.run_after(&json!("[[words 3]]"), earlier(&session, 0.1)).await;
    assert!(most.failure().message.contains("it made 3 model requests"), "{:?}", most.failure());
    bench.policy.max_task_cost = Cost::from_usd(1.0);
    let spent = bench.run_after(&json!("[[text]]"), earlier("another", 1.5)).await;
    assert!(
        spent.failure().message.contains("has cost $1.50, and its budget is $1.00"),
        "{:?}",
        spent.failure()
    );
    assert_eq!(bench.requests().len(), 1, "nothing more is asked");
}
