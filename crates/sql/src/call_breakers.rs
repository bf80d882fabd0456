//! Call breakers: circuit breakers around calls that handlers make, by name.

use ostler_core::{Breaker, BreakerPolicy, Pass, Timestamp};
use ostler_store::call_breakers::{BreakerUse, CallBreakerRecord, MAX_CALL_BREAKERS};

use crate::gate_codec::{breaker_from, breaker_text};
use crate::params;
use crate::tx::{Snapshot, Tx};
use crate::value::Row;

/// Asks or reports. PostgreSQL serializes the callers of a name by a lock, SQLite all writers.
///
/// # Errors
/// When a statement fails.
pub async fn run<T: Tx>(
    tx: &mut T,
    name: &str,
    policy: &BreakerPolicy,
    what: BreakerUse,
) -> Result<Pass, T::Error> {
    let found = tx.row("SELECT state FROM ostler.call_breaker WHERE name = $1", params![name]).await?;
    let before = match found {
        Some(row) => breaker_from(&row.get::<String>(0)?),
        None => Breaker::closed(),
    };
    let (mut breaker, now) = (before.clone(), tx.now());
    let pass = match what {
        BreakerUse::Ask => breaker.ask(policy, now),
        BreakerUse::Report(result) => {
            breaker.report(policy, result, now);
            Pass::Go
        }
    };
    if breaker != before {
        save(tx, name, &breaker, now).await?;
    }
    Ok(pass)
}

async fn save<T: Tx>(tx: &T, name: &str, breaker: &Breaker, now: Timestamp) -> Result<(), T::Error> {
    if *breaker == Breaker::closed() {
        tx.exec("DELETE FROM ostler.call_breaker WHERE name = $1", params![name]).await?;
        return Ok(());
    }
    tx.exec(
        "INSERT INTO ostler.call_breaker(name, state, changed_at) VALUES($1, $2, $3)
         ON CONFLICT(name) DO UPDATE SET state = excluded.state, changed_at = excluded.changed_at",
        params![name, breaker_text(breaker), now.millis()],
    )
    .await?;
    // The least recently changed one above the bound is forgotten.
    tx.exec(
        "DELETE FROM ostler.call_breaker WHERE name IN
         (SELECT name FROM ostler.call_breaker ORDER BY changed_at DESC, name DESC LIMIT 1 OFFSET $1)",
        params![MAX_CALL_BREAKERS],
    )
    .await?;
    Ok(())
}

/// All of them, ordered by name.
///
/// # Errors
/// When a statement fails.
pub async fn list<S: Snapshot>(snapshot: &S) -> Result<Vec<CallBreakerRecord>, S::Error> {
    let rows = snapshot
        .rows("SELECT name, state, changed_at FROM ostler.call_breaker ORDER BY name", params![])
        .await?;
    rows.iter()
        .map(|row| {
            Ok(CallBreakerRecord {
                name: row.get(0)?,
                state: breaker_from(&row.get::<String>(1)?).state,
                changed_at: Timestamp::from_millis(row.get(2)?),
            })
        })
        .collect()
}
