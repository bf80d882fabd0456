//! `gateway = …` of a pool of worker processes: which gateway its handlers ask.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use ostler_config::{
    BuildContext, BuildError, ClaimAhead, FindingLevel, FoundValue, LeftoverKeeper, PoolCommon, PoolDefaults,
    PoolFinding, PoolKind, PoolSpec, Section, StoreMark, WritablePath,
};
use ostler_exec::{Executor, Gateway, Secrets};
use ostler_process::supervisor::Supervisor;
use ostler_process::{Process, ProcessKind, ProcessPolicy, SUPERVISOR};

use super::external::{GatewayPolicy, reach};
use super::in_process::AgentGateway;
use super::kind::{built, connection, policy};
use super::workers::GatewayExtension;
use crate::executor::AgentPolicy;
use crate::kind::{AgentKind, now};

/// What a gateway may be.
const RIGHT: &str =
    "the address of a gateway, such as \"http://127.0.0.1:8900\", or a table such as { agent = \"claude\" }";

/// The gateway of a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum GatewaySettings {
    /// Agents of this node.
    InProcess(Box<AgentPolicy>),
    /// A server elsewhere. The secrets are those among which its token is.
    External(GatewayPolicy, Secrets),
}

impl GatewaySettings {
    /// The gateway.
    ///
    /// # Errors
    /// When there can be none with these settings.
    pub fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Gateway>, BuildError> {
        match self {
            Self::InProcess(policy) => {
                let supervisor = context.need::<Supervisor>(SUPERVISOR)?.clone();
                let mut policy = (**policy).clone();
                policy.folders.mark = context.resources.get::<StoreMark>().cloned();
                let gateway = AgentGateway::new(supervisor, policy, now);
                Ok(Arc::new(gateway.map_err(|error| BuildError::new(error.to_string()))?))
            }
            Self::External(policy, secrets) => Ok(Arc::new(built(policy, secrets)?)),
        }
    }

    fn read(pool: &PoolCommon<'_>, found: &FoundValue<'_>) -> Option<Self> {
        if found.is_string() {
            return Some(Self::External(policy(found)?, pool.secrets.clone()));
        }
        let mut table = found.table_or(RIGHT)?;
        if !table.has("url") {
            // Without an agent, it is not known which keys there are.
            let agents = AgentKind::read_policy(pool, &mut table)?;
            table.close(&[]);
            return Some(Self::InProcess(Box::new(agents)));
        }
        let address = table.find("url").and_then(|found| policy(&found));
        let (token, idle_watchdog) = connection(&mut table);
        table.close(&[]);
        let default = address?;
        let idle_watchdog = idle_watchdog.unwrap_or(default.idle_watchdog);
        Some(Self::External(GatewayPolicy { token, idle_watchdog, ..default }, pool.secrets.clone()))
    }

    /// The settings of agents, as any pool of them has.
    fn agents(&self) -> Option<&AgentPolicy> {
        match self {
            Self::InProcess(policy) => Some(policy),
            Self::External(..) => None,
        }
    }

    fn agents_mut(&mut self) -> Option<&mut AgentPolicy> {
        match self {
            Self::InProcess(policy) => Some(policy),
            Self::External(..) => None,
        }
    }
}

impl From<AgentPolicy> for GatewaySettings {
    fn from(policy: AgentPolicy) -> Self {
        Self::InProcess(Box::new(policy))
    }
}

impl From<GatewayPolicy> for GatewaySettings {
    fn from(policy: GatewayPolicy) -> Self {
        Self::External(policy, Secrets::default())
    }
}

/// Worker processes that may have a gateway.
#[derive(Clone, Copy, Debug)]
pub struct ProcessWithGateway;

impl PoolKind for ProcessWithGateway {
    fn name(&self) -> &'static str {
        ProcessKind.name()
    }

    fn read(&self, pool: &PoolCommon<'_>, section: &mut Section<'_>) -> Option<Box<dyn PoolSpec>> {
        let found = section.find("gateway");
        let gateway = found.as_ref().and_then(|found| GatewaySettings::read(pool, found));
        let process = ProcessKind.read(pool, section)?;
        match (gateway, process.as_any().downcast_ref::<ProcessPolicy>()) {
            (Some(gateway), Some(process)) => Some(Box::new(GatewayWorkers::new(process.clone(), gateway))),
            (Some(_), None) | (None, _) => Some(process),
        }
    }

    fn reference(&self) -> &'static str {
        static BOTH: LazyLock<String> =
            LazyLock::new(|| format!("{}{}", ProcessKind.reference(), include_str!("workers.toml")));
        &BOTH
    }

    fn keepers(&self) -> Vec<Arc<dyn LeftoverKeeper>> {
        ProcessKind.keepers()
    }
}

