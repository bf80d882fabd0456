//! `ostler up`: runs a node with the pools of a config file until it is stopped.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use ostler_process::supervisor::Contained;
use ostler_runtime::TakeOver;
use ostler_wire::system::ReadyEvent;

use super::{Console, command_node, config};
use crate::args::Up;
use crate::config::{Config, DetachedJobs, Listen};
use crate::exit::{Code, refused, say, warn};
use crate::log::{self, FILTER, LogFormat, LogLevel, UpLine, Verbosity};
use crate::print::Format;
use crate::store_location::CONFIG_FILE;
use crate::up::{self, NodePlan, UpNode, sandbox};

/// The variable for `--listen`.
const LISTEN: &str = "OSTLER_LISTEN";

pub(super) fn run(console: &Console, up: Up) -> anyhow::Result<Code> {
    let verbosity = up.verbosity();
    if up.commands {
        return command_node::run(console, up);
    }
    let is_found = up.config.is_none();
    let (file, mut config) = read(console, up.config)?;
    if let Some(listen) = asked(up.listen)? {
        config.api.listen = listen;
    }
    open_log(up.log.unwrap_or(config.log.format), verbosity, config.log.level)?;
    let mut place = console.place_by(|| Ok(Some(config.clone())))?.with_failover(config.failover);
    if is_found {
        config::enter_folder(&file, place.url_mut())?;
    }
    let config = sandbox::hide(config, place.url())?;
    for warning in config.secret_findings() {
        warn(&format!("{}: {}", file.display(), warning.sentence));
    }
    let take_over = if up.take_over { TakeOver::Yes } else { TakeOver::No };
    let name = up.name.or_else(|| config.name.clone()).unwrap_or_else(machine);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let watched = up.watch.then(|| folder.unwrap_or(Path::new(".")).to_owned());
    let plan = NodePlan { place, config, name, take_over, watched };
    serve(console, &file.display().to_string(), plan, |_| {})
}

/// Runs a node until it is stopped; `started` is called when it is up.
pub(super) fn serve(
    console: &Console,
    file: &str,
    plan: NodePlan,
    started: impl FnOnce(&UpNode),
) -> anyhow::Result<Code> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let plan = NodePlan { place: plan.place.with_node(&plan.name), ..plan };
    let announce = |plan: &NodePlan, up: &UpNode| {
        started(up);
        announce(console, file, plan, up);
    };
    let done = runtime.block_on(up::serve(plan, announce));
    // Calls that still wait for an unresponsive store are abandoned.
    runtime.shutdown_background();
    log::flush();
    done
}

/// Where the API is to listen, by the option or the environment.
fn asked(option: Option<Listen>) -> anyhow::Result<Option<Listen>> {
    if option.is_some() {
        return Ok(option);
    }
    let Some(text) = std::env::var_os(LISTEN).filter(|text| !text.is_empty()) else { return Ok(None) };
    let listen = Listen::parse(&text.to_string_lossy());
    listen.map(Some).map_err(|sentence| refused(Code::BadInput, format!("{LISTEN}: {sentence}")))
}

/// From here on, the node's events and the program's sentences go to the log.
pub(super) fn open_log(format: LogFormat, verbosity: Verbosity, level: LogLevel) -> anyhow::Result<()> {
    let env = std::env::var_os(FILTER).map(|env| env.to_string_lossy().into_owned());
    let which = log::filter(verbosity, env.as_deref(), level)
        .map_err(|sentence| refused(Code::BadInput, sentence))?;
    Ok(log::open(format, which)?)
}

/// Reads the config. A node without pools is refused: it would do nothing.
fn read(console: &Console, file: Option<PathBuf>) -> anyhow::Result<(PathBuf, Config)> {
    let none = || {
        let sentence = format!(
            "no {CONFIG_FILE} here or in a folder above; use --config FILE, or create one: ostler config --default > {CONFIG_FILE}"
        );
        refused(Code::BadInput, sentence)
    };
    let file = file.or_else(|| console.config_file()).ok_or_else(none)?;
    let config = config::required(&file)?;
    if config.pools.is_empty() && config.jobs == DetachedJobs::Left {
        let sentence = format!("{}: no pools; a node needs at least one: [pool.NAME]", file.display());
        return Err(refused(Code::BadInput, sentence));
    }
    Ok((file, config))
}

/// The host name, for a node without a configured name.
pub(crate) fn machine() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "node".to_owned() } else { name }
}

/// Says that the node is up: a line of JSON for programs, and a line of the log.
fn announce(console: &Console, file: &str, plan: &NodePlan, up: &UpNode) {
    let session = up.node.session();
    let ready = ReadyEvent::new(session, up.api.as_ref().map(|api| api.listen.clone()));
    if console.out.format() == Format::Json || !std::io::stdout().is_terminal() {
        // Write errors are ignored: the node works without a reader.
        let _ = console.out.json(&ready);
    }
    let contained = match up.supervisor.containment() {
        Contained::Cgroup => "control groups",
        Contained::Group => "process groups",
    };
    log::node_up(&UpLine {
        node: &plan.name,
        session: session.to_string(),
        store: plan.place.name(),
        config: file,
        pools: pools(&plan.config),
        containment: contained,
    });
    if let Some(api) = &up.api {
        let tokens = api.tokens.as_ref().map(|file| format!("; its tokens are in {}", file.display()));
        say(&format!("the HTTP API listens on {}{}", api.listen, tokens.unwrap_or_default()));
        // A link in a log could be read by others; on a terminal it is for the one who started the node.
        if let Some(login) = api.login.as_ref().filter(|_| std::io::stderr().is_terminal()) {
            say(&format!("the dashboard: {login} (valid once; for another link: ostler open)"));
        }
    }
    if let Some(warning) = plan.place.warning() {
        warn(&warning);
    }
}

/// The pools, for people.
fn pools(config: &Config) -> String {
    let each = config.pools.iter().map(|pool| format!("{} (max {})", pool.name, pool.scale.max));
    let jobs = match config.jobs {
        DetachedJobs::Served => Some("detached jobs".to_owned()),
        DetachedJobs::Left => None,
    };
    each.chain(jobs).collect::<Vec<_>>().join(", ")
}
