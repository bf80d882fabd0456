//! `executor = "http"`: the keys of a pool whose tasks are queries to an external gateway.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, FoundValue, PoolCommon, PoolDefaults, PoolFinding, PoolKind, PoolSpec, Section,
    TakesPrompts,
};
use ostler_core::Overrides;
use ostler_exec::{Executor, Secrets};
use serde_json::{Map, Value};

use super::executor::HttpExecutor;
use super::external::{ExternalGateway, GatewayPolicy};
use super::settings::{plain_token_finding, silent_finding};
use crate::kind::{self, now};
use crate::prompt::PromptTemplate;

/// The default of `max_workers`.
const MAX_WORKERS: u32 = 4;
/// The default of `timeout`: the whole execution.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The default of `retry.base`.
const RETRY_BASE: Duration = Duration::from_secs(30);

/// Queries to an external gateway.
#[derive(Clone, Copy, Debug)]
pub struct HttpKind;

/// A pool of queries.
#[derive(Clone, Debug, PartialEq)]
struct HttpSpec {
    gateway: GatewayPolicy,
    prompt: Option<String>,
    secrets: Secrets,
    max_output_bytes: usize,
}

impl PoolKind for HttpKind {
    fn name(&self) -> &'static str {
        "http"
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        let found =
            section.required("gateway", "the address of the gateway, such as \"http://127.0.0.1:8900\"");
        let gateway = found.and_then(|found| policy(&found));
        let (token, idle_watchdog) = connection(section);
        let prompt = section.find("prompt").and_then(|found| kind::prompt(&found));
        let default = gateway?;
        let idle_watchdog = idle_watchdog.unwrap_or(default.idle_watchdog);
        let gateway = GatewayPolicy { token, idle_watchdog, ..default };
        let max_output_bytes = usize::try_from(pool.output_limit).unwrap_or(usize::MAX);
        Some(Box::new(HttpSpec { gateway, prompt, secrets: pool.secrets.clone(), max_output_bytes }))
    }

    fn reference(&self) -> &'static str {
        include_str!("http.toml")
    }
}

/// The address of a gateway.
pub(super) fn policy(found: &FoundValue<'_>) -> Option<GatewayPolicy> {
    match found.text()?.parse() {
        Ok(address) => Some(GatewayPolicy::new(address)),
        Err(error) => found.refuse(error),
    }
}

/// The token of a gateway, and how long it may be silent.
pub(super) fn connection(section: &mut Section<'_>) -> (Option<String>, Option<Duration>) {
    let token = kind::text(section, "token");
    (token, section.find("idle_watchdog").and_then(|found| found.duration()))
}

/// The gateway, with the token that its policy names.
pub(super) fn built(policy: &GatewayPolicy, secrets: &Secrets) -> Result<ExternalGateway, BuildError> {
    let token = match &policy.token {
        None => None,
        Some(name) => Some(secrets.get(name).ok_or_else(|| {
            BuildError::new(format!("the token of its gateway, \"{name}\", is not among its secrets"))
        })?),
    };
    let gateway = ExternalGateway::new(policy.clone(), token.map(ostler_exec::Secret::expose), now);
    gateway.map_err(BuildError::new)
}

#[async_trait]
impl PoolSpec for HttpSpec {
    fn defaults(&self) -> PoolDefaults {
        let overrides = Overrides { timeout: Some(TIMEOUT), base: Some(RETRY_BASE), ..Overrides::NONE };
        PoolDefaults { min_workers: 1, max_workers: MAX_WORKERS, overrides }
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        plain_token_finding(pool, &self.gateway).into_iter().collect()
    }

    async fn examine(&self, pool: &str) -> Vec<PoolFinding> {
        silent_finding(pool, &self.gateway).await.into_iter().collect()
    }

    fn takes_prompts(&self) -> TakesPrompts {
        TakesPrompts::Yes
    }

    fn question(&self) -> Option<Map<String, Value>> {
        Some(kind::question([("prompt", self.prompt.clone().map(Value::from))]))
    }

    fn build(&self, _context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let template = self.prompt.as_deref().map(PromptTemplate::new).transpose();
        let template = template.map_err(|error| BuildError::new(format!("prompt: {error}")))?;
        let gateway = built(&self.gateway, &self.secrets)?;
        Ok(Arc::new(HttpExecutor::new(gateway, template, self.max_output_bytes)))
    }
}
