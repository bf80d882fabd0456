//! `ostler map` and `ostler job`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use ostler_core::Cost;
use regex::bytes::Regex;

use super::cost::money;
use super::values;
use crate::map::halt::Halt;

/// The help heading for the sources of items.
const ITEMS: &str = "Items";
/// The help heading for what runs the items.
const WORK: &str = "Pools and agents";
/// The maximum of `--pilot`.
const MAX_PILOT: u64 = 1_000;

/// `ostler map`.
#[derive(Debug, clap::Args)]
pub(crate) struct Map {
    /// Run up to N items at once [default: number of cores]
    #[arg(short, long, visible_short_alias = 'P', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) jobs: Option<u16>,
    /// Name of the job [default: the name of the program]
    #[arg(long, value_name = "N", value_parser = values::job)]
    pub(crate) name: Option<String>,
    /// Retry a failed item up to N times [default: 0, or as the pool is set]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000))]
    pub(crate) retries: Option<u32>,
    /// Kill an item that takes longer than this
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Start items at least this far apart
    #[arg(long, value_name = "D", value_parser = values::duration, conflicts_with_all = ["pool", "agent"])]
    pub(crate) delay: Option<Duration>,
    /// The shell for a command of one string: bash, dash, ksh, zsh or a path [default: sh]
    #[arg(long, value_name = "SHELL", value_parser = values::posix_shell, conflicts_with_all = ["pool", "agent"])]
    pub(crate) shell: Option<String>,
    /// Stop at the first failure: short for --halt now,fail=1
    #[arg(long, conflicts_with = "halt")]
    pub(crate) fail_fast: bool,
    /// When to stop early, such as now,fail=1 or soon,fail=10%; "soon" lets running items finish
    #[arg(long, value_name = "WHEN", value_parser = Halt::parse)]
    pub(crate) halt: Option<Halt>,
    /// Print outputs in the order of the items
    #[arg(short, long)]
    pub(crate) keep_order: bool,
    /// Begin each line of output with its item and a tab
    #[arg(long)]
    pub(crate) tag: bool,
    /// Write results to a file (.jsonl or .csv), or each output to a file in a folder, named after its item
    #[arg(long, value_name = "PATH")]
    pub(crate) results: Option<PathBuf>,
    /// Only print the commands, or what would be sent
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run all items, including those completed in an earlier run of the same command
    #[arg(long, conflicts_with = "once")]
    pub(crate) fresh: bool,
    /// Skip everything that a completed run of this command has done
    #[arg(long)]
    pub(crate) once: bool,
    /// Leave the work to a running node, and print the job's id
    #[arg(long, conflicts_with_all = ["keep_order", "tag", "results", "halt", "fail_fast"])]
    pub(crate) detach: bool,
    /// Print no progress and no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Give each item a git worktree of its own, of the repository of this folder, detached at BASE [default: HEAD]
    #[arg(long, value_name = "BASE", num_args = 0..=1, require_equals = true, default_missing_value = "HEAD")]
    pub(crate) worktree: Option<String>,
    /// Give each item a folder of its own in DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) folders: Option<PathBuf>,
    /// Run the first N items, show what they cost, and ask before the others run [default N: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=MAX_PILOT))]
    pub(crate) pilot: Option<u64>,
    /// Let a pool of ostler.toml run the items, with its settings; tasks have the kind of --kind, and with a prompt need none
    #[arg(long, value_name = "POOL", help_heading = WORK, conflicts_with = "agent")]
    pub(crate) pool: Option<String>,
    /// The kind of the tasks for a pool
    #[arg(long, value_name = "KIND", help_heading = WORK, requires = "pool", value_parser = values::kind)]
    pub(crate) kind: Option<String>,
    /// Let an agent run the items, such as claude or codex
    #[arg(long, value_name = "AGENT", help_heading = WORK, requires = "template")]
    pub(crate) agent: Option<String>,
    /// The prompt for each item: a template with {{ item }}, {{ file }}, {{ name }}, {{ stem }}, {{ COLUMN }}, {{ index }}, {{ total }}
    #[arg(long, value_name = "TEMPLATE", help_heading = WORK, group = "template")]
    pub(crate) prompt: Option<String>,
    /// The same, from a file
    #[arg(long, value_name = "FILE", help_heading = WORK, group = "template")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// The prompt of one last task over all results: a template with {{ results }}, a list of number, item, state, output and error
    #[arg(long, value_name = "TEMPLATE", help_heading = WORK, requires = "template")]
    pub(crate) synthesis: Option<String>,
    /// The model
    #[arg(long, value_name = "MODEL", help_heading = WORK, requires = "template")]
    pub(crate) model: Option<String>,
    /// The permission mode of the agent
    #[arg(long, value_name = "MODE", help_heading = WORK, requires = "template")]
    pub(crate) permission: Option<String>,
    /// A file with the JSON schema of the answers
    #[arg(long, value_name = "FILE", help_heading = WORK, requires = "template")]
    pub(crate) schema: Option<PathBuf>,
    /// The maximum number of turns for an item
    #[arg(long, value_name = "N", help_heading = WORK, requires = "template")]
    pub(crate) max_iterations: Option<u32>,
    /// The account that the agent uses
    #[arg(long, value_name = "NAME", help_heading = WORK, requires = "agent")]
    pub(crate) account: Option<String>,
    /// Pause the job when it has cost this much, such as 5 or $0.50; a larger amount goes on
    #[arg(long, value_name = "USD", help_heading = WORK, value_parser = money)]
    pub(crate) max_cost: Option<Cost>,
    /// What an item is expected to cost, until that is known
    #[arg(long, value_name = "USD", help_heading = WORK, requires = "max_cost", value_parser = money)]
    pub(crate) reserve: Option<Cost>,
    /// A file with an item in each line, as after ::::; - is standard input. Several are combined, as several ::: are
    #[arg(short = 'a', long, value_name = "FILE", help_heading = ITEMS, conflicts_with_all = ["files", "csv", "jsonl", "items_from"])]
    pub(crate) arg_file: Vec<PathBuf>,
    /// Items on standard input and in files are separated by NUL, as written by find -print0
    #[arg(short = '0', long, help_heading = ITEMS, group = "source")]
    pub(crate) null: bool,
    /// Split each item into columns {1}, {2}, …, at this character or regular expression
    #[arg(long, value_name = "REGEX", help_heading = ITEMS, value_parser = values::column_separator,
          conflicts_with_all = ["csv", "jsonl", "max_args", "pool", "agent"])]
    pub(crate) colsep: Option<Regex>,
    /// Pass up to N items to each run, as {1}, {2}, …; {} is all of them
    #[arg(short = 'n', long, value_name = "N", help_heading = ITEMS, value_parser = clap::value_parser!(u16).range(1..),
          conflicts_with_all = ["csv", "jsonl", "pool", "agent"])]
    pub(crate) max_args: Option<u16>,
    /// Files that match, such as 'docs/**/*.md'
    #[arg(long, value_name = "GLOB", help_heading = ITEMS, group = "source")]
    pub(crate) files: Option<String>,
    /// Rows of a CSV file; columns are {name}
    #[arg(long, value_name = "FILE", help_heading = ITEMS, group = "source")]
    pub(crate) csv: Option<PathBuf>,
    /// JSON values, one per line; fields are {name}
    #[arg(long, value_name = "FILE", help_heading = ITEMS, group = "source")]
    pub(crate) jsonl: Option<PathBuf>,
    /// Lines that a shell command prints, such as 'git ls-files'; if it fails, nothing is enqueued
    #[arg(long, value_name = "COMMAND", help_heading = ITEMS, group = "source")]
    pub(crate) items_from: Option<String>,
    /// The command to run, and after ::: the items, or after :::: files with items [default: lines of standard input]
    #[arg(trailing_var_arg = true, required_unless_present_any = ["pool", "agent"], value_name = "TEMPLATE… ::: ITEM")]
    pub(crate) words: Vec<OsString>,
}

