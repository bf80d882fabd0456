//! What may be said on the command line. Everything that can be checked without a store is checked here.

mod limits;
mod map;
mod plans;
mod recycle;
mod schedule;
mod tasks;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::exit::{self, Code};

pub(crate) use limits::{BreakerCommand, QueueCommand, Set};
pub(crate) use map::{JobCommand, JobName, Map};
pub(crate) use plans::Amend;
pub(crate) use recycle::Recycle;
pub(crate) use schedule::{AddSchedule, ScheduleCommand};
pub(crate) use tasks::{
    Cancel, DeadCommand, Filters, List, Logs, One, PageArgs, Retry, Select, SelectedTasks, Show, Submit,
};
pub(crate) use values::TaskName;

/// The heading over what every command takes.
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

/// What every command takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Globals {
    /// The store, such as sqlite:ostler.db [else: OSTLER_STORE, then ostler.toml here, then your state folder]
    #[arg(long, global = true, value_name = "URL", help_heading = EVERYWHERE)]
    pub(crate) store: Option<String>,
    /// Print JSON, for programs
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A tour on a temporary store: work, a crash, its recovery
    #[command(after_help = "Example: ostler demo")]
    Demo,
    /// One worker process of the demo
    #[command(hide = true, after_help = "Example: ostler demo")]
    DemoWorker {
        /// Its store
        path: PathBuf,
        /// Its name
        name: String,
    },
    /// Run a node: the pools of a config file
    #[command(after_help = "Example: ostler up --config ostler.toml")]
    Up(Up),
    /// Enqueue a task, and print its id
    #[command(after_help = "Example: ostler submit mail send --payload '{\"to\":\"anna\"}' --key welcome-17")]
    Submit(Submit),
    /// List tasks, the newest first
    #[command(after_help = "Example: ostler ls --state failed --where payload.tenant=acme")]
    Ls(List),
    /// Show all about a task
    #[command(after_help = "Example: ostler show 01JC8Z0Q4M9T7N3V5X1B2D6F8H")]
    Show(Show),
    /// Print what a task wrote
    #[command(after_help = "Example: ostler logs -f key:welcome-17 --queue mail")]
    Logs(Logs),
    /// Cancel tasks, or ask their workers to stop
    #[command(after_help = "Example: ostler cancel --queue mail --kind send --yes")]
    Cancel(Cancel),
    /// Give failed and cancelled tasks another go, and waiting ones their turn now
    #[command(after_help = "Example: ostler retry 01JC8Z0Q4M9T7N3V5X1B2D6F8H --from-scratch")]
    Retry(Retry),
    /// Say something else about the tries and the time of a task that has not ended
    #[command(after_help = "Example: ostler amend key:report --queue shell --attempts 10 --timeout 30m")]
    Amend(Amend),
    /// Dead letters: tasks that failed for good
    #[command(subcommand, after_help = "Example: ostler dead ls --queue mail")]
    Dead(DeadCommand),
    /// Work that comes again and again
    #[command(subcommand, after_help = "Example: ostler schedule ls")]
    Schedule(ScheduleCommand),
    /// Run a command over many items, and lose none of them
    #[command(after_help = "Example: ostler map -j4 -- pandoc {} -o {.}.html ::: a.md b.md")]
    Map(Box<Map>),
    /// Jobs: what "ostler map" has made
    #[command(subcommand, after_help = "Example: ostler job ls")]
    Job(JobCommand),
    /// List the running nodes
    #[command(after_help = "Example: ostler nodes --json")]
    Nodes,
    /// List the workers of all nodes
    #[command(after_help = "Example: ostler workers")]
    Workers,
    /// Counts of tasks and workers, and how long work took
    #[command(after_help = "Example: ostler stats --queue mail")]
    Stats {
        /// Only this queue
        #[arg(long, value_name = "Q", value_parser = values::queue)]
        queue: Option<String>,
    },
    /// Serve nothing of a queue until it is resumed
    #[command(after_help = "Example: ostler pause mail --reason \"the provider is down\"")]
    Pause {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
        /// Why, for whoever finds it paused
        #[arg(long, default_value = "paused by hand")]
        reason: String,
    },
    /// Serve a paused queue again
    #[command(after_help = "Example: ostler resume mail")]
    Resume {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
    },
    /// The limits of queues: see them, and change them while nodes run
    #[command(subcommand, after_help = "Example: ostler queue show mail")]
    Queue(QueueCommand),
    /// Breakers: work that keeps failing is stopped, and tried again with care
    #[command(subcommand, after_help = "Example: ostler breaker ls")]
    Breaker(BreakerCommand),
    /// Ask a node to take no more work, to end what it has, and to go
    #[command(after_help = "Example: ostler drain worker-1")]
    Drain {
        /// The node's id or name
        node: String,
    },
    /// Give a pool another number of workers, wherever it runs, until its node ends
    #[command(after_help = "Example: ostler resize shell 2 16")]
    Resize(Resize),
    /// Replace idle workers by new ones; a busy one stays
    #[command(after_help = "Example: ostler recycle --any documents")]
    Recycle(Recycle),
    /// Print or check a config file
    #[command(after_help = "Example: ostler config --default > ostler.toml")]
    Config(Config),
    /// The care of the store's file
    #[command(subcommand, after_help = "Example: ostler db backup ostler-backup.db")]
    Db(Db),
    /// Look for what is wrong with this machine, the config and the store
    #[command(after_help = "Example: ostler doctor")]
    Doctor(Doctor),
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
    /// The config file [else: ostler.toml in this folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What people call the node [else: the config's name, then the machine's]
    #[arg(long, value_name = "N", value_parser = values::node)]
    pub(crate) name: Option<String>,
    /// Let this node's settings of its queues hold, though another node has others
    #[arg(long)]
    pub(crate) take_over: bool,
}

