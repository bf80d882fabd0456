//! `ostler recycle`: replaces idle workers. The node decides and replies: a worker that has become busy stays.

use std::time::Duration;

use ostler_core::{SessionId, WorkerId, WorkerState};
use ostler_store::Store;
use ostler_store::node_commands::{CommandAnswer, NodeCommand, Reply, WorkerChoice};
use ostler_store::views::{Survey, WorkerRecord};
use ostler_wire::action::RecycledView;
use tokio::time::Instant;

use super::Console;
use crate::args::Recycle;
use crate::exit::{Code, refused};
use crate::print::visible;
use crate::store_location::IfMissing;

/// How long a node may take to reply; it receives a command within a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between checks for the reply.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn run(console: &Console, whom: &Recycle) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let survey = store.survey().await?;
    let done = match (&whom.worker, &whom.any, &whom.all) {
        (Some(worker), _, _) => one(store.as_ref(), &survey, worker).await?,
        (None, Some(pool), _) => any(store.as_ref(), &survey, pool).await?,
        (None, None, Some(pool)) => all(store.as_ref(), &survey, pool).await?,
        (None, None, None) => RecycledView::default(),
    };
    console.out.answer(&done, |_| sentences(&done))?;
    Ok(if done.recycled.is_empty() { Code::WorkFailed } else { Code::Done })
}

async fn one(store: &dyn Store, survey: &Survey, named: &str) -> anyhow::Result<RecycledView> {
    let record = find(&survey.workers, named)?;
    let (id, pool) = (record.worker.id, &record.worker.pool);
    let answer = ask(store, record.session, pool, WorkerChoice::One(id)).await?.unwrap_or_else(nothing);
    if answer.recycled.is_empty() && answer.busy.is_empty() {
        return Err(no_such_worker(named));
    }
    if answer.recycled.is_empty() {
        let sentence =
            format!("worker {id} is busy, and only idle workers are replaced; try again when it is idle");
        return Err(refused(Code::WorkFailed, sentence));
    }
    Ok(view(&[answer]))
}

/// Asks the nodes that have such a pool, until one has an idle worker.
async fn any(store: &dyn Store, survey: &Survey, pool: &str) -> anyhow::Result<RecycledView> {
    for node in serving(survey, pool)? {
        let answer = ask(store, node, pool, WorkerChoice::Any).await?.unwrap_or_else(nothing);
        if !answer.recycled.is_empty() {
            return Ok(view(&[Reply { busy: Vec::new(), ..answer }]));
        }
    }
    let sentence =
        format!("no worker of the pool \"{}\" is idle; busy workers are not replaced", visible(pool));
    Err(refused(Code::WorkFailed, sentence))
}

async fn all(store: &dyn Store, survey: &Survey, pool: &str) -> anyhow::Result<RecycledView> {
    let mut answers = Vec::new();
    for node in serving(survey, pool)? {
        answers.extend(ask(store, node, pool, WorkerChoice::All).await?);
    }
    Ok(view(&answers))
}

/// The node's reply; `None` if the node has exited since.
async fn ask(
    store: &dyn Store,
    node: SessionId,
    pool: &str,
    who: WorkerChoice,
) -> anyhow::Result<Option<Reply>> {
    let order = NodeCommand::Recycle { pool: pool.to_owned(), who };
    let CommandAnswer::Given { number } = store.command(node, order).await? else { return Ok(None) };
    let until = Instant::now() + PATIENCE;
    loop {
        let nodes = store.survey().await?.nodes;
        let Some(record) = nodes.into_iter().find(|record| record.session == node) else { return Ok(None) };
        if let Some(answer) = record.replies.into_iter().find(|answer| answer.number == number) {
            return Ok(Some(answer));
        }
        if Instant::now() >= until {
            let sentence =
                format!("node {node} has not replied for {} s; see: ostler workers", PATIENCE.as_secs());
            return Err(refused(Code::WorkFailed, sentence));
        }
        tokio::time::sleep(LOOK).await;
    }
}

const fn nothing() -> Reply {
    Reply { number: 0, recycled: Vec::new(), busy: Vec::new() }
}

fn find<'a>(workers: &'a [WorkerRecord], named: &str) -> anyhow::Result<&'a WorkerRecord> {
    // The worker itself writes its id with this prefix.
    let id: Option<WorkerId> = named.strip_prefix("w-").unwrap_or(named).parse().ok();
    let pid: Option<u32> = named.parse().ok();
    let is_meant =
        |record: &&WorkerRecord| Some(record.worker.id) == id || (pid.is_some() && record.worker.pid == pid);
    let found: Vec<&WorkerRecord> = workers.iter().filter(is_meant).collect();
    match found.as_slice() {
        [record] => Ok(record),
        [] => Err(no_such_worker(named)),
        several => {
            let ids: Vec<String> = several.iter().map(|record| record.worker.id.to_string()).collect();
            let sentence =
                format!("{} workers have the pid {named}; use an id: {}", ids.len(), ids.join(", "));
            Err(refused(Code::BadInput, sentence))
        }
    }
}

/// The nodes with workers of this pool, those with an idle one first.
fn serving(survey: &Survey, pool: &str) -> anyhow::Result<Vec<SessionId>> {
    let mut nodes: Vec<(bool, SessionId)> = Vec::new();
    for record in survey.workers.iter().filter(|record| record.worker.pool == pool) {
        let is_idle = record.worker.state == WorkerState::Idle;
        match nodes.iter_mut().find(|(_, node)| *node == record.session) {
            Some((has_idle, _)) => *has_idle |= is_idle,
            None => nodes.push((is_idle, record.session)),
        }
    }
    if nodes.is_empty() {
        let sentence = format!("no running node has workers for \"{}\"; see: ostler workers", visible(pool));
        return Err(refused(Code::NotFound, sentence));
    }
    nodes.sort_by_key(|(has_idle, _)| !has_idle);
    Ok(nodes.into_iter().map(|(_, node)| node).collect())
}

fn no_such_worker(named: &str) -> anyhow::Error {
    let sentence = format!("no worker \"{}\" is running; see: ostler workers", visible(named));
    refused(Code::NotFound, sentence)
}

fn view(answers: &[Reply]) -> RecycledView {
    let texts =
        |pick: fn(&Reply) -> &Vec<WorkerId>| answers.iter().flat_map(pick).map(WorkerId::to_string).collect();
    RecycledView { recycled: texts(|answer| &answer.recycled), busy: texts(|answer| &answer.busy) }
}

fn sentences(done: &RecycledView) -> String {
    let goes = done.recycled.iter().map(|id| format!("worker {id} is being replaced\n"));
    let stays = done.busy.iter().map(|id| format!("worker {id} is busy and was not replaced\n"));
    goes.chain(stays).collect()
}
