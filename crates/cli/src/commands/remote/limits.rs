//! Limits of queues, breakers and accounts, changed by a node.

use ostler::{ApiMethod, ApiRequest, RemoteClient};
use ostler_ops::accounts::{HoldEnd, check_hold};
use ostler_ops::queues::{BreakerPosition, BreakerRequest, Lift, by_hand, release_change};
use ostler_store::{Bounds, Clock as _, SystemClock};
use ostler_wire::account::AccountView;
use ostler_wire::limits::{BreakerView, LimitsSet, QueueView};
use ostler_wire::time::TimeView;
use serde_json::json;

use super::look;
use crate::args::{AccountCommand, BreakerCommand, QueueCommand, Set};
use crate::commands::{Console, account, breaker, queue};
use crate::exit::{Code, refused};
use crate::print;

const fn lift(was_held: bool) -> Lift {
    if was_held { Lift::Lifted } else { Lift::NotNeeded }
}

pub(super) async fn queues(
    console: &Console,
    node: &RemoteClient,
    command: QueueCommand,
) -> anyhow::Result<Code> {
    match command {
        QueueCommand::Ls { all } => super::system::queues(console, node, all).await,
        QueueCommand::Show { queue } => super::system::queue(console, node, &queue).await,
        QueueCommand::Set(limits) => set(console, node, *limits).await,
        QueueCommand::Release { queue, key } => release(console, node, &queue, key.as_deref()).await,
        QueueCommand::Unsubscribe { queue: name, subscriber } => {
            let path = ["queues", &name, "subscribers", &subscriber];
            let view: QueueView = node.request(ApiRequest::new(ApiMethod::Delete, &path)).await?;
            queue::unsubscribed(console, &view, &subscriber)
        }
    }
}

async fn set(console: &Console, node: &RemoteClient, limits: Set) -> anyhow::Result<Code> {
    let (name, body) = (limits.queue.clone(), limits.input());
    // Refused in the words of the options; what depends on the present budget is for the node.
    let changes = limits.changes(None).map_err(|sentence| refused(Code::BadInput, sentence))?;
    Bounds::default().check_changes(&name, &by_hand(changes))?;
    let request = ApiRequest::new(ApiMethod::Put, &["queues", &name]).body(&body);
    let changed: LimitsSet = node.request(request).await?;
    queue::changed(console, &changed)
}

async fn release(
    console: &Console,
    node: &RemoteClient,
    name: &str,
    key: Option<&str>,
) -> anyhow::Result<Code> {
    Bounds::default().check_changes(name, &[release_change(key)])?;
    // Whether it was held is not in the answer.
    let before: QueueView = look(node, &["queues", name]).await?;
    let was_held = match key {
        None => before.held.is_some(),
        Some(key) => before.keys.iter().any(|known| known.key == key),
    };
    let request = ApiRequest::new(ApiMethod::Post, &["queues", name, "release"]).body(&json!({ "key": key }));
    let view: QueueView = node.request(request).await?;
    queue::released(console, &view, key, lift(was_held))
}

pub(super) async fn breakers(
    console: &Console,
    node: &RemoteClient,
    command: BreakerCommand,
) -> anyhow::Result<Code> {
    let Some(request) = breaker::request(command) else {
        return super::system::breakers(console, node).await;
    };
    request.check(Bounds::default(), SystemClock.now())?;
    let BreakerRequest { queue, key, position } = &request;
    let (verb, body) = match position {
        BreakerPosition::Open(span) => {
            let span = span.map(|span| format!("{}ms", span.as_millis()));
            ("open", json!({ "key": key, "for": span }))
        }
        BreakerPosition::Reset => ("reset", json!({ "key": key })),
    };
    let path = ["queues", queue, "breaker", verb];
    let view: BreakerView = node.request(ApiRequest::new(ApiMethod::Post, &path).body(&body)).await?;
    console.out.answer(&view, |looks| print::breaker(&view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn accounts(
    console: &Console,
    node: &RemoteClient,
    command: AccountCommand,
) -> anyhow::Result<Code> {
    let change = |name: &str, verb: &str, body: serde_json::Value| {
        node.request::<AccountView>(ApiRequest::new(ApiMethod::Post, &["accounts", name, verb]).body(&body))
    };
    match command {
        AccountCommand::Ls => super::system::accounts(console, node).await,
        AccountCommand::Show { name } => super::system::account(console, node, &name).await,
        AccountCommand::Hold(hold) => {
            check_hold(&hold.name, &hold.reason)?;
            let (span, until) = match hold.end() {
                HoldEnd::ByHand => (None, None),
                HoldEnd::After(span) => (Some(format!("{}ms", span.as_millis())), None),
                HoldEnd::At(at) => (None, Some(TimeView::from(at))),
            };
            let body = json!({ "for": span, "until": until, "reason": hold.reason });
            account::tell(console, &change(&hold.name, "hold", body).await?)
        }
        AccountCommand::Release { name } => {
            let before: AccountView = look(node, &["accounts", &name]).await?;
            let view = change(&name, "release", json!({})).await?;
            account::released(console, &view, lift(before.held.is_some()))
        }
        AccountCommand::Cap { name, most } => {
            let most = most.0.map_or_else(|| json!("none"), |most| json!(most));
            account::tell(console, &change(&name, "cap", json!({ "most": most })).await?)
        }
    }
}
