//! `ostler map` and `ostler job`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::values;
use crate::map::halt::Halt;

/// The heading over where items come from.
const ITEMS: &str = "Items";

/// `ostler map`.
#[derive(Debug, clap::Args)]
pub(crate) struct Map {
    /// So many at once [else: as many as there are cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) jobs: Option<u16>,
    /// The job's name, for people [else: the program's]
    #[arg(long, value_name = "N", value_parser = values::job)]
    pub(crate) name: Option<String>,
    /// Try an item again so often when it fails [else: not at all]
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000))]
    pub(crate) retries: u32,
    /// End an item that takes longer
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Stop at the first failure: --halt now,fail=1
    #[arg(long, conflicts_with = "halt")]
    pub(crate) fail_fast: bool,
    /// When to stop early, such as now,fail=1 or soon,fail=10%; "soon" lets what runs end
    #[arg(long, value_name = "WHEN", value_parser = Halt::parse)]
    pub(crate) halt: Option<Halt>,
    /// Print outputs in the order of the items
    #[arg(short, long)]
    pub(crate) keep_order: bool,
    /// Write results to a file (.jsonl or .csv), or each output to a file in a folder
    #[arg(long, value_name = "PATH")]
    pub(crate) results: Option<PathBuf>,
    /// Only print what would be run
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run all items, also those that an earlier run of the same command has done
    #[arg(long, conflicts_with = "once")]
    pub(crate) fresh: bool,
    /// Do not do anything again that a completed job has done
    #[arg(long)]
    pub(crate) once: bool,
    /// Leave the work to a running node, and print the job's id
    #[arg(long, conflicts_with_all = ["keep_order", "results", "halt", "fail_fast"])]
    pub(crate) detach: bool,
    /// No progress and no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Items on standard input end with NUL, as find -print0 writes them
    #[arg(short = '0', long, help_heading = ITEMS, group = "source")]
    pub(crate) null: bool,
    /// The files that match, such as 'docs/**/*.md'
    #[arg(long, value_name = "GLOB", help_heading = ITEMS, group = "source")]
    pub(crate) files: Option<String>,
    /// The rows of a table; its columns are {name}
    #[arg(long, value_name = "FILE", help_heading = ITEMS, group = "source")]
    pub(crate) csv: Option<PathBuf>,
    /// One JSON value on each line; its fields are {name}
    #[arg(long, value_name = "FILE", help_heading = ITEMS, group = "source")]
    pub(crate) jsonl: Option<PathBuf>,
    /// What to run, and after ::: the items [else: lines of standard input]
    #[arg(trailing_var_arg = true, required = true, value_name = "TEMPLATE… ::: ITEM")]
    pub(crate) words: Vec<OsString>,
}

/// `ostler job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, the newest first
    #[command(after_help = "Example: ostler job ls")]
    Ls {
        /// So many at most
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        limit: u16,
    },
    /// Show a job, and its items that failed
    #[command(after_help = "Example: ostler job show gzip")]
    Show(JobName),
    /// Begin nothing more of a job until it is resumed
    #[command(after_help = "Example: ostler job pause gzip")]
    Pause(JobName),
    /// Go on with a paused job
    #[command(after_help = "Example: ostler job resume gzip")]
    Resume(JobName),
    /// Cancel what is left of a job
    #[command(after_help = "Example: ostler job cancel gzip")]
    Cancel(JobName),
    /// Give the failed items of a job another go
    #[command(after_help = "Example: ostler job retry-failed gzip")]
    RetryFailed(JobName),
    /// Remove a job that is not running, with its tasks and their results
    #[command(after_help = "Example: ostler job rm gzip")]
    Rm(JobName),
    /// Print the results of a job, in the order of its items
    #[command(after_help = "Example: ostler job export gzip --csv > results.csv")]
    Export {
        /// The job
        #[command(flatten)]
        job: JobName,
        /// As a table
        #[arg(long, conflicts_with = "jsonl")]
        csv: bool,
        /// As one JSON value on each line (the default)
        #[arg(long)]
        jsonl: bool,
    },
}

/// A job as people name it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct JobName {
    /// Its id, or its name: then the newest of that name is meant
    #[arg(value_name = "JOB", value_parser = values::job)]
    pub(crate) job: String,
}
