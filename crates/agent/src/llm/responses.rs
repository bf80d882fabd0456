//! The Responses API of OpenAI: its request, and the events of its stream. There is no `[DONE]`: the last event has the whole response.

use serde_json::{Value, json};

use super::answer::{Answer, Stop, Tokens};
use super::api::{Question, fields};
use super::errors::error_trouble;
use crate::ending::Trouble;
use crate::json::{list, text, whole};
use crate::reason::Reason;

pub(super) fn request(question: &Question<'_>) -> Value {
    fields(
        [
            ("instructions", json!(question.system)),
            ("max_output_tokens", json!(question.max_tokens)),
            // Ostler keeps the transcript; the provider need not.
            ("store", false.into()),
        ],
        question.extra,
        [("model", question.model.into()), ("input", question.messages.into()), ("stream", true.into())],
    )
}

pub(super) fn read(answer: &mut Answer, event: &Value) {
    let response = event.get("response").unwrap_or(&Value::Null);
    match text(event, "type").unwrap_or_default() {
        "response.created" | "response.in_progress" => answer.named(text(response, "model")),
        "response.output_text.delta" => answer.say(text(event, "delta").unwrap_or_default()),
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            answer.think(text(event, "delta").unwrap_or_default());
        }
        "response.function_call_arguments.delta" => answer.wrote(text(event, "delta").unwrap_or_default()),
        "response.refusal.done" => {
            answer.stopped(Stop::Refused(text(event, "refusal").unwrap_or_default().to_owned()));
        }
        "response.completed" | "response.incomplete" | "response.failed" => ended(answer, response),
        "error" => answer.fail(error_trouble(event, None)),
        // The parts of the output, one by one, and what is new.
        _ => match (text(event, "object"), event.get("error").filter(|error| !error.is_null())) {
            // A whole response, from a server that does not stream.
            (Some("response"), _) => {
                whole_text(answer, event);
                ended(answer, event);
            }
            (_, Some(_)) => answer.fail(error_trouble(event, None)),
            (_, None) => {}
        },
    }
}

fn ended(answer: &mut Answer, response: &Value) {
    answer.named(text(response, "model"));
    if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
        answer.used_in_all(tokens(usage));
    }
    let incomplete = || response.pointer("/incomplete_details/reason").and_then(Value::as_str);
    match text(response, "status").unwrap_or("completed") {
        "failed" if response.get("error").is_some_and(Value::is_object) => {
            answer.fail(error_trouble(response, None));
        }
        "completed" => {
            let calls = list(response, "output");
            let is_call = calls.iter().any(|item| text(item, "type") == Some("function_call"));
            answer.finished(if is_call {
                Stop::Unfinished("function_call".to_owned())
            } else {
                Stop::Finished
            });
        }
        "incomplete" => answer.stopped(match incomplete() {
            Some("max_output_tokens") => Stop::OutputLimit,
            Some("content_filter") => Stop::Filtered,
            other => Stop::Unfinished(other.unwrap_or("an incomplete response").to_owned()),
        }),
        other => answer.fail(Trouble::new(Reason::ServerError, format!("the response is {other}"))),
    }
    answer.complete();
}

fn whole_text(answer: &mut Answer, response: &Value) {
    let parts = list(response, "output").iter().flat_map(|item| list(item, "content"));
    for part in parts {
        answer.say(text(part, "text").unwrap_or_default());
        if let Some(refusal) = text(part, "refusal") {
            answer.stopped(Stop::Refused(refusal.to_owned()));
        }
    }
}

/// `input_tokens` includes those of the cache.
fn tokens(usage: &Value) -> Tokens {
    let none = Value::Null;
    let input = usage.get("input_tokens_details").unwrap_or(&none);
    let output = usage.get("output_tokens_details").unwrap_or(&none);
    let cache_read = whole(input, "cached_tokens").unwrap_or(0);
    let cache_write = whole(input, "cache_write_tokens").unwrap_or(0);
    Tokens {
        input: whole(usage, "input_tokens").unwrap_or(0).saturating_sub(cache_read + cache_write),
        output: whole(usage, "output_tokens").unwrap_or(0),
        cache_read,
        cache_write,
        reasoning: whole(output, "reasoning_tokens").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::answer::StreamEnd;
    use crate::llm::api::LlmApi;

    const STREAM: [&str; 6] = [
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"r","model":"gpt-5","status":"in_progress","usage":null,"error":null}}"#,
        r#"{"type":"response.output_item.added","sequence_number":1,"item":{"type":"message","content":[]}}"#,
        r#"{"type":"response.output_text.delta","sequence_number":2,"delta":"Hello"}"#,
        r#"{"type":"response.output_text.delta","sequence_number":3,"delta":" you"}"#,
        r#"{"type":"response.output_text.done","sequence_number":4,"text":"Hello you"}"#,
        r#"{"type":"response.completed","sequence_number":5,"response":{"model":"gpt-5","status":"completed","error":null,"output":[{"type":"message"}],"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":5},"output_tokens":12,"output_tokens_details":{"reasoning_tokens":4}}}}"#,
    ];

    fn read_all(events: &[&str]) -> Answer {
        let mut answer = Answer::default();
        events.iter().for_each(|event| LlmApi::OpenAiResponses.read(&mut answer, event));
        answer
    }

    #[test]
    fn a_whole_stream_is_an_answer_with_its_usage_and_a_part_of_it_is_broken() {
        for end in 0..=STREAM.len() {
            let answer = read_all(&STREAM[..end]);
            let is_whole = end == STREAM.len();
            assert_eq!(answer.conclude(&StreamEnd::Closed).is_ok(), is_whole, "{end}");
            assert_eq!(answer.final_usage("m").is_some(), is_whole, "{end}");
        }
        let answer = read_all(&STREAM);
        assert_eq!(answer.conclude(&StreamEnd::Closed).expect("it is whole").text, "Hello you");
        let usage = answer.final_usage("m").expect("it was reported");
        assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens), (15, 5, 12));
    }

    #[test]
    fn a_response_that_failed_or_is_incomplete_has_its_reason() {
        for (event, reason) in [
            (
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
                Reason::OutputLimit,
            ),
            (
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}"#,
                Reason::Refused,
            ),
            (
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"Sorry"}}}"#,
                Reason::ServerError,
            ),
            (
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Slow"}}}"#,
                Reason::Throttled,
            ),
            (r#"{"type":"error","code":"insufficient_quota","message":"Pay"}"#, Reason::Billing),
        ] {
            let trouble = read_all(&[STREAM[0], STREAM[2], event]).conclude(&StreamEnd::Closed);
            assert_eq!(trouble.expect_err("it is no answer").reason, reason, "{event}");
        }
    }
}
