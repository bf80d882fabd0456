//! `ostler cost`, and amounts of money on the command line.

use std::time::Duration;

use ostler_core::{Cost, Timestamp};
use ostler_ops::cost::CostDimension;
use ostler_wire::time::TimeView;

use super::values;

/// `ostler cost`.
#[derive(Debug, clap::Args)]
pub(crate) struct CostArgs {
    /// Add up by task, attempt, job, queue, pool, account, model or day
    #[arg(long, value_name = "X", default_value = "day", value_parser = dimension)]
    pub(crate) by: CostDimension,
    /// Only from this day of UTC on: a date such as 2026-11-01, or how long ago, such as 7d
    #[arg(long, value_name = "D", value_parser = since)]
    pub(crate) since: Option<Since>,
    /// Only up to this day
    #[arg(long, value_name = "D", value_parser = since)]
    pub(crate) until: Option<Since>,
    /// Only this queue
    #[arg(long, value_name = "Q", value_parser = values::queue)]
    pub(crate) queue: Option<String>,
}

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Day(Timestamp),
    Ago(Duration),
}

impl Since {
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Day(at) => at,
            Self::Ago(span) => now.before(span),
        }
    }
}

fn dimension(text: &str) -> Result<CostDimension, String> {
    values::one_of(text, &CostDimension::ALL, CostDimension::name)
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = TimeView::parse(&format!("{text}T00:00:00Z")) {
        return Ok(Since::Day(at));
    }
    let ago = values::duration(text).map(Since::Ago);
    ago.map_err(|_| "expected a date such as 2026-11-01, or how long ago, such as 7d".to_owned())
}

/// Parses an amount in US dollars.
pub(crate) fn money(text: &str) -> Result<Cost, String> {
    ostler_config::money::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_date_or_some_time_ago() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let day = since("2026-11-01").expect("a date").at(now);
        assert_eq!(TimeView::from(day).to_string(), "2026-11-01T00:00:00.000Z");
        assert_eq!(since("2d").expect("some days").at(now), now.before(Duration::from_secs(2 * 86_400)));
        for text in ["", "yesterday", "2026-13-01", "0d"] {
            assert!(since(text).is_err_and(|sentence| sentence.contains("2026-11-01")), "{text}");
        }
    }
}
