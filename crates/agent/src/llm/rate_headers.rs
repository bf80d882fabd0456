//! What the head of an answer says about limits: when to come back, and how many more requests go through. Formats differ by provider:
//! RFC 3339 (Anthropic), durations such as `1m30s` or `12ms` (OpenAI), whole seconds or -1 (Azure), seconds or an HTTP date
//! (`Retry-After`), milliseconds (`retry-after-ms`), seconds since 1970 (subscriptions of Anthropic).

use std::time::Duration;

use ostler_core::Timestamp;
use ostler_exec::wait_of;

use crate::fact::{LimitState, LimitWindow};
use crate::reset::{MAX_HOLD, from_seconds};

/// Rates that the two providers limit, by the names in their headers.
const RATES: [(&str, RateUnit); 4] = [
    ("requests", RateUnit::Requests),
    ("tokens", RateUnit::Tokens),
    ("input-tokens", RateUnit::Input),
    ("output-tokens", RateUnit::Output),
];
/// The names of the windows of a subscription, in headers and as a claim.
const WINDOWS: [(&str, &str); 2] = [("5h", "five_hour"), ("7d", "seven_day")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateUnit {
    Requests,
    Tokens,
    Input,
    Output,
}

/// The tokens that a request needs, about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestTokens {
    pub(super) input: u64,
    pub(super) output: u64,
}

/// What a head says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RateHeaders {
    /// When to come back, if it says so plainly.
    wait: Option<Duration>,
    rates: Vec<RateLeft>,
    /// Whether the provider thinks that the same request may work later.
    pub(super) should_retry: Option<Retry>,
    /// The usage limits of a subscription.
    pub(super) windows: Vec<LimitWindow>,
    /// A usage limit of a subscription is reached, and until when.
    pub(super) rejected_until: Option<Option<Timestamp>>,
    pub(super) request_id: Option<String>,
}

/// What `x-should-retry` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RateLeft {
    unit: RateUnit,
    remaining: Option<u64>,
    resets_at: Option<Timestamp>,
}

impl RateHeaders {
    /// Reads them. `header` has the value of a name in lower case.
    pub(super) fn read<'a>(header: impl Fn(&str) -> Option<&'a str>, now: Timestamp) -> Self {
        let header = |name: &str| header(name).map(str::trim).filter(|value| !value.is_empty());
        let millis = header("retry-after-ms").and_then(|value| value.parse::<f64>().ok());
        let wait =
            millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1_000.0).ok()).or_else(|| {
                header("retry-after").and_then(|value| wait_of(value, now).or_else(|| seconds(value)))
            });
        let rates = RATES.into_iter().filter_map(|(name, unit)| {
            let [left, reset] = ["remaining", "reset"].map(|what| {
                header(&format!("anthropic-ratelimit-{name}-{what}"))
                    .or_else(|| header(&format!("x-ratelimit-{what}-{name}")))
            });
            let remaining = left.and_then(|value| value.parse().ok());
            let resets_at = reset.and_then(|value| reset_at(value, now));
            (remaining.is_some() || resets_at.is_some()).then_some(RateLeft { unit, remaining, resets_at })
        });
        let unified = |what: &str| header(&format!("anthropic-ratelimit-unified-{what}"));
        let epoch = |value: &str| value.parse().ok().and_then(from_seconds);
        let windows = WINDOWS.into_iter().filter_map(|(short, name)| {
            let utilization = unified(&format!("{short}-utilization"))?.parse().ok()?;
            let state = match unified(&format!("{short}-status")) {
                Some("rejected") => LimitState::Reached,
                Some("allowed_warning") => LimitState::Near,
                Some(_) | None => LimitState::Open,
            };
            let resets_at = unified(&format!("{short}-reset")).and_then(epoch);
            Some(LimitWindow { name: name.to_owned(), utilization: Some(utilization), resets_at, state })
        });
        let is_rejected = unified("status") == Some("rejected");
        Self {
            wait,
            rates: rates.collect(),
            should_retry: match header("x-should-retry") {
                Some("true") => Some(Retry::Yes),
                Some("false") => Some(Retry::No),
                Some(_) | None => None,
            },
            windows: windows.collect(),
            rejected_until: is_rejected.then(|| unified("reset").and_then(epoch)),
            request_id: header("request-id").or_else(|| header("x-request-id")).map(str::to_owned),
        }
    }

    /// How long to wait after a refusal: as the server says it, or until the rate that is used up resets.
    pub(super) fn wait(&self, now: Timestamp) -> Option<Duration> {
        let used_up = |rate: &&RateLeft| rate.remaining == Some(0);
        let latest =
            |rates: &mut dyn Iterator<Item = &RateLeft>| rates.filter_map(|rate| rate.resets_at).max();
        let reset = latest(&mut self.rates.iter().filter(used_up)).or_else(|| latest(&mut self.rates.iter()));
        let wait = self.wait.or_else(|| reset.map(|reset| reset.since(now)));
        wait.map(|wait| wait.min(MAX_HOLD))
    }

    /// How long to wait, if the server says it plainly. The reset of a rate says nothing about another trouble.
    pub(super) fn plain_wait(&self) -> Option<Duration> {
        self.wait.map(|wait| wait.min(MAX_HOLD))
    }

    /// How many more requests like this one go through now; `None` if the server does not say it.
    pub(super) fn allowance(&self, tokens: RequestTokens) -> Option<u32> {
        let requests = self.rates.iter().filter_map(|rate| {
            let remaining = rate.remaining?;
            let each = match rate.unit {
                RateUnit::Requests => 1,
                RateUnit::Tokens => tokens.input + tokens.output,
                RateUnit::Input => tokens.input,
                RateUnit::Output => tokens.output,
            };
            Some(remaining / each.max(1))
        });
        requests.min().map(|requests| u32::try_from(requests).unwrap_or(u32::MAX))
    }
}

