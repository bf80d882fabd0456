//! The `llm` executor against a scripted server on loopback: streams that break, limits in every format, schemas, budgets.

mod conformance;
mod endings;
mod limits;
mod streams;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_agent::llm::{LlmApi, LlmExecutor, LlmPolicy};
use ostler_agent::price::{Price, PriceSource, PriceTable, TokenPrice};
use ostler_core::{AccountChange, EventBody, Timestamp, Usage};
use ostler_exec::{AccountFeed, AccountStore, Control, Steps, Work, event_channel};
use ostler_testkit::{LlmServer, anthropic_events, chat_events, responses_events};
use serde_json::Value;

use crate::bench::{Earlier, NOW, Ran, Running, collect, work};

/// The events of a whole stream with this text, input and output tokens.
type Events = fn(&str, u64, u64) -> Vec<String>;

const APIS: [(LlmApi, Events); 3] = [
    (LlmApi::Anthropic, anthropic_events),
    (LlmApi::OpenAi, chat_events),
    (LlmApi::OpenAiResponses, responses_events),
];
/// US dollars for a million tokens of input and output.
const PRICES: (f64, f64) = (1.0, 10.0);

/// A policy for this server, with a model whose price is known.
fn policy(api: LlmApi, server: &LlmServer) -> LlmPolicy {
    let price = |usd| TokenPrice::per_million(usd).expect("a price");
    let price = Price {
        input: price(PRICES.0),
        output: price(PRICES.1),
        cache_read: None,
        cache_write: None,
        cache_write_1h: None,
        source: PriceSource::Config,
    };
    LlmPolicy {
        model: Some("m".into()),
        base_url: Some(server.url()),
        prices: PriceTable::none().with("m", price),
        ..LlmPolicy::new(api)
    }
}

/// Keeps what attempts say about their account.
#[derive(Clone, Debug, Default)]
struct Account(Arc<Mutex<Vec<AccountChange>>>);

#[async_trait]
impl AccountStore for Account {
    async fn change(&self, change: AccountChange) {
        self.0.lock().expect("no test panicked").push(change);
    }
}

impl Account {
    fn changes(&self) -> Vec<AccountChange> {
        self.0.lock().expect("no test panicked").clone()
    }
}

fn start(policy: LlmPolicy, work: Work, account: &Account, earlier: Earlier) -> Running {
    let (sender, receiver) = event_channel();
    let control = Control {
        steps: Steps::kept(Arc::new(earlier)),
        account: AccountFeed::kept(Arc::new(account.clone())),
        ..Control::new(sender)
    };
    let executor = policy.secrets.clone().guard(Arc::new(executor(policy)));
    let (events, given) = (Arc::<Mutex<Vec<EventBody>>>::default(), control.clone());
    let collected = tokio::spawn(collect(receiver, Arc::clone(&events)));
    let ended = tokio::spawn(async move { executor.run(work, given).await });
    Running { control, ended, events, collected }
}

fn executor(policy: LlmPolicy) -> LlmExecutor {
    LlmExecutor::new(policy, || Timestamp::from_millis(NOW)).expect("the policy is right")
}

/// Runs an attempt to its end.
async fn run(policy: LlmPolicy, payload: &Value) -> Ran {
    run_for(policy, payload, &Account::default()).await
}

async fn run_for(policy: LlmPolicy, payload: &Value, account: &Account) -> Ran {
    start(policy, work(payload.to_string(), 1), account, Earlier::default()).end().await
}

/// The same with a short timeout.
async fn run_within(policy: LlmPolicy, payload: &Value, timeout: Duration) -> Ran {
    let work = Work { timeout, ..work(payload.to_string(), 1) };
    start(policy, work, &Account::default(), Earlier::default()).end().await
}

/// What the attempt has used.
fn usage(ran: &Ran) -> Vec<Usage> {
    let of = |event: &'_ EventBody| {
        if let EventBody::Usage(usage) = event { Some(usage.clone()) } else { None }
    };
    ran.events.iter().filter_map(of).collect()
}

/// Everything that the model said, as the transcript has it.
fn said(ran: &Ran) -> String {
    let of = |event: &'_ EventBody| {
        if let EventBody::Message { text, .. } = event { Some(text.clone()) } else { None }
    };
    ran.events.iter().filter_map(of).collect()
}

fn warnings(ran: &Ran) -> Vec<String> {
    let of = |event: &'_ EventBody| {
        if let EventBody::Warning { text } = event { Some(text.clone()) } else { None }
    };
    ran.events.iter().filter_map(of).collect()
}