/// Worker processes whose handlers ask a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayWorkers {
    pub process: ProcessPolicy,
    pub gateway: GatewaySettings,
}

impl GatewayWorkers {
    #[must_use]
    pub fn new(process: ProcessPolicy, gateway: impl Into<GatewaySettings>) -> Self {
        Self { process, gateway: gateway.into() }
    }
}

#[async_trait]
impl PoolSpec for GatewayWorkers {
    fn defaults(&self) -> PoolDefaults {
        self.process.defaults()
    }

    fn beside(&mut self, folder: &Path) {
        self.process.beside(folder);
        if let Some(agents) = self.gateway.agents_mut() {
            agents.beside(folder);
        }
    }

    fn confine(&mut self, hidden: &[PathBuf]) -> Result<(), String> {
        self.process.confine(hidden)
    }

    fn task_folders(&self) -> Option<&Path> {
        self.process.task_folders()
    }

    fn writable(&self) -> Vec<WritablePath<'_>> {
        self.process.writable()
    }

    fn distrust(&mut self, writable: &[PathBuf]) {
        self.process.distrust(writable);
        if let Some(agents) = self.gateway.agents_mut() {
            agents.distrust(writable);
        }
    }

    fn programs(&self) -> Vec<String> {
        let agents = self.gateway.agents().map(PoolSpec::programs).unwrap_or_default();
        self.process.programs().into_iter().chain(agents).collect()
    }

    fn unpriced(&self, model: Option<&str>) -> Option<String> {
        self.gateway.agents().and_then(|agents| agents.unpriced(model))
    }

    fn findings(&self, pool: &str) -> Vec<PoolFinding> {
        let gateway = match &self.gateway {
            GatewaySettings::InProcess(agents) => agents.findings(&format!("{pool}.gateway")),
            GatewaySettings::External(policy, _) => plain_token_finding(pool, policy).into_iter().collect(),
        };
        self.process.findings(pool).into_iter().chain(gateway).collect()
    }

    async fn examine(&self, pool: &str) -> Vec<PoolFinding> {
        let mut findings = self.process.examine(pool).await;
        match &self.gateway {
            GatewaySettings::InProcess(agents) => findings.extend(agents.examine(pool).await),
            GatewaySettings::External(policy, _) => findings.extend(silent_finding(pool, policy).await),
        }
        findings
    }

    fn keepers(&self) -> Vec<Arc<dyn LeftoverKeeper>> {
        let agents = self.gateway.agents().map(PoolSpec::keepers).unwrap_or_default();
        self.process.keepers().into_iter().chain(agents).collect()
    }

    fn account(&self) -> Option<String> {
        self.process.account().or_else(|| self.gateway.agents().and_then(PoolSpec::account))
    }

    /// Its tasks are seldom short.
    fn claim_ahead(&self) -> ClaimAhead {
        ClaimAhead::Never
    }

    async fn prove(&self, context: BuildContext<'_>) -> Result<(), String> {
        self.process.prove(context).await
    }

    fn build(&self, context: BuildContext<'_>) -> Result<Arc<dyn Executor>, BuildError> {
        let supervisor = context.need::<Supervisor>(SUPERVISOR)?.clone();
        let extension = GatewayExtension::new(self.gateway.build(context)?);
        let process = Process::with_extension(supervisor, self.process.clone(), Arc::new(extension));
        Ok(Arc::new(process.map_err(|error| BuildError::new(error.to_string()))?))
    }
}

/// A gateway that does not answer.
pub(super) async fn silent_finding(pool: &str, policy: &GatewayPolicy) -> Option<PoolFinding> {
    let why = reach(&policy.address).await.err()?;
    Some(PoolFinding {
        code: "gateway-silent",
        level: FindingLevel::Error,
        sentence: format!("Pool \"{pool}\": its gateway {} does not answer: {why}", policy.address),
        advice: "Start it, or correct the address",
    })
}

/// A token that others could read on its way.
pub(super) fn plain_token_finding(pool: &str, policy: &GatewayPolicy) -> Option<PoolFinding> {
    (policy.token.is_some() && policy.address.is_readable()).then(|| PoolFinding {
        code: "gateway-plain",
        level: FindingLevel::Warning,
        sentence: format!(
            "pool.{pool}: the token of its gateway is sent to {} without encryption",
            policy.address
        ),
        advice: "Use an https:// address",
    })
}
