//! Launch plans: what is in the arguments of each agent, and what is never in them.

use ostler_agent::settings::{ModelProvider, Permission, SessionStart, ToolRules};
use ostler_agent::{AgentSettings, Dialect, LaunchPlan, PlanError, PromptInput};

const ID: &str = "11111111-2222-4333-8444-555555555555";

fn settings() -> AgentSettings {
    let mut settings =
        AgentSettings::new("--dangerously-skip-permissions", SessionStart::New { id: ID.into() });
    settings.config_folder = "/state/worker-1".into();
    settings.model = Some("-model".into());
    settings
}

fn plan(dialect: Dialect, settings: &AgentSettings) -> LaunchPlan {
    dialect.plan(settings).expect("the settings are valid")
}

fn has(plan: &LaunchPlan, argument: &str) -> bool {
    plan.arguments.iter().any(|one| one == argument)
}

fn variable<'a>(plan: &'a LaunchPlan, name: &str) -> Option<&'a str> {
    plan.set.iter().find(|(one, _)| *one == name).map(|(_, value)| value.as_str())
}

#[test]
fn the_prompt_is_input_and_no_value_can_become_a_flag() {
    let settings = AgentSettings { command: vec!["agent".into()], ..settings() };
    for dialect in Dialect::ALL {
        let plan = plan(dialect, &settings);
        assert!(!has(&plan, &settings.prompt), "{plan:?}");
        assert!(!has(&plan, "-model"), "{plan:?}");
        match plan.input {
            PromptInput::Whole(text) => assert_eq!(text, settings.prompt),
            PromptInput::Dialogue => {
                let dialogues = [Dialect::Codex, Dialect::Gemini, Dialect::OpenCode, Dialect::Acp];
                assert!(dialogues.contains(&dialect), "{dialect:?}");
            }
        }
    }
}

#[test]
fn claude_has_a_pinned_session_one_result_and_nothing_of_the_users_settings() {
    let plan = plan(Dialect::Claude, &settings());
    assert_eq!(plan.program, "claude");
    for argument in [
        "-p",
        "--output-format=stream-json",
        "--verbose",
        "--session-id=11111111-2222-4333-8444-555555555555",
        "--model=-model",
        "--max-turns=50",
        "--setting-sources=",
        "--strict-mcp-config",
        r#"--mcp-config={"mcpServers":{}}"#,
        "--permission-mode=default",
    ] {
        assert!(has(&plan, argument), "{argument}: {:?}", plan.arguments);
    }
    assert_eq!(variable(&plan, "CLAUDE_CONFIG_DIR"), Some("/state/worker-1"));
    assert_eq!(variable(&plan, "CLAUDE_CODE_MAX_RETRIES"), Some("2"));
    assert_eq!(variable(&plan, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"), Some("1"));
    assert_eq!(plan.credentials, [".credentials.json"]);
}

#[test]
fn claude_resumes_and_takes_tools_a_schema_and_what_was_asked_for() {
    let mut settings = settings();
    settings.session = SessionStart::Resume { id: ID.into() };
    settings.tools =
        ToolRules { allowed: vec!["Bash(git *)".into(), "Read".into()], denied: vec!["Write".into()] };
    settings.schema = Some(r#"{"type":"object"}"#.into());
    settings.permission = Permission::Everything;
    settings.mcp_config = Some("mcp.json".into());
    settings.setting_sources = Some("user".into());
    settings.extra = vec!["--effort=high".into()];
    settings.command = vec!["node".into(), "claude.js".into()];
    let plan = plan(Dialect::Claude, &settings);
    assert_eq!((plan.program.as_str(), plan.arguments[0].as_str()), ("node", "claude.js"));
    for argument in [
        "--resume=11111111-2222-4333-8444-555555555555",
        "--allowedTools=Bash(git *)",
        "--allowedTools=Read",
        "--disallowedTools=Write",
        r#"--json-schema={"type":"object"}"#,
        "--dangerously-skip-permissions",
        "--mcp-config=mcp.json",
        "--setting-sources=user",
        "--effort=high",
    ] {
        assert!(has(&plan, argument), "{argument}: {:?}", plan.arguments);
    }
    assert!(!plan.arguments.iter().any(|one| one.starts_with("--session-id")));
}

#[test]
fn codex_has_a_config_of_its_own_with_few_retries_and_its_prompt_on_standard_input() {
    let mut settings = settings();
    let key_variable = "MY \"KEY\"".to_owned();
    settings.provider = Some(ModelProvider { base_url: "http://127.0.0.1:1/v1".into(), key_variable });
    settings.schema = Some("{}".into());
    let server = plan(Dialect::Codex, &settings);
    assert_eq!(server.arguments, ["app-server", "--disable=plugins"]);
    assert_eq!(variable(&server, "CODEX_HOME"), Some("/state/worker-1"));
    let config = &server.files[0];
    assert_eq!(config.path, "config.toml");
    for line in [
        "model = \"-model\"",
        "model_provider = \"custom\"",
        "request_max_retries = 2",
        "stream_max_retries = 2",
        "env_key = \"MY \\\"KEY\\\"\"",
    ] {
        assert!(config.text.lines().any(|one| one == line), "{line}: {}", config.text);
    }
    assert!(!config.text.contains("mcp_servers"));

    settings.session = SessionStart::Resume { id: ID.into() };
    settings.permission = Permission::Edit;
    let exec = plan(Dialect::CodexExec, &settings);
    assert_eq!(
        exec.arguments,
        [
            "exec",
            "--json",
            "--disable=plugins",
            "--skip-git-repo-check",
            "--sandbox=workspace-write",
            "--model=-model",
            "--output-schema=/state/worker-1/schema.json",
            "resume",
            ID,
            "-"
        ]
    );
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_starts() {
    let refused = |change: fn(&mut AgentSettings)| {
        let mut settings = settings();
        change(&mut settings);
        Dialect::Claude.plan(&settings).unwrap_err()
    };
    let session = |id: &str| SessionStart::Resume { id: id.into() };
    for id in ["", "-x", "a b", "a/../b", "a\0"] {
        let settings = AgentSettings { session: session(id), ..settings() };
        for dialect in Dialect::ALL {
            assert_eq!(dialect.plan(&settings), Err(PlanError::SessionId(id.into())));
        }
    }
    assert!(matches!(refused(|one| one.schema = Some("{".into())), PlanError::Schema(_)));
    assert_eq!(refused(|one| one.extra = vec!["a\0".into()]), PlanError::Nul("extra"));
    assert_eq!(Dialect::Command.plan(&settings()), Err(PlanError::NoCommand));
    let mut resumed = AgentSettings { session: session(ID), ..settings() };
    resumed.command = vec!["agent".into()];
    assert_eq!(Dialect::Command.plan(&resumed), Err(PlanError::NoResume));
}

#[test]
fn a_dialect_has_a_name() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::named(dialect.name()), Some(dialect));
    }
    assert_eq!(Dialect::named("parrot"), None);
}
