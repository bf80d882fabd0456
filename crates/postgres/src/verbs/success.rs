//! Success: the hot path of a finish, many successes in one statement. A success leads to `completed` whatever else is
//! true of the task, and all else that is needed is cached from the claim. So rows are written without being read, along
//! with the attempts' records; the fence is part of the statement, and so is the condition that no task waits for this
//! one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ostler_core::{Outcome, State, StateName};
use ostler_store::calls::{Finished, Ran, Report};

use crate::cache::Grant;
use crate::conn::{big, get, int};
use crate::fault::Sql;
use crate::queue::binds;
use crate::row::{Uid, ran_bytes};
use crate::tx::Tx;
use ostler_sql::chunks::{put_output, split_output};
use ostler_sql::outbox::{OutboxInput, note};

/// A success whose claim is cached.
pub(crate) struct Hot<'a> {
    report: &'a Report,
    ran: Ran,
    grant: Grant,
}

/// Selects the reports that may take the hot path, by their index.
pub(crate) fn among<'a>(tx: &mut Tx, reports: &'a [Report]) -> Sql<HashMap<usize, Hot<'a>>> {
    let mut seen = HashSet::new();
    let mut hot = HashMap::new();
    for (at, report) in reports.iter().enumerate() {
        let lease = report.lease.as_ref();
        // Only the first report of a task: it decides about the others.
        let first = seen.insert(lease.row);
        let (Outcome::Success, Some(ran), true) = (&report.outcome, report.ran, first) else { continue };
        let Some(grant) = tx.cache.recall(lease.row, lease.token) else { continue };
        let alone = tx.queue(&grant.queue)?.is_some_and(|queue| !binds(queue));
        if alone && grant.limit.is_none() {
            hot.insert(at, Hot { report, ran, grant });
        }
    }
    Ok(hot)
}

/// Writes the successes. Returns the row ids of those written; the cached state of the others is stale.
pub(crate) async fn write(tx: &Tx, hot: &HashMap<usize, Hot<'_>>) -> Sql<HashSet<i64>> {
    if hot.is_empty() {
        return Ok(HashSet::new());
    }
    let mut sorted: Vec<&Hot<'_>> = hot.values().collect();
    sorted.sort_by_key(|hot| hot.report.lease.as_ref().row);
    let now = tx.now;
    let column_of = |of: &dyn Fn(&Hot<'_>) -> i64| sorted.iter().map(|hot| of(hot)).collect::<Vec<i64>>();
    let slots = column_of(&|hot| hot.report.lease.as_ref().row);
    let tokens = column_of(&|hot| big(hot.report.lease.as_ref().token));
    let began = column_of(&|hot| now.before(hot.ran.took).millis());
    let uids: Vec<Uid> = sorted.iter().map(|hot| Uid::of(hot.report.lease.task().0)).collect();
    let runs: Vec<i32> = sorted.iter().map(|hot| int(hot.grant.runs + 1)).collect();
    let who: Vec<Vec<u8>> =
        sorted.iter().map(|hot| ran_bytes(hot.ran.worker, hot.grant.session).to_vec()).collect();
    let outputs: Vec<Option<&str>> =
        sorted.iter().map(|hot| split_output(hot.report.output.as_deref()).0).collect();
    // The phase is written so that no plan uses the index of leased tasks, which looks cheap while the table is new.
    let rows = tx
        .conn
        .rows(
            "UPDATE ostler.task t SET phase = 5, why = 0, runs = n.runs, started_at = n.began, finished_at = $8, ran = n.ran,
                output = n.output
             FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::integer[], $5::bigint[], $6::bytea[], $7::text[])
                AS n(id, uid, token, runs, began, ran, output)
             WHERE t.id = n.id AND t.uid = n.uid AND t.token = n.token AND t.phase - 3 = 0 AND t.trouble >= 0
             RETURNING t.id",
            &[&slots, &uids, &tokens, &runs, &began, &who, &outputs, &now.millis()],
        )
        .await?;
    rows.iter().map(|row| get(row, 0)).collect()
}

/// Counts a written success, and adds it to the outbox if the queue's filter selects it.
pub(crate) async fn count(tx: &mut Tx, hot: &Hot<'_>) -> Sql<Finished> {
    let now = tx.now;
    let (lane, slot) = (hot.grant.lane, hot.report.lease.as_ref().row);
    tx.count_run(lane, now.since(now.before(hot.ran.took)));
    tx.tally(lane).attempts += 1;
    tx.count(lane, Some(StateName::Claimed), Some(StateName::Completed));
    if let (_, Some(long)) = split_output(hot.report.output.as_deref()) {
        put_output(tx, slot, long).await?;
    }
    let queue = Arc::clone(&hot.grant.queue);
    let subscribers = tx.queue(&queue)?.map(|queue| queue.settings.subscribers.clone()).unwrap_or_default();
    let state = State::Completed { finished_at: now };
    let outcome = Some(&Outcome::Success);
    note(tx, &subscribers, &OutboxInput { lane, slot, attempt: hot.grant.runs + 1, state: &state, outcome })
        .await?;
    Ok(Finished::Recorded(StateName::Completed))
}
