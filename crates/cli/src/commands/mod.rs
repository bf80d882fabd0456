//! The commands: one file each, or one for a few that belong together.

mod account;
mod add;
mod amend;
mod background;
mod breaker;
mod cancel;
mod command_node;
mod completions;
mod config;
mod continuation;
mod cost;
mod db;
mod db_move;
mod dead;
mod doctor;
mod drain;
mod init;
mod job;
mod leftovers;
mod list;
mod log_lines;
mod logs;
mod map;
mod mcp;
mod nodes;
mod obstacles;
mod open;
mod payload;
mod queue;
mod queues;
mod recycle;
mod remote;
mod resize;
mod retry;
mod run;
mod schedule;
mod selection;
mod show;
mod stats;
mod status;
mod submit;
mod submit_lines;
mod task_name;
mod top;
mod up;
mod wait;
mod workers;

use std::cell::OnceCell;
use std::future::Future;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use ostler::RemoteClient;
use ostler_ops::overview::JobQueues;
use ostler_store::calls::StepsOnReplay;

use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Args, Command, DeadCommand, Globals, Resume};
use crate::config::Config;
use crate::config_search::FoundConfig;
use crate::demo;
use crate::exit::{Code, refused, say, warn};
use crate::print::{Format, Out};
use crate::store_location::{STORE_VARIABLE, StoreLocation};
use crate::up::token_file;

pub(crate) use up::machine;

/// The environment variable with the address of a node.
const SERVER_VARIABLE: &str = "OSTLER_SERVER";

/// What every command needs: which store, and where to print.
struct Console {
    globals: Globals,
    out: Out,
    /// The config that was found, once it was looked for.
    config: OnceCell<Option<FoundConfig>>,
}

impl Console {
    fn new(globals: Globals) -> Self {
        let format = if globals.json { Format::Json } else { Format::People };
        Self { globals, out: Out::new(format), config: OnceCell::new() }
    }

    /// The node to ask, if one is named: by `--server`, or by `OSTLER_SERVER` unless there is a `--store`.
    fn node(&self) -> anyhow::Result<Option<RemoteClient>> {
        let here = || server_here().filter(|_| self.globals.store.is_none());
        let Some(url) = self.globals.server.clone().or_else(here) else { return Ok(None) };
        // Clap does not see that two options exclude each other if one stands before the command and one after it.
        if self.globals.store.is_some() {
            return Err(refused(Code::BadInput, "name a --store or a --server, not both"));
        }
        let node = ostler::connect(&url)?;
        if std::env::var_os("OSTLER_TOKEN").is_some_and(|token| !token.is_empty()) {
            return Ok(Some(node));
        }
        // On the machine of the node, the file beside the store that a command would use has the token.
        let file = self.place().and_then(|place| token_file(place.url()));
        match file {
            Ok(file) if file.is_file() => Ok(Some(node.with_token_file(file)?)),
            Ok(_) | Err(_) => Ok(Some(node)),
        }
    }

    /// Whether an option or the environment names the store.
    fn names_store(&self) -> bool {
        self.globals.store.is_some() || std::env::var_os(STORE_VARIABLE).is_some_and(|url| !url.is_empty())
    }

    /// The config file of this folder, or of the nearest one above it that has one. One above this folder is named once, on a terminal.
    fn config_file(&self) -> Option<PathBuf> {
        let found = self.config.get_or_init(|| {
            let found = FoundConfig::search();
            match &found {
                Some(FoundConfig::Above(file)) if std::io::stderr().is_terminal() => {
                    say(&format!("using {}", file.display()));
                }
                Some(FoundConfig::OfAnotherUser(file)) => warn(&format!(
                    "{} belongs to another user and is not used; to use its store, name it with --store",
                    file.display()
                )),
                Some(FoundConfig::Above(_) | FoundConfig::Here(_)) | None => {}
            }
            found
        });
        found.clone().and_then(FoundConfig::file)
    }

    /// The store of this command.
    fn place(&self) -> anyhow::Result<StoreLocation> {
        self.place_by(|| match self.config_file() {
            Some(path) => Ok(Some(config::of_store(&path)?)),
            None => Ok(None),
        })
    }

    /// The store of this command, with this config.
    fn place_by(
        &self,
        config: impl FnOnce() -> anyhow::Result<Option<Config>>,
    ) -> anyhow::Result<StoreLocation> {
        StoreLocation::find(self.globals.store.as_deref(), &|name| std::env::var_os(name), config)
    }
}

