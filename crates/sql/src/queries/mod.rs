//! Queries: lists of tasks, and one task in detail.

mod find_ids;
mod list;

use ostler_core::{
    Attempt, AttemptEnd, Conversation, Ending, SessionId, StateName, Step, TaskId, Timestamp, WorkerId,
};
use ostler_store::views::{TalkSession, TaskDetail, TaskRef};

use crate::chunks;
use crate::codec::failure_from;
use crate::dependents::AFTER;
use crate::events;
use crate::params;
use crate::phase::ran_from;
use crate::task::{BY_ID, BY_KEY, FoundTask, found_from};
use crate::tx::Snapshot;
use crate::value::Row;

pub use find_ids::{existing, find_ids};
pub use list::{ListCall, list};

/// One task with its attempts, its steps, and the tasks that it still waits for.
///
/// # Errors
/// When a statement fails.
pub async fn show<S: Snapshot>(snapshot: &S, which: &TaskRef) -> Result<Option<TaskDetail>, S::Error> {
    let found = match which {
        TaskRef::Id(id) => snapshot.row(BY_ID, params![id]).await?,
        TaskRef::Key { queue, key } => snapshot.row(BY_KEY, params![queue, key]).await?,
    };
    let Some(found) = found.map(|row| found_from(&row)).transpose()? else { return Ok(None) };
    let FoundTask { slot, mut task, scratch_token, .. } = found;
    if task.output.is_none() && task.state.name() == StateName::Completed {
        let long = chunks::read_str(snapshot, slot, chunks::OUTPUT, usize::MAX).await?;
        task.output = long.map(|(output, _)| output);
    }
    let (mut attempts, steps) = (attempts(snapshot, slot).await?, steps(snapshot, slot).await?);
    let mut conversations = events::conversations(snapshot, slot).await?;
    let session = |(token, talk): (&u64, &Conversation)| {
        Some(TalkSession { token: *token, session: talk.session.clone()? })
    };
    let mut talks: Vec<TalkSession> = conversations.iter().filter_map(session).collect();
    talks.sort_unstable_by_key(|talk| talk.token);
    for attempt in &mut attempts {
        attempt.conversation = conversations.remove(&attempt.token).unwrap_or_default();
    }
    let after = snapshot.rows(AFTER, params![slot]).await?;
    let after = after.iter().map(|row| row.get(0).map(TaskId)).collect::<Result<_, _>>()?;
    Ok(Some(TaskDetail { task, attempts, steps, after, talks, scratch_token }))
}

async fn attempts<S: Snapshot>(snapshot: &S, slot: i64) -> Result<Vec<Attempt>, S::Error> {
    let rows = snapshot
        .rows(
            "SELECT number, token, session, worker, started_at, finished_at, ending, failure FROM ostler.attempt
             WHERE task = $1 ORDER BY number",
            params![slot],
        )
        .await?;
    let mut attempts = rows.iter().map(attempt).collect::<Result<Vec<_>, _>>()?;
    attempts.extend(last_attempt(snapshot, slot).await?);
    Ok(attempts)
}

fn attempt<R: Row>(row: &R) -> Result<Attempt, R::Error> {
    let ending: Option<String> = row.get(6)?;
    let end = match ending.as_deref().and_then(Ending::named) {
        Some(ending) => Some(AttemptEnd {
            finished_at: Timestamp::from_millis(row.get(5)?),
            ending,
            failure: failure_from(row.get(7)?).map_err(R::unreadable)?.map(|failed| failed.failure),
        }),
        None => None,
    };
    Ok(Attempt {
        number: row.get(0)?,
        token: row.get(1)?,
        session: SessionId(row.get(2)?),
        worker: WorkerId(row.get(3)?),
        started_at: Timestamp::from_millis(row.get(4)?),
        end,
        conversation: Conversation::default(),
    })
}

/// The attempt that is stored in the task's own row: a success whose start and finish were one write.
async fn last_attempt<S: Snapshot>(snapshot: &S, slot: i64) -> Result<Option<Attempt>, S::Error> {
    let sql =
        "SELECT ran, runs, token, started_at, finished_at FROM ostler.task WHERE id = $1 AND ran IS NOT NULL";
    let Some(row) = snapshot.row(sql, params![slot]).await? else { return Ok(None) };
    let (worker, session) = ran_from(&row.get::<Vec<u8>>(0)?).map_err(S::unreadable)?;
    let time = |column| row.get(column).map(Timestamp::from_millis);
    let end = AttemptEnd { finished_at: time(4)?, ending: Ending::Success, failure: None };
    let (number, token) = (row.get(1)?, row.get(2)?);
    let conversation = Conversation::default();
    Ok(Some(Attempt { number, token, session, worker, started_at: time(3)?, end: Some(end), conversation }))
}

async fn steps<S: Snapshot>(snapshot: &S, slot: i64) -> Result<Vec<Step>, S::Error> {
    let sql = "SELECT name, value, saved_at, token FROM ostler.step WHERE task = $1 ORDER BY place, name";
    let read = |row: &S::Row| {
        Ok(Step {
            name: row.get(0)?,
            value: row.get(1)?,
            saved_at: Timestamp::from_millis(row.get(2)?),
            token: row.get(3)?,
        })
    };
    snapshot.rows(sql, params![slot]).await?.iter().map(read).collect()
}
