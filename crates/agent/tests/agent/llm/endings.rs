//! Endings: errors by their type, refusals with their text, schemas, redirects, and servers that are not there.

use ostler_agent::executor::SchemaSource;
use ostler_agent::llm::{LlmApi, LlmPolicy};
use ostler_core::{Cost, ErrorClass};
use ostler_testkit::{LlmReply, LlmServer, anthropic_events, chat_events};
use serde_json::{Value, json};

use super::{policy, run, said, usage, warnings};

async fn failed(api: LlmApi, reply: LlmReply) -> ostler_core::Failure {
    let server = LlmServer::start(move |_| reply.clone());
    let ran = run(policy(api, &server), &json!("x")).await;
    assert_eq!(server.requests().len(), 1, "no retry inside an attempt");
    assert_eq!(usage(&ran), [], "an error costs nothing");
    ran.failure().clone()
}

#[tokio::test]
async fn errors_are_classed_by_their_type_and_a_server_may_know_better() {
    let error = |status, kind: &str| {
        LlmReply::json(status, json!({"error": {"type": kind, "message": "why"}}).to_string())
    };
    for (reply, class) in [
        (error(401, "authentication_error"), ErrorClass::QueueStop),
        (error(400, "billing_error"), ErrorClass::QueueStop),
        (error(429, "insufficient_quota"), ErrorClass::QueueStop),
        (error(429, "rate_limit_error"), ErrorClass::RateLimited),
        (error(529, "overloaded_error"), ErrorClass::Transient),
        (error(503, "unavailable_error"), ErrorClass::Transient),
        (error(400, "invalid_request_error"), ErrorClass::Permanent),
        (error(400, "exceed_context_size_error"), ErrorClass::Permanent),
        (error(500, "api_error").with_header("x-should-retry", "false"), ErrorClass::Permanent),
        (error(409, "conflict").with_header("x-should-retry", "true"), ErrorClass::Transient),
        (error(400, "invalid_request_error").with_header("x-should-retry", "true"), ErrorClass::Transient),
        // An error after the status said that all is well.
        (error(200, "overloaded_error"), ErrorClass::Transient),
        (
            LlmReply::stream(["data: {\"error\":{\"type\":\"insufficient_quota\"}}\n\n".to_owned()]),
            ErrorClass::QueueStop,
        ),
    ] {
        let failure = failed(LlmApi::OpenAi, reply.clone()).await;
        assert_eq!(failure.class, class, "{reply:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_refused_or_too_long_is_permanent_and_its_text_is_kept() {
    for (stop, sentence) in [
        ("refusal", "the model refused"),
        ("max_tokens", "the answer was longer than max_tokens allows"),
        ("model_context_window_exceeded", "the context of the model was full before it was done"),
    ] {
        let server = LlmServer::start(move |_| {
            let events = anthropic_events("half an answer", 10, 5);
            LlmReply::stream(events.into_iter().map(|event| event.replace("end_turn", stop)))
        });
        let ran = run(policy(LlmApi::Anthropic, &server), &json!("x")).await;
        let failure = ran.failure();
        assert_eq!((failure.class, failure.message.as_str()), (ErrorClass::Permanent, sentence));
        assert_eq!(
            (failure.details.as_deref(), said(&ran).as_str()),
            (Some("half an answer"), "half an answer")
        );
        assert!(usage(&ran)[0].cost.is_some_and(|cost| cost > Cost::default()), "it is paid for");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_key_stays_here() {
    let elsewhere = LlmServer::start(|_| LlmReply::stream(chat_events("secret", 1, 1)));
    let to = format!("{}/v1/chat/completions", elsewhere.url());
    let reply = LlmReply::json(307, "").with_header("location", to);
    let failure = failed(LlmApi::OpenAi, reply).await;
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("redirects to http://127.0.0.1:"), "{}", failure.message);
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_nothing_and_a_key_in_an_error_is_not_stored() {
    let nowhere = LlmServer::start(|_| LlmReply::json(500, ""));
    let unreachable =
        LlmPolicy { base_url: Some("http://127.0.0.1:1".into()), ..policy(LlmApi::OpenAi, &nowhere) };
    let ran = run(unreachable, &json!("x")).await;
    assert_eq!(ran.failure().class, ErrorClass::Transient);
    assert_eq!((usage(&ran), warnings(&ran)), (Vec::new(), Vec::new()));

    let secret = ostler_exec::Secret::new("K", "sk-topsecret").expect("a secret");
    let server = LlmServer::start(|request| {
        let key = request.header("authorization").unwrap_or_default().to_owned();
        LlmReply::json(401, json!({"error": {"message": format!("wrong: {key}")}}).to_string())
    });
    let policy = LlmPolicy {
        key_variable: Some("K".into()),
        secrets: ostler_exec::Secrets::new(vec![secret], ostler_exec::OutputRedaction::Off).expect("secrets"),
        ..policy(LlmApi::OpenAi, &server)
    };
    let ran = run(policy, &json!("x")).await;
    let shown = format!("{:?}", ran.failure());
    assert!(shown.contains("wrong: Bearer [") && !shown.contains("sk-topsecret"), "{shown}");
}

fn labelled(policy: LlmPolicy) -> LlmPolicy {
    let schema =
        json!({"type": "object", "required": ["label"], "properties": {"label": {"enum": ["a", "b"]}}});
    LlmPolicy { schema: Some(SchemaSource::Inline(schema)), ..policy }
}

#[tokio::test]
async fn an_answer_that_the_schema_does_not_allow_is_sent_back_with_what_is_wrong() {
    let server = LlmServer::start(|request| {
        let text = match request.number {
            1 => "I would say c.",
            2 => "{\"label\": \"c\"}",
            _ => "Sorry. Here it is:\n```json\n{\"label\": \"a\"}\n```",
        };
        LlmReply::stream(chat_events(text, 10, 5))
    });
    let ran = run(labelled(policy(LlmApi::OpenAi, &server)), &json!("Label it")).await;
    assert_eq!(ran.output(), json!({"label": "a"}));
    assert_eq!(usage(&ran).len(), 3, "each request is paid for");
    let bodies: Vec<Value> =
        server.requests().iter().map(|request| serde_json::from_str(&request.body).expect("JSON")).collect();
    let last = bodies[2]["messages"].as_array().expect("messages");
    let roles: Vec<&str> = last.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "user"]);
    assert!(last[0]["content"].to_string().contains("enum"), "the schema is asked for: {last:?}");
    assert!(last[5]["content"].to_string().contains("/label"), "{last:?}");
}

#[tokio::test]
async fn a_model_that_never_heeds_the_schema_fails_after_its_retries() {
    let server = LlmServer::start(|_| LlmReply::stream(chat_events("no", 10, 5)));
    let ran = run(labelled(policy(LlmApi::OpenAi, &server)), &json!("Label it")).await;
    let failure = ran.failure();
    assert_eq!((failure.class, failure.step.as_deref()), (ErrorClass::Permanent, Some("schema")));
    assert_eq!((failure.details.as_deref(), server.requests().len()), (Some("no"), 3));
}

#[tokio::test]
async fn a_budget_stops_an_answer_and_a_model_without_a_price_is_not_asked() {
    let long = "word ".repeat(20_000);
    let server = LlmServer::start(move |_| LlmReply::stream(chat_events(&long, 10, 25_000)));
    let policy_of = |usd| LlmPolicy { max_task_cost: Cost::from_usd(usd), ..policy(LlmApi::OpenAi, &server) };
    let ran = run(policy_of(0.01), &json!("Write")).await;
    assert!(ran.failure().message.ends_with("and its budget is $0.01"), "{:?}", ran.failure());
    assert!(said(&ran).len() < 100_000, "it is stopped on the way");
    let spent: Cost = usage(&ran).iter().filter_map(|usage| usage.cost).sum();
    assert!(spent.usd() >= 0.01, "{spent}");
    let ran = run(policy_of(0.01), &json!({"prompt": "x", "model": "unknown"})).await;
    assert_eq!(ran.failure().class, ErrorClass::Permanent);
    assert!(ran.failure().message.contains("the price of the model \"unknown\" is not known"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_prompt_that_a_local_server_cut_is_noticed() {
    let server = LlmServer::start(|_| LlmReply::stream(chat_events("yes", 2_048, 1)));
    let ran = run(policy(LlmApi::OpenAi, &server), &json!("word ".repeat(10_000))).await;
    assert_eq!(ran.output(), "yes");
    assert!(
        warnings(&ran)[0].starts_with("the server read 2048 tokens of a prompt of about 125"),
        "{:?}",
        warnings(&ran)
    );
    let ran = run(policy(LlmApi::OpenAi, &server), &json!("word ".repeat(4_000))).await;
    assert_eq!(warnings(&ran), Vec::<String>::new());
}
