//! `executor = "llm"`: the keys of a pool that asks the API of a model.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, FindingLevel, FoundValue, PoolCommon, PoolDefaults, PoolFinding, PoolKind,
    PoolSpec, Section, TaskBudgets,
};
use ostler_core::Overrides;
use ostler_exec::{Executor, is_variable_name};
use serde_json::{Map, Value};

use super::api::{LlmApi, Server};
use super::executor::{LlmExecutor, header_of};
use super::payload::TOKENS;
use super::policy::{LlmPolicy, is_loopback};
use super::unanswered::usual_folder;
use crate::executor::SchemaSource;
use crate::kind::{MAX_SCHEMA_RETRIES, now, prompt, question, schema, text};

/// The default of `max_workers`.
const MAX_WORKERS: u32 = 4;
/// The default of `timeout`.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Models over HTTP.
#[derive(Clone, Copy, Debug)]
pub struct LlmKind;

impl PoolKind for LlmKind {
    fn name(&self) -> &'static str {
        "llm"
    }

    fn task_budgets(&self) -> TaskBudgets {
        TaskBudgets::Enforced
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        let words = LlmApi::ALL.map(|api| (api.name(), api));
        let found = section.required("api", "\"anthropic\", \"openai\" or \"openai-responses\"")?;
        let api = found.one_of(&words);
        let default = LlmPolicy::new(api.unwrap_or(LlmApi::OpenAi));
        let policy = LlmPolicy {
            model: text(section, "model"),
            base_url: section.find("base_url").and_then(|found| base_url(&found, &default)),
            key_variable: section.find("key_variable").and_then(|found| key_variable(&found)),
            headers: headers(section),
            system: text(section, "system"),
            prompt: section.find("prompt").and_then(|found| prompt(&found)),
            max_tokens: section.find("max_tokens").and_then(|found| found.count(TOKENS)),
            extra: section.find("extra").and_then(|found| extra(&found)).unwrap_or_default(),
            schema: section.find("schema").and_then(|found| schema(&found)),
            schema_retries: section
                .find("schema_retries")
                .and_then(|found| found.count(0..=MAX_SCHEMA_RETRIES))
                .unwrap_or(default.schema_retries),
            idle_watchdog: section
                .find("idle_watchdog")
                .and_then(|found| found.duration())
                .unwrap_or(default.idle_watchdog),
            max_task_cost: pool.max_task_cost,
            prices: pool.prices.clone(),
            secrets: pool.secrets.clone(),
            max_output_bytes: usize::try_from(pool.output_limit).unwrap_or(default.max_output_bytes),
            ..default
        };
        api.map(|_| Box::new(policy) as Box<dyn PoolSpec>)
    }

    fn reference(&self) -> &'static str {
        include_str!("kind.toml")
    }
}

#[async_trait]
impl PoolSpec for LlmPolicy {
    fn defaults(&self) -> PoolDefaults {
        let overrides = Overrides { timeout: Some(TIMEOUT), ..Overrides::NONE };
        PoolDefaults { min_workers: 1, max_workers: MAX_WORKERS, overrides }
    }

    fn beside(&mut self, folder: &Path) {
        if let Some(SchemaSource::File(path)) = &mut self.schema {
            let joined = folder.join(&*path);
            *path = std::path::absolute(&joined).unwrap_or(joined);
        }
    }

    fn unpriced(&self, model: Option<&str>) -> Option<String> {
        match model.or(self.model.as_deref()) {
            None => Some("\"model\" is missing, so that it is not known what its work costs".to_owned()),
            Some(model) => self.prices.lacks(model),
        }
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        let schema = self.schema.as_ref().and_then(|schema| schema.read().err()).map(|why| PoolFinding {
            code: "llm-schema",
            level: FindingLevel::Error,
            sentence: format!("pool.{pool}.schema: {why}"),
            advice: "Correct the schema, or the path to it",
        });
        let plain = self.endpoint().ok().filter(|uri| uri.scheme_str() == Some("http") && !is_loopback(uri));
        let plain = plain.map(|uri| PoolFinding {
            code: "llm-plain-http",
            level: FindingLevel::Warning,
            sentence: format!(
                "pool.{pool}.base_url: prompts, answers and the key go to {} without encryption",
                uri.host().unwrap_or_default()
            ),
            advice: "Use https://, or a server on this machine",
        });
        schema.into_iter().chain(plain).collect()
    }

    async fn examine(&self, pool: &str) -> Vec<PoolFinding> {
        let wants_key = self.server() == Server::Own || self.key_variable.is_some();
        if !wants_key || self.key().is_some() {
            return Vec::new();
        }
        vec![PoolFinding {
            code: "llm-key",
            level: FindingLevel::Error,
            sentence: format!(
                "Pool \"{pool}\": there is no key for the API: the variable {} is not set",
                self.key_variable()
            ),
            advice: "Set it, or give the pool a key of that name in \"secrets\"",
        }]
    }

    fn account(&self) -> Option<String> {
        self.account_name()
    }

    fn question(&self) -> Option<Map<String, Value>> {
        Some(question([
            ("api", Some(self.api.name().into())),
            ("system", self.system.clone().map(Value::from)),
            ("prompt", self.prompt.clone().map(Value::from)),
            ("model", self.model.clone().map(Value::from)),
            ("schema", self.schema.as_ref().and_then(SchemaSource::value)),
        ]))
    }

    fn build(&self, _context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let requests_folder = self.requests_folder.clone().or_else(usual_folder);
        let executor = LlmExecutor::new(Self { requests_folder, ..self.clone() }, now);
        Ok(Arc::new(executor.map_err(|error| BuildError::new(error.to_string()))?))
    }
}

fn base_url(found: &FoundValue<'_>, default: &LlmPolicy) -> Option<String> {
    let base = found.text()?;
    let policy = LlmPolicy { base_url: Some(base.clone()), ..default.clone() };
    match policy.endpoint() {
        Ok(_) => Some(base),
        Err(_) => found.refuse("is not an address such as \"http://127.0.0.1:11434\""),
    }
}

fn key_variable(found: &FoundValue<'_>) -> Option<String> {
    let name = found.text()?;
    if is_variable_name(&name) {
        return Some(name);
    }
    found.refuse("is not the name of a variable, such as \"OPENAI_API_KEY\"")
}

fn headers(section: &mut Section<'_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, found) in section.section("headers").entries() {
        let Some(value) = found.text() else { continue };
        if header_of(&name, &value).is_none() {
            found.refuse::<()>("is not a header");
        }
        headers.push((name, value));
    }
    headers
}

fn extra(found: &FoundValue<'_>) -> Option<Map<String, Value>> {
    match found.json()? {
        Value::Object(fields) => Some(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            found.refuse("must be a table such as { temperature = 0.2 }")
        }
    }
}
