//! Limits: what the heads of answers say, in the format of each provider, and what the account learns of it.

use std::time::Duration;

use ostler_agent::llm::LlmApi;
use ostler_core::{AccountChange, ErrorClass, Timestamp};
use ostler_testkit::{LlmReply, LlmServer, chat_events};
use serde_json::json;

use super::{Account, policy, run_for};
use crate::bench::NOW;

const HOLD: Duration = Duration::from_secs(90);

#[tokio::test]
async fn every_format_of_a_reset_gives_the_same_hold() {
    let later = Timestamp::from_millis(NOW).after(HOLD);
    // NOW is 2023-11-14T22:13:20Z.
    for headers in [
        &[("retry-after", "90")][..],
        &[("retry-after", "Tue, 14 Nov 2023 22:14:50 GMT")],
        &[("retry-after-ms", "90000")],
        &[("x-ratelimit-reset-tokens", "1m30s"), ("x-ratelimit-remaining-tokens", "0")],
        &[("x-ratelimit-reset-tokens", "90"), ("x-ratelimit-reset-requests", "-1")],
        &[("anthropic-ratelimit-tokens-reset", "2023-11-14T22:14:50Z")],
    ] {
        let mut reply = LlmReply::json(
            429,
            json!({"error": {"type": "rate_limit_error", "message": "slow"}}).to_string(),
        );
        reply.headers.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let server = LlmServer::start(move |_| reply.clone());
        let account = Account::default();
        let ran = run_for(policy(LlmApi::OpenAi, &server), &json!("x"), &account).await;
        let failure = ran.failure();
        assert_eq!(
            (failure.class, failure.retry_after),
            (ErrorClass::RateLimited, Some(HOLD)),
            "{headers:?}"
        );
        let held = account.changes().into_iter().find_map(|change| match change {
            AccountChange::Hold { until, .. } => until,
            AccountChange::Release | AccountChange::Cap(_) | AccountChange::Allowance(_) => None,
        });
        assert_eq!(held, Some(later), "{headers:?}");
    }
}

#[tokio::test]
async fn another_trouble_waits_only_for_what_is_said_plainly() {
    for (header, wait) in [("retry-after", Some(HOLD)), ("x-ratelimit-reset-requests", None)] {
        let reply = LlmReply::json(529, r#"{"error":{"type":"overloaded_error"}}"#).with_header(header, "90");
        let server = LlmServer::start(move |_| reply.clone());
        let account = Account::default();
        let ran = run_for(policy(LlmApi::OpenAi, &server), &json!("x"), &account).await;
        assert_eq!(
            (ran.failure().class, ran.failure().retry_after),
            (ErrorClass::Transient, wait),
            "{header}"
        );
        assert_eq!(account.changes(), []);
    }
}

#[tokio::test]
async fn throttling_without_a_time_holds_no_account() {
    let server = LlmServer::start(|_| LlmReply::json(429, "{}"));
    let account = Account::default();
    let ran = run_for(policy(LlmApi::OpenAi, &server), &json!("x"), &account).await;
    assert_eq!((ran.failure().class, ran.failure().retry_after), (ErrorClass::RateLimited, None));
    assert_eq!(account.changes(), []);
}

#[tokio::test]
async fn the_account_learns_how_many_requests_go_through_from_both_providers() {
    for (name, value, expected) in [
        ("x-ratelimit-remaining-requests", "5", 5),
        ("anthropic-ratelimit-requests-remaining", "5", 5),
        // A request of this pool is expected to need a thousand tokens and some.
        ("x-ratelimit-remaining-tokens", "5500", 5),
        ("x-ratelimit-remaining-requests", "90000", 256),
    ] {
        let reply = LlmReply::stream(chat_events("x", 1, 1)).with_header(name, value);
        let server = LlmServer::start(move |_| reply.clone());
        let account = Account::default();
        run_for(policy(LlmApi::OpenAi, &server), &json!("x"), &account).await.output();
        assert_eq!(account.changes(), [AccountChange::Allowance(expected)], "{name}: {value}");
    }
}

#[tokio::test]
async fn a_usage_limit_of_a_subscription_is_one_and_is_read_before_it_is_reached() {
    let resets = NOW / 1_000 + 3_600;
    let windows = move |reply: LlmReply, used: &str, status: &str| {
        reply
            .with_header("anthropic-ratelimit-unified-status", status)
            .with_header("anthropic-ratelimit-unified-reset", resets.to_string())
            .with_header("anthropic-ratelimit-unified-5h-utilization", used)
            .with_header("anthropic-ratelimit-unified-5h-reset", resets.to_string())
    };
    let server = LlmServer::start(move |request| match request.number {
        1 => windows(LlmReply::stream(chat_events("x", 1, 1)), "0.42", "allowed"),
        _ => windows(LlmReply::json(429, r#"{"error":{"type":"rate_limit_error"}}"#), "1.0", "rejected"),
    });
    let account = Account::default();
    let ran = run_for(policy(LlmApi::OpenAi, &server), &json!("x"), &account).await;
    let reading = ran.ended.reading.as_ref().expect("it was read");
    assert_eq!((reading.window.as_str(), reading.utilization_permille), ("five_hour", 420));
    let ran = run_for(policy(LlmApi::OpenAi, &server), &json!("x"), &account).await;
    let minute = Duration::from_secs(60);
    assert_eq!(ran.failure().class, ErrorClass::UsageLimit);
    assert_eq!(ran.failure().retry_after, Some(minute * 61), "a minute after the reset");
}
