//! Runs the guides: every command in a `console` block is run, in order, in a folder of its own, and must print the quoted output. In
//! quoted output, `…` stands for any text in a line, and a line `…` for any lines.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ostler_testkit::{LlmReply, LlmRequest, LlmServer, PrivatePostgres, PrivateRedis, chat_events, scratch};

/// What `ostler submit` prints before the node of a guide and its workers are up, and while others keep the machine busy.
const NOT_UP_YET: [&str; 4] = ["no node is up", "has no worker yet", " busy; ", "takes the kind"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command of a page, and its quoted output.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    prints: Vec<String>,
}

/// A file that a page asks the reader to write: a block that starts with a comment naming it.
struct File {
    name: String,
    text: String,
}

fn blocks<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> + 'a {
    let fence = format!("```{language}\n");
    page.match_indices(&fence).map(|(at, fence)| at + fence.len()).collect::<Vec<_>>().into_iter().map(|at| {
        let rest = &page[at..];
        &rest[..rest.find("```").expect("a block ends")]
    })
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in blocks(page, "console").flat_map(str::lines) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command: command.to_owned(), prints: Vec::new() }),
            (None, Some(step)) => step.prints.push(line.to_owned()),
            (None, None) => panic!("a console block begins with a command, not with {line:?}"),
        }
    }
    steps
}

fn files(page: &str) -> Vec<File> {
    let named = |text: &str| {
        let name = text.lines().next()?.strip_prefix("# ")?.to_owned();
        Some(File { name, text: text.to_owned() })
    };
    let is_program = |file: &File| Path::new(&file.name).extension().is_some_and(|end| end == "py");
    let programs = blocks(page, "python").filter_map(named).filter(is_program);
    blocks(page, "toml").filter_map(named).chain(programs).collect()
}

/// Kills the background processes of a page, even if the test fails.
struct Background(Vec<Child>);

impl Drop for Background {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The environment variables with the URLs of a PostgreSQL server, a Redis and a model.
const SERVER: &str = "DATABASE_URL";
const REDIS: &str = "REDIS_URL";
const MODEL: &str = "LLM_URL";

/// A program named claude that asks no model, for the pages that run agents.
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/tools/stand_in_claude.py");
/// What a page with agents contains.
const AGENT: &str = "--agent claude";
/// An agent of the Agent Client Protocol, which stands beside the config of the pages that name it.
const ACP_AGENT: &str = "acp_agent.py";
/// The folder with that program, which stands before all others in the path.
const BIN: &str = ".bin";

/// Installs the stand-in, and logs it in.
fn install_agent(folder: &Path) {
    let (bin, login) = (folder.join(BIN), folder.join(".claude"));
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::create_dir_all(&login).expect("a folder");
    std::fs::write(login.join(".credentials.json"), "{}").expect("a login");
    let log = folder.join(BIN).join("log");
    let script = format!("#!/bin/sh\nSTAND_IN_LOG='{}' exec python3 '{STAND_IN}' \"$@\"\n", log.display());
    std::fs::write(bin.join("claude"), script).expect("a program");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("claude"), mode).expect("its mode");
}

/// What a page with programs in Python contains.
const PYTHON_SDK: &str = "from ostler import";

/// Puts the SDK beside the programs of a page, as after `pip install ./sdk/python`.
fn install_python_sdk(folder: &Path) {
    let package = folder.join("ostler");
    std::fs::create_dir(&package).expect("a folder");
    for file in std::fs::read_dir(root().join("sdk/python/ostler")).expect("the SDK is there") {
        let path = file.expect("the folder can be read").path();
        if path.is_file() {
            std::fs::copy(&path, package.join(path.file_name().expect("a file has a name"))).expect("a copy");
        }
    }
}

/// The variable with the port of a gateway, and the program that a page starts there.
const PORT: &str = "GATEWAY_PORT";
const GATEWAY: &str = "gateway.py";

/// What a page with programs in JavaScript contains.
const JAVASCRIPT_SDK: &str = "from \"ostler";

