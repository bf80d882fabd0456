//! How agents of the protocol are started: gemini and opencode with a config of their own, any other as its command says.

use ostler_core::price::{Price, PricedTokens};
use serde_json::{Map, Value, json};

use super::AcpAgent;
use crate::launch::{ConfigFile, LaunchPlan, PlanError, PromptInput, config_folder, program};
use crate::settings::{AgentSettings, ModelProvider, Permission};

/// Where opencode keeps the login of a provider.
const OPENCODE_CREDENTIALS: &[&str] = &["opencode/auth.json"];
/// Where gemini reads keys from.
const GEMINI_CREDENTIALS: &[&str] = &[".gemini/.env"];
/// Otherwise gemini is a launcher that starts the program once more, and does not pass signals on.
pub(in crate::dialect) const NO_RELAUNCH: (&str, &str) = ("GEMINI_CLI_NO_RELAUNCH", "true");
/// The name of the user's own model server in the config of opencode.
const PROVIDER: &str = "custom";
/// Opencode tells the cost of a session only for a model whose context window it knows, and compacts what does not fit into it. The window of a
/// model of the user's own is not known here: this one is never reached, and the server says when its own is.
const OPENCODE_CONTEXT_TOKENS: u64 = 1_000_000_000;
/// Tokens of an answer: what opencode asks for by itself.
const OPENCODE_OUTPUT_TOKENS: u64 = 32_000;
/// Nanodollars in a dollar.
const NANOS: f64 = 1e9;

/// Without these, opencode looks for updates, lists of models, plugins and language servers, and reads the settings of the project and of
/// other agents.
const OPENCODE_SWITCHES: [&str; 7] = [
    "OPENCODE_PURE",
    "OPENCODE_DISABLE_PROJECT_CONFIG",
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_CLAUDE_CODE",
];

pub(in crate::dialect) fn plan(agent: AcpAgent, settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    if let Some(servers) = &settings.mcp_config {
        let list = serde_json::from_str::<Vec<Map<String, Value>>>(servers);
        list.map_err(|error| PlanError::McpServers(error.to_string()))?;
    }
    match agent {
        AcpAgent::Other => other(settings),
        AcpAgent::Gemini => gemini(settings),
        AcpAgent::OpenCode => opencode(settings),
    }
}

fn other(settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    let Some((program, first)) = settings.command.split_first() else { return Err(PlanError::NoAcpCommand) };
    Ok(LaunchPlan {
        program: program.clone(),
        arguments: first.iter().chain(&settings.extra).cloned().collect(),
        set: Vec::new(),
        files: Vec::new(),
        credentials: &[],
        input: PromptInput::Dialogue,
    })
}

fn gemini(settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    let (program, mut arguments) = program(settings, "gemini");
    arguments.push("--acp".to_owned());
    arguments.extend(settings.model.iter().map(|model| format!("--model={model}")));
    arguments.extend(settings.extra.iter().cloned());
    let mut set = vec![
        ("GEMINI_CLI_HOME", config_folder(settings)?),
        (NO_RELAUNCH.0, NO_RELAUNCH.1.to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ];
    set.extend(
        settings.provider.iter().map(|provider| ("GOOGLE_GEMINI_BASE_URL", provider.base_url.clone())),
    );
    let config = json!({
        "privacy": { "usageStatisticsEnabled": false },
        "general": { "disableAutoUpdate": true, "disableUpdateNag": true },
        "model": { "maxSessionTurns": settings.max_turns },
    });
    let files = vec![ConfigFile { path: ".gemini/settings.json", text: config.to_string() }];
    Ok(LaunchPlan {
        program,
        arguments,
        set,
        files,
        credentials: GEMINI_CREDENTIALS,
        input: PromptInput::Dialogue,
    })
}

fn opencode(settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    let (program, mut arguments) = program(settings, "opencode");
    // Its log has what the protocol does not say: each request to a model.
    arguments.extend(["acp", "--print-logs", "--log-level=INFO"].map(str::to_owned));
    arguments.extend(settings.extra.iter().cloned());
    let folder = config_folder(settings)?;
    let mut set: Vec<_> = OPENCODE_SWITCHES.into_iter().map(|name| (name, "1".to_owned())).collect();
    set.extend(["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"].map(|name| (name, folder.clone())));
    let files =
        vec![ConfigFile { path: "opencode/opencode.json", text: opencode_config(settings)?.to_string() }];
    Ok(LaunchPlan {
        program,
        arguments,
        set,
        files,
        credentials: OPENCODE_CREDENTIALS,
        input: PromptInput::Dialogue,
    })
}

fn opencode_config(settings: &AgentSettings) -> Result<Value, PlanError> {
    let mut config =
        json!({ "autoupdate": false, "share": "disabled", "permission": opencode_permission(settings) });
    match (&settings.provider, &settings.model) {
        (None, None) => {}
        (None, Some(model)) => config["model"] = json!(model),
        (Some(_), None) => return Err(PlanError::NoModel),
        (Some(ModelProvider { base_url, key_variable }), Some(model)) => {
            let cost = settings.prices.of(model).map(opencode_cost).unwrap_or_else(|| json!({}));
            let limit = json!({ "context": OPENCODE_CONTEXT_TOKENS, "output": OPENCODE_OUTPUT_TOKENS });
            config["model"] = json!(format!("{PROVIDER}/{model}"));
            config["small_model"] = config["model"].clone();
            config["provider"] = json!({ PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "options": { "baseURL": base_url, "apiKey": format!("{{env:{key_variable}}}") },
                "models": { model: { "cost": cost, "limit": limit } },
            }});
        }
    }
    Ok(config)
}

/// What it may do without a question. It is not asked: a tool that may not be used is not offered to the model, which goes on without it;
/// a question that is answered with no would end the turn.
fn opencode_permission(settings: &AgentSettings) -> Value {
    let word = |is_allowed| if is_allowed { "allow" } else { "deny" };
    let everything = settings.permission == Permission::Everything;
    let mut rules = Map::new();
    for tool in ["bash", "webfetch", "websearch", "external_directory", "doom_loop"] {
        rules.insert(tool.to_owned(), json!(word(everything)));
    }
    rules.insert("edit".to_owned(), json!(word(settings.permission != Permission::ReadOnly)));
    for tool in &settings.tools.allowed {
        rules.insert(tool.clone(), json!("allow"));
    }
    for tool in &settings.tools.denied {
        rules.insert(tool.clone(), json!("deny"));
    }
    Value::Object(rules)
}

/// Dollars for a million tokens.
fn opencode_cost(price: &Price) -> Value {
    const MILLION: u64 = 1_000_000;
    let of = |tokens| price.cost(tokens).map(|cost| cost.nanos() as f64 / NANOS);
    let mut cost = Map::new();
    for (name, tokens) in [
        ("input", PricedTokens { input: MILLION, ..PricedTokens::default() }),
        ("output", PricedTokens { output: MILLION, ..PricedTokens::default() }),
        ("cache_read", PricedTokens { cache_read: MILLION, ..PricedTokens::default() }),
        ("cache_write", PricedTokens { cache_write: MILLION, ..PricedTokens::default() }),
    ] {
        if let Some(usd) = of(tokens) {
            cost.insert(name.to_owned(), json!(usd));
        }
    }
    Value::Object(cost)
}
