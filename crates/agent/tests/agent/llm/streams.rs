//! Streams: whole ones, those that break at every place, and those that never end.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use ostler_agent::llm::{LlmApi, LlmPolicy};
use ostler_core::{Conversation, Cost, ErrorClass, EventBody, Outcome, Usage, UsageSource};
use ostler_testkit::{LlmReply, LlmServer, ReplyEnd, chat_events};
use serde_json::{Value, json};

use super::{APIS, Account, policy, run, run_within, said, start, usage, warnings};
use crate::bench::{Earlier, until, work};

#[tokio::test]
async fn a_whole_answer_is_the_output_with_its_usage_and_its_cost() {
    for (api, events) in APIS {
        let server = LlmServer::start(move |_| LlmReply::stream(events("Hello dear \"world\"", 1_000, 100)));
        let ran = run(policy(api, &server), &json!("Say hello")).await;
        assert_eq!(ran.output(), "Hello dear \"world\"");
        let expected = Usage {
            model: Some("m".into()),
            input_tokens: 1_000,
            output_tokens: 100,
            cost: Cost::from_usd(0.002),
            ..Usage::default()
        };
        assert_eq!(usage(&ran), [expected], "{api:?}");
        assert_eq!(ran.events[0], EventBody::Prompt { text: "Say hello".into() });
        assert_eq!(said(&ran), "Hello dear \"world\"");
        assert_eq!(warnings(&ran), Vec::<String>::new());
        let requests = server.requests();
        assert_eq!(requests.len(), 1);
        let body: Value = serde_json::from_str(&requests[0].body).expect("JSON");
        assert_eq!((&body["stream"], &body["model"]), (&json!(true), &json!("m")));
    }
}

