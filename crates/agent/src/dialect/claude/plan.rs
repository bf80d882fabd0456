//! How claude is started: one prompt on standard input, one result, then exit.

use crate::launch::{LaunchPlan, PlanError, PromptInput, config_folder, program};
use crate::settings::{AgentSettings, Permission, SessionStart};

const NAME: &str = "claude";
/// Where it keeps the login of a subscription.
const CREDENTIALS: &[&str] = &[".credentials.json"];
const NO_MCP_SERVERS: &str = r#"{"mcpServers":{}}"#;

/// Without these, claude looks for updates and reports on itself; stays after its result while a command that it moved to the
/// background lives; and wakes up later by itself.
const SWITCHES: [&str; 6] = [
    "DISABLE_AUTOUPDATER",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    "CLAUDE_CODE_DISABLE_CRON",
];

pub(in crate::dialect) fn plan(settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    let (program, mut arguments) = program(settings, NAME);
    let mut flag = |name: &str, value: &str| arguments.push(format!("--{name}={value}"));
    flag("output-format", "stream-json");
    match &settings.session {
        SessionStart::New { id } => flag("session-id", id),
        SessionStart::Resume { id } => flag("resume", id),
    }
    if let Some(model) = &settings.model {
        flag("model", model);
    }
    flag("max-turns", &settings.max_turns.to_string());
    flag("setting-sources", settings.setting_sources.as_deref().unwrap_or_default());
    flag("mcp-config", settings.mcp_config.as_deref().unwrap_or(NO_MCP_SERVERS));
    settings.tools.allowed.iter().for_each(|tool| flag("allowedTools", tool));
    settings.tools.denied.iter().for_each(|tool| flag("disallowedTools", tool));
    if let Some(schema) = &settings.schema {
        flag("json-schema", schema);
    }
    match settings.permission {
        Permission::ReadOnly => flag("permission-mode", "default"),
        Permission::Edit => flag("permission-mode", "acceptEdits"),
        Permission::Everything => arguments.push("--dangerously-skip-permissions".to_owned()),
    }
    // The pieces of a message are the only sign of life while a long one is written, and they say what it costs.
    arguments
        .extend(["-p", "--verbose", "--include-partial-messages", "--strict-mcp-config"].map(str::to_owned));
    arguments.extend(settings.extra.iter().cloned());

    let mut set: Vec<_> = SWITCHES.into_iter().map(|name| (name, "1".to_owned())).collect();
    set.push(("CLAUDE_CONFIG_DIR", config_folder(settings)?));
    set.push(("CLAUDE_CODE_MAX_RETRIES", settings.max_retries.to_string()));
    if let Some(provider) = &settings.provider {
        set.push(("ANTHROPIC_BASE_URL", provider.base_url.clone()));
    }
    Ok(LaunchPlan {
        program,
        arguments,
        set,
        files: Vec::new(),
        credentials: CREDENTIALS,
        input: PromptInput::Whole(settings.prompt.clone()),
    })
}
