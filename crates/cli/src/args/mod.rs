//! Command-line arguments. Everything that can be checked without a store is checked here.

mod account;
mod add;
pub(crate) mod cost;
mod limits;
mod map;
mod plans;
mod recycle;
mod resume;
mod run;
mod schedule;
pub(crate) mod task_line;
mod tasks;
mod values;
mod verbs;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::config::Listen;
use crate::exit::{self, Code};
use crate::log::{LogFormat, Verbosity};

pub(crate) use account::AccountCommand;
pub(crate) use add::{Add, Wait};
pub(crate) use cost::CostArgs;
pub(crate) use limits::{BreakerCommand, QueueCommand, Set};
pub(crate) use map::{JobCommand, Map};
pub(crate) use plans::Amend;
pub(crate) use recycle::Recycle;
pub(crate) use resume::Resume;
pub(crate) use run::RunArgs;
pub(crate) use schedule::{AddSchedule, ScheduleCommand};
pub(crate) use tasks::{
    Cancel, Continue, DeadCommand, Filters, List, LogShape, Logs, One, PageArgs, Retry, Select, Show, Submit,
    TaskOptions,
};

/// The help heading for global options.
const EVERYWHERE: &str = "Options of every command";

/// A durable worker pool.
#[derive(Debug, Parser)]
#[command(
    name = "ostler",
    version,
    about = "A durable worker pool",
    after_help = exit::TABLE,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Globals {
    /// The store, such as sqlite:ostler.db [default: OSTLER_STORE, then ostler.toml here or above, then your state folder]
    #[arg(long, global = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(crate) store: Option<String>,
    /// A node to ask over HTTP instead of a store, such as http://127.0.0.1:7700 or unix:/path/api.sock [default: OSTLER_SERVER]
    #[arg(long, global = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(crate) server: Option<String>,
    /// Print JSON
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkersArgs {
    /// The last records of workers that are gone, newest first; the newest 1000 are kept
    #[arg(long)]
    pub(crate) gone: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take a tour on a temporary store: tasks, a crash, the recovery
    #[command(after_help = "Example: ostler demo")]
    Demo,
    /// A worker process of the demo
    #[command(hide = true, after_help = "Example: ostler demo")]
    DemoWorker { path: PathBuf, name: String },
    /// Run a command in this folder, with retries, a log and a node that is started when none is up
    ///
    /// The command gets PATH, HOME, LANG and TERM of this shell, and what --env names. It runs in this folder, as a task of the queue
    /// "commands": ostler queue set commands --concurrency 1 runs one at a time. The node goes on when this shell ends.
    #[command(after_help = "Example: ostler add -- make -j4")]
    Add(Add),
    /// Wait until tasks finish; exits with 0 if all of them completed
    #[command(after_help = "Example: ostler wait 01JC8Z0Q4M9T7N3V5X1B2D6F8H 6F8K --timeout 10m")]
    Wait(Wait),
    /// Write a short config to start from, ostler.toml, into this folder
    #[command(after_help = "Example: ostler init")]
    Init,
    /// Run a node with the pools of a config file
    #[command(after_help = "Example: ostler up --config ostler.toml")]
    Up(Up),
    /// Open the pages of a running node in a browser, by a login link that is valid once
    #[command(after_help = "Example: ostler open 01JC8Z0Q4M9T7N3V5X1B2D6F8H --print")]
    Open(OpenArgs),
    /// Enqueue a task and print its id; with --jsonl, many tasks
    #[command(after_help = "Example: ostler submit mail send --payload '{\"to\":\"anna\"}' --key welcome-17")]
    Submit(Submit),
    /// Give a prompt to a pool of agents and print the id of its task
    #[command(
        after_help = "Example: ostler run --prompt \"Review the code\" --folder . --id job_abc123 --wait"
    )]
    Run(RunArgs),
    /// List tasks, newest first
    #[command(after_help = "Example: ostler ls --state failed --where payload.tenant=acme")]
    Ls(List),
    /// Show a task in detail
    #[command(after_help = "Example: ostler show 01JC8Z0Q4M9T7N3V5X1B2D6F8H")]
    Show(Show),
    /// Print the logs of a task
    #[command(after_help = "Example: ostler logs -f key:welcome-17 --queue mail")]
    Logs(Logs),
    /// Cancel tasks; running ones are asked to stop
    #[command(visible_alias = "kill", after_help = "Example: ostler cancel --queue mail --kind send --yes")]
    Cancel(Cancel),
    /// Retry failed and cancelled tasks, and run waiting ones now
    #[command(after_help = "Example: ostler retry 01JC8Z0Q4M9T7N3V5X1B2D6F8H --from-scratch")]
    Retry(Retry),
    /// Go on with the conversation of a finished task: a new task with another prompt
    #[command(
        after_help = "Example: ostler continue key:review --queue reviews --prompt \"Now fix it\" --wait"
    )]
    Continue(Continue),
    /// Change the attempts, timeout or backoff of a task that has not finished
    #[command(after_help = "Example: ostler amend key:report --queue shell --attempts 10 --timeout 30m")]
    Amend(Amend),
    /// List, replay or remove dead letters: tasks that failed for good
    #[command(subcommand, after_help = "Example: ostler dead ls --queue mail")]
    Dead(DeadCommand),
    /// Manage schedules: recurring tasks
    #[command(subcommand, after_help = "Example: ostler schedule ls")]
    Schedule(ScheduleCommand),
    /// Run a command over many items, with retries and resume
    #[command(after_help = "Example: ostler map -j4 -- pandoc {} -o {.}.html ::: a.md b.md")]
    Map(Box<Map>),
    /// Manage jobs created by "ostler map"
    #[command(subcommand, after_help = "Example: ostler job ls")]
    Job(JobCommand),
    /// List running nodes
    #[command(after_help = "Example: ostler nodes --json")]
    Nodes,
    /// List the workers of all nodes, or those that are gone
    #[command(after_help = "Example: ostler workers --gone")]
    Workers(WorkersArgs),
    /// Show the store and config in use, nodes, queues, running tasks, and what is wrong
    #[command(after_help = "Example: ostler status")]
    Status,
    /// Show counts of tasks and workers, and durations
    #[command(after_help = "Example: ostler stats --queue mail")]
    Stats {
        /// Only this queue
        #[arg(long, value_name = "Q", value_parser = values::queue)]
        queue: Option<String>,
        /// List the queues of jobs too
        #[arg(long)]
        all: bool,
    },
    /// Watch queues, running tasks, workers, accounts and problems on a terminal
    ///
    /// Keys: 1 to 5 choose a table, j and k a row, enter opens the transcript of a task, p and r pause and resume a queue, C cancels a
    /// task after a question, q quits.
    #[command(after_help = "Example: ostler top --once")]
    Top(TopArgs),
    /// Show what was spent on models, by day, task, job, pool, account or model
    ///
    /// Days are those of UTC. The costs of tasks and attempts are those of tasks that are still stored; the others are kept for three
    /// years.
    #[command(after_help = "Example: ostler cost --by model --since 7d")]
    Cost(CostArgs),
    /// Pause a queue: none of its tasks starts until it is resumed
    #[command(after_help = "Example: ostler pause mail --reason \"the provider is down\"")]
    Pause {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
        /// Why, for others who find it paused
        #[arg(long, default_value = "paused by hand")]
        reason: String,
    },
    /// Resume a paused queue, or take back the drain of a node
    #[command(after_help = "Example: ostler resume mail")]
    Resume(Resume),
    /// Show and change the limits of queues
    #[command(subcommand, after_help = "Example: ostler queue show mail")]
    Queue(QueueCommand),
    /// Show, open and reset circuit breakers
    #[command(subcommand, after_help = "Example: ostler breaker ls")]
    Breaker(BreakerCommand),
    /// Show, hold and release accounts, whose limits queues share
    #[command(subcommand, after_help = "Example: ostler account ls")]
    Account(AccountCommand),
    /// Ask a node to finish its running tasks and exit
    #[command(after_help = "Example: ostler drain worker-1")]
    Drain {
        /// The node's id or name
        node: String,
    },
    /// Change a pool's number of workers on all nodes, until they restart
    #[command(after_help = "Example: ostler resize shell 2 16")]
    Resize(Resize),
    /// Restart idle workers (after a code change: ostler recycle POOL)
    #[command(after_help = "Example: ostler recycle --any documents")]
    Recycle(Recycle),
    /// Print or check a config file
    #[command(after_help = "Example: ostler config --default > ostler.toml")]
    Config(Config),
    /// Check, migrate, back up, restore, move or prune the store
    #[command(subcommand, after_help = "Example: ostler db backup ostler-backup.db")]
    Db(Db),
    /// Look for problems with this machine, the config and the store
    #[command(after_help = "Example: ostler doctor")]
    Doctor(Doctor),
    /// Serve tools for agents on standard input and output, by the Model Context Protocol
    ///
    /// It needs the store and no running node. Without --allow-changes there are only tools that look.
    #[command(after_help = "Example: ostler mcp --store sqlite:ostler.db")]
    Mcp(McpArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example: ostler completions bash > ~/.local/share/bash-completion/completions/ostler"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// `ostler up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// The config file [default: ostler.toml in this folder or above]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The node's name [default: the name in the config, then the host name]
    #[arg(long, value_name = "N", value_parser = values::node)]
    pub(crate) name: Option<String>,
    /// Where the HTTP API listens: an address such as 127.0.0.1:7700, unix:PATH, or none [default: OSTLER_LISTEN, then listen in
    /// the config]
    #[arg(long, value_name = "ADDRESS", value_parser = Listen::parse)]
    pub(crate) listen: Option<Listen>,
    /// Apply this node's queue settings even if another node has different ones
    #[arg(long)]
    pub(crate) take_over: bool,
    /// The format of the log on standard error [default: the one in the config, then text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,
    /// Log each task as well [default: OSTLER_LOG, then the level in the config]
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Log only failures
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Restart workers when program files in the folder of the config change, for development
    #[arg(long, conflicts_with = "commands")]
    pub(crate) watch: bool,
    /// Serve only the commands of "ostler add", with or without a config: of a config, store and settings are used, but no pools
    #[arg(long, conflicts_with = "take_over")]
    pub(crate) commands: bool,
    /// Started by "ostler add", with the lock as standard input
    #[arg(long, hide = true, requires = "commands")]
    pub(crate) background: bool,
}

