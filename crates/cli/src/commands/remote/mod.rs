//! Commands of `--server`: they ask a node over HTTP instead of opening a store, and print the same views.
//!
//! - `tasks.rs`: single tasks, lists and actions. `submit.rs`: submissions and runs. `jobs.rs`: jobs. `schedules.rs`: schedules.
//! - `limits.rs`: changes of queues, breakers and accounts. `nodes.rs`: commands to nodes. `system.rs`: what is shown of all of these.
//!
//! Commands that work on the store itself are refused, with the reason.

mod jobs;
mod limits;
mod nodes;
mod schedules;
pub(super) mod submit;
mod system;
mod tasks;

use ostler::{ApiMethod, ApiRequest, RemoteClient};
use ostler_store::calls::StepsOnReplay;
use serde::de::DeserializeOwned;

use super::Console;
use crate::args::{Command, Db, DeadCommand, Resume};
use crate::exit::{Code, refused};

/// Does a command by a node.
pub(super) async fn run(console: &Console, node: &RemoteClient, command: Command) -> anyhow::Result<Code> {
    match command {
        Command::Submit(what) => submit::run(console, node, what).await,
        Command::Ls(list) => tasks::list(console, node, &list).await,
        Command::Show(show) => tasks::show(console, node, &show.one).await,
        Command::Logs(logs) => tasks::logs(console, node, &logs).await,
        Command::Cancel(cancel) => tasks::act(console, node, &cancel.select, &tasks::RemoteAct::Cancel).await,
        Command::Retry(retry) => tasks::retry(console, node, retry).await,
        Command::Amend(amend) => tasks::amend(console, node, &amend).await,
        Command::Dead(DeadCommand::Ls { filters, page }) => {
            tasks::dead_list(console, node, &filters.filters(), &page).await
        }
        Command::Dead(DeadCommand::Show(show)) => tasks::dead_show(console, node, &show.one).await,
        Command::Dead(DeadCommand::Replay { select, from_scratch, payload }) => {
            let steps = if from_scratch { StepsOnReplay::Drop } else { StepsOnReplay::Keep };
            tasks::dead_replay(console, node, &select.select(), steps, payload).await
        }
        Command::Dead(DeadCommand::Drop(select)) => {
            tasks::act(console, node, &select.select(), &tasks::RemoteAct::Drop).await
        }
        Command::Job(what) => jobs::run(console, node, what).await,
        Command::Nodes => system::nodes(console, node).await,
        Command::Workers(which) => system::workers(console, node, which.gone).await,
        Command::Status => system::status(console, node).await,
        Command::Stats { queue, all } => system::stats(console, node, queue, all).await,
        Command::Pause { queue, reason } => system::pause(console, node, &queue, reason).await,
        Command::Resume(Resume { node: Some(name), .. }) => nodes::resume(console, node, &name).await,
        // One of the two is required.
        Command::Resume(Resume { queue, node: None }) => {
            system::resume(console, node, &queue.unwrap_or_default()).await
        }
        Command::Queue(what) => limits::queues(console, node, what).await,
        Command::Breaker(what) => limits::breakers(console, node, what).await,
        Command::Schedule(what) => schedules::run(console, node, what).await,
        Command::Account(what) => limits::accounts(console, node, what).await,
        Command::Drain { node: name } => nodes::drain(console, node, &name).await,
        Command::Resize(what) => nodes::resize(console, node, what).await,
        Command::Recycle(whom) => nodes::recycle(console, node, whom).await,
        Command::Open(open) => nodes::open(console, node, &open).await,
        Command::Continue(what) => submit::go_on(console, node, what).await,
        Command::Cost(cost) => system::cost(console, node, &cost).await,
        Command::Doctor(_) => system::doctor(console, node).await,
        Command::Wait(wait) => submit::wait(console, node, &wait).await,
        Command::Run(asked) => submit::prompt(console, node, asked).await,
        Command::Map(map) => jobs::map(console, node, &map).await,
        Command::Up(_) | Command::Add(_) | Command::Demo | Command::DemoWorker { .. } => {
            Err(not_here("it runs work here, and --server names a node that does"))
        }
        Command::Db(Db::Prune { completed_older: None, failed_older: None, strays_older: None }) => {
            system::prune(console, node).await
        }
        Command::Db(Db::Prune { .. }) => Err(not_here(
            "a node removes what its own [keep] names, so only \"ostler db prune\" without options can ask it",
        )),
        Command::Db(_) | Command::Config(_) | Command::Init => {
            Err(not_here("it works on the files of a store or of a config"))
        }
        Command::Completions { .. } => Err(not_here("it needs no node")),
        Command::Top(_) | Command::Mcp(_) => Err(not_here("it works on a store only, so far")),
    }
}

fn not_here(why: &str) -> anyhow::Error {
    let sentence = format!(
        "this command has no --server: {why}; leave --server and OSTLER_SERVER out, or name a --store"
    );
    refused(Code::BadInput, sentence)
}

/// What a node shows at this path.
async fn look<T: DeserializeOwned>(node: &RemoteClient, parts: &[&str]) -> anyhow::Result<T> {
    Ok(node.request(ApiRequest::new(ApiMethod::Get, parts)).await?)
}
