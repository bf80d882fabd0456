//! Conformance of the `llm` executor: with a server that answers as it is asked to, it passes the suite of all executors.

use std::sync::Arc;
use std::time::Duration;

use ostler_agent::executor::SchemaSource;
use ostler_agent::llm::{LlmApi, LlmPolicy};
use ostler_core::ErrorClass;
use ostler_exec::conformance::{Behaviour, Fixture, run};
use ostler_exec::{Executor, Work};
use ostler_testkit::{LlmReply, LlmRequest, LlmServer, ReplyEnd, chat_events};
use serde_json::{Value, json};

use super::{executor, policy};
use crate::bench::work;

struct Obedient(Arc<dyn Executor>);

/// Does what the prompt says.
fn obey(request: &LlmRequest) -> LlmReply {
    let body: Value = serde_json::from_str(&request.body).expect("a request is JSON");
    let prompt =
        body["messages"].as_array().and_then(|all| all.last()).expect("a message")["content"].clone();
    let prompt = prompt.as_str().unwrap_or_default();
    let error = |status, code: &str| {
        let reply = json!({"error": {"message": "as requested", "type": code, "code": code}});
        LlmReply::json(status, reply.to_string())
    };
    match prompt.split_once(' ').unwrap_or((prompt, "")) {
        ("echo", text) => LlmReply::stream(chat_events(text, 1, 1)),
        ("fail", "transient") => error(500, "server_error"),
        ("fail", "permanent") => error(404, "model_not_found"),
        ("fail", "rate_limited") => error(429, "rate_limit_exceeded").with_header("retry-after", "7"),
        ("fail", "queue_stop") => error(429, "insufficient_quota"),
        (_, _) => LlmReply::stream([": waiting\n\n".to_owned()]).ending(ReplyEnd::Silence),
    }
}

impl Fixture for Obedient {
    fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.0)
    }

    fn work(&self, behaviour: &Behaviour) -> Option<Work> {
        let prompt = match behaviour {
            Behaviour::Echo(text) => format!("echo {text}"),
            Behaviour::Fail(
                class @ (ErrorClass::Transient
                | ErrorClass::Permanent
                | ErrorClass::RateLimited
                | ErrorClass::QueueStop),
            ) => format!("fail {}", class.name()),
            // A request is dropped at once, whatever its server does.
            Behaviour::Hang | Behaviour::StopWhenTold | Behaviour::FinishAfter(_) => "wait".to_owned(),
            // A model has no thread, no panic and no log lines, cannot be told to stop, and knows of no other classes. What it says is
            // a conversation, whose sender waits for the store.
            Behaviour::Fail(_)
            | Behaviour::FailUnclassed
            | Behaviour::Panic
            | Behaviour::Block(_)
            | Behaviour::FinishWhenTold
            | Behaviour::BigOutput(_)
            | Behaviour::Flood(_) => return None,
        };
        Some(work(json!(prompt).to_string(), 1))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pool_of_an_api_passes() {
    let server = LlmServer::start(obey);
    let make = || -> Arc<dyn Fixture> {
        let policy = LlmPolicy {
            // Any value: the output is JSON then.
            schema: Some(SchemaSource::Inline(json!(true))),
            idle_watchdog: Duration::from_secs(60),
            ..policy(LlmApi::OpenAi, &server)
        };
        Arc::new(Obedient(Arc::new(executor(policy))))
    };
    let report = run(make).await;
    assert_eq!(
        report.left_out,
        [
            "each_class_of_error_arrives_as_it_was_given",
            "an_unclassed_failure_is_transient_and_says_that_this_is_assumed",
            "a_kind_without_a_handler_is_a_permanent_failure",
            "a_panic_is_a_failure_and_the_next_attempt_runs",
            "what_blocks_its_thread_is_given_up_and_the_next_attempt_runs",
            "what_is_told_to_stop_and_finishes_in_time_has_succeeded",
            "a_big_output_arrives_whole",
            "a_flood_of_notes_is_bounded_and_the_gap_is_marked",
        ]
    );
}