impl Up {
    pub(crate) const fn verbosity(&self) -> Verbosity {
        match (self.verbose, self.quiet) {
            (true, _) => Verbosity::Verbose,
            (false, true) => Verbosity::Quiet,
            (false, false) => Verbosity::Unset,
        }
    }
}

/// `ostler config`.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false, id = "what")]
pub(crate) struct Config {
    /// Print the default config, with every key explained
    #[arg(long, group = "what")]
    pub(crate) default: bool,
    /// Check a config file [default: ostler.toml in this folder or above]
    #[arg(long, group = "what", value_name = "FILE", num_args = 0..=1)]
    pub(crate) check: Option<Option<PathBuf>>,
}

/// `ostler resize`.
#[derive(Debug, clap::Args)]
pub(crate) struct Resize {
    /// The pool
    pub(crate) pool: String,
    /// Minimum number of workers
    #[arg(value_name = "MIN")]
    pub(crate) min: u32,
    /// Maximum number of workers [default: MIN]
    #[arg(value_name = "MAX", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max: Option<u32>,
}

/// `ostler doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The config file [default: ostler.toml in this folder or above]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `ostler open`.
#[derive(Debug, clap::Args)]
pub(crate) struct OpenArgs {
    /// The page of this task, by id
    #[arg(value_parser = values::id)]
    pub(crate) task: Option<ostler_core::TaskId>,
    /// Only print the link
    #[arg(long)]
    pub(crate) print: bool,
    /// A link for a visitor who may only look
    #[arg(long)]
    pub(crate) readonly: bool,
}

