//! The `llm` executor: an attempt is a request to the API of a model.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ostler_core::Timestamp;
use ostler_exec::{AttemptResult, Control, Executor, Served, Work};
use ostler_http::{AddressRules, HeaderMap, HeaderName, HeaderValue, HttpClient, Proxies, Uri, header};
use thiserror::Error;

use super::attempt::LlmAttempt;
use super::policy::{LlmPolicy, is_loopback};
use super::unanswered;
use crate::executor::SchemaSource;
use crate::executor::schema::AnswerSchema;
use crate::prompt::{PromptError, PromptTemplate};

/// Executor that asks a model for each task, whatever its kind.
///
/// Requests go to the address of the policy, and nowhere else: redirects are not followed, since the key would go with them.
#[derive(Debug)]
pub struct LlmExecutor {
    pub(super) policy: LlmPolicy,
    pub(super) template: Option<PromptTemplate>,
    pub(super) schema: Option<AnswerSchema>,
    pub(super) client: Client,
    pub(super) endpoint: Uri,
    pub(super) headers: HeaderMap,
    /// Never stored: a server may repeat it in an error.
    pub(super) key: Option<Key>,
    pub(super) now: fn() -> Timestamp,
    has_swept: AtomicBool,
}

/// Why a policy cannot be used.
#[derive(Debug, Error)]
pub enum LlmPolicyError {
    #[error("prompt: {0}")]
    Prompt(#[from] PromptError),
    #[error("schema: {0}")]
    Schema(String),
    #[error("base_url {0}")]
    BaseUrl(String),
    #[error("headers: \"{0}\" cannot be sent")]
    Header(String),
    #[error("{0} has characters that a key cannot have")]
    Key(String),
}

pub(super) struct Client(pub(super) HttpClient);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// A key, which is not shown.
pub(super) struct Key(String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[key]")
    }
}

impl Key {
    /// The text without the key.
    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "[key]")
    }
}

impl LlmExecutor {
    /// Creates an executor that asks by this policy. `now` is the wall clock, for the times at which limits reset.
    ///
    /// # Errors
    /// When the policy is not valid, or its schema cannot be read.
    pub fn new(policy: LlmPolicy, now: fn() -> Timestamp) -> Result<Self, LlmPolicyError> {
        let endpoint = policy.endpoint().map_err(LlmPolicyError::BaseUrl)?;
        let key = policy.key();
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let own = policy.api.headers(key.as_deref());
        headers.extend(own.ok_or_else(|| LlmPolicyError::Key(policy.key_variable().to_owned()))?);
        for (name, value) in &policy.headers {
            let (name, value) = header_of(name, value).ok_or_else(|| LlmPolicyError::Header(name.clone()))?;
            headers.insert(name, value);
        }
        let proxies = if is_loopback(&endpoint) { Proxies::None } else { Proxies::Environment };
        let schema = policy.schema.as_ref().map(SchemaSource::read).transpose();
        Ok(Self {
            template: policy.prompt.as_deref().map(PromptTemplate::new).transpose()?,
            schema: schema.map_err(LlmPolicyError::Schema)?,
            // The address is the operator's own choice, and may be private.
            client: Client(HttpClient::new(AddressRules::Any, proxies)),
            key: key.map(Key),
            endpoint,
            headers,
            now,
            has_swept: AtomicBool::new(false),
            policy,
        })
    }

    /// Removes what is left of old requests: once in the life of an executor, beside its work.
    fn sweep(&self) {
        if let Some(folder) = self.policy.requests_folder.clone()
            && !self.has_swept.swap(true, Ordering::Relaxed)
        {
            drop(tokio::task::spawn_blocking(move || unanswered::sweep(&folder)));
        }
    }
}

/// A header of the config, if it can be one.
pub(super) fn header_of(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((name.parse().ok()?, value))
}

#[async_trait]
impl Executor for LlmExecutor {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        if control.cancel.is_cancelled() {
            return AttemptResult::cancelled();
        }
        self.sweep();
        LlmAttempt::new(self, &work, &control).run().await
    }
}
