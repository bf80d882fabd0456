//! Queues, nodes, schedules, accounts, costs and findings of a node; and `ostler db prune`.

use ostler::{ApiMethod, ApiRequest, RemoteClient};
use ostler_core::StateName;
use ostler_store::views::Filter;
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::account::AccountView;
use ostler_wire::action::PrunedTasks;
use ostler_wire::cost::CostReport;
use ostler_wire::limits::{BreakerView, QueueView};
use ostler_wire::overview::StatusView;
use ostler_wire::schedule::ScheduleView;
use ostler_wire::system::{GoneWorkerView, Severity};
use ostler_wire::time::TimeView;

use super::look;
use crate::args::CostArgs;
use crate::commands::status::MAX_RUNNING;
use crate::commands::{Console, db, server_here};
use crate::exit::Code;
use crate::print::{self, visible};

pub(super) async fn nodes(console: &Console, node: &RemoteClient) -> anyhow::Result<Code> {
    let views = node.nodes().await?;
    console.out.answer(&views, |looks| print::nodes(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn workers(console: &Console, node: &RemoteClient, gone: bool) -> anyhow::Result<Code> {
    if gone {
        let views: Vec<GoneWorkerView> = look(node, &["workers", "gone"]).await?;
        console.out.answer(&views, |looks| print::gone_workers(&views, looks))?;
        return Ok(Code::Done);
    }
    let (nodes, views) = (node.nodes().await?, node.workers().await?);
    console.out.answer(&views, |looks| print::workers(&views, &nodes, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn all_queues(node: &RemoteClient, all: bool) -> anyhow::Result<Vec<QueueView>> {
    let request = ApiRequest::new(ApiMethod::Get, &["queues"]).query("all", all.then_some("true"));
    Ok(node.request(request).await?)
}

pub(super) async fn stats(
    console: &Console,
    node: &RemoteClient,
    queue: Option<String>,
    all: bool,
) -> anyhow::Result<Code> {
    let stats = match &queue {
        Some(queue) => node.on(queue.as_str()).stats().await?,
        None => node.all_stats().await?,
    };
    let mut queues = all_queues(node, all || queue.is_some()).await?;
    queues.retain(|view| queue.as_ref().is_none_or(|queue| *queue == view.queue));
    let paused: Vec<(String, String)> =
        queues.into_iter().filter_map(|view| Some((view.queue, view.paused?))).collect();
    console.out.answer(&stats, |looks| print::stats(&stats, &paused, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn queues(console: &Console, node: &RemoteClient, all: bool) -> anyhow::Result<Code> {
    let views = all_queues(node, all).await?;
    console.out.answer(&views, |looks| print::queues(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn queue(console: &Console, node: &RemoteClient, queue: &str) -> anyhow::Result<Code> {
    let view: QueueView = look(node, &["queues", queue]).await?;
    console.out.answer(&view, |looks| print::queue(&view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn pause(
    console: &Console,
    node: &RemoteClient,
    queue: &str,
    reason: String,
) -> anyhow::Result<Code> {
    let view = node.on(queue).pause(reason).await?;
    console
        .out
        .answer(&view, |_| format!("{0} is paused; to resume it: ostler resume {0}\n", visible(queue)))?;
    Ok(Code::Done)
}

pub(super) async fn resume(console: &Console, node: &RemoteClient, queue: &str) -> anyhow::Result<Code> {
    // Whether it was paused is not in the answer.
    let before: QueueView = look(node, &["queues", queue]).await?;
    let view = node.on(queue).resume().await?;
    let how = if before.paused.is_some() { "is resumed" } else { "was not paused" };
    console.out.answer(&view, |_| format!("{} {how}\n", visible(queue)))?;
    Ok(Code::Done)
}

pub(super) async fn breakers(console: &Console, node: &RemoteClient) -> anyhow::Result<Code> {
    let views: Vec<BreakerView> = look(node, &["breakers"]).await?;
    console.out.answer(&views, |looks| print::breakers(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn schedules(console: &Console, node: &RemoteClient) -> anyhow::Result<Code> {
    let views: Vec<ScheduleView> = look(node, &["schedules"]).await?;
    console.out.answer(&views, |looks| print::schedules(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn accounts(console: &Console, node: &RemoteClient) -> anyhow::Result<Code> {
    let views: Vec<AccountView> = look(node, &["accounts"]).await?;
    console.out.answer(&views, |looks| print::accounts(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn account(console: &Console, node: &RemoteClient, name: &str) -> anyhow::Result<Code> {
    let view: AccountView = look(node, &["accounts", name]).await?;
    console.out.answer(&view, |looks| print::account(&view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn cost(console: &Console, node: &RemoteClient, args: &CostArgs) -> anyhow::Result<Code> {
    let now = SystemClock.now();
    let day = |at| TimeView::from(at).to_string().chars().take("2026-11-01".len()).collect::<String>();
    let request = ApiRequest::new(ApiMethod::Get, &["cost"])
        .query("by", Some(args.by.name()))
        .query("since", args.since.map(|since| day(since.at(now))))
        .query("until", args.until.map(|until| day(until.at(now))))
        .query("queue", args.queue.as_deref());
    let report: CostReport = node.request(request).await?;
    console.out.answer(&report, |looks| print::costs(&report, args.by, looks))?;
    Ok(Code::Done)
}

pub(super) async fn status(console: &Console, node: &RemoteClient) -> anyhow::Result<Code> {
    let filter = Filter { state: Some(StateName::Running), ..Filter::default() };
    let url = console.globals.server.clone().or_else(server_here).unwrap_or_default();
    let findings = node.doctor().await?;
    let mut view = StatusView::new(env!("CARGO_PKG_VERSION"), (url, "server"), None, findings);
    view.nodes = node.nodes().await?;
    view.queues = all_queues(node, false).await?;
    view.running = node.list_all(&filter, None, MAX_RUNNING).await?.tasks;
    console.out.answer(&view, |looks| print::status(&view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn doctor(console: &Console, node: &RemoteClient) -> anyhow::Result<Code> {
    let findings = node.doctor().await?;
    console.out.answer(&findings, |looks| print::findings(&findings, looks))?;
    let bad = findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if bad { Code::WorkFailed } else { Code::Done })
}

/// `ostler db prune --server`: by the retention of the node.
pub(super) async fn prune(console: &Console, node: &RemoteClient) -> anyhow::Result<Code> {
    let removed: PrunedTasks = node.request(ApiRequest::new(ApiMethod::Post, &["prune"])).await?;
    db::pruned(console, &removed)
}
