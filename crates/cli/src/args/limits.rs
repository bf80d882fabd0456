//! `ostler queue` and `ostler breaker`, and the syntax of limits on the command line.

use std::time::Duration;

use clap::Subcommand;
use ostler_core::{BreakerPolicy, Budget, Cost, KeyHold, PriorityOrder, Rate, Trip};
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerScope, BreakerSetting, MAX_COST};
use ostler_store::paths::PayloadPath;

use super::cost::money;
use super::values;
use crate::config::duration as durations;

/// Removes a limit.
const NONE: &str = "none";
/// Units of a rate's window, in seconds.
const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
/// Examples of breaker settings.
const BREAKER: &str =
    "failures=5,reset=5m or share=0.5,window=1m,at_least=20,reset=5m, and ,per=key for each limit key";

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

/// A limit to set, or its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish<T> {
    Nothing,
    Of(T),
}

impl<T> Wish<T> {
    fn into_option(self) -> Option<T> {
        match self {
            Self::Nothing => None,
            Self::Of(value) => Some(value),
        }
    }
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
    /// The budget that the options ask for, given the present one; `None`: they do not mention it.
    fn budget(&self, before: Option<Budget>) -> Result<Option<QueueChange>, String> {
        if self.budget.is_none() && self.budget_per_day.is_none() {
            let alone = "--reserve goes with --budget or --budget-per-day".to_owned();
            return if self.reserve.is_some() { Err(alone) } else { Ok(None) };
        }
        let before = before.unwrap_or_default();
        let or = |wish: &Option<Wish<Cost>>, before| wish.clone().map_or(before, Wish::into_option);
        let total = or(&self.budget, before.total);
        let (per_day, reserve) =
            (or(&self.budget_per_day, before.per_day), or(&self.reserve, before.reserve));
        let limits = total.is_some() || per_day.is_some();
        Ok(Some(QueueChange::Budget(limits.then_some(Budget { total, per_day, reserve }))))
    }

    /// The changes that the options ask for, given the present budget.
    pub(crate) fn changes(self, before: Option<Budget>) -> Result<Vec<QueueChange>, String> {
        let mut changes = Vec::new();
        changes.extend(self.budget(before)?);
        if !self.rate.is_empty() {
            changes.push(QueueChange::Rate(windows("--rate", self.rate)?));
        }
        if !self.key_rate.is_empty() {
            changes.push(QueueChange::KeyRate(windows("--key-rate", self.key_rate)?));
        }
        changes.extend(
            [
                self.concurrency.map(|wish| QueueChange::Concurrency(wish.into_option())),
                self.key_concurrency.map(|wish| QueueChange::KeyConcurrency(wish.into_option())),
                self.queue_limit.map(|wish| QueueChange::Limit(wish.into_option())),
                self.key.map(|wish| QueueChange::KeyPath(wish.into_option())),
                self.cost.map(|wish| QueueChange::CostPath(wish.into_option())),
                self.breaker.map(|wish| QueueChange::Breaker(wish.into_option())),
                self.priority.map(QueueChange::Priority),
                self.key_until.map(QueueChange::KeyHold),
            ]
            .into_iter()
            .flatten(),
        );
        if changes.is_empty() {
            return Err(
                "nothing to set; add an option such as --rate 60/m (see: ostler queue set --help)".to_owned()
            );
        }
        Ok(changes)
    }
}

/// All windows, or an empty list for "none".
fn windows(option: &str, wishes: Vec<Wish<Rate>>) -> Result<Vec<Rate>, String> {
    if wishes.len() > 1 && wishes.contains(&Wish::Nothing) {
        return Err(format!("{option} {NONE} removes all windows; it cannot be combined with others"));
    }
    Ok(wishes.into_iter().filter_map(Wish::into_option).collect())
}

/// Parses a limit or "none".
fn wish<T: Clone + Send + Sync + 'static>(
    read: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Wish<T>, String> + Clone + Send + Sync + 'static {
    move |text| if text == NONE { Ok(Wish::Nothing) } else { read(text).map(Wish::Of) }
}

fn count(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to 1000000, or {NONE}"))
}

fn waiting(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000_000).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to 1000000000, or {NONE}"))
}

fn path(text: &str) -> Result<PayloadPath, String> {
    PayloadPath::parse(text).map_err(|error| error.to_string())
}

/// Parses the cost of a task.
pub(super) fn cost(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_COST).contains(number));
    number.ok_or_else(|| format!("a cost is a whole number from 1 to {MAX_COST}"))
}

fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("a rate looks like 60/m, 5/s, 100/10s or 60/m,burst=10, or is {NONE}");
    let (rate, burst) = match text.split_once(',') {
        Some((rate, burst)) => (rate, Some(burst.strip_prefix("burst=").ok_or_else(wrong)?)),
        None => (text, None),
    };
    let (amount, per) = rate.split_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let per = match UNITS.iter().find(|(unit, _)| *unit == per) {
        Some((_, seconds)) => Duration::from_secs(*seconds),
        None => durations::parse(per).map_err(|_| wrong())?,
    };
    let usual = Rate::even(number(amount)?, per);
    Ok(Rate { burst: burst.map_or(Ok(usual.burst), number)?, ..usual })
}

fn breaker(text: &str) -> Result<BreakerSetting, String> {
    let wrong = || format!("a breaker looks like {BREAKER}");
    let (mut failures, mut share, mut window, mut at_least, mut reset) = (None, None, None, None, None);
    let mut scope = None;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let twice = match name {
            "failures" => failures.replace(count(value).map_err(|_| wrong())?).is_some(),
            "share" => share.replace(percent(value).ok_or_else(wrong)?).is_some(),
            "window" => window.replace(values::duration(value)?).is_some(),
            "at_least" => at_least.replace(count(value).map_err(|_| wrong())?).is_some(),
            "reset" => reset.replace(values::duration(value)?).is_some(),
            "per" => scope.replace(BreakerScope::named(value).ok_or_else(wrong)?).is_some(),
            _ => return Err(wrong()),
        };
        if twice {
            return Err(format!("{name} is given twice"));
        }
    }
    let trip = match (failures, share, window, at_least) {
        (Some(failures), None, None, None) => Trip::Consecutive(failures),
        (None, Some(failures_percent), Some(window), Some(at_least)) => {
            Trip::Rate { failures_percent, at_least, window }
        }
        _ => return Err(wrong()),
    };
    let policy = BreakerPolicy { trip, reset: reset.ok_or_else(wrong)? };
    Ok(BreakerSetting { policy, scope: scope.unwrap_or(BreakerScope::Queue) })
}

fn percent(text: &str) -> Option<u8> {
    let percent = (text.parse::<f64>().ok()? * 100.0).round();
    (1.0..=100.0).contains(&percent).then_some(percent as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_an_amount_and_a_window() {
        let second = Duration::from_secs(1);
        for (text, amount, per, burst) in [
            ("60/m", 60, 60 * second, 6),
            ("5/s", 5, second, 1),
            ("1000/h", 1_000, 3_600 * second, 100),
            ("10/d", 10, 86_400 * second, 1),
            ("100/10s", 100, 10 * second, 10),
            ("60/m,burst=1", 60, 60 * second, 1),
        ] {
            assert_eq!(rate(text), Ok(Rate { amount, per, burst }), "{text}");
        }
        for text in ["", "60", "60/", "/m", "x/m", "60/week", "60/m,10", "60/m,burst=", "-1/s", "1.5/s"] {
            assert!(rate(text).is_err_and(|sentence| sentence.contains("looks like 60/m")), "{text}");
        }
    }

    #[test]
    fn a_breaker_is_what_the_config_says_with_commas() {
        let second = Duration::from_secs(1);
        let reset = 300 * second;
        let row = BreakerPolicy { trip: Trip::Consecutive(5), reset };
        assert_eq!(
            breaker("failures=5,reset=5m"),
            Ok(BreakerSetting { policy: row, scope: BreakerScope::Queue })
        );
        let trip = Trip::Rate { failures_percent: 50, at_least: 20, window: 60 * second };
        let share = BreakerSetting { policy: BreakerPolicy { trip, reset }, scope: BreakerScope::Key };
        assert_eq!(breaker("share=0.5,window=1m,at_least=20,reset=5m,per=key"), Ok(share));
        for text in [
            "",
            "5",
            "failures=5",
            "reset=5m",
            "failures=0,reset=5m",
            "failures=5,share=0.5,reset=5m",
            "share=0.5,reset=5m",
            "share=1.5,window=1m,at_least=20,reset=5m",
            "failures=5,reset=5m,per=pool",
            "failures=5,reset=5m,x=1",
        ] {
            assert!(breaker(text).is_err_and(|sentence| sentence.contains("failures=5,reset=5m")), "{text}");
        }
        assert_eq!(breaker("failures=5,failures=6,reset=5m"), Err("failures is given twice".to_owned()));
    }

    #[test]
    fn a_limit_is_lifted_by_a_word() {
        assert_eq!(wish(count)("none"), Ok(Wish::Nothing));
        assert_eq!(wish(count)("7"), Ok(Wish::Of(7)));
        assert!(wish(count)("0").is_err());
        assert!(windows("--rate", vec![Wish::Nothing, Wish::Nothing]).is_err());
        assert_eq!(windows("--rate", vec![Wish::Nothing]), Ok(Vec::new()));
    }
}
