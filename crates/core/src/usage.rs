//! Usage: the tokens and the money that an attempt spends on models.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

/// Nanodollars in a US dollar.
const NANO: f64 = 1e9;

/// An amount of money, in billionths of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// The amount in billionths of a US dollar.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The amount in US dollars, rounded to a billionth. `None` for a negative amount and for what is no number.
    #[must_use]
    pub fn from_usd(usd: f64) -> Option<Self> {
        let nanos = (usd * NANO).round();
        // `as` saturates, and 2^53 nanodollars are nine million dollars.
        (nanos.is_finite() && nanos >= 0.0).then_some(Self(nanos as u64))
    }

    /// Billionths of a US dollar.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The amount without `other`; at least nothing.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// US dollars.
    #[must_use]
    pub fn usd(self) -> f64 {
        self.0 as f64 / NANO
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usd = self.usd();
        if usd == 0.0 || usd >= 0.01 { write!(out, "${usd:.2}") } else { write!(out, "${usd:.6}") }
    }
}

/// How sure a usage is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageSource {
    /// The source reported it as final.
    #[default]
    Reported,
    /// The last usage seen of an attempt that could not report it, such as one that was killed.
    Estimated,
}

impl UsageSource {
    #[must_use]
    pub const fn is_estimated(self) -> bool {
        matches!(self, Self::Estimated)
    }

    /// `true` for an estimate, as stored formats and frames have it.
    #[must_use]
    pub const fn from_estimated(estimated: bool) -> Self {
        if estimated { Self::Estimated } else { Self::Reported }
    }
}

/// Tokens and money spent, by one model or by all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `None` where the source does not name it.
    pub model: Option<String>,
    /// Input that was not read from a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Input that was read from a cache.
    pub cache_read_tokens: u64,
    /// Input that was written to a cache.
    pub cache_write_tokens: u64,
    /// The part of the output that was reasoning, where the source tells.
    pub reasoning_tokens: u64,
    /// `None`: not known.
    pub cost: Option<Cost>,
    /// A sum is estimated if a part of it is.
    pub source: UsageSource,
}

impl Usage {
    /// Adds what another usage of the same model spent. A cost stays unknown only if both are.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost = match (self.cost, other.cost) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.source = self.source.max(other.source);
    }
}

/// The models in one sum: beyond it, usage is added to the last one.
pub const MAX_MODELS: usize = 32;

/// Adds a usage to sums by model.
pub fn add_usage(sums: &mut Vec<Usage>, new: &Usage) {
    let known = sums.iter().position(|sum| sum.model == new.model);
    match known {
        None if sums.len() < MAX_MODELS => sums.push(new.clone()),
        known => sums[known.unwrap_or(MAX_MODELS - 1)].add(new),
    }
}

/// The largest amount that people may write: a million dollars.
const MAX_USD: f64 = 1e6;

/// Parses an amount of US dollars: `$3`, `$0.25` or `0.25`.
///
/// # Errors
/// A sentence with examples.
pub fn parse_usd(text: &str) -> Result<Cost, String> {
    let number = text.trim().strip_prefix('$').unwrap_or(text.trim());
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let usd = number.parse::<f64>().ok().filter(|usd| plain && *usd <= MAX_USD);
    usd.and_then(Cost::from_usd).ok_or_else(|| {
        "expected an amount in US dollars such as $5, $0.25 or 0.25, up to $1000000".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(model: &str, input: u64, usd: Option<f64>) -> Usage {
        Usage {
            model: Some(model.to_owned()),
            input_tokens: input,
            cost: usd.and_then(Cost::from_usd),
            ..Usage::default()
        }
    }

    #[test]
    fn usage_is_summed_by_model_and_an_unknown_cost_adds_nothing() {
        let mut sums = Vec::new();
        for one in [
            spent("a", 1, Some(0.1)),
            spent("b", 2, None),
            spent("a", 3, Some(0.2)),
            spent("b", 1, Some(0.5)),
        ] {
            add_usage(&mut sums, &one);
        }
        assert_eq!(sums, [spent("a", 4, Some(0.3)), spent("b", 3, Some(0.5))]);
    }

    #[test]
    fn a_sum_is_estimated_if_a_part_of_it_is() {
        let mut sums = vec![spent("a", 1, None)];
        add_usage(&mut sums, &Usage { source: UsageSource::Estimated, ..spent("a", 1, None) });
        add_usage(&mut sums, &spent("a", 1, None));
        assert_eq!(sums[0].source, UsageSource::Estimated);
    }

    #[test]
    fn more_models_than_the_bound_share_the_last_sum() {
        let mut sums = Vec::new();
        (0..MAX_MODELS + 3).for_each(|at| add_usage(&mut sums, &spent(&at.to_string(), 1, None)));
        assert_eq!(sums.len(), MAX_MODELS);
        assert_eq!(sums.iter().map(|sum| sum.input_tokens).sum::<u64>(), MAX_MODELS as u64 + 3);
    }

    #[test]
    fn dollars_are_kept_to_a_billionth_and_nonsense_is_refused() {
        assert_eq!(Cost::from_usd(0.012_345_678_9).map(Cost::nanos), Some(12_345_679));
        assert_eq!(Cost::from_usd(-1.0), None);
        assert_eq!(Cost::from_usd(f64::NAN), None);
        assert_eq!(Cost::from_usd(1.5).unwrap().to_string(), "$1.50");
        assert_eq!(Cost::from_usd(0.000_25).unwrap().to_string(), "$0.000250");
    }
}