#[tokio::test]
async fn each_api_gets_its_key_in_its_header_and_its_own_words() {
    for (api, events) in APIS {
        let server = LlmServer::start(move |_| LlmReply::stream(events("x", 1, 1)));
        let secret = ostler_exec::Secret::new("MY_KEY", "sk-12345678").expect("a secret");
        let policy = LlmPolicy {
            key_variable: Some("MY_KEY".into()),
            secrets: ostler_exec::Secrets::new(vec![secret], ostler_exec::OutputRedaction::Off)
                .expect("secrets"),
            system: Some("Be short.".into()),
            max_tokens: Some(7),
            extra: json!({"temperature": 0.5}).as_object().cloned().expect("a table"),
            headers: vec![("x-team".into(), "blue".into())],
            ..policy(api, &server)
        };
        run(policy, &json!("hi")).await.output();
        let request = server.requests().remove(0);
        let body: Value = serde_json::from_str(&request.body).expect("JSON");
        let user = json!({"role": "user", "content": "hi"});
        let bearer = (request.header("authorization"), request.header("x-api-key"));
        match api {
            LlmApi::Anthropic => {
                assert_eq!((request.path.as_str(), bearer), ("/v1/messages", (None, Some("sk-12345678"))));
                assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
                assert_eq!((&body["system"], &body["max_tokens"]), (&json!("Be short."), &json!(7)));
                assert_eq!(body["messages"], json!([user]));
            }
            LlmApi::OpenAi => {
                assert_eq!(request.path, "/v1/chat/completions");
                assert_eq!(bearer, (Some("Bearer sk-12345678"), None));
                assert_eq!(body["messages"], json!([{"role": "system", "content": "Be short."}, user]));
                assert_eq!(
                    (&body["max_tokens"], &body["stream_options"]["include_usage"]),
                    (&json!(7), &json!(true))
                );
            }
            LlmApi::OpenAiResponses => {
                assert_eq!(
                    (request.path.as_str(), bearer),
                    ("/v1/responses", (Some("Bearer sk-12345678"), None))
                );
                assert_eq!(
                    (&body["instructions"], &body["max_output_tokens"]),
                    (&json!("Be short."), &json!(7))
                );
                assert_eq!((&body["input"], &body["store"]), (&json!([user]), &json!(false)));
            }
        }
        assert_eq!((&body["temperature"], request.header("x-team")), (&json!(0.5), Some("blue")));
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_at_any_event_is_counted_and_marked() {
    for (api, events) in APIS {
        let all = events("one two three", 1_000, 100);
        for end in 0..all.len() {
            for how in [ReplyEnd::Cut, ReplyEnd::Whole] {
                let part = all[..end].to_vec();
                let server = LlmServer::start(move |_| LlmReply::stream(part.clone()).ending(how));
                let ran = run(policy(api, &server), &json!("Count")).await;
                let place = format!("{api:?} cut after {end} of {} events, {how:?}", all.len());
                let usage = usage(&ran);
                assert_eq!(usage.len(), 1, "{place}");
                assert!(usage[0].cost.is_some_and(|cost| cost > Cost::default()), "{place}");
                // The last events have the usage; what came before does not.
                let is_known = match api {
                    LlmApi::Anthropic | LlmApi::OpenAi => end == all.len() - 1,
                    LlmApi::OpenAiResponses => false,
                };
                let source = if is_known { UsageSource::Reported } else { UsageSource::Estimated };
                assert_eq!(usage[0].source, source, "{place}");
                assert_eq!(
                    warnings(&ran).iter().any(|text| text.contains("paid for again")),
                    !is_known,
                    "{place}"
                );
                // Of a chat the text is whole with its reason to finish.
                if api == LlmApi::OpenAi && end >= all.len() - 2 {
                    assert_eq!(ran.output(), "one two three", "{place}");
                } else {
                    assert_eq!(ran.failure().class, ErrorClass::Transient, "{place}");
                    assert!(ran.failure().message.starts_with("the stream "), "{place}");
                    assert_eq!(ran.failure().details.clone().unwrap_or_default(), said(&ran), "{place}");
                }
                assert_eq!(server.requests().len(), 1, "{place}: no retry inside an attempt");
            }
        }
    }
}

#[tokio::test]
async fn the_next_attempt_says_that_it_pays_again() {
    let server = LlmServer::start(|_| LlmReply::stream(chat_events("x", 1, 1)));
    let lost = Usage { source: UsageSource::Estimated, input_tokens: 5, ..Usage::default() };
    let earlier = Earlier(vec![Conversation { session: None, prompt: None, usage: vec![lost] }]);
    let started =
        start(policy(LlmApi::OpenAi, &server), work("\"x\"".into(), 2), &Account::default(), earlier);
    let ran = started.end().await;
    assert!(warnings(&ran)[0].starts_with("an earlier attempt has lost its answer"), "{:?}", ran.events);
}

#[tokio::test]
async fn pieces_are_in_the_transcript_while_the_answer_arrives() {
    let server = LlmServer::start(|_| {
        let first = chat_events("Hello you", 1, 1).remove(0);
        LlmReply::stream([first]).ending(ReplyEnd::Silence)
    });
    let running = start(
        policy(LlmApi::OpenAi, &server),
        work("\"x\"".into(), 1),
        &Account::default(),
        Earlier::default(),
    );
    let events = running.events.clone();
    let has_piece = || {
        let events = events.lock().expect("no test panicked");
        events.iter().any(|event| matches!(event, EventBody::Message { text, .. } if text == "Hello "))
    };
    until("the first piece is stored", has_piece).await;
    // A cancelled attempt stops at once, and what it used is counted.
    running.control.cancel.cancel();
    let ran = running.end().await;
    assert_eq!(ran.ended.outcome, Outcome::Cancelled);
    assert_eq!(usage(&ran)[0].source, UsageSource::Estimated);
}

#[tokio::test]
async fn a_bomb_a_silence_and_a_drip_are_bounded() {
    let bomb = || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let block = format!(": {}\n", "x".repeat(1 << 20));
        (0..80).for_each(|_| encoder.write_all(block.as_bytes()).expect("it is compressed"));
        encoder.finish().expect("it is compressed")
    };
    let server = LlmServer::start(move |_| {
        let reply = LlmReply::stream([]).with_header("content-encoding", "gzip");
        LlmReply { pieces: vec![bomb()], ..reply }
    });
    let ran = run(policy(LlmApi::OpenAi, &server), &json!("x")).await;
    assert!(ran.failure().message.contains("the answer has more than 67108864 bytes"), "{:?}", ran.failure());

    let short = Duration::from_millis(200);
    let silent = LlmServer::start(|_| LlmReply::stream([": ping\n\n".to_owned()]).ending(ReplyEnd::Silence));
    let policy_of = |server: &LlmServer| LlmPolicy { idle_watchdog: short, ..policy(LlmApi::OpenAi, server) };
    let ran = run(policy_of(&silent), &json!("x")).await;
    assert!(ran.failure().message.contains("took longer than 200ms"), "{:?}", ran.failure());
    assert_eq!(ran.failure().class, ErrorClass::Transient);

    // Bytes keep coming, and the attempt has its time.
    let drip = ReplyEnd::Drip(Duration::from_millis(20));
    let dripping = LlmServer::start(move |_| LlmReply::stream([": ping\n\n".to_owned()]).ending(drip));
    let ran = run_within(policy(LlmApi::OpenAi, &dripping), &json!("x"), Duration::from_millis(500)).await;
    assert_eq!(ran.failure().class, ErrorClass::Timeout);
}
