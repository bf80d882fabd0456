//! `ostler schedule`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Subcommand;
use ostler_core::{Missed, Overlap, Priority, Timestamp};

use super::values;

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List schedules, with their next and last runs
    #[command(after_help = "Example: ostler schedule ls")]
    Ls,
    /// Show a schedule in detail
    #[command(after_help = "Example: ostler schedule show nightly")]
    Show(Named),
    /// Add a schedule, or replace the one with this name
    #[command(
        after_help = "Example: ostler schedule add nightly shell run --cron '0 3 * * *' --timezone Europe/Berlin"
    )]
    Add(Box<AddSchedule>),
    /// Enqueue the task of a schedule now, besides its runs
    #[command(after_help = "Example: ostler schedule run nightly")]
    Run(Named),
    /// Remove a schedule; tasks it has enqueued stay
    #[command(after_help = "Example: ostler schedule rm nightly")]
    Rm(Named),
    /// Enqueue nothing for a schedule until it is resumed
    #[command(after_help = "Example: ostler schedule pause nightly")]
    Pause(Named),
    /// Resume a paused schedule; missed runs are not made up
    #[command(after_help = "Example: ostler schedule resume nightly")]
    Resume(Named),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// The schedule's name
    #[arg(value_parser = values::schedule)]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddSchedule {
    /// The schedule's name
    #[arg(value_parser = values::schedule)]
    pub(crate) name: String,
    /// The queue to enqueue to
    #[arg(value_parser = values::queue)]
    pub(crate) queue: String,
    /// The kind of the tasks
    #[arg(value_parser = values::kind)]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) times: TimesArgs,
    /// The time zone of --cron [default: that of this machine, now]
    #[arg(long, value_name = "Z", conflicts_with_all = ["every", "at"])]
    pub(crate) timezone: Option<String>,
    /// The payload: JSON, @FILE, or - for standard input [default: null]
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: Option<OsString>,
    /// Priority from -100 to 100; each point is a minute's head start
    #[arg(long, value_name = "N", value_parser = values::priority, allow_negative_numbers = true)]
    pub(crate) priority: Option<Priority>,
    /// If the previous run has not finished: skip this one, queue it too, or replace the previous one
    #[arg(long, value_name = "O", default_value = "skip", value_parser = values::overlap)]
    pub(crate) overlap: Overlap,
    /// Runs missed while no node was up: skip them, run one for all, or run all
    #[arg(long, value_name = "M", default_value = "one", value_parser = values::missed)]
    pub(crate) missed: Missed,
    /// Maximum number of attempts of a run
    #[arg(long, value_name = "N", value_parser = values::attempts)]
    pub(crate) attempts: Option<u32>,
    /// Timeout of one attempt
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TimesArgs {
    /// A cron expression: minute, hour, day of month, month, day of week; or @daily
    #[arg(long, value_name = "LINE")]
    pub(crate) cron: Option<String>,
    /// An interval such as 10m; the first run is one interval from now
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) every: Option<Duration>,
    /// A single time, such as 2026-08-01T03:00:00Z
    #[arg(long, value_name = "T", value_parser = values::moment)]
    pub(crate) at: Option<Timestamp>,
}