/// Writes the programs in JavaScript, whose first line names them, and puts the SDK beside them as `npm install` does.
fn install_javascript(folder: &Path, page: &str) {
    for program in blocks(page, "js") {
        let name = program.lines().next().and_then(|line| line.strip_prefix("// "));
        if let Some(name) = name.filter(|name| Path::new(name).extension().is_some_and(|end| end == "mjs")) {
            std::fs::write(folder.join(name), program).expect("the program is written");
        }
    }
    let modules = folder.join("node_modules");
    std::fs::create_dir(&modules).expect("a folder");
    let sdk = root().join("sdk/js").canonicalize().expect("the SDK is there");
    std::os::unix::fs::symlink(sdk, modules.join("ostler")).expect("a link");
}

/// The servers that a page needs.
struct Servers {
    postgres: Option<String>,
    redis: Option<PrivateRedis>,
    port: Option<String>,
    model: Option<LlmServer>,
}

/// A port that is free now.
fn free_port() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr());
    free.expect("a port").port().to_string()
}

impl Servers {
    fn of(page: &str) -> Self {
        Self {
            postgres: page.contains(SERVER).then(|| PrivatePostgres::shared().url()),
            redis: page.contains(REDIS).then(PrivateRedis::start),
            port: page.contains(PORT).then(free_port),
            model: page.contains(MODEL).then(|| LlmServer::start(labelled)),
        }
    }

    fn variables(&self) -> [(&'static str, Option<String>); 4] {
        [
            (SERVER, self.postgres.clone()),
            (REDIS, self.redis.as_ref().map(PrivateRedis::url)),
            (PORT, self.port.clone()),
            (MODEL, self.model.as_ref().map(LlmServer::url)),
        ]
    }
}

/// A model that is always pleased, and answers with JSON if it is asked to.
fn labelled(request: &LlmRequest) -> LlmReply {
    let answer =
        if request.body.contains("JSON schema") { "{\"label\": \"praise\"}" } else { "It is praise." };
    LlmReply::stream(chat_events(answer, 100, 20))
}

fn shell(folder: &Path, servers: &Servers, command: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_ostler"));
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = program.parent().expect("a program is in a folder").display();
    let mut shell = Command::new("sh");
    let agents = folder.join(BIN).display().to_string();
    shell.args(["-c", command]).current_dir(folder).env("PATH", format!("{agents}:{bin}:{path}"));
    // Pages run at once, and one address has one node; the page about the API names its own.
    shell.env("OSTLER_LISTEN", "none").env_remove("OSTLER_TOKEN").env_remove("OSTLER_SERVER");
    shell.env_remove("ANTHROPIC_API_KEY").env_remove("CLAUDE_CONFIG_DIR");
    for (name, url) in servers.variables() {
        match url {
            Some(url) => shell.env(name, url),
            None => shell.env_remove(name),
        };
    }
    shell.env("HOME", folder).env_remove("OSTLER_STORE").env_remove("XDG_STATE_HOME").stdin(Stdio::null());
    shell
}

fn run(page: &str) {
    let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let folder = scratch();
    let servers = Servers::of(&text);
    let mut background = Background(Vec::new());
    for file in files(&text) {
        std::fs::write(folder.path().join(&file.name), &file.text).expect("the file is written");
    }
    if servers.port.is_some() {
        let program = root().join("examples").join(GATEWAY);
        std::fs::copy(program, folder.path().join(GATEWAY)).expect("the example is there");
    }
    if text.contains(AGENT) {
        install_agent(folder.path());
    }
    if text.contains(PYTHON_SDK) {
        install_python_sdk(folder.path());
    }
    if text.contains(ACP_AGENT) {
        let agent = root().join("examples").join(ACP_AGENT);
        std::fs::copy(agent, folder.path().join(ACP_AGENT)).expect("the example is there");
    }
    if text.contains(JAVASCRIPT_SDK) {
        install_javascript(folder.path(), &text);
    }
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{page} has commands");
    for Step { command, prints } in steps {
        if let Some(command) = command.strip_suffix(" &") {
            let mut started = shell(folder.path(), &servers, &format!("exec {command}"));
            let child = started.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
            background.0.push(child);
            continue;
        }
        let output =
            shell(folder.path(), &servers, &format!("exec 2>&1; {command}")).output().expect("it runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        // A node that was started in the background may not be up yet, and a submission says so.
        let is_early =
            |line: &&str| line.starts_with("ostler: ") && NOT_UP_YET.iter().any(|words| line.contains(words));
        let lines: Vec<&str> = printed.lines().map(str::trim_end).filter(|line| !is_early(line)).collect();
        let prints: Vec<&str> = prints.iter().map(|line| line.trim_end()).collect();
        assert!(
            matches(&prints, &lines),
            "{page}: $ {command}\nsays that it prints\n{}\nand printed\n{printed}",
            prints.join("\n")
        );
    }
}

/// Whether the output matches the quoted one.
fn matches(said: &[&str], printed: &[&str]) -> bool {
    match (said.split_first(), printed.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((&"…", rest)), _) => (0..=printed.len()).any(|skip| matches(rest, &printed[skip..])),
        (Some(_), None) => false,
        (Some((line, rest)), Some((first, more))) => line_matches(line, first) && matches(rest, more),
    }
}

fn line_matches(said: &str, printed: &str) -> bool {
    let mut parts = said.split('…');
    let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The guides with commands, each run by its own test.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $name() {
            run($page);
        })*
    };
}