/// `ostler top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Only look: no key changes anything
    #[arg(long)]
    pub(crate) readonly: bool,
    /// Print one screen and exit; with --json as JSON
    #[arg(long)]
    pub(crate) once: bool,
}

/// `ostler mcp`.
#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    /// Also serve tools that submit, create, approve, cancel, retry and pause
    #[arg(long)]
    pub(crate) allow_changes: bool,
    /// Print a SKILL.md that tells an agent how to use the tools
    #[arg(long, conflicts_with = "allow_changes")]
    pub(crate) skill: bool,
}

/// `ostler db move`.
#[derive(Debug, clap::Args)]
pub(crate) struct Move {
    /// The store to move [default: the store of --store and the config]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
    /// The target: an empty PostgreSQL database
    #[arg(long, value_name = "URL", required_unless_present = "abandon")]
    pub(crate) to: Option<String>,
    /// How long to wait for running tasks; then they are returned to the queue, and run again in the new store
    #[arg(long, value_name = "D", value_parser = values::duration, default_value = "30s")]
    pub(crate) wait: Duration,
    /// Abandon an unfinished move: the old store is used again
    #[arg(long)]
    pub(crate) abandon: bool,
}

/// `ostler db`.
#[derive(Debug, Subcommand)]
pub(crate) enum Db {
    /// Check the whole store for damage
    #[command(after_help = "Example: ostler db check --store sqlite:ostler.db")]
    Check,
    /// Migrate the store to this version of the program
    #[command(after_help = "Example: ostler db migrate --check")]
    Migrate {
        /// Only report what would be done
        #[arg(long)]
        check: bool,
    },
    /// Copy the store to a new file while nodes keep running
    #[command(after_help = "Example: ostler db backup ostler-backup.db")]
    Backup {
        /// The new file; it must not exist
        file: PathBuf,
    },
    /// Replace the store with a backup; the old file is kept under another name
    #[command(after_help = "Example: ostler db restore ostler-backup.db")]
    Restore {
        /// The backup; it is not changed
        file: PathBuf,
    },
    /// Move the store to PostgreSQL, and mark the old one as moved
    #[command(
        after_help = "Example: ostler db move --from sqlite:ostler.db --to postgres://ostler@db.example.org/work"
    )]
    Move(Move),
    /// Remove old finished tasks
    #[command(after_help = "Example: ostler db prune --completed-older 1d --failed-older 30d")]
    Prune {
        /// Completed and cancelled tasks that finished longer ago than this [default: 7d]
        #[arg(long, value_name = "D", value_parser = values::duration)]
        completed_older: Option<Duration>,
        /// Failed tasks that finished longer ago than this [default: 30d]
        #[arg(long, value_name = "D", value_parser = values::duration)]
        failed_older: Option<Duration>,
        /// Orphaned steps, attempts and events older than this [default: 7d]
        #[arg(long, value_name = "D", value_parser = values::duration)]
        strays_older: Option<Duration>,
    },
}