/// The node that the environment names.
fn server_here() -> Option<String> {
    std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty())
}

/// Runs a command.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    survive_file_size_limit()?;
    let console = Console::new(args.globals);
    if let Some(node) = console.node()? {
        return block_on(remote::run(&console, &node, args.command));
    }
    match args.command {
        Command::Demo => demo::run().map(|()| Code::Done),
        Command::DemoWorker { path, name } => demo::run_worker(&path, &name).map(|()| Code::Done),
        Command::Up(up) => up::run(&console, up),
        Command::Open(open) => block_on(open::run(&console, &open)),
        Command::Add(add) => block_on(add::run(&console, add)),
        Command::Wait(wait) => block_on(wait::run(&console, &wait)),
        Command::Init => init::run(&console),
        Command::Submit(submit) => block_on(submit::run(&console, submit)),
        Command::Run(run) => block_on(run::run(&console, run)),
        Command::Ls(list) => block_on(list::run(&console, &list)),
        Command::Show(show) => block_on(show::run(&console, &show.one)),
        Command::Logs(logs) => block_on(logs::run(&console, &logs)),
        Command::Cancel(cancel) => block_on(cancel::run(&console, &cancel.select)),
        Command::Retry(retry) => block_on(retry::run(&console, retry)),
        Command::Continue(what) => block_on(continuation::run(&console, what)),
        Command::Amend(amend) => block_on(amend::run(&console, &amend)),
        Command::Dead(dead) => match dead {
            DeadCommand::Ls { filters, page } => block_on(dead::list(&console, &filters.filters(), &page)),
            DeadCommand::Show(show) => block_on(dead::show(&console, &show.one)),
            DeadCommand::Replay { select, from_scratch, payload } => {
                let steps = if from_scratch { StepsOnReplay::Drop } else { StepsOnReplay::Keep };
                block_on(dead::replay(&console, &select.select(), steps, payload))
            }
            DeadCommand::Drop(select) => block_on(dead::drop(&console, &select.select())),
        },
        Command::Schedule(what) => block_on(schedule::run(&console, what)),
        Command::Map(what) => map::run(&console, &what),
        Command::Job(what) => block_on(job::run(&console, what)),
        Command::Nodes => block_on(nodes::run(&console)),
        Command::Workers(which) => block_on(workers::run(&console, which)),
        Command::Status => block_on(status::run(&console)),
        Command::Stats { queue, all } => {
            block_on(stats::run(&console, queue, if all { JobQueues::Listed } else { JobQueues::Hidden }))
        }
        Command::Pause { queue, reason } => block_on(queues::pause(&console, &queue, reason)),
        Command::Resume(Resume { node: Some(node), .. }) => block_on(drain::resume(&console, &node)),
        // One of the two is required.
        Command::Resume(Resume { queue, node: None }) => {
            block_on(queues::resume(&console, &queue.unwrap_or_default()))
        }
        Command::Top(args) => block_on(top::run(&console, &args)),
        Command::Cost(cost) => block_on(cost::run(&console, &cost)),
        Command::Queue(what) => block_on(queue::run(&console, what)),
        Command::Breaker(what) => block_on(breaker::run(&console, what)),
        Command::Account(what) => block_on(account::run(&console, what)),
        Command::Drain { node } => block_on(drain::run(&console, &node)),
        Command::Resize(what) => block_on(resize::run(&console, what)),
        Command::Recycle(whom) => block_on(recycle::run(&console, whom)),
        Command::Config(what) => config::run(&console, what),
        Command::Db(what) => block_on(db::run(&console, what)),
        Command::Doctor(doctor) => block_on(doctor::run(&console, doctor.config)),
        Command::Mcp(what) => block_on(mcp::run(&console, &what)),
        Command::Completions { shell } => completions::run(&console, shell),
    }
}

/// Handles SIGXFSZ, which would kill a process that writes a file larger than `ulimit -f`. The write then fails instead, as on a
/// full disk. Children start with the default action of the signal.
fn survive_file_size_limit() -> anyhow::Result<()> {
    // A signal handler, once installed, stays installed after this runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    Ok(())
}

/// Runs to completion, or until it is interrupted. Anything already written to the store stays.
fn block_on(work: impl Future<Output = anyhow::Result<Code>>) -> anyhow::Result<Code> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = work => done,
            signal = tokio::signal::ctrl_c() => {
                signal?;
                Ok(Code::Interrupted)
            }
        }
    });
    // A thread may still be reading from a terminal, for an answer that is no longer needed.
    runtime.shutdown_background();
    done
}
