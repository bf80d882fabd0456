//! The pool that runs the items of a map job: one of the config, or one that only the job has, for an agent.

use ostler_agent::Dialect;
use ostler_config::{FindingLevel, PoolFinding, nearest};
use ostler_core::price::PriceTable;
use ostler_ops::jobs::{ItemFolders, JobPool, synthesis};
use ostler_store::Store;
use ostler_store::jobs::JobRecord;
use serde_json::{Map as JsonMap, Value};

use super::item_folders;
use super::prompt::{self, synthesis_template};
use crate::args::Map;
use crate::config::{self, Config, PoolSettings, StoreUrl};
use crate::doctor::{examined, is_program};
use crate::exit::{Code, refused};
use crate::pool_kinds::POOL_KINDS;
use crate::up::sandbox;

/// The word for pools of agents in `executor = "…"`.
const AGENT: &str = "agent";
/// The kind of tasks with a prompt.
const PROMPT_KIND: &str = "prompt";

/// What is stored of the pool that the options ask for; `None`: a command runs the items. `prompt` is the template.
pub(crate) fn asked_for(
    map: &Map,
    prompt: Option<String>,
    folders: Option<&ItemFolders>,
) -> anyhow::Result<Option<JobPool>> {
    let synthesis = synthesis_template(map)?;
    Ok(match (&map.pool, &map.agent) {
        (Some(name), _) => {
            let usual = prompt.is_some().then(|| PROMPT_KIND.to_owned());
            let kind = map.kind.clone().or(usual);
            let kind = kind.ok_or_else(|| refused(Code::BadInput, "--pool needs --kind, or a --prompt"))?;
            let name = name.clone();
            let options = options(map, SchemaForm::Inline)?;
            Some(JobPool { name, kind, prompt, options, synthesis, ..JobPool::default() })
        }
        (None, Some(agent)) => {
            known(agent)?;
            let section = Some(section(map, agent, folders)?);
            let (name, kind) = (agent.clone(), PROMPT_KIND.to_owned());
            Some(JobPool { name, section, kind, prompt, synthesis, ..JobPool::default() })
        }
        (None, None) if prompt.is_some() => {
            return Err(refused(Code::BadInput, "a prompt needs --agent or --pool"));
        }
        (None, None) => None,
    })
}

/// Refuses an agent that needs a config, or that does not exist.
fn known(agent: &str) -> anyhow::Result<()> {
    let names = Dialect::ALL.into_iter().filter(|dialect| dialect.program().is_some());
    let names: Vec<&str> = names.map(Dialect::name).collect();
    let sentence = match Dialect::named(agent) {
        Some(dialect) if dialect.program().is_some() => return Ok(()),
        Some(_) => format!(
            "--agent {agent}: a program of your own needs a pool in ostler.toml, and --pool; see docs/guide/agents.md"
        ),
        None => match nearest(agent, &names) {
            Some(near) => format!("--agent {agent}: no such agent; did you mean \"{near}\"?"),
            None => format!("--agent {agent}: no such agent; there are {}", names.join(", ")),
        },
    };
    Err(refused(Code::BadInput, sentence))
}

/// How a schema is passed on.
#[derive(Clone, Copy)]
enum SchemaForm {
    /// The schema itself.
    Inline,
    /// The path of its file.
    Path,
}