/// Parses the command line. After help or a usage error: the exit code.
pub(crate) fn parse() -> Result<Args, Code> {
    let words = verbs::translate(std::env::args_os());
    Args::try_parse_from(&words).map_err(|error| tell(&error, &words))
}

/// The whole command line, for completions.
pub(crate) fn command() -> clap::Command {
    Args::command()
}

fn tell(error: &clap::Error, words: &[OsString]) -> Code {
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    let asked_for = is(&[ErrorKind::DisplayHelp, ErrorKind::DisplayVersion]);
    if asked_for || is(&[ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand]) {
        // Write errors are ignored.
        let _ = error.print();
        return if asked_for { Code::Done } else { Code::BadInput };
    }
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(verb)) => Some(verb),
        Some(_) | None => None,
    };
    if is(&[ErrorKind::InvalidUtf8]) {
        exit::say("an argument is not UTF-8 text");
    } else if let Some((verb, command)) = unknown.and_then(|verb| Some((verb, verbs::instead(verb, words)?)))
    {
        exit::say(&format!("there is no command \"{verb}\"; use {command}"));
    } else {
        let text = error.render().to_string();
        exit::say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    }
    Code::BadInput
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_example_is_understood() {
        let mut left = vec![command()];
        let mut seen = 0;
        while let Some(next) = left.pop() {
            left.extend(next.get_subcommands().cloned());
            let help = next.get_after_help().map(ToString::to_string).unwrap_or_default();
            let Some(example) = help.strip_prefix("Example: ") else { continue };
            if let Err(error) = Args::try_parse_from(words(example)) {
                panic!("{example}: {error}");
            }
            seen += 1;
        }
        assert!(seen > 20, "only {seen} examples");
    }

    /// Splits a line into words as a shell would, up to a redirection.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap_or(line);
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            let word = words.last_mut().expect("there is one");
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), _) if open == c => quote = None,
                (None, ' ') => words.push(String::new()),
                (None | Some(_), _) => word.push(c),
            }
        }
        words
    }
}
