//! Arguments of the commands about tasks: submit, ls, show, logs, cancel, retry, dead.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use ostler_core::{ErrorClass, Level, Priority, StateName, TaskId, Timestamp, Traceparent};
use ostler_ops::selection::Selector;
use ostler_ops::task_name::NamedTask;
use ostler_store::views::{Cursor, Field, Filter, ItemFilter, LeaseFilter, ListOrder};

use super::plans::Plans;
use super::values::{self, TaskName};
use crate::print::{Format, Looks, Out};

/// The queue in which a unique key is looked up if none is given.
pub(super) const DEFAULT_QUEUE: &str = "default";

/// Options that are for one task; the others require one of these.
const OF_ONE_TASK: [&str; 16] = [
    "payload",
    "priority",
    "delay",
    "at",
    "id",
    "key",
    "timeout",
    "attempts",
    "folder",
    "traceparent",
    "not_after",
    "limit_key",
    "cost",
    "after",
    "deadline",
    "wait",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Submit {
    /// The queue to enqueue to
    #[arg(value_parser = values::queue, required_unless_present = "jsonl")]
    pub(crate) queue: Option<String>,
    /// The kind of the task
    #[arg(value_parser = values::kind, required_unless_present = "jsonl")]
    pub(crate) kind: Option<String>,
    /// Many tasks from a file, or - for standard input: one JSON object per line, with these options as its fields
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_ONE_TASK)]
    pub(crate) jsonl: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: TaskOptions,
    /// Wait until the task finishes, and print its output
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "D", value_parser = values::duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}

/// The options of one task.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskOptions {
    /// The payload: JSON, @FILE, or - for standard input [default: null]
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: Option<OsString>,
    /// Priority from -100 to 100; each point is a minute's head start
    #[arg(long, value_name = "N", value_parser = values::priority, allow_negative_numbers = true)]
    pub(crate) priority: Option<Priority>,
    /// Run after this delay, such as 5m
    #[arg(long = "in", value_name = "D", value_parser = values::duration, conflicts_with = "at")]
    pub(crate) delay: Option<Duration>,
    /// Run at this time, such as 2026-08-01T03:00:00Z
    #[arg(long, value_name = "T", value_parser = values::moment)]
    pub(crate) at: Option<Timestamp>,
    /// The task's id, a ULID that you generate; submitting it again changes nothing
    #[arg(long, value_name = "ULID", value_parser = values::id)]
    pub(crate) id: Option<TaskId>,
    /// A unique key: while another task in the queue has it, its id is printed and nothing is enqueued (see --key-until)
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,
    /// Timeout of one attempt
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Maximum number of attempts
    #[arg(long, value_name = "N", value_parser = values::attempts)]
    pub(crate) attempts: Option<u32>,
    /// The working folder
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// The W3C trace context for the programs that run it [default: TRACEPARENT, if that is set]
    #[arg(long, value_name = "TP", value_parser = ostler_wire::value::traceparent)]
    pub(crate) traceparent: Option<Traceparent>,
    /// Cancel the task instead of starting it after this time
    #[arg(long, value_name = "T", value_parser = values::moment)]
    pub(crate) not_after: Option<Timestamp>,
    /// Tasks with the same limit key share limits and take turns [default: from the payload, if the queue has a path for it]
    #[arg(long, value_name = "K")]
    pub(crate) limit_key: Option<String>,
    /// How much of the queue's rates it uses [default: from the payload, if the queue has a path for it; else 1]
    #[arg(long, value_name = "N", value_parser = ostler_wire::limit_syntax::cost)]
    pub(crate) cost: Option<u32>,
    #[command(flatten)]
    pub(crate) plans: Plans,
}

