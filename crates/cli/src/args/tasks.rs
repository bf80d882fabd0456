//! The commands about tasks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use ostler_core::{ErrorClass, Priority, StateName, TaskId, Timestamp};
use ostler_store::views::{Cursor, Field, Filter, LeaseFilter};

use super::plans::Plans;
use super::values::{self, TaskName};

/// The queue in which a key is looked for, unless another one is named.
const DEFAULT_QUEUE: &str = "default";

/// `ostler submit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Submit {
    /// The queue it goes to
    #[arg(value_parser = values::queue)]
    pub(crate) queue: String,
    /// What sort of work it is
    #[arg(value_parser = values::kind)]
    pub(crate) kind: String,
    /// What to work on: JSON, @FILE, or - for standard input [else: null]
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: Option<OsString>,
    /// A head start, from -100 to 100; each point is worth a minute
    #[arg(long, value_name = "N", value_parser = values::priority, allow_negative_numbers = true)]
    pub(crate) priority: Option<Priority>,
    /// Not before this has passed, such as 5m
    #[arg(long = "in", value_name = "D", value_parser = values::duration, conflicts_with = "at")]
    pub(crate) delay: Option<Duration>,
    /// Not before this moment, such as 2026-08-01T03:00:00Z
    #[arg(long, value_name = "T", value_parser = values::moment)]
    pub(crate) at: Option<Timestamp>,
    /// Its id, if you make it: 26 letters and digits, a ULID. Submitted again, it is the same task
    #[arg(long, value_name = "ULID", value_parser = values::id)]
    pub(crate) id: Option<TaskId>,
    /// A unique key: while a task of the queue has it, a repeat answers with that one
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,
    /// How long one attempt may take
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// How many tries may fail
    #[arg(long, value_name = "N", value_parser = values::attempts)]
    pub(crate) attempts: Option<u32>,
    /// The folder it works in
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Too late to be useful after this moment
    #[arg(long, value_name = "T", value_parser = values::moment)]
    pub(crate) not_after: Option<Timestamp>,
    /// Shares limits, and takes turns, with other tasks of this key [else: what the queue finds in the payload]
    #[arg(long, value_name = "K")]
    pub(crate) limit_key: Option<String>,
    /// What it takes from the rates of its queue [else: what the queue finds in the payload, then 1]
    #[arg(long, value_name = "N", value_parser = super::limits::cost)]
    pub(crate) cost: Option<u32>,
    #[command(flatten)]
    pub(crate) plans: Plans,
    /// Wait for its end, and print its output
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "D", value_parser = values::duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// Which tasks. Everything that is given must hold.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Filters {
    /// In this state: queued, claimed, running, completed, failed or cancelled
    #[arg(long, value_name = "S", value_parser = values::state)]
    pub(crate) state: Option<StateName>,
    /// In this queue
    #[arg(long, value_name = "Q", value_parser = values::queue)]
    pub(crate) queue: Option<String>,
    /// Of this kind
    #[arg(long, value_name = "K", value_parser = values::kind)]
    pub(crate) kind: Option<String>,
    /// With this text in the payload, the key or the error
    #[arg(long, value_name = "T")]
    pub(crate) text: Option<String>,
    /// With this value in the payload, such as payload.tenant=acme
    #[arg(long = "where", value_name = "payload.X=Y", value_parser = values::field)]
    pub(crate) field: Option<Field>,
    #[command(flatten)]
    pub(crate) failure: FailureFilters,
    /// Held by a node that is dead or overdue
    #[arg(long)]
    pub(crate) stale: bool,
}

/// Which last failure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FailureFilters {
    /// Whose last failure is of this class, such as timeout
    #[arg(long, value_name = "C", value_parser = values::class)]
    class: Option<ErrorClass>,
    /// Which last failed at this moment or later
    #[arg(long, value_name = "T", value_parser = values::moment)]
    failed_since: Option<Timestamp>,
    /// Which last failed before this moment
    #[arg(long, value_name = "T", value_parser = values::moment)]
    failed_until: Option<Timestamp>,
}

impl Filters {
    /// The filter of the store.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            state: self.state,
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            text: self.text.clone(),
            field: self.field.clone(),
            class: self.failure.class,
            failed_since: self.failure.failed_since,
            failed_until: self.failure.failed_until,
            lease: if self.stale { LeaseFilter::Stale } else { LeaseFilter::Any },
        }
    }
}

/// The part of a list.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// At most so many
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::limit)]
    pub(crate) limit: usize,
    /// Go on where the list before ended
    #[arg(long, value_name = "C", value_parser = values::cursor)]
    pub(crate) cursor: Option<Cursor>,
}

/// `ostler ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// One task.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Its id, or key:K for its unique key
    #[arg(value_name = "ID", value_parser = values::task)]
    pub(crate) task: TaskName,
    /// The queue that a key is looked for in
    #[arg(long, value_name = "Q", default_value = DEFAULT_QUEUE, value_parser = values::queue)]
    pub(crate) queue: String,
}