/// `ostler config`.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false, id = "what")]
pub(crate) struct Config {
    /// Print the default config, with every key explained
    #[arg(long, group = "what")]
    pub(crate) default: bool,
    /// Say what is wrong with a config file [else: ostler.toml in this folder]
    #[arg(long, group = "what", value_name = "FILE", num_args = 0..=1)]
    pub(crate) check: Option<Option<PathBuf>>,
}

/// `ostler resize`.
#[derive(Debug, clap::Args)]
pub(crate) struct Resize {
    /// The pool
    pub(crate) pool: String,
    /// Workers that it keeps at least
    #[arg(value_name = "MIN")]
    pub(crate) min: u32,
    /// Workers that it has at most
    #[arg(value_name = "MAX", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max: u32,
}

/// `ostler doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The config file [else: ostler.toml in this folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `ostler db move`.
#[derive(Debug, clap::Args)]
pub(crate) struct Move {
    /// The store to move [else: the one that --store and the config name]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
    /// Where it goes: an empty database of a PostgreSQL server
    #[arg(long, value_name = "URL", required_unless_present = "abandon")]
    pub(crate) to: Option<String>,
    /// How long tasks that run may take to end; then they are handed back, and run again at the new place
    #[arg(long, value_name = "D", value_parser = values::duration, default_value = "30s")]
    pub(crate) wait: Duration,
    /// Give up a move that has not ended: the old store works as before
    #[arg(long)]
    pub(crate) abandon: bool,
}

/// `ostler db`.
#[derive(Debug, Subcommand)]
pub(crate) enum Db {
    /// Look through the whole file for damage
    #[command(after_help = "Example: ostler db check --store sqlite:ostler.db")]
    Check,
    /// Bring the store up to this version of the program
    #[command(after_help = "Example: ostler db migrate --check")]
    Migrate {
        /// Only look
        #[arg(long)]
        check: bool,
    },
    /// Copy the store into a new file, while nodes go on
    #[command(after_help = "Example: ostler db backup ostler-backup.db")]
    Backup {
        /// The copy; it must not be there yet
        file: PathBuf,
    },
    /// Put a backup in the place of the store, and keep what was there under another name
    #[command(after_help = "Example: ostler db restore ostler-backup.db")]
    Restore {
        /// The backup; it is only read
        file: PathBuf,
    },
    /// Move the whole store to PostgreSQL, and mark the old one
    #[command(
        after_help = "Example: ostler db move --from sqlite:ostler.db --to postgres://ostler@db.example.org/work"
    )]
    Move(Move),
    /// Remove ended tasks that are old enough
    #[command(after_help = "Example: ostler db prune --completed-older 1d --failed-older 30d")]
    Prune {
        /// Completed and cancelled tasks that ended longer ago than this [else: 7d]
        #[arg(long, value_name = "D", value_parser = values::duration)]
        completed_older: Option<Duration>,
        /// Failed tasks that ended longer ago than this [else: 30d]
        #[arg(long, value_name = "D", value_parser = values::duration)]
        failed_older: Option<Duration>,
        /// Steps, attempts and events of no task that are older than this [else: 7d]
        #[arg(long, value_name = "D", value_parser = values::duration)]
        strays_older: Option<Duration>,
    },
}

/// What was said; or, when help was asked for or nothing sensible was said, how the program ends.
pub(crate) fn parse() -> Result<Args, Code> {
    Args::try_parse().map_err(|error| tell(&error))
}

/// The whole command line, for completions.
pub(crate) fn command() -> clap::Command {
    Args::command()
}

fn tell(error: &clap::Error) -> Code {
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    let asked_for = is(&[ErrorKind::DisplayHelp, ErrorKind::DisplayVersion]);
    if asked_for || is(&[ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand]) {
        // Nobody may read it any more, and that is all right.
        let _ = error.print();
        return if asked_for { Code::Done } else { Code::BadInput };
    }
    if is(&[ErrorKind::InvalidUtf8]) {
        exit::say("an argument is not UTF-8 text");
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

    /// The words of a line, as a shell would pass them on, up to where it sends the output.
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
