//! `ostler queue` and `ostler breaker`, and the syntax of limits on the command line.

use std::time::Duration;

use clap::Subcommand;
use ostler_core::{Budget, Cost, KeyHold, PriorityOrder, Rate};
use ostler_ops::queues::{BadWish, QueueSet};
use ostler_store::calls::QueueChange;
use ostler_store::gates::BreakerSetting;
use ostler_store::paths::PayloadPath;
use ostler_wire::limit_syntax::{NONE, Wish, breaker, count, path, rate, waiting, wish};

use super::cost::money;
use super::values;

/// `ostler queue`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues, with what throttles them
    #[command(after_help = "Example: ostler queue ls")]
    Ls {
        /// Also the queues of jobs
        #[arg(long)]
        all: bool,
    },
    /// Show the limits of a queue and their state
    #[command(after_help = "Example: ostler queue show mail")]
    Show {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
    },
    /// Change the limits of a queue, immediately and on all nodes
    ///
    /// A limit accepts "none", which removes it. Options left out do not change anything.
    ///
    /// The change lasts until a node starts with a config that has a pool for this queue: the limits of that config then replace all
    /// of these, including those it leaves out. Running nodes do not undo the change. To change a limit permanently, change the
    /// config too.
    #[command(after_help = "Example: ostler queue set mail --rate 60/m --rate 1000/d --key-concurrency 2")]
    Set(Box<Set>),
    /// Lift a hold that a "too many requests" answer has placed
    #[command(after_help = "Example: ostler queue release mail --key acme")]
    Release {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
        /// Only the hold of this limit key
        #[arg(long, value_name = "K")]
        key: Option<String>,
    },
    /// Remove a subscriber that is gone for good, with the outcomes that wait for it
    ///
    /// The outcomes that callbacks and hooks want are stored until they are handled. If the program that has them is gone, they pile up;
    /// "ostler queue show" lists the subscribers. A program that still has this one subscribes again when it starts.
    #[command(after_help = "Example: ostler queue unsubscribe mail on_completed")]
    Unsubscribe {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
        /// The subscriber
        #[arg(value_name = "NAME")]
        subscriber: String,
    },
}

/// `ostler breaker`.
#[derive(Debug, Subcommand)]
pub(crate) enum BreakerCommand {
    /// List circuit breakers and their state
    #[command(after_help = "Example: ostler breaker ls --json")]
    Ls,
    /// Open a breaker by hand: tasks wait instead of failing
    ///
    /// When the time is over, one task is tried if the queue has a breaker configured, and its outcome decides; otherwise it closes.
    #[command(after_help = "Example: ostler breaker open mail --for 10m")]
    Open {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
        /// Only the breaker of this limit key
        #[arg(long, value_name = "K")]
        key: Option<String>,
        /// For how long [default: until it is reset]
        #[arg(long = "for", value_name = "D", value_parser = values::duration)]
        span: Option<Duration>,
    },
    /// Close a breaker and clear its counters
    #[command(after_help = "Example: ostler breaker reset mail --key acme")]
    Reset {
        /// The queue
        #[arg(value_parser = values::queue)]
        queue: String,
        /// Only the breaker of this limit key
        #[arg(long, value_name = "K")]
        key: Option<String>,
    },
}

/// `ostler queue set`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Set {
    /// The queue
    #[arg(value_parser = values::queue)]
    pub(crate) queue: String,
    /// At most this many tasks (or cost) per window: 60/m, 5/s, 100/10s, 60/m,burst=10; repeat for several windows
    #[arg(long, value_name = "R", value_parser = wish(rate))]
    rate: Vec<Wish<Rate>>,
    /// The same, for each limit key
    #[arg(long, value_name = "R", value_parser = wish(rate))]
    key_rate: Vec<Wish<Rate>>,
    /// At most N running tasks, over all nodes
    #[arg(long, value_name = "N", value_parser = wish(count))]
    concurrency: Option<Wish<u32>>,
    /// At most N running tasks of one limit key
    #[arg(long, value_name = "N", value_parser = wish(count))]
    key_concurrency: Option<Wish<u32>>,
    /// At most N waiting tasks; further ones are refused
    #[arg(long, value_name = "N", value_parser = wish(waiting))]
    queue_limit: Option<Wish<u64>>,
    /// The payload path of the limit key, such as payload.tenant
    #[arg(long, value_name = "PATH", value_parser = wish(path))]
    key: Option<Wish<PayloadPath>>,
    /// The payload path of the task's cost, such as payload.tokens
    #[arg(long, value_name = "PATH", value_parser = wish(path))]
    cost: Option<Wish<PayloadPath>>,
    /// When to stop failing work: failures=5,reset=5m or share=0.5,window=1m,at_least=20,reset=5m; add ,per=key for one per key
    #[arg(long, value_name = "B", value_parser = wish(breaker))]
    breaker: Option<Wish<BreakerSetting>>,
    /// At most this much money for all its tasks, such as 5 or $0.50; a larger one resumes a queue whose budget was reached
    #[arg(long, value_name = "USD", value_parser = wish(money))]
    budget: Option<Wish<Cost>>,
    /// At most this much money a day, by the days of UTC
    #[arg(long, value_name = "USD", value_parser = wish(money))]
    budget_per_day: Option<Wish<Cost>>,
    /// Money to reserve for each task [default: the median of recent attempts; the first task runs alone]
    #[arg(long, value_name = "USD", value_parser = wish(money))]
    reserve: Option<Wish<Cost>>,
    /// How priorities order tasks submitted from now on: aging (a point is a minute's head start), or strict (highest first)
    #[arg(long, value_name = "O", value_parser = values::priority_order)]
    priority: Option<PriorityOrder>,
    /// Until when keys of tasks submitted from now on stay unique: removed, or end
    #[arg(long, value_name = "W", value_parser = values::key_hold)]
    key_until: Option<KeyHold>,
}

impl Set {
    /// The changes that the options ask for, given the present budget.
    pub(crate) fn changes(self, before: Option<Budget>) -> Result<Vec<QueueChange>, String> {
        let set = QueueSet {
            rate: self.rate,
            key_rate: self.key_rate,
            concurrency: self.concurrency,
            key_concurrency: self.key_concurrency,
            queue_limit: self.queue_limit,
            key: self.key,
            cost: self.cost,
            breaker: self.breaker,
            budget: self.budget,
            budget_per_day: self.budget_per_day,
            reserve: self.reserve,
            priority: self.priority,
            key_until: self.key_until,
        };
        set.changes(before).map_err(|wrong| match wrong {
            BadWish::ReserveAlone => "--reserve goes with --budget or --budget-per-day".to_owned(),
            BadWish::NoneAndOthers(field) => {
                let option = field.replace('_', "-");
                format!("--{option} {NONE} removes all windows; it cannot be combined with others")
            }
            BadWish::Nothing => {
                "nothing to set; add an option such as --rate 60/m (see: ostler queue set --help)".to_owned()
            }
        })
    }
}