/// `ostler show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) one: One,
}

/// `ostler logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    pub(crate) one: One,
    /// Go on until the task ends
    #[arg(long, short)]
    pub(crate) follow: bool,
}

/// Many tasks: these, or those that match.
#[derive(Debug, clap::Args)]
pub(crate) struct Select {
    /// Their ids, or key:K for a unique key in --queue ["default" if there is none]
    #[arg(value_name = "ID", value_parser = values::task)]
    pub(crate) tasks: Vec<TaskName>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Do not ask first, when tasks are chosen by filters
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// What was chosen.
#[derive(Debug)]
pub(crate) enum SelectedTasks {
    /// These, by name; keys are looked for in the queue.
    Named { tasks: Vec<TaskName>, queue: String },
    /// Those that match.
    Matching(Filter),
}

impl Select {
    /// What was chosen, or a sentence.
    pub(crate) fn chosen(&self) -> Result<SelectedTasks, &'static str> {
        let filter = self.filters.filter();
        let but_for_the_queue = Filter { queue: None, ..filter.clone() };
        match (self.tasks.as_slice(), filter == Filter::default()) {
            ([], true) => Err("name tasks by id or key:K, or choose them by filters such as --queue"),
            ([], false) => Ok(SelectedTasks::Matching(filter)),
            (_, _) if but_for_the_queue != Filter::default() => {
                Err("name tasks, or choose them by filters, but not both")
            }
            (tasks, _) => Ok(SelectedTasks::Named {
                tasks: tasks.to_vec(),
                queue: filter.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
            }),
        }
    }
}

/// `ostler cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) select: Select,
}

/// `ostler retry`.
#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) select: Select,
    /// Enqueue a copy instead; for completed tasks, which are never run again
    #[arg(long, conflicts_with = "from_scratch")]
    pub(crate) again: bool,
    /// Forget the steps that were saved
    #[arg(long)]
    pub(crate) from_scratch: bool,
    /// Another payload: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: Option<OsString>,
}

/// `ostler dead`.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead letters, the newest first
    #[command(after_help = "Example: ostler dead ls --text timeout")]
    Ls {
        #[command(flatten)]
        filters: DeadFilters,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show all about a dead letter
    #[command(after_help = "Example: ostler dead show 01JC8Z0Q4M9T7N3V5X1B2D6F8H")]
    Show(Show),
    /// Give dead letters another go
    #[command(after_help = "Example: ostler dead replay --matching \"connection refused\" --yes")]
    Replay {
        #[command(flatten)]
        select: DeadSelect,
        /// Forget the steps that were saved
        #[arg(long)]
        from_scratch: bool,
        /// Another payload: JSON, @FILE, or - for standard input
        #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
        payload: Option<OsString>,
    },
    /// Remove dead letters for ever
    #[command(after_help = "Example: ostler dead drop 01JC8Z0Q4M9T7N3V5X1B2D6F8H")]
    Drop(DeadSelect),
}

/// Which dead letters. Everything that is given must hold.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeadFilters {
    /// In this queue
    #[arg(long, value_name = "Q", value_parser = values::queue)]
    queue: Option<String>,
    /// Of this kind
    #[arg(long, value_name = "K", value_parser = values::kind)]
    kind: Option<String>,
    /// With this text in the payload, the key or the error
    #[arg(long, visible_alias = "matching", value_name = "T")]
    text: Option<String>,
    /// With this value in the payload, such as payload.tenant=acme
    #[arg(long = "where", value_name = "payload.X=Y", value_parser = values::field)]
    field: Option<Field>,
    #[command(flatten)]
    failure: FailureFilters,
}

impl DeadFilters {
    /// The same, as other commands have them.
    pub(crate) fn filters(self) -> Filters {
        let Self { queue, kind, text, field, failure } = self;
        Filters { state: Some(StateName::Failed), queue, kind, text, field, failure, stale: false }
    }
}

/// Many dead letters: these, or those that match.
#[derive(Debug, clap::Args)]
pub(crate) struct DeadSelect {
    /// Their ids, or key:K for a unique key in --queue ["default" if there is none]
    #[arg(value_name = "ID", value_parser = values::task)]
    tasks: Vec<TaskName>,
    #[command(flatten)]
    filters: DeadFilters,
    /// All of them
    #[arg(long, conflicts_with = "tasks")]
    all: bool,
    /// Do not ask first, when dead letters are chosen by filters
    #[arg(long, short)]
    yes: bool,
}

impl DeadSelect {
    /// The same, as other commands have it. Nothing chosen is not everything.
    pub(crate) fn select(self) -> Select {
        let mut filters = self.filters.filters();
        let nothing = filters.filter() == Filter { state: Some(StateName::Failed), ..Filter::default() };
        if !self.tasks.is_empty() || (nothing && !self.all) {
            filters.state = None;
        }
        Select { tasks: self.tasks, filters, yes: self.yes }
    }
}
