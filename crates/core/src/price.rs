//! Prices of models: what tokens cost, where an agent or a worker does not report it. A price that is not known is unknown, never zero.

use std::collections::BTreeMap;

use crate::usage::{Cost, Usage};

/// Trillionths of a dollar for a token, in a dollar for a million tokens.
const PICODOLLARS: f64 = 1e6;
/// Trillionths in a billionth.
const PICOS_IN_NANO: u128 = 1_000;
/// Digits of a date at the end of a model's name, as in `claude-sonnet-4-5-20250929`.
const DATE_DIGITS: usize = 8;

/// The price of a token, in trillionths of a US dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenPrice(u64);

impl TokenPrice {
    /// From US dollars for a million tokens. `None` for a negative amount and for what is no number.
    #[must_use]
    pub fn per_million(usd: f64) -> Option<Self> {
        let picos = (usd * PICODOLLARS).round();
        (picos.is_finite() && picos >= 0.0).then_some(Self(picos as u64))
    }
}

/// The prices of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    pub input: TokenPrice,
    pub output: TokenPrice,
    /// `None` where it is not known: usage with such tokens has no known cost.
    pub cache_read: Option<TokenPrice>,
    /// Writing to a cache for five minutes.
    pub cache_write: Option<TokenPrice>,
    /// Writing to a cache for an hour.
    pub cache_write_1h: Option<TokenPrice>,
    /// Where the figures are from, and of when.
    pub source: PriceSource,
}

/// Where a price is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriceSource {
    /// Built in.
    BuiltIn {
        /// The day on which it was right.
        date: &'static str,
        from: &'static str,
    },
    /// Set by the user.
    Config,
}

/// Tokens by what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PricedTokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cache_write_1h: u64,
}

impl From<&Usage> for PricedTokens {
    /// Usage does not say for how long a cache was written: the shorter time is the default of the agents.
    fn from(usage: &Usage) -> Self {
        Self {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
            cache_write_1h: 0,
        }
    }
}

impl Price {
    /// What these tokens cost; `None` if a price that they need is not known.
    #[must_use]
    pub fn cost(&self, tokens: PricedTokens) -> Option<Cost> {
        let sorts = [
            (tokens.input, Some(self.input)),
            (tokens.output, Some(self.output)),
            (tokens.cache_read, self.cache_read),
            (tokens.cache_write, self.cache_write),
            (tokens.cache_write_1h, self.cache_write_1h),
        ];
        let mut picos = 0_u128;
        for (count, price) in sorts {
            if count > 0 {
                picos = picos.saturating_add(u128::from(count) * u128::from(price?.0));
            }
        }
        let nanos = (picos + PICOS_IN_NANO / 2) / PICOS_IN_NANO;
        Some(Cost::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// The known prices, by model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceTable(BTreeMap<String, Price>);

impl PriceTable {
    /// The built-in prices.
    #[must_use]
    pub fn built_in() -> Self {
        let price = |usd| TokenPrice::per_million(usd).expect("a built-in price is a number");
        let sonnet = Price {
            input: price(3.0),
            output: price(15.0),
            cache_read: Some(price(0.30)),
            cache_write: None,
            cache_write_1h: None,
            source: PriceSource::BuiltIn {
                date: "2026-11-15",
                from: "costs that claude 2.1.325 reported for known tokens",
            },
        };
        Self(BTreeMap::from([("claude-sonnet-4-5".to_owned(), sonnet)]))
    }

    /// No price at all.
    #[must_use]
    pub const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// The same with a price of the user, which wins.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.0.insert(model.into(), price);
        self
    }

    /// The price of a model. A date at the end of its name does not matter, unless a price has that name.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<&Price> {
        self.0.get(model).or_else(|| self.0.get(without_date(model)?))
    }

    /// Why the cost of this model's work is not known, if so.
    #[must_use]
    pub fn lacks(&self, model: &str) -> Option<String> {
        self.of(model).is_none().then(|| {
            format!("the price of the model \"{model}\" is not known; set it with [prices.\"{model}\"]")
        })
    }

    /// What this usage costs, without what its source says; `None` if the model or a price is not known.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Option<Cost> {
        self.of(usage.model.as_deref()?)?.cost(usage.into())
    }
}

fn without_date(model: &str) -> Option<&str> {
    let (name, date) = model.rsplit_once('-')?;
    (date.len() == DATE_DIGITS && date.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(amount: f64) -> TokenPrice {
        TokenPrice::per_million(amount).expect("a price")
    }

    fn usage(model: &str) -> Usage {
        Usage {
            model: Some(model.to_owned()),
            input_tokens: 1_200,
            output_tokens: 3,
            cache_read_tokens: 800,
            ..Usage::default()
        }
    }

    #[test]
    fn tokens_cost_what_their_sort_costs_and_a_date_in_the_name_does_not_matter() {
        let prices = PriceTable::built_in();
        assert_eq!(prices.cost(&usage("claude-sonnet-4-5")), Cost::from_usd(0.003_885));
        assert_eq!(prices.cost(&usage("claude-sonnet-4-5-20250929")), Cost::from_usd(0.003_885));
    }

    #[test]
    fn an_unknown_price_is_unknown_and_not_zero() {
        let prices = PriceTable::built_in();
        assert_eq!(prices.cost(&usage("gpt-9")), None);
        assert_eq!(prices.cost(&Usage { model: None, ..usage("x") }), None);
        let written = Usage { cache_write_tokens: 1, ..usage("claude-sonnet-4-5") };
        assert_eq!(prices.cost(&written), None, "what it costs to write a cache is not known");
        assert_eq!(prices.cost(&Usage { model: Some("gpt-9".into()), ..Usage::default() }), None);
    }

    #[test]
    fn a_price_of_the_user_wins_and_has_five_sorts() {
        let own = Price {
            input: usd(1.0),
            output: usd(10.0),
            cache_read: Some(usd(0.1)),
            cache_write: Some(usd(1.25)),
            cache_write_1h: Some(usd(2.0)),
            source: PriceSource::Config,
        };
        let tokens = PricedTokens {
            input: 1_000_000,
            output: 1_000_000,
            cache_read: 1_000_000,
            cache_write: 1_000_000,
            cache_write_1h: 1_000_000,
        };
        assert_eq!(own.cost(tokens), Cost::from_usd(14.35));
        let prices = PriceTable::built_in().with("claude-sonnet-4-5", own);
        assert_eq!(prices.cost(&usage("claude-sonnet-4-5")), Cost::from_usd(0.001_31));
        assert_eq!(TokenPrice::per_million(-1.0), None);
        assert_eq!(TokenPrice::per_million(f64::NAN), None);
    }
}