/// `ostler job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, newest first
    #[command(after_help = "Example: ostler job ls")]
    Ls {
        /// At most N jobs
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        limit: u16,
    },
    /// Show a job and its failed items
    #[command(after_help = "Example: ostler job show gzip")]
    Show(JobName),
    /// Wait until a job ends; exits with 0 if all of its items completed
    #[command(after_help = "Example: ostler job wait gzip --timeout 1h")]
    Wait {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// Wait no longer than this
        #[arg(long, value_name = "D", value_parser = values::duration)]
        timeout: Option<Duration>,
    },
    /// Start no more items of a job until it is resumed
    #[command(after_help = "Example: ostler job pause gzip")]
    Pause(JobName),
    /// Resume a paused job
    #[command(after_help = "Example: ostler job resume reviews --max-cost 10")]
    Resume {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// What all of its items may cost from now on, including what was spent
        #[arg(long, value_name = "USD", value_parser = money)]
        max_cost: Option<Cost>,
    },
    /// Run the items of a job that wait for the approval of its pilot
    #[command(after_help = "Example: ostler job approve reviews")]
    Approve(JobName),
    /// Cancel the items of a job that wait for the approval of its pilot
    #[command(after_help = "Example: ostler job reject reviews")]
    Reject(JobName),
    /// Add items to a job, for the same command or prompt; those that it has already are left out
    #[command(after_help = "Example: ostler job add gzip c.txt d.txt")]
    Add {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// Rows of a CSV file
        #[arg(long, value_name = "FILE", group = "added")]
        csv: Option<PathBuf>,
        /// JSON values, one per line
        #[arg(long, value_name = "FILE", group = "added")]
        jsonl: Option<PathBuf>,
        /// The items [default: lines of standard input]
        #[arg(value_name = "ITEM", conflicts_with = "added")]
        items: Vec<OsString>,
    },
    /// Change how many items of a running job run at once
    #[command(after_help = "Example: ostler job set gzip --concurrency 8")]
    Set {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// Up to N items at once, until the job is run again
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        concurrency: u32,
    },
    /// Cancel the unfinished items of a job; many only after a question
    #[command(after_help = "Example: ostler job cancel gzip")]
    Cancel {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Retry the failed items of a job
    #[command(after_help = "Example: ostler job retry-failed gzip")]
    RetryFailed {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// Discard saved steps, and begin new conversations with agents
        #[arg(long)]
        from_scratch: bool,
    },
    /// Remove a job that is not running, with its tasks and their results
    #[command(after_help = "Example: ostler job rm gzip")]
    Rm(JobName),
    /// Print the results of a job, in the order of its items
    #[command(after_help = "Example: ostler job export gzip --csv > results.csv")]
    Export {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// Print CSV
        #[arg(long, conflicts_with = "jsonl")]
        csv: bool,
        /// Print JSON lines (the default)
        #[arg(long)]
        jsonl: bool,
    },
}

/// A job by name or id.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct JobName {
    /// The job's id, its name (the newest job of that name), or the first or last 4 or more characters of its id
    #[arg(value_name = "JOB", value_parser = values::job)]
    pub(crate) job: String,
}