pages! {
    the_guide_to_a_hundred_documents_prints_what_it_says: "docs/guide/a-hundred-documents.md",
    the_guide_to_agents_prints_what_it_says: "docs/guide/agents.md",
    the_guide_to_the_agent_client_protocol_prints_what_it_says: "docs/guide/acp.md",
    the_guide_to_the_api_prints_what_it_says: "docs/guide/api.md",
    the_guide_to_the_command_line_prints_what_it_says: "docs/guide/command-line.md",
    the_guide_to_accounts_prints_what_it_says: "docs/guide/accounts.md",
    the_guide_to_failures_prints_what_it_says: "docs/guide/failures.md",
    the_guide_to_gateways_prints_what_it_says: "docs/guide/gateway.md",
    the_guide_to_functions_prints_what_it_says: "docs/guide/functions.md",
    the_guide_to_javascript_prints_what_it_says: "docs/guide/javascript.md",
    the_guide_to_models_prints_what_it_says: "docs/guide/llm.md",
    the_guide_to_users_functions_prints_what_it_says: "docs/guide/users-functions.md",
    the_guide_to_limits_prints_what_it_says: "docs/guide/limits.md",
    the_guide_to_many_machines_prints_what_it_says: "docs/guide/postgres.md",
    the_guide_to_map_prints_what_it_says: "docs/guide/map.md",
    the_guide_to_mcp_prints_what_it_says: "docs/guide/mcp.md",
    the_guide_to_metrics_prints_what_it_says: "docs/guide/metrics.md",
    the_guide_to_observability_prints_what_it_says: "docs/guide/observability.md",
    the_guide_to_presence_prints_what_it_says: "docs/guide/presence.md",
    the_guide_to_processes_prints_what_it_says: "docs/guide/processes.md",
    the_guide_to_python_prints_what_it_says: "docs/guide/python.md",
    the_guide_to_schedules_prints_what_it_says: "docs/guide/schedules.md",
    the_guide_to_services_prints_what_it_says: "docs/guide/service.md",
    the_guide_to_sql_prints_what_it_says: "docs/guide/sql.md",
    the_guide_for_users_of_bullmq_prints_what_it_says: "docs/guide/from-bullmq.md",
    the_guide_for_users_of_celery_prints_what_it_says: "docs/guide/from-celery.md",
    the_guide_for_users_of_rq_prints_what_it_says: "docs/guide/from-rq.md",
}

#[test]
fn every_guide_with_commands_is_run() {
    for file in std::fs::read_dir(root().join("docs/guide")).expect("there are guides") {
        let path = file.expect("the folder can be read").path();
        let text = std::fs::read_to_string(&path).expect("a guide is text");
        let name = format!("docs/guide/{}", path.file_name().expect("a file has a name").display());
        assert!(steps(&text).is_empty() || PAGES.contains(&name.as_str()), "{name} is not run");
    }
}

#[test]
fn what_is_left_out_may_be_anything_and_the_rest_may_not() {
    assert!(matches(&["a … c"], &["a b c"]));
    assert!(matches(&["a", "…", "z"], &["a", "b", "c", "z"]));
    assert!(matches(&["…"], &[]));
    assert!(!matches(&["a … c"], &["a b d"]));
    assert!(!matches(&["a"], &["a", "b"]));
    assert!(!matches(&["a", "b"], &["a"]));
}
