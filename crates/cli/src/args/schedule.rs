//! The commands about schedules.

use std::ffi::OsString;
use std::time::Duration;

use clap::Subcommand;
use ostler_core::{Missed, Overlap, Priority, Timestamp};

use super::values;

/// `ostler schedule`.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List schedules, with their next and their last run
    #[command(after_help = "Example: ostler schedule ls")]
    Ls,
    /// Show all about a schedule
    #[command(after_help = "Example: ostler schedule show nightly")]
    Show(Named),
    /// Add a schedule, or take the place of the one with its name
    #[command(
        after_help = "Example: ostler schedule add nightly shell run --cron '0 3 * * *' --timezone Europe/Berlin"
    )]
    Add(Box<AddSchedule>),
    /// Remove a schedule; what it has enqueued stays
    #[command(after_help = "Example: ostler schedule rm nightly")]
    Rm(Named),
    /// Enqueue nothing for a schedule until it is resumed
    #[command(after_help = "Example: ostler schedule pause nightly")]
    Pause(Named),
    /// Go on with a paused schedule; what was missed meanwhile is missed
    #[command(after_help = "Example: ostler schedule resume nightly")]
    Resume(Named),
}

/// One schedule.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Its name
    #[arg(value_parser = values::schedule)]
    pub(crate) name: String,
}

/// `ostler schedule add`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddSchedule {
    /// Its name
    #[arg(value_parser = values::schedule)]
    pub(crate) name: String,
    /// The queue that its runs go to
    #[arg(value_parser = values::queue)]
    pub(crate) queue: String,
    /// What sort of work they are
    #[arg(value_parser = values::kind)]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) times: TimesArgs,
    /// The time zone of a cron line [else: UTC]
    #[arg(long, value_name = "Z", conflicts_with_all = ["every", "at"])]
    pub(crate) timezone: Option<String>,
    /// What to work on: JSON, @FILE, or - for standard input [else: null]
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: Option<OsString>,
    /// A head start, from -100 to 100; each point is worth a minute
    #[arg(long, value_name = "N", value_parser = values::priority, allow_negative_numbers = true)]
    pub(crate) priority: Option<Priority>,
    /// If the run before is not over: skip this one, queue it too, or replace the one before
    #[arg(long, value_name = "O", default_value = "skip", value_parser = values::overlap)]
    pub(crate) overlap: Overlap,
    /// Of runs that were missed while no node was up: skip them, run one for all, or all
    #[arg(long, value_name = "M", default_value = "one", value_parser = values::missed)]
    pub(crate) missed: Missed,
    /// How many tries of a run may fail
    #[arg(long, value_name = "N", value_parser = values::attempts)]
    pub(crate) attempts: Option<u32>,
    /// How long one attempt may take
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
}

/// When it runs.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TimesArgs {
    /// By a cron line: minute, hour, day of the month, month, day of the week; or @daily
    #[arg(long, value_name = "LINE")]
    pub(crate) cron: Option<String>,
    /// In steps, such as 10m; the first run is one step from now
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) every: Option<Duration>,
    /// Once, at a moment such as 2026-08-01T03:00:00Z
    #[arg(long, value_name = "T", value_parser = values::moment)]
    pub(crate) at: Option<Timestamp>,
}
