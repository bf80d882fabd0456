//! The three APIs: where a request goes, what it has, and which reader its answer has.

use ostler_http::{HeaderName, HeaderValue, header};
use serde_json::{Map, Value};

use super::answer::Answer;
use super::{anthropic, chat, responses};
use crate::dialect::Dialect;
use crate::ending::Trouble;
use crate::reason::Reason;

/// An API of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlmApi {
    /// The Messages API of Anthropic.
    Anthropic,
    /// Chat completions of OpenAI, which most other providers and local servers have too.
    OpenAi,
    /// The Responses API of OpenAI.
    OpenAiResponses,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) model: &'a str,
    pub(super) system: Option<&'a str>,
    pub(super) messages: &'a [Value],
    pub(super) max_tokens: Option<u32>,
    pub(super) extra: &'a Map<String, Value>,
    pub(super) server: Server,
}

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// That of the provider who made the API.
    Own,
    /// Another that has the same API, with quirks of its own.
    Other,
}

impl LlmApi {
    pub const ALL: [Self; 3] = [Self::Anthropic, Self::OpenAi, Self::OpenAiResponses];

    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
        }
    }

    pub(super) const fn base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com",
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "/v1/messages",
            Self::OpenAi => "/v1/chat/completions",
            Self::OpenAiResponses => "/v1/responses",
        }
    }

    /// The variable with the key, unless the pool names another.
    pub(super) const fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenAi | Self::OpenAiResponses => "OPENAI_API_KEY",
        }
    }

    /// The agent that has the same account if it has the same key.
    pub(super) const fn agent(self) -> Dialect {
        match self {
            Self::Anthropic => Dialect::Claude,
            Self::OpenAi | Self::OpenAiResponses => Dialect::Codex,
        }
    }

    /// The headers that carry the key, and what else the API wants. `None`: the key cannot be sent.
    pub(super) fn headers(self, key: Option<&str>) -> Option<Vec<(HeaderName, HeaderValue)>> {
        let secret = |text: String| {
            let mut value = HeaderValue::from_str(&text).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        Some(match self {
            Self::Anthropic => {
                let version = (anthropic::VERSION_HEADER, HeaderValue::from_static(anthropic::VERSION));
                match key {
                    Some(key) => vec![version, (anthropic::KEY_HEADER, secret(key.to_owned())?)],
                    None => vec![version],
                }
            }
            Self::OpenAi | Self::OpenAiResponses => match key {
                Some(key) => vec![(header::AUTHORIZATION, secret(format!("Bearer {key}"))?)],
                None => Vec::new(),
            },
        })
    }

    /// The body of a request.
    pub(super) fn request(self, question: &Question<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::request(question),
            Self::OpenAi => chat::request(question),
            Self::OpenAiResponses => responses::request(question),
        }
    }

    /// Reads the data of one event of the stream, or a whole body that is JSON.
    pub(super) fn read(self, answer: &mut Answer, data: &str) {
        let data = data.trim();
        if data.is_empty() {
            return;
        }
        if data == chat::DONE {
            return answer.complete();
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            let shown = ostler_core::visible(&ostler_core::cut(data, SHOWN_BYTES));
            return answer.fail(Trouble::new(
                Reason::BrokenStream,
                format!("the stream has an event that is not JSON: {shown}"),
            ));
        };
        match self {
            Self::Anthropic => anthropic::read(answer, &event),
            Self::OpenAi => chat::read(answer, &event),
            Self::OpenAiResponses => responses::read(answer, &event),
        }
    }
}

/// Bytes of an event in a message.
const SHOWN_BYTES: usize = 200;

/// The fields of a request: what the pool sets besides wins over `usual`, and `fixed` over both.
pub(super) fn fields<const U: usize, const F: usize>(
    usual: [(&str, Value); U],
    extra: &Map<String, Value>,
    fixed: [(&str, Value); F],
) -> Value {
    let named = |(name, value): (&str, Value)| (name.to_owned(), value);
    let mut all: Map<String, Value> = usual.into_iter().map(named).collect();
    all.extend(extra.iter().map(|(name, value)| (name.clone(), value.clone())));
    all.extend(fixed.into_iter().map(named));
    all.retain(|_, value| !value.is_null());
    Value::Object(all)
}
