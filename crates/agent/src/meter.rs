//! The meter of one run: tokens and money, from what an agent reports and from what is seen before it does.
//!
//! Agents report totals that go on over turns, and some over resumes. The meter turns them into differences, so that nothing is billed
//! twice. Between two reports it remembers the usage of each model request: the running cost comes from these, and if the agent is
//! killed, they are what is known of its cost.

use ostler_core::{Cost, EventBody, Usage, UsageSource, add_usage};

use crate::fact::Fact;
use crate::price::PriceTable;

/// Requests that are remembered one by one since the last report. Older ones are added up: their usage does not change any more.
const MAX_OPEN_REQUESTS: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Meter {
    prices: PriceTable,
    /// Reported, by model.
    reported: Vec<Usage>,
    /// Seen since the last report, by request.
    open: Vec<(String, Usage)>,
    /// Seen since the last report, of requests that are no longer in `open`.
    closed: Vec<Usage>,
    /// The last total of each model, for agents that report totals.
    totals: Vec<Usage>,
    last_cost: Option<Cost>,
}

impl Meter {
    /// `totals` is what the agent's totals begin with: what earlier runs of the same conversation spent.
    pub(crate) fn new(prices: PriceTable, totals: Vec<Usage>) -> Self {
        Self { prices, reported: Vec::new(), open: Vec::new(), closed: Vec::new(), totals, last_cost: None }
    }

    /// Reported usage that was spent since the last report.
    pub(crate) fn spent(&mut self, usage: impl IntoIterator<Item = Usage>) -> Vec<Fact> {
        self.open.clear();
        self.closed.clear();
        let mut facts = Vec::new();
        for mut one in usage {
            if is_nothing(&one) {
                continue;
            }
            one.cost = one.cost.or_else(|| self.prices.cost(&one));
            add_usage(&mut self.reported, &one);
            facts.push(EventBody::Usage(one).into());
        }
        facts.extend(self.cost());
        facts
    }

    /// Reported totals of the conversation. A total below the last one begins anew.
    pub(crate) fn total(&mut self, totals: Vec<Usage>) -> Vec<Fact> {
        let spent: Vec<Usage> =
            totals.iter().map(|total| difference(total, self.last_total(total))).collect();
        self.totals = totals;
        self.spent(spent)
    }

    /// A total from before the run, such as one that is repeated after a resume.
    pub(crate) fn baseline(&mut self, total: Usage) {
        self.totals = vec![total];
    }

    /// The usage of one model request so far. A later report of the same request replaces it.
    pub(crate) fn seen(&mut self, request: &str, usage: Usage) -> Option<Fact> {
        match self.open.iter_mut().find(|(id, _)| id == request) {
            Some((_, known)) => *known = usage,
            None => {
                if self.open.len() == MAX_OPEN_REQUESTS {
                    let (_, oldest) = self.open.remove(0);
                    add_usage(&mut self.closed, &oldest);
                }
                self.open.push((request.to_owned(), usage));
            }
        }
        self.cost()
    }

    /// The usage of a request so far, to be changed.
    pub(crate) fn known(&self, request: &str) -> Option<&Usage> {
        self.open.iter().find(|(id, _)| id == request).map(|(_, usage)| usage)
    }

    /// Usage that was seen and never reported, by model. It is an estimate: the run may have spent more.
    pub(crate) fn unreported(self) -> Vec<Usage> {
        let mut sums = self.closed;
        self.open.iter().for_each(|(_, usage)| add_usage(&mut sums, usage));
        sums.retain(|usage| !is_nothing(usage));
        for usage in &mut sums {
            usage.cost = usage.cost.or_else(|| self.prices.cost(usage));
            usage.source = UsageSource::Estimated;
        }
        sums
    }

    /// The same while the run goes on.
    pub(crate) fn unreported_yet(&self) -> Vec<Usage> {
        self.clone().unreported()
    }

