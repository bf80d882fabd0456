//! Chat completions of OpenAI, and of the many servers with the same API: llama.cpp, ollama, vLLM and others, with their quirks.
//!
//! Their chunks may lack `choices` or have `null` for it, and for `usage`; unknown fields are ignored. Some send no `[DONE]`: a reason
//! to finish is enough. Errors may come inside a stream that began with status 200.

use serde_json::{Value, json};

use super::answer::{Answer, Stop, Tokens};
use super::api::{Question, Server, fields};
use super::errors::error_trouble;
use crate::json::{list, text, whole};

/// The data of the last event.
pub(super) const DONE: &str = "[DONE]";

pub(super) fn request(question: &Question<'_>) -> Value {
    // The newer name is refused by many servers, the older one by newer models of OpenAI.
    let limit = match question.server {
        Server::Own => "max_completion_tokens",
        Server::Other => "max_tokens",
    };
    let system = question.system.map(|system| json!({"role": "system", "content": system}));
    let messages: Vec<Value> = system.into_iter().chain(question.messages.iter().cloned()).collect();
    fields(
        [(limit, json!(question.max_tokens)), ("stream_options", json!({"include_usage": true}))],
        question.extra,
        [("model", question.model.into()), ("messages", messages.into()), ("stream", true.into())],
    )
}

pub(super) fn read(answer: &mut Answer, chunk: &Value) {
    if chunk.get("error").is_some_and(|error| !error.is_null()) {
        return answer.fail(error_trouble(chunk, None));
    }
    answer.named(text(chunk, "model"));
    for choice in list(chunk, "choices") {
        // A whole message is from a server that does not stream.
        let is_whole = choice.get("message").is_some_and(Value::is_object);
        let part = choice.get(if is_whole { "message" } else { "delta" }).unwrap_or(&Value::Null);
        for reasoning in ["reasoning_content", "reasoning"] {
            answer.think(text(part, reasoning).unwrap_or_default());
        }
        answer.say(text(part, "content").unwrap_or_default());
        for call in list(part, "tool_calls") {
            answer.wrote(call.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default());
        }
        let refusal = text(part, "refusal").unwrap_or_default();
        answer.wrote(refusal);
        let word = text(choice, "finish_reason");
        if !refusal.is_empty() {
            answer.stopped(Stop::Refused(refusal.to_owned()));
        } else if let Some(word) = word {
            answer.finished(stop(word));
        }
        if is_whole {
            answer.complete();
        }
    }
    if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
        answer.used_in_all(tokens(usage));
    }
}

/// `prompt_tokens` includes those of the cache.
fn tokens(usage: &Value) -> Tokens {
    let none = Value::Null;
    let prompt = usage.get("prompt_tokens_details").unwrap_or(&none);
    let completion = usage.get("completion_tokens_details").unwrap_or(&none);
    let cache_read = whole(prompt, "cached_tokens").unwrap_or(0);
    let cache_write = whole(prompt, "cache_write_tokens").unwrap_or(0);
    Tokens {
        input: whole(usage, "prompt_tokens").unwrap_or(0).saturating_sub(cache_read + cache_write),
        output: whole(usage, "completion_tokens").unwrap_or(0),
        cache_read,
        cache_write,
        reasoning: whole(completion, "reasoning_tokens").unwrap_or(0),
    }
}

fn stop(word: &str) -> Stop {
    match word {
        "stop" | "eos" | "end_turn" => Stop::Finished,
        "length" => Stop::OutputLimit,
        "content_filter" => Stop::Filtered,
        other => Stop::Unfinished(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::answer::StreamEnd;
    use crate::llm::api::LlmApi;
    use crate::reason::Reason;

    const STREAM: [&str; 6] = [
        r#"{"model":"gpt-5-2026-08-07","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null,"obfuscation":"x"}"#,
        r#"{"choices":[{"index":0,"delta":{"content":" you"},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":12,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":4}}}"#,
        "[DONE]",
    ];

    fn read_all(events: &[&str]) -> Answer {
        let mut answer = Answer::default();
        events.iter().for_each(|event| LlmApi::OpenAi.read(&mut answer, event));
        answer
    }

    #[test]
    fn a_whole_stream_is_an_answer_with_its_usage() {
        let answer = read_all(&STREAM);
        assert_eq!(answer.conclude(&StreamEnd::Closed).expect("it is whole").text, "Hello you");
        let usage = answer.final_usage("m").expect("it was reported");
        assert_eq!((usage.input_tokens, usage.cache_read_tokens), (15, 5));
        assert_eq!((usage.output_tokens, usage.reasoning_tokens), (12, 4));
    }

    #[test]
    fn an_answer_is_whole_when_it_has_a_reason_to_finish_and_its_usage_may_be_missing() {
        for end in 0..STREAM.len() {
            let answer = read_all(&STREAM[..end]);
            assert_eq!(answer.conclude(&StreamEnd::Closed).is_ok(), end > 3, "{end}");
            assert_eq!(answer.final_usage("m").is_some(), end > 4, "{end}");
        }
    }

    #[test]
    fn local_servers_leave_out_choices_and_usage_and_add_what_they_like() {
        let answer = read_all(&[
            r#"{"choices":null,"usage":null,"timings":{"n":1}}"#,
            r#"{"model":"qwen"}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"Hm."}}]}"#,
            r#"{"choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]}"#,
            r#"{"choices":null,"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
        ]);
        assert_eq!(answer.conclude(&StreamEnd::Closed).expect("it is whole").text, "yes");
        assert_eq!(answer.final_usage("m").map(|usage| usage.input_tokens), Some(3));
        let whole = read_all(&[
            r#"{"choices":[{"message":{"content":"all at once"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
        ]);
        assert_eq!(whole.conclude(&StreamEnd::Closed).expect("it is whole").text, "all at once");
    }

    #[test]
    fn errors_filters_and_limits_have_their_reasons() {
        for (event, reason) in [
            (
                r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
                Reason::Overloaded,
            ),
            (r#"{"error":"model runner has unexpectedly stopped"}"#, Reason::ServerError),
            (r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#, Reason::OutputLimit),
            (r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#, Reason::Refused),
            (r#"{"choices":[{"delta":{"refusal":"No."},"finish_reason":"stop"}]}"#, Reason::Refused),
            ("<html>", Reason::BrokenStream),
        ] {
            let trouble = read_all(&[STREAM[1], event, STREAM[5]]).conclude(&StreamEnd::Closed);
            assert_eq!(trouble.expect_err("it is no answer").reason, reason, "{event}");
        }
    }
}
