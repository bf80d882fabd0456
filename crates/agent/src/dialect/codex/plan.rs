//! How codex is started: with a config file of its own, and the prompt on standard input or in a request.

use std::fmt::Write as _;

use crate::launch::{ConfigFile, LaunchPlan, PlanError, PromptInput, config_folder, program};
use crate::settings::{AgentSettings, ModelProvider, Permission, SessionStart};

const NAME: &str = "codex";
/// Where it keeps the login of a subscription.
const CREDENTIALS: &[&str] = &["auth.json"];
const SCHEMA_FILE: &str = "schema.json";
/// The name of the user's own model server in the config file.
const PROVIDER: &str = "custom";

pub(in crate::dialect) fn plan_app_server(settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    let (program, mut arguments) = program(settings, NAME);
    arguments.extend(["app-server".to_owned(), "--disable=plugins".to_owned()]);
    arguments.extend(settings.extra.iter().cloned());
    plan(settings, program, arguments, PromptInput::Dialogue)
}

pub(in crate::dialect) fn plan_exec(settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    let (program, mut arguments) = program(settings, NAME);
    // A plugin catalogue would be fetched, and each run would end late without a network.
    let fixed = ["exec", "--json", "--disable=plugins", "--skip-git-repo-check"];
    arguments.extend(fixed.map(str::to_owned));
    arguments.push(match settings.permission {
        Permission::Everything => "--dangerously-bypass-approvals-and-sandbox".to_owned(),
        Permission::ReadOnly | Permission::Edit => format!("--sandbox={}", sandbox(settings.permission)),
    });
    if let Some(model) = &settings.model {
        arguments.push(format!("--model={model}"));
    }
    if settings.schema.is_some() {
        arguments.push(format!("--output-schema={}/{SCHEMA_FILE}", config_folder(settings)?));
    }
    arguments.extend(settings.extra.iter().cloned());
    if let SessionStart::Resume { id } = &settings.session {
        arguments.extend(["resume".to_owned(), id.clone()]);
    }
    arguments.push("-".to_owned());
    plan(settings, program, arguments, PromptInput::Whole(settings.prompt.clone()))
}

/// The name of a sandbox.
pub(super) const fn sandbox(permission: Permission) -> &'static str {
    match permission {
        Permission::ReadOnly => "read-only",
        Permission::Edit => "workspace-write",
        Permission::Everything => "danger-full-access",
    }
}

fn plan(
    settings: &AgentSettings,
    program: String,
    arguments: Vec<String>,
    input: PromptInput,
) -> Result<LaunchPlan, PlanError> {
    let mut files = vec![ConfigFile { path: "config.toml", text: config(settings) }];
    if let Some(schema) = &settings.schema {
        files.push(ConfigFile { path: SCHEMA_FILE, text: schema.clone() });
    }
    let set = vec![("CODEX_HOME", config_folder(settings)?), ("NO_COLOR", "1".to_owned())];
    Ok(LaunchPlan { program, arguments, set, files, credentials: CREDENTIALS, input })
}

/// The config file. Without MCP servers, since a table of them is not in it. How often codex retries can be set only for a server
/// of the user's own.
fn config(settings: &AgentSettings) -> String {
    let mut text = String::from("check_for_update_on_startup = false\n");
    if let Some(model) = &settings.model {
        let _ = writeln!(text, "model = {}", quoted(model));
    }
    if settings.provider.is_some() {
        let _ = writeln!(text, "model_provider = \"{PROVIDER}\"");
    }
    text.push_str("\n[analytics]\nenabled = false\n");
    if let Some(ModelProvider { base_url, key_variable }) = &settings.provider {
        let retries = settings.max_retries;
        let _ = write!(
            text,
            "\n[model_providers.{PROVIDER}]\nname = \"{PROVIDER}\"\nbase_url = {}\nenv_key = {}\nwire_api = \"responses\"\n\
             request_max_retries = {retries}\nstream_max_retries = {retries}\n",
            quoted(base_url),
            quoted(key_variable),
        );
    }
    if let Some(servers) = &settings.mcp_config {
        text.push('\n');
        text.push_str(servers);
    }
    text
}

/// A text in TOML. Its basic strings have the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