/// When a rate resets: a timestamp, a duration, or seconds. A negative number says nothing.
fn reset_at(value: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some(wait) = seconds(value).or_else(|| go_duration(value)) {
        return Some(now.after(wait));
    }
    let at = value.parse::<jiff::Timestamp>().ok()?;
    Some(Timestamp::from_millis(at.as_millisecond()))
}

fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.parse::<f64>().ok()?).ok()
}

/// `1m30s`, `12ms`, `6h0m0.5s`: as the programming language Go writes them.
fn go_duration(value: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)];
    let (mut total, mut rest) = (0.0, value);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let (unit, size) = UNITS.into_iter().find(|(unit, _)| rest[end..].starts_with(unit))?;
        total += number * size;
        rest = &rest[end + unit.len()..];
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-18T07:00:00Z.
    const NOW: Timestamp = Timestamp::from_millis(1_794_985_200_000);

    fn read(headers: &[(&str, &str)]) -> RateHeaders {
        let find = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        RateHeaders::read(find, NOW)
    }

    #[test]
    fn a_minute_and_a_half_is_the_same_in_every_format() {
        for headers in [
            &[("retry-after", "90")][..],
            &[("retry-after", "Wed, 18 Nov 2026 07:01:30 GMT")],
            &[("retry-after-ms", "90000")],
            &[("x-ratelimit-reset-tokens", "1m30s")],
            &[("x-ratelimit-reset-tokens", "90")],
            &[("x-ratelimit-reset-tokens", "90000ms"), ("x-ratelimit-reset-requests", "-1")],
            &[("anthropic-ratelimit-tokens-reset", "2026-11-18T07:01:30Z")],
            &[("anthropic-ratelimit-input-tokens-reset", "2026-11-18T08:01:30+01:00")],
            // The one that is used up counts.
            &[
                ("x-ratelimit-remaining-requests", "40"),
                ("x-ratelimit-reset-requests", "1h"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "1m30s"),
            ],
            // What the server says plainly wins.
            &[("retry-after", "90"), ("x-ratelimit-reset-tokens", "6h0m0s")],
        ] {
            assert_eq!(read(headers).wait(NOW), Some(Duration::from_secs(90)), "{headers:?}");
        }
    }

    #[test]
    fn what_says_nothing_is_unknown_and_no_wait_is_endless() {
        for headers in [
            &[("retry-after", "soon")][..],
            &[("x-ratelimit-reset-tokens", "-1")],
            &[("x-ratelimit-reset-tokens", "1x")],
            &[("anthropic-ratelimit-tokens-reset", "tomorrow")],
            &[],
        ] {
            assert_eq!(read(headers).wait(NOW), None, "{headers:?}");
        }
        assert_eq!(read(&[("retry-after", "99999999999")]).wait(NOW), Some(MAX_HOLD));
        assert_eq!(go_duration("12ms"), Some(Duration::from_millis(12)));
        assert_eq!(go_duration("1h2m3.5s"), Some(Duration::from_millis(3_723_500)));
    }

    #[test]
    fn the_allowance_is_the_smallest_number_of_requests_like_this_one() {
        let tokens = RequestTokens { input: 100, output: 400 };
        let both = [("x-ratelimit-remaining-requests", "60"), ("x-ratelimit-remaining-tokens", "2500")];
        assert_eq!(read(&both).allowance(tokens), Some(5));
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "7"),
            ("anthropic-ratelimit-output-tokens-remaining", "900"),
        ];
        assert_eq!(read(&anthropic).allowance(tokens), Some(2));
        assert_eq!(read(&[("x-ratelimit-limit-requests", "100")]).allowance(tokens), None);
    }

    #[test]
    fn a_subscription_says_how_much_is_used_and_when_it_is_rejected() {
        let headers = read(&[
            ("anthropic-ratelimit-unified-status", "rejected"),
            ("anthropic-ratelimit-unified-reset", "1795075200"),
            ("anthropic-ratelimit-unified-5h-utilization", "1.0"),
            ("anthropic-ratelimit-unified-5h-status", "rejected"),
            ("x-should-retry", "false"),
            ("request-id", "req_1"),
        ]);
        assert_eq!(headers.rejected_until, Some(from_seconds(1_795_075_200)));
        assert_eq!(
            (headers.windows[0].name.as_str(), headers.windows[0].state),
            ("five_hour", LimitState::Reached)
        );
        assert_eq!((headers.should_retry, headers.request_id.as_deref()), (Some(Retry::No), Some("req_1")));
    }
}
