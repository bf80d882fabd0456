//! `ostler queue` and `ostler breaker`, and the syntax of limits on the command line.

use std::time::Duration;

use clap::Subcommand;
use ostler_core::{Budget, Cost, KeyHold, PriorityOrder, Rate};
use ostler_ops::queues::{BadWish, QueueSet};
use ostler_store::calls::QueueChange;
use ostler_store::gates::BreakerSetting;
use ostler_store::paths::PayloadPath;
use ostler_wire::limit_syntax::{NONE, Wish, breaker, count, path, rate, waiting, wish};
use serde_json::{Value, json};

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
    #[arg(long, value_name = "R", value_parser = asked(rate))]
    rate: Vec<WrittenWish<Rate>>,
    /// The same, for each limit key
    #[arg(long, value_name = "R", value_parser = asked(rate))]
    key_rate: Vec<WrittenWish<Rate>>,
    /// At most N running tasks, over all nodes
    #[arg(long, value_name = "N", value_parser = asked(count))]
    concurrency: Option<WrittenWish<u32>>,
    /// At most N running tasks of one limit key
    #[arg(long, value_name = "N", value_parser = asked(count))]
    key_concurrency: Option<WrittenWish<u32>>,
    /// At most N waiting tasks; further ones are refused
    #[arg(long, value_name = "N", value_parser = asked(waiting))]
    queue_limit: Option<WrittenWish<u64>>,
    /// The payload path of the limit key, such as payload.tenant
    #[arg(long, value_name = "PATH", value_parser = asked(path))]
    key: Option<WrittenWish<PayloadPath>>,
    /// The payload path of the task's cost, such as payload.tokens
    #[arg(long, value_name = "PATH", value_parser = asked(path))]
    cost: Option<WrittenWish<PayloadPath>>,
    /// When to stop failing work: failures=5,reset=5m or share=0.5,window=1m,at_least=20,reset=5m; add ,per=key for one per key
    #[arg(long, value_name = "B", value_parser = asked(breaker))]
    breaker: Option<WrittenWish<BreakerSetting>>,
    /// At most this much money for all its tasks, such as 5 or $0.50; a larger one resumes a queue whose budget was reached
    #[arg(long, value_name = "USD", value_parser = asked(money))]
    budget: Option<WrittenWish<Cost>>,
    /// At most this much money a day, by the days of UTC
    #[arg(long, value_name = "USD", value_parser = asked(money))]
    budget_per_day: Option<WrittenWish<Cost>>,
    /// Money to reserve for each task until one has ended; then it is the median [default: the first task runs alone]
    #[arg(long, value_name = "USD", value_parser = asked(money))]
    reserve: Option<WrittenWish<Cost>>,
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
        let all = |rates: Vec<WrittenWish<Rate>>| rates.into_iter().map(|rate| rate.wish).collect();
        let set = QueueSet {
            rate: all(self.rate),
            key_rate: all(self.key_rate),
            concurrency: self.concurrency.map(|asked| asked.wish),
            key_concurrency: self.key_concurrency.map(|asked| asked.wish),
            queue_limit: self.queue_limit.map(|asked| asked.wish),
            key: self.key.map(|asked| asked.wish),
            cost: self.cost.map(|asked| asked.wish),
            breaker: self.breaker.map(|asked| asked.wish),
            budget: self.budget.map(|asked| asked.wish),
            budget_per_day: self.budget_per_day.map(|asked| asked.wish),
            reserve: self.reserve.map(|asked| asked.wish),
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

    /// The same as JSON for a node, which reads the texts again.
    pub(crate) fn input(&self) -> Value {
        fn text<T>(written: Option<&WrittenWish<T>>) -> Option<&str> {
            written.map(|written| written.text.as_str())
        }
        let all =
            |rates: &[WrittenWish<Rate>]| -> Value { rates.iter().map(|rate| rate.text.as_str()).collect() };
        json!({
            "rate": all(&self.rate),
            "key_rate": all(&self.key_rate),
            "concurrency": text(self.concurrency.as_ref()),
            "key_concurrency": text(self.key_concurrency.as_ref()),
            "queue_limit": text(self.queue_limit.as_ref()),
            "key": text(self.key.as_ref()),
            "cost": text(self.cost.as_ref()),
            "breaker": text(self.breaker.as_ref()),
            "budget": text(self.budget.as_ref()),
            "budget_per_day": text(self.budget_per_day.as_ref()),
            "reserve": text(self.reserve.as_ref()),
            "priority": self.priority.map(PriorityOrder::name),
            "key_until": self.key_until.and_then(KeyHold::name),
        })
    }
}

/// A limit with the text that asks for it.
#[derive(Clone, Debug)]
struct WrittenWish<T> {
    text: String,
    wish: Wish<T>,
}

fn asked<T: Clone + Send + Sync + 'static>(
    read: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<WrittenWish<T>, String> + Clone + Send + Sync + 'static {
    let read = wish(read);
    move |text| Ok(WrittenWish { text: text.to_owned(), wish: read(text)? })
}
