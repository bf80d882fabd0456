//! Batches: what group commit does with the calls that share a transaction: enqueued tasks, starts and reports.

use std::sync::Arc;

use ostler_store::calls::{Enqueued, Fenced, Finished, NewTask, Report, Start};

use crate::group_commit::CallOutcome;
use crate::locks::Locks;
use crate::transactor::Transactor;
use crate::verbs::{enqueue, finish, start};

pub(crate) async fn take_in(
    transactor: Arc<Transactor>,
    tasks: Vec<NewTask>,
) -> CallOutcome<NewTask, Enqueued> {
    let locks = enqueue::locks(&tasks);
    let written = transactor.write(locks, &tasks, |tx, tasks| Box::pin(enqueue::run(tx, tasks))).await;
    written.map_err(|error| (error, tasks))
}

pub(crate) async fn begin(transactor: Arc<Transactor>, starts: Vec<Start>) -> CallOutcome<Start, Fenced> {
    let written =
        transactor.write(Locks::none(), &starts, |tx, starts| Box::pin(start::run(tx, starts))).await;
    written.map_err(|error| (error, starts))
}

pub(crate) async fn record(
    transactor: Arc<Transactor>,
    reports: Vec<Report>,
) -> CallOutcome<Report, Finished> {
    let (mut locks, unknown) = finish::locks(&transactor.cache, &reports);
    if !unknown.is_empty() {
        match transactor.look(&unknown, |conn, slots| Box::pin(finish::queues_of(conn, slots))).await {
            Ok(looked) => locks = locks.with(looked),
            Err(error) => return Err((error, reports)),
        }
    }
    let written = transactor.write(locks, &reports, |tx, reports| Box::pin(finish::run(tx, reports))).await;
    written.map_err(|error| (error, reports))
}
