//! The Messages API of Anthropic: its request, and the events of its stream.

use ostler_http::HeaderName;
use serde_json::{Value, json};

use super::answer::{Answer, Stop, Tokens};
use super::api::{Question, fields};
use super::errors::error_trouble;
use crate::json::{list, text, whole};

pub(super) const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("anthropic-version");
pub(super) const VERSION: &str = "2023-06-01";
/// The API wants a maximum.
const MAX_TOKENS: u32 = 8_192;

pub(super) fn request(question: &Question<'_>) -> Value {
    let max_tokens = question.max_tokens.unwrap_or(MAX_TOKENS);
    fields(
        [("max_tokens", max_tokens.into()), ("system", json!(question.system))],
        question.extra,
        [("model", question.model.into()), ("messages", question.messages.into()), ("stream", true.into())],
    )
}

pub(super) fn read(answer: &mut Answer, event: &Value) {
    match text(event, "type").unwrap_or_default() {
        "message_start" => {
            let message = event.get("message").unwrap_or(&Value::Null);
            answer.named(text(message, "model"));
            answer.used(tokens(message.get("usage"), answer.tokens()));
        }
        "content_block_start" => {
            let block = event.get("content_block").unwrap_or(&Value::Null);
            answer.say(text(block, "text").unwrap_or_default());
            answer.think(text(block, "thinking").unwrap_or_default());
        }
        "content_block_delta" => {
            let delta = event.get("delta").unwrap_or(&Value::Null);
            answer.say(text(delta, "text").unwrap_or_default());
            answer.think(text(delta, "thinking").unwrap_or_default());
            answer.wrote(text(delta, "partial_json").unwrap_or_default());
        }
        "message_delta" => {
            if event.get("usage").is_some_and(Value::is_object) {
                answer.used_in_all(tokens(event.get("usage"), answer.tokens()));
            }
            let delta = event.get("delta").unwrap_or(&Value::Null);
            if let Some(word) = text(delta, "stop_reason") {
                answer.stopped(stop(word, delta));
            }
        }
        "message_stop" => answer.complete(),
        "error" => answer.fail(error_trouble(event, None)),
        // A whole message, from a server that does not stream.
        "message" => {
            answer.named(text(event, "model"));
            for block in list(event, "content") {
                answer.say(text(block, "text").unwrap_or_default());
                answer.think(text(block, "thinking").unwrap_or_default());
            }
            answer.used_in_all(tokens(event.get("usage"), Tokens::default()));
            answer.stopped(stop(text(event, "stop_reason").unwrap_or("end_turn"), event));
            answer.complete();
        }
        // Pings, the ends of blocks, and what is new.
        _ => {
            if event.get("error").is_some_and(|error| !error.is_null()) {
                answer.fail(error_trouble(event, None));
            }
        }
    }
}

/// Usage is cumulative: what a later report has wins.
fn tokens(usage: Option<&Value>, known: Tokens) -> Tokens {
    let Some(usage) = usage else { return known };
    Tokens {
        input: whole(usage, "input_tokens").unwrap_or(known.input),
        output: whole(usage, "output_tokens").unwrap_or(known.output),
        cache_read: whole(usage, "cache_read_input_tokens").unwrap_or(known.cache_read),
        cache_write: whole(usage, "cache_creation_input_tokens").unwrap_or(known.cache_write),
        reasoning: known.reasoning,
    }
}

fn stop(word: &str, place: &Value) -> Stop {
    match word {
        "end_turn" | "stop_sequence" => Stop::Finished,
        "max_tokens" => Stop::OutputLimit,
        "model_context_window_exceeded" => Stop::ContextFull,
        "refusal" => {
            let details = place.get("stop_details").unwrap_or(&Value::Null);
            let why = text(details, "explanation").or_else(|| text(details, "category"));
            Stop::Refused(why.unwrap_or_default().to_owned())
        }
        other => Stop::Unfinished(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::answer::StreamEnd;
    use crate::llm::api::LlmApi;
    use crate::reason::Reason;

    const STREAM: [&str; 9] = [
        r#"{"type":"message_start","message":{"id":"m","model":"claude-sonnet-4-5-20250929","usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"xyz"}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" you"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":12}}"#,
        r#"{"type":"message_stop"}"#,
    ];

    fn read_all(events: &[&str]) -> Answer {
        let mut answer = Answer::default();
        events.iter().for_each(|event| LlmApi::Anthropic.read(&mut answer, event));
        answer
    }

    #[test]
    fn a_whole_stream_is_an_answer_with_its_usage() {
        let answer = read_all(&STREAM);
        assert_eq!(answer.conclude(&StreamEnd::Closed).expect("it is whole").text, "Hello you");
        assert_eq!(answer.model("asked"), "claude-sonnet-4-5-20250929");
        let usage = answer.final_usage("m").expect("it was reported");
        assert_eq!((usage.input_tokens, usage.output_tokens), (10, 12));
        assert_eq!((usage.cache_read_tokens, usage.cache_write_tokens), (5, 2));
    }

    #[test]
    fn without_the_last_event_it_is_broken() {
        for end in 0..STREAM.len() {
            let answer = read_all(&STREAM[..end]);
            let trouble = answer.conclude(&StreamEnd::Closed).expect_err("it is not whole");
            assert_eq!(trouble.reason, Reason::BrokenStream, "{end}");
            assert_eq!(answer.final_usage("m").is_some(), end == 8, "{end}");
        }
    }

    #[test]
    fn an_error_in_the_stream_and_a_refusal_have_their_reasons() {
        let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let trouble = read_all(&[STREAM[0], overloaded]).conclude(&StreamEnd::Closed).expect_err("an error");
        assert_eq!((trouble.reason, trouble.message.as_str()), (Reason::Overloaded, "Overloaded"));
        let refused = r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":"No."}},"usage":{"output_tokens":1}}"#;
        let trouble =
            read_all(&[STREAM[0], refused, STREAM[8]]).conclude(&StreamEnd::Closed).expect_err("a refusal");
        assert_eq!((trouble.reason, trouble.message.as_str()), (Reason::Refused, "the model refused: No."));
    }

    #[test]
    fn a_request_has_a_maximum_and_what_the_pool_adds() {
        let extra = json!({"temperature": 0.2, "stream": false}).as_object().cloned().expect("a table");
        let messages = [json!({"role": "user", "content": "hi"})];
        let question = Question {
            model: "m",
            system: None,
            messages: &messages,
            max_tokens: None,
            extra: &extra,
            server: crate::llm::api::Server::Own,
        };
        assert_eq!(
            request(&question),
            json!({"model": "m", "max_tokens": 8192, "messages": messages, "stream": true, "temperature": 0.2})
        );
    }
}