/// Filters for tasks; all of them must match.
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
    #[command(flatten)]
    end: EndFilters,
    /// Held by a node that is dead or overdue
    #[arg(long)]
    pub(crate) stale: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndFilters {
    /// That ended at this time or later
    #[arg(long, value_name = "T", value_parser = values::moment)]
    ended_since: Option<Timestamp>,
    /// That ended before this time
    #[arg(long, value_name = "T", value_parser = values::moment)]
    ended_until: Option<Timestamp>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FailureFilters {
    /// Whose last failure has this class, such as timeout
    #[arg(long, value_name = "C", value_parser = values::class)]
    class: Option<ErrorClass>,
    /// Whose last failure was at this time or later
    #[arg(long, value_name = "T", value_parser = values::moment)]
    failed_since: Option<Timestamp>,
    /// Whose last failure was before this time
    #[arg(long, value_name = "T", value_parser = values::moment)]
    failed_until: Option<Timestamp>,
}

impl Filters {
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
            ended_since: self.end.ended_since,
            ended_until: self.end.ended_until,
            lease: if self.stale { LeaseFilter::Stale } else { LeaseFilter::Any },
            items: ItemFilter::Listed,
            order: ListOrder::NewestFirst,
        }
    }
}

/// Paging of a list.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// At most N tasks [default: 20 on a terminal, otherwise 100]
    #[arg(long, value_name = "N", value_parser = values::limit)]
    limit: Option<usize>,
    /// Oldest first, instead of newest first; by the time of the end for --state completed, failed and cancelled
    #[arg(long)]
    pub(crate) oldest: bool,
    /// Continue where the previous list ended
    #[arg(long, value_name = "C", value_parser = values::cursor)]
    pub(crate) cursor: Option<Cursor>,
}

impl PageArgs {
    /// The most tasks on the page.
    pub(crate) fn most(&self, out: Out) -> usize {
        self.limit.unwrap_or(match (out.format(), out.looks()) {
            (Format::People, Looks::Terminal | Looks::Colour) => 20,
            (Format::People, Looks::Plain) | (Format::Json, _) => 100,
        })
    }

