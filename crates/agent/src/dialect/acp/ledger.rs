//! The ledger of a conversation: the cost that an agent reports is that of the whole session, and becomes differences here.

use ostler_core::{Cost, Usage};
use serde_json::Value;

use super::messages::{AcpTurn, AcpUsage};
use crate::fact::Fact;
use crate::json::{list, text, whole};
use crate::meter::Meter;
use crate::settings::{AgentSettings, SessionStart};

/// The name of what a turn has cost so far, among what the meter has seen.
const THIS_TURN: &str = "turn";

#[derive(Debug)]
pub(super) struct Ledger {
    meter: Meter,
    model: Option<String>,
    /// The last cost of the session.
    total: Cost,
    /// Spent since the last report. `None`: the agent has not said what it costs.
    since: Option<Cost>,
}

impl Ledger {
    pub(super) fn new(settings: &AgentSettings) -> Self {
        // A session that is resumed goes on from what it has cost.
        let total = match settings.session {
            SessionStart::New { .. } => Cost::default(),
            SessionStart::Resume { .. } => settings.spent_before.iter().filter_map(|usage| usage.cost).sum(),
        };
        let meter = Meter::new(settings.prices.clone(), Vec::new());
        Self { meter, model: settings.model.clone(), total, since: None }
    }

    /// What the session has cost, by the agent. A smaller cost than the last begins anew; one that was never more than zero is not known.
    pub(super) fn session_cost(&mut self, total: Cost) -> Option<Fact> {
        let spent = if total < self.total { total } else { total.less(self.total) };
        self.total = total;
        if self.since.is_none() && spent == Cost::default() {
            return None;
        }
        let since = self.since.unwrap_or_default() + spent;
        self.since = Some(since);
        let usage = Usage { model: self.model.clone(), cost: Some(since), ..Usage::default() };
        self.meter.seen(THIS_TURN, usage)
    }

    /// The turn has ended: its tokens, with what was spent in it.
    pub(super) fn turn(&mut self, turn: &AcpTurn) -> Vec<Fact> {
        let mut usage = self.tokens(turn);
        if let Some(cost) = self.since.take() {
            if usage.is_empty() {
                usage.push(Usage { model: self.model.clone(), ..Usage::default() });
            }
            // The agent says one sum for all models.
            for (at, one) in usage.iter_mut().enumerate() {
                one.cost = Some(if at == 0 { cost } else { Cost::default() });
            }
        }
        self.meter.spent(usage)
    }

    pub(super) fn unreported(&self) -> Vec<Usage> {
        self.meter.unreported_yet()
    }

    fn tokens(&self, turn: &AcpTurn) -> Vec<Usage> {
        if let Some(AcpUsage {
            input_tokens,
            output_tokens,
            thought_tokens,
            cached_read_tokens,
            cached_write_tokens,
        }) = turn.usage
        {
            let thought = thought_tokens.unwrap_or(0);
            return vec![Usage {
                model: self.model.clone(),
                input_tokens: input_tokens.unwrap_or(0),
                output_tokens: output_tokens.unwrap_or(0) + thought,
                cache_read_tokens: cached_read_tokens.unwrap_or(0),
                cache_write_tokens: cached_write_tokens.unwrap_or(0),
                reasoning_tokens: thought,
                ..Usage::default()
            }];
        }
        let of_model = |one: &Value| {
            let tokens = one.get("token_count")?;
            Some(Usage {
                model: text(one, "model").map(str::to_owned).or_else(|| self.model.clone()),
                input_tokens: whole(tokens, "input_tokens").unwrap_or(0),
                output_tokens: whole(tokens, "output_tokens").unwrap_or(0),
                ..Usage::default()
            })
        };
        gemini_quota(turn)
            .map(|quota| list(quota, "model_usage").iter().filter_map(of_model).collect())
            .unwrap_or_default()
    }
}

/// What gemini says of the tokens of a turn.
fn gemini_quota(turn: &AcpTurn) -> Option<&Value> {
    turn.meta.get("quota")
}

