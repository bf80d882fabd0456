//! The PostgreSQL store, driven through its contract by as many workers as the ceiling has connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_postgres::{Options, Postgres};
use ostler_store::MAX_BATCH;
use tokio::task::JoinSet;

use super::bare::{CONNECTIONS, all};
use crate::Error;
use crate::ceiling::{Rows, batches};
use crate::load::{Keys, QUEUE, Tally};
use crate::ours::Ours;

/// Opens a store in this schema, created if missing, and joins.
pub(crate) async fn open(url: &str, schema: &str) -> Result<Arc<Ours>, Error> {
    let options = Options { schema: schema.into(), connections: CONNECTIONS, ..Options::default() };
    let store = Postgres::open(url, options).await?;
    Ours::join(Arc::new(store), Keys::Without, QUEUE).await
}

/// Creates backlog rows.
pub(crate) async fn fill(ours: &Ours, rows: Rows, count: usize) -> Result<(), Error> {
    match rows {
        Rows::Finished => {
            fill_ready(ours, count).await?;
            let done = drain(ours, super::FILL, Duration::MAX).await?.done;
            if done < count { Err(format!("the store did {done} of {count}").into()) } else { Ok(()) }
        }
        Rows::Elsewhere | Rows::Behind | Rows::Waiting => ours.fill(rows, count).await,
    }
}

/// Enqueues measured tasks.
pub(crate) async fn fill_ready(ours: &Ours, count: usize) -> Result<(), Error> {
    for size in batches(count, MAX_BATCH) {
        ours.enqueue_batch(size).await?;
    }
    Ok(())
}

/// Claims and finishes for about this long, or until nothing is left. Counted tasks are completed.
pub(crate) async fn drain(ours: &Ours, batch: usize, about: Duration) -> Result<Tally, Error> {
    counted(ours, |begun| async move {
        let one = || async {
            let (mut done, mut held) = (0, ours.claim(batch).await?);
            while !held.is_empty() && begun.elapsed() < about {
                let (finished, claimed) = tokio::try_join!(biased; ours.finish(held), ours.claim(batch))?;
                done += finished;
                held = claimed;
            }
            Ok::<_, Error>(done + ours.finish(held).await?)
        };
        all((0..CONNECTIONS).map(|_| one())).await
    })
    .await
}

/// Enqueues, claims and finishes for about this long.
pub(crate) async fn cycle(ours: &Ours, batch: usize, about: Duration) -> Result<Tally, Error> {
    counted(ours, |begun| async move {
        let one = || async {
            let mut done = 0;
            while done == 0 || begun.elapsed() < about {
                ours.enqueue_batch(batch).await?;
                done += ours.finish(ours.claim(batch).await?).await?;
            }
            Ok::<_, Error>(done)
        };
        all((0..CONNECTIONS).map(|_| one())).await
    })
    .await
}

/// `callers` callers enqueue one task per call, for about this long. Counted tasks are in the store.
pub(crate) async fn call(ours: &Arc<Ours>, callers: usize, about: Duration) -> Result<Tally, Error> {
    let before = ours.queued().await?;
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..callers {
        let ours = Arc::clone(ours);
        calls.spawn(async move {
            let mut done = 0;
            while done == 0 || begun.elapsed() < about {
                ours.enqueue_one().await?;
                done += 1;
            }
            Ok::<_, Error>(done)
        });
    }
    let mut done = 0;
    while let Some(called) = calls.join_next().await {
        done += called??;
    }
    let took = begun.elapsed();
    match ours.queued().await? - before {
        queued if queued == done as u64 => Ok(Tally { done, took }),
        queued => Err(format!("the store has {queued} more tasks, not {done}").into()),
    }
}

/// Measures the time, and verifies that the store has completed the counted tasks.
async fn counted<F>(ours: &Ours, work: impl FnOnce(Instant) -> F) -> Result<Tally, Error>
where
    F: Future<Output = Result<usize, Error>>,
{
    let before = ours.completed().await?;
    let begun = Instant::now();
    let done = work(begun).await?;
    let took = begun.elapsed();
    match ours.completed().await? - before {
        completed if completed == done as u64 => Ok(Tally { done, took }),
        completed => Err(format!("the store completed {completed} tasks, not {done}").into()),
    }
}