/// The options of a model: keys of a payload, and of the section of a pool.
fn options(map: &Map, form: SchemaForm) -> anyhow::Result<JsonMap<String, Value>> {
    let schema = map.schema.as_deref().map(|file| {
        let wrong = |why: String| refused(Code::BadInput, format!("--schema {}: {why}", file.display()));
        match form {
            SchemaForm::Inline => {
                let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
                serde_json::from_str(&text).map_err(|error| wrong(format!("not JSON: {error}")))
            }
            SchemaForm::Path => {
                let path = std::path::absolute(file).map_err(|error| wrong(error.to_string()))?;
                let path = path.into_os_string().into_string();
                path.map(Value::from).map_err(|_| wrong("its path is not UTF-8 text".to_owned()))
            }
        }
    });
    let given = [
        ("model", map.model.clone().map(Value::from)),
        ("permission", map.permission.clone().map(Value::from)),
        ("schema", schema.transpose()?),
        ("max_iterations", map.max_iterations.map(Value::from)),
    ];
    Ok(given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

/// The section of the config that a pool for this agent would have, as TOML.
fn section(map: &Map, agent: &str, folders: Option<&ItemFolders>) -> anyhow::Result<String> {
    let mut keys = options(map, SchemaForm::Path)?;
    keys.insert("executor".to_owned(), AGENT.into());
    keys.insert("agent".to_owned(), agent.into());
    if let Some(account) = &map.account {
        keys.insert("account".to_owned(), account.as_str().into());
    }
    keys.extend(folders.map(item_folders::keys).unwrap_or_default());
    keys.values_mut().for_each(literal);
    let pool = JsonMap::from_iter([(agent.to_owned(), Value::from(keys))]);
    let file = JsonMap::from_iter([("pool".to_owned(), Value::from(pool))]);
    toml::to_string(&file).map_err(|error| refused(Code::BadInput, error.to_string()))
}

/// A value of an option is not a variable of the environment.
fn literal(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("${", "$${"),
        Value::Object(fields) => fields.values_mut().for_each(literal),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The settings of the pool of a job: of the config, or as stored with the job.
pub(crate) fn settings(
    pool: &JobPool,
    pools: &[PoolSettings],
    prices: &PriceTable,
    store: &StoreUrl,
) -> anyhow::Result<PoolSettings> {
    let Some(section) = &pool.section else {
        return pools.iter().find(|found| found.name == pool.name).cloned().ok_or_else(|| {
            let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            refused(Code::BadInput, format!("the config has no pool \"{}\"; its pools: {has}", pool.name))
        });
    };
    let env = |name: &str| std::env::var(name).ok();
    let read = config::parse(section, "options", &env, POOL_KINDS, prices.clone());
    let config: Config = read.map_err(|errors| {
        let faults: Vec<&str> = errors.faults.iter().map(|fault| fault.sentence.as_str()).collect();
        refused(Code::BadInput, format!("--agent {}: {}", pool.name, faults.join("; ")))
    })?;
    let found = sandbox::hide(config, store)?.pools.pop();
    found.ok_or_else(|| refused(Code::BadInput, format!("--agent {}: no such agent", pool.name)))
}

/// Enqueues the synthesis of a job, if all of its items have ended.
pub(crate) async fn synthesize(
    store: &dyn Store,
    record: &JobRecord,
    payload_bytes: usize,
) -> anyhow::Result<()> {
    let Some(pool) = synthesis::due(record) else { return Ok(()) };
    let results = synthesis::results(store, record.job.id, payload_bytes).await?;
    let prompt = prompt::synthesis(pool.synthesis.as_deref().unwrap_or_default(), results)?;
    Ok(synthesis::enqueue_last(store, record.job.id, pool, prompt, payload_bytes).await??)
}

/// Where the pool of a job is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolSource {
    /// The config has it.
    Config,
    /// `--agent` has made it for this job.
    Agent,
}

impl PoolSource {
    pub(crate) const fn of(pool: &JobPool) -> Self {
        if pool.section.is_some() { Self::Agent } else { Self::Config }
    }
}

/// Refuses a pool that cannot work on this machine, such as one whose program is not installed.
pub(crate) async fn check(pool: &PoolSettings, source: PoolSource) -> anyhow::Result<()> {
    for found in examined(pool).await {
        match found.level {
            FindingLevel::Error => return Err(refused(Code::BadInput, complaint(&found, pool, source))),
            FindingLevel::Warning | FindingLevel::Info => {}
        }
    }
    match pool.executor.programs().iter().find(|program| !is_program(program)) {
        Some(missing) => {
            let sentence = format!("\"{missing}\", which pool \"{}\" runs, is not installed here", pool.name);
            Err(refused(Code::BadInput, sentence))
        }
        None => Ok(()),
    }
}

/// What is wrong with a pool. The user of `--agent` knows of no pool, and cannot set its keys.
fn complaint(found: &PoolFinding, pool: &PoolSettings, source: PoolSource) -> String {
    match source {
        PoolSource::Config if found.advice.is_empty() => found.sentence.clone(),
        PoolSource::Config => format!("{}. {}", found.sentence, found.advice),
        PoolSource::Agent => {
            let prefix = format!("Pool \"{}\": ", pool.name);
            let why = found.sentence.strip_prefix(&prefix).unwrap_or(&found.sentence);
            format!("--agent {}: {why}; see docs/guide/agents.md", pool.name)
        }
    }
}