    /// The filters with the order of the list.
    pub(crate) fn ordered(&self, filter: Filter) -> Filter {
        let order = if self.oldest { ListOrder::OldestFirst } else { ListOrder::NewestFirst };
        Filter { order, ..filter }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    filters: Filters,
    /// List the items of jobs too, which are left out unless --queue names their queue
    #[arg(long)]
    items: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

impl List {
    /// The filter with its order.
    pub(crate) fn filter(&self) -> Filter {
        let wanted = self.items || self.filters.queue.is_some();
        let items = if wanted { ItemFilter::Listed } else { ItemFilter::Hidden };
        self.page.ordered(Filter { items, ..self.filters.filter() })
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// The task's id, its first or last 4 or more characters, or key:K for its unique key
    #[arg(value_name = "ID", value_parser = values::task)]
    pub(crate) task: TaskName,
    /// The queue in which to look up key:K
    #[arg(long, value_name = "Q", default_value = DEFAULT_QUEUE, value_parser = values::queue)]
    pub(crate) queue: String,
}

impl One {
    /// The task that is meant.
    pub(crate) fn which(&self) -> NamedTask {
        self.task.in_queue(&self.queue)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) one: One,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    pub(crate) one: One,
    /// Keep printing until the task finishes
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Also print the lines of an agent as it wrote them
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print one HTML page with all attempts and events, to keep or to send: ostler logs ID --html > task.html
    #[arg(long, conflicts_with_all = ["follow", "json", "time", "attempt_numbers", "tail", "level", "attempt"])]
    pub(crate) html: bool,
    #[command(flatten)]
    pub(crate) shape: LogShape,
}

/// Which lines of a log are printed, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct LogShape {
    /// Print the time in front of each line
    #[arg(long, short)]
    pub(crate) time: bool,
    /// Print the number of the attempt in front of each line, such as #2
    #[arg(long)]
    pub(crate) attempt_numbers: bool,
    /// Only the last N lines; with --follow also those that come
    #[arg(long, short = 'n', value_name = "N", value_parser = values::tail)]
    pub(crate) tail: Option<usize>,
    /// Only lines of this level or a graver one: debug, info, warn or error; what a program prints is info
    #[arg(long, value_name = "LEVEL", value_parser = values::level)]
    pub(crate) level: Option<Level>,
    /// Only attempt N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Continue {
    #[command(flatten)]
    pub(crate) one: One,
    /// What to say next, or - to read it from standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: String,
    /// The queue of the new task [default: that of the finished one]
    #[arg(long, value_name = "Q", value_parser = values::queue)]
    pub(crate) to: Option<String>,
    /// Wait until the task finishes, and print its output
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Tasks by name or by filter.
#[derive(Debug, clap::Args)]
pub(crate) struct Select {
    /// Task ids, or their first or last 4 or more characters, or key:K for a unique key in --queue [default queue: "default"]
    #[arg(value_name = "ID", value_parser = values::task)]
    pub(crate) tasks: Vec<TaskName>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Do not ask for confirmation when tasks are selected by filters
    #[arg(long, short)]
    pub(crate) yes: bool,
}

impl Select {
    /// The selection, or a usage error.
    pub(crate) fn chosen(&self) -> Result<Selector, &'static str> {
        let filter = self.filters.filter();
        let but_for_the_queue = Filter { queue: None, ..filter.clone() };
        match (self.tasks.as_slice(), filter == Filter::default()) {
            ([], true) => Err("name tasks by id or key:K, or select them with filters such as --queue"),
            ([], false) => Ok(Selector::Matching(filter)),
            (_, _) if but_for_the_queue != Filter::default() => Err("name tasks or use filters, not both"),
            (tasks, _) => {
                let queue = filter.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
                Ok(Selector::Named(tasks.iter().map(|task| task.in_queue(queue)).collect()))
            }
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) select: Select,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) select: Select,
    /// Enqueue a copy instead; completed tasks can only be run again this way
    #[arg(long, conflicts_with = "from_scratch")]
    pub(crate) again: bool,
    /// Discard the saved steps, and begin a new conversation with an agent
    #[arg(long)]
    pub(crate) from_scratch: bool,
    /// A new payload: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: Option<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead letters, newest first
    #[command(after_help = "Example: ostler dead ls --text timeout")]
    Ls {
        #[command(flatten)]
        filters: DeadFilters,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a dead letter in detail
    #[command(after_help = "Example: ostler dead show 01JC8Z0Q4M9T7N3V5X1B2D6F8H")]
    Show(Show),
    /// Replay dead letters: run them again
    #[command(after_help = "Example: ostler dead replay --matching \"connection refused\" --yes")]
    Replay {
        #[command(flatten)]
        select: DeadSelect,
        /// Discard the saved steps, and begin a new conversation with an agent
        #[arg(long)]
        from_scratch: bool,
        /// A new payload: JSON, @FILE, or - for standard input
        #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
        payload: Option<OsString>,
    },
    /// Remove dead letters permanently
    #[command(after_help = "Example: ostler dead drop 01JC8Z0Q4M9T7N3V5X1B2D6F8H")]
    Drop(DeadSelect),
}

/// Filters for dead letters; all of them must match.
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
    #[command(flatten)]
    end: EndFilters,
}

impl DeadFilters {
    /// The same filters, as other commands use them.
    pub(crate) fn filters(self) -> Filters {
        let Self { queue, kind, text, field, failure, end } = self;
        let state = Some(StateName::Failed);
        Filters { state, queue, kind, text, field, failure, end, stale: false }
    }
}

/// Dead letters by name or by filter.
#[derive(Debug, clap::Args)]
pub(crate) struct DeadSelect {
    /// Task ids, or their first or last 4 or more characters, or key:K for a unique key in --queue [default queue: "default"]
    #[arg(value_name = "ID", value_parser = values::task)]
    tasks: Vec<TaskName>,
    #[command(flatten)]
    filters: DeadFilters,
    /// All dead letters
    #[arg(long, conflicts_with = "tasks")]
    all: bool,
    /// Do not ask for confirmation when dead letters are selected by filters
    #[arg(long, short)]
    yes: bool,
}

impl DeadSelect {
    /// The same selection, as other commands use it. No selection does not mean all.
    pub(crate) fn select(self) -> Select {
        let mut filters = self.filters.filters();
        let nothing = filters.filter() == Filter { state: Some(StateName::Failed), ..Filter::default() };
        if !self.tasks.is_empty() || (nothing && !self.all) {
            filters.state = None;
        }
        Select { tasks: self.tasks, filters, yes: self.yes }
    }
}
