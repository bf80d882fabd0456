//! Limits as users write them: rates such as `60/m`, breakers such as `failures=5,reset=5m`, and `none`, which removes one.

use std::time::Duration;

use ostler_core::{BreakerPolicy, Rate, Trip, parse_duration};
use ostler_store::gates::{BreakerScope, BreakerSetting, MAX_COST};
use ostler_store::paths::PayloadPath;

use crate::value;

/// Removes a limit.
pub const NONE: &str = "none";
/// Units of a rate's window, in seconds.
const UNITS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
/// Examples of breaker settings.
const BREAKER: &str =
    "failures=5,reset=5m or share=0.5,window=1m,at_least=20,reset=5m, and ,per=key for each limit key";

/// A limit to set, or its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish<T> {
    Nothing,
    Of(T),
}

impl<T> Wish<T> {
    /// The limit; `None`: there is to be none.
    #[must_use]
    pub fn into_option(self) -> Option<T> {
        match self {
            Self::Nothing => None,
            Self::Of(value) => Some(value),
        }
    }
}

/// Parses a limit or "none".
pub fn wish<T: Clone + Send + Sync + 'static>(
    read: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Wish<T>, String> + Clone + Send + Sync + 'static {
    move |text| if text == NONE { Ok(Wish::Nothing) } else { read(text).map(Wish::Of) }
}

/// # Errors
/// A sentence with the form or the range.
pub fn count(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to 1000000, or {NONE}"))
}

/// # Errors
/// A sentence with the form or the range.
pub fn waiting(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000_000).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to 1000000000, or {NONE}"))
}

/// # Errors
/// A sentence with the form or the range.
pub fn path(text: &str) -> Result<PayloadPath, String> {
    PayloadPath::parse(text).map_err(|error| error.to_string())
}

/// Parses the cost of a task.
///
/// # Errors
/// A sentence with the range.
pub fn cost(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_COST).contains(number));
    number.ok_or_else(|| format!("a cost is a whole number from 1 to {MAX_COST}"))
}

/// # Errors
/// A sentence with the form or the range.
pub fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("a rate looks like 60/m, 5/s, 100/10s or 60/m,burst=10, or is {NONE}");
    let (rate, burst) = match text.split_once(',') {
        Some((rate, burst)) => (rate, Some(burst.strip_prefix("burst=").ok_or_else(wrong)?)),
        None => (text, None),
    };
    let (amount, per) = rate.split_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let per = match UNITS.iter().find(|(unit, _)| *unit == per) {
        Some((_, seconds)) => Duration::from_secs(*seconds),
        None => parse_duration(per).map_err(|_| wrong())?,
    };
    let usual = Rate::even(number(amount)?, per);
    Ok(Rate { burst: burst.map_or(Ok(usual.burst), number)?, ..usual })
}

/// # Errors
/// A sentence with the form or the range.
pub fn breaker(text: &str) -> Result<BreakerSetting, String> {
    let wrong = || format!("a breaker looks like {BREAKER}");
    let (mut failures, mut share, mut window, mut at_least, mut reset) = (None, None, None, None, None);
    let mut scope = None;
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let twice = match name {
            "failures" => failures.replace(count(value).map_err(|_| wrong())?).is_some(),
            "share" => share.replace(percent(value).ok_or_else(wrong)?).is_some(),
            "window" => window.replace(value::duration(value)?).is_some(),
            "at_least" => at_least.replace(count(value).map_err(|_| wrong())?).is_some(),
            "reset" => reset.replace(value::duration(value)?).is_some(),
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
    }
}