/// Whether gemini says that a turn used no tokens at all: then no answer of a model was whole.
pub(super) fn has_used_nothing(turn: &AcpTurn) -> bool {
    let count = gemini_quota(turn).and_then(|quota| quota.get("token_count"));
    count.is_some_and(|count| {
        whole(count, "input_tokens") == Some(0) && whole(count, "output_tokens") == Some(0)
    })
}

#[cfg(test)]
mod tests {
    use ostler_core::EventBody;
    use serde_json::json;

    use super::*;

    fn ledger(session: SessionStart, before: f64) -> Ledger {
        let mut settings = AgentSettings::new("x", session);
        settings.spent_before = vec![Usage { cost: Cost::from_usd(before), ..Usage::default() }];
        Ledger::new(&settings)
    }

    fn costs(facts: &[Fact]) -> Vec<(u64, Option<Cost>)> {
        let of = |fact: &Fact| {
            if let Fact::Event(EventBody::Usage(usage)) = fact {
                Some((usage.input_tokens, usage.cost))
            } else {
                None
            }
        };
        facts.iter().filter_map(of).collect()
    }

    fn turn(value: Value) -> AcpTurn {
        serde_json::from_value(value).expect("a turn")
    }

    fn usd(amount: f64) -> Cost {
        Cost::from_usd(amount).expect("an amount")
    }

    #[test]
    fn the_cost_of_a_session_becomes_differences_that_go_on_over_a_resume() {
        let end = turn(json!({"stopReason": "end_turn", "usage": {"inputTokens": 7}}));
        let mut first = ledger(SessionStart::New { id: "s".into() }, 0.0);
        first.session_cost(usd(0.10));
        assert_eq!(first.session_cost(usd(0.25)), Some(Fact::Cost(usd(0.25))));
        assert_eq!(costs(&first.turn(&end)), [(7, Some(usd(0.25)))]);
        let mut resumed = ledger(SessionStart::Resume { id: "s".into() }, 0.25);
        resumed.session_cost(usd(0.35));
        assert_eq!(costs(&resumed.turn(&end)), [(7, Some(usd(0.10)))]);
        let mut anew = ledger(SessionStart::Resume { id: "s".into() }, 0.25);
        anew.session_cost(usd(0.05));
        assert_eq!(costs(&anew.turn(&end)), [(7, Some(usd(0.05)))], "an agent that forgot begins anew");
    }

    #[test]
    fn a_turn_that_does_not_end_leaves_what_was_seen_of_its_cost() {
        let mut ledger = ledger(SessionStart::New { id: "s".into() }, 0.0);
        ledger.session_cost(usd(0.10));
        assert_eq!(ledger.unreported().iter().map(|usage| usage.cost).collect::<Vec<_>>(), [Some(usd(0.10))]);
        ledger.turn(&turn(json!({"stopReason": "end_turn"})));
        assert_eq!(ledger.unreported(), []);
    }

    #[test]
    fn a_cost_of_zero_is_not_known() {
        let mut ledger = ledger(SessionStart::New { id: "s".into() }, 0.0);
        assert_eq!(ledger.session_cost(Cost::default()), None);
        let end = turn(json!({"stopReason": "end_turn", "usage": {"inputTokens": 7}}));
        assert_eq!(costs(&ledger.turn(&end)), [(7, None)]);
    }

    #[test]
    fn tokens_of_gemini_are_read_by_model() {
        let mut ledger = ledger(SessionStart::New { id: "s".into() }, 0.0);
        let count = |input: u64| json!({"input_tokens": input, "output_tokens": 1});
        let models =
            json!([{"model": "a", "token_count": count(3)}, {"model": "b", "token_count": count(4)}]);
        let end = turn(json!({"_meta": {"quota": {"token_count": count(7), "model_usage": models}}}));
        assert_eq!(costs(&ledger.turn(&end)), [(3, None), (4, None)]);
        assert!(!has_used_nothing(&end));
        let none = json!({"input_tokens": 0, "output_tokens": 0});
        assert!(has_used_nothing(&turn(json!({"_meta": {"quota": {"token_count": none}}}))));
    }
}
