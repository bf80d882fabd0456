//! LLM policy: how the tasks of a pool are asked of an API. A task may set some of it otherwise.

use std::path::PathBuf;
use std::time::Duration;

use ostler_core::Cost;
use ostler_exec::Secrets;
use ostler_http::Uri;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::api::{LlmApi, Server};
use crate::executor::login::{Login, node_env};
use crate::executor::{IDLE_WATCHDOG, SCHEMA_RETRIES, SchemaSource};
use crate::price::PriceTable;

/// Bytes of the output.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Bytes of the digest in the name of an account.
const DIGEST_BYTES: usize = 4;

/// How the tasks of a pool are asked.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmPolicy {
    pub api: LlmApi,
    /// The model; `None`: each task names it.
    pub model: Option<String>,
    /// A server other than the provider's own. `/v1` at its end does not matter.
    pub base_url: Option<String>,
    /// The secret of the pool, or the variable of the node, with the key; `None`: the usual one of the provider.
    pub key_variable: Option<String>,
    /// Headers besides those of the API.
    pub headers: Vec<(String, String)>,
    /// The system prompt of every request.
    pub system: Option<String>,
    /// The template of the prompt. Without it, the prompt is in the payload.
    pub prompt: Option<String>,
    /// The longest answer in tokens; `None`: the API's own, and 8,192 where it wants one.
    pub max_tokens: Option<u32>,
    /// Further fields of the request, such as `temperature`, in the words of the API.
    pub extra: Map<String, Value>,
    /// The JSON schema of the answers. With it, the output is a JSON value instead of text.
    pub schema: Option<SchemaSource>,
    /// How often an answer that the schema does not allow is sent back, before the task fails.
    pub schema_retries: u32,
    /// How long a server may send nothing.
    pub idle_watchdog: Duration,
    /// On one task, over all of its attempts: an attempt that passes it is stopped.
    pub max_task_cost: Option<Cost>,
    /// What models cost.
    pub prices: PriceTable,
    /// The key may be one of them.
    pub secrets: Secrets,
    /// The maximum size of an output in bytes.
    pub max_output_bytes: usize,
    /// Where it is written down what requests have used that are not answered yet. `None`: a pool of a node writes it in the user's state
    /// folder, and an executor of its own nowhere.
    pub requests_folder: Option<PathBuf>,
}

impl LlmPolicy {
    /// The defaults.
    #[must_use]
    pub fn new(api: LlmApi) -> Self {
        Self {
            api,
            model: None,
            base_url: None,
            key_variable: None,
            headers: Vec::new(),
            system: None,
            prompt: None,
            max_tokens: None,
            extra: Map::new(),
            schema: None,
            schema_retries: SCHEMA_RETRIES,
            idle_watchdog: IDLE_WATCHDOG,
            max_task_cost: None,
            prices: PriceTable::built_in(),
            secrets: Secrets::default(),
            max_output_bytes: MAX_OUTPUT_BYTES,
            requests_folder: None,
        }
    }

    pub(super) const fn server(&self) -> Server {
        if self.base_url.is_some() { Server::Other } else { Server::Own }
    }

    /// Where requests go. The error is a sentence.
    pub(super) fn endpoint(&self) -> Result<Uri, String> {
        let base = self.base_url.as_deref().unwrap_or(self.api.base_url());
        let bare = base.trim_end_matches('/');
        let bare = bare.strip_suffix("/v1").unwrap_or(bare);
        let uri: Uri = format!("{bare}{}", self.api.path()).parse().map_err(|error| format!("{error}"))?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() && uri.query().is_none() => Ok(uri),
            _ => Err("is not an address such as \"http://127.0.0.1:11434\"".to_owned()),
        }
    }

    pub(super) fn key_variable(&self) -> &str {
        self.key_variable.as_deref().unwrap_or(self.api.key_variable())
    }

    /// The key: a secret of the pool, or a variable of the node.
    pub(super) fn key(&self) -> Option<String> {
        let name = self.key_variable();
        let secret = self.secrets.get(name).map(|secret| secret.expose().trim().to_owned());
        // The usual key of a provider is not for other servers.
        let is_asked_for = self.key_variable.is_some() || self.server() == Server::Own;
        secret.or_else(|| node_env(name).filter(|_| is_asked_for)).filter(|key| !key.is_empty())
    }

    /// The account whose limits its requests use: that of an agent with the same key, or one for each server and key.
    pub(super) fn account_name(&self) -> Option<String> {
        let key = self.key();
        match (self.server(), key) {
            (Server::Own, Some(value)) => {
                let variable = self.key_variable().to_owned();
                Some(Login::Key { variable, value }.account(self.api.agent()))
            }
            (Server::Own, None) => None,
            (Server::Other, key) => {
                let host = self.endpoint().ok()?.authority()?.to_string();
                let digest = Sha256::digest(format!("{host}\n{}", key.unwrap_or_default()));
                let digits = digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}"));
                Some(format!("llm-{}", digits.collect::<String>()))
            }
        }
    }
}

/// Whether a request to this address leaves the machine.
pub(super) fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_may_end_with_the_version_and_a_slash() {
        let endpoint = |base: &str| {
            let policy = LlmPolicy { base_url: Some(base.to_owned()), ..LlmPolicy::new(LlmApi::OpenAi) };
            policy.endpoint().map(|uri| uri.to_string())
        };
        for base in ["http://127.0.0.1:11434", "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/"] {
            assert_eq!(endpoint(base), Ok("http://127.0.0.1:11434/v1/chat/completions".to_owned()));
        }
        assert_eq!(endpoint("https://h/openai/"), Ok("https://h/openai/v1/chat/completions".to_owned()));
        for base in ["", "ftp://h", "h:80", "http://", "http://h?x=1"] {
            assert!(endpoint(base).is_err(), "{base}");
        }
        let own = LlmPolicy::new(LlmApi::Anthropic).endpoint().map(|uri| uri.to_string());
        assert_eq!(own, Ok("https://api.anthropic.com/v1/messages".to_owned()));
    }

    #[test]
    fn loopback_is_known_in_every_notation() {
        for (uri, expected) in [
            ("http://localhost:1/", true),
            ("http://127.9.0.1/", true),
            ("http://[::1]:1/", true),
            ("http://192.168.0.1/", false),
            ("http://localhost.example.org/", false),
        ] {
            assert_eq!(is_loopback(&uri.parse().expect("an address")), expected, "{uri}");
        }
    }
}