    /// The cost of the run so far, if it has changed. Without a price it is not known.
    fn cost(&mut self) -> Option<Fact> {
        let open = self.open.iter().map(|(_, usage)| usage);
        let all = self.reported.iter().chain(&self.closed).chain(open);
        let cost = all.map(|usage| usage.cost.or_else(|| self.prices.cost(usage))).sum::<Option<Cost>>()?;
        (self.last_cost.replace(cost) != Some(cost)).then_some(Fact::Cost(cost))
    }

    fn last_total(&self, total: &Usage) -> Option<&Usage> {
        self.totals.iter().find(|last| last.model == total.model)
    }
}

fn is_nothing(usage: &Usage) -> bool {
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost, .. } = usage;
    let tokens = [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens];
    tokens.into_iter().all(|count| *count == 0) && cost.is_none_or(|cost| cost == Cost::default())
}

fn difference(total: &Usage, last: Option<&Usage>) -> Usage {
    let Some(last) = last else { return total.clone() };
    let has_shrunk = total.input_tokens < last.input_tokens
        || total.output_tokens < last.output_tokens
        || total.cache_read_tokens < last.cache_read_tokens;
    if has_shrunk {
        return total.clone();
    }
    Usage {
        model: total.model.clone(),
        input_tokens: total.input_tokens - last.input_tokens,
        output_tokens: total.output_tokens - last.output_tokens,
        cache_read_tokens: total.cache_read_tokens - last.cache_read_tokens,
        cache_write_tokens: total.cache_write_tokens.saturating_sub(last.cache_write_tokens),
        reasoning_tokens: total.reasoning_tokens.saturating_sub(last.reasoning_tokens),
        cost: total.cost.map(|cost| cost.less(last.cost.unwrap_or_default())),
        source: total.source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64, cost: Option<u64>) -> Usage {
        let cost = cost.map(Cost::from_nanos);
        Usage { input_tokens: input, output_tokens: output, cost, ..Usage::default() }
    }

    fn events(facts: &[Fact]) -> Vec<Usage> {
        let of = |fact: &Fact| {
            if let Fact::Event(EventBody::Usage(usage)) = fact { Some(usage.clone()) } else { None }
        };
        facts.iter().filter_map(of).collect()
    }

    #[test]
    fn totals_become_differences_also_over_a_resume_and_a_smaller_total_begins_anew() {
        let mut meter = Meter::new(PriceTable::none(), vec![usage(10, 1, Some(100))]);
        assert_eq!(events(&meter.total(vec![usage(15, 3, Some(150))])), [usage(5, 2, Some(50))]);
        assert_eq!(events(&meter.total(vec![usage(15, 3, Some(150))])), []);
        assert_eq!(events(&meter.total(vec![usage(4, 1, Some(40))])), [usage(4, 1, Some(40))]);
    }

    #[test]
    fn what_was_seen_of_a_request_is_unreported_until_a_report_comes() {
        let mut meter = Meter::new(PriceTable::none(), Vec::new());
        let mut forgetful = meter.clone();
        meter.seen("a", usage(10, 1, Some(1)));
        assert_eq!(meter.seen("a", usage(10, 7, Some(3))), Some(Fact::Cost(Cost::from_nanos(3))));
        let seen = |usage| Usage { source: UsageSource::Estimated, ..usage };
        assert_eq!(meter.clone().unreported(), [seen(usage(10, 7, Some(3)))]);
        meter.spent([usage(10, 8, Some(4))]);
        assert_eq!(meter.unreported(), []);
        for at in 0..=MAX_OPEN_REQUESTS {
            forgetful.seen(&at.to_string(), usage(1, 0, None));
        }
        assert_eq!(forgetful.unreported(), [seen(usage(MAX_OPEN_REQUESTS as u64 + 1, 0, None))]);
    }

    #[test]
    fn a_running_cost_without_a_price_is_unknown() {
        let mut meter = Meter::new(PriceTable::none(), Vec::new());
        assert_eq!(meter.seen("a", usage(10, 1, None)), None);
    }
}
