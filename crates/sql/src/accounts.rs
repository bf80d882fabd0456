//! Accounts: limits that queues share, in one row by name. PostgreSQL serializes the users of a name by a lock, SQLite all writers.

use ostler_core::{
    Account, AccountChange, AccountEnd, AccountHold, AccountReading, AccountWindow, Effect, Timestamp,
};
use ostler_store::Error;
use ostler_store::accounts::{MAX_ACCOUNTS, bounded_reading, too_many_accounts};

use crate::params;
use crate::tx::{Snapshot, Tx, one};
use crate::value::Row;

/// The value in the column for a hold that only a release ends.
const NO_TIME: i64 = i64::MAX;

const COLUMNS: usize = 8;

/// The account of this name; the default, if it has no state.
///
/// # Errors
/// When a statement fails.
pub async fn read<S: Snapshot>(snapshot: &S, name: &str) -> Result<Account, S::Error> {
    let found = snapshot
        .row(
            "SELECT cap, held_until, held_why, window_milli, lowered_at, allowance, used_permille, resets_at
             FROM ostler.account WHERE name = $1",
            params![name],
        )
        .await?;
    found.map_or_else(|| Ok(Account::default()), |row| account_from(&row))
}

/// All accounts with state, ordered by name.
///
/// # Errors
/// When a statement fails.
pub async fn list<S: Snapshot>(snapshot: &S) -> Result<Vec<(String, Account)>, S::Error> {
    let rows = snapshot
        .rows(
            "SELECT cap, held_until, held_why, window_milli, lowered_at, allowance, used_permille, resets_at, name
             FROM ostler.account ORDER BY name",
            params![],
        )
        .await?;
    rows.iter().map(|row| Ok((row.get(COLUMNS)?, account_from(row)?))).collect()
}

/// Applies a change.
///
/// # Errors
/// When a statement fails.
pub async fn change<T: Tx>(
    tx: &mut T,
    name: &str,
    change: &AccountChange,
) -> Result<Result<Account, Error>, T::Error> {
    let (before, now) = (read(tx, name).await?, tx.now());
    let mut account = before.clone();
    account.apply(change, now);
    let is_new = before == Account::default() && account != before;
    if is_new && is_full(tx).await? {
        return Ok(Err(too_many_accounts()));
    }
    write(tx, name, &before, &account).await?;
    // Claims that wait for the account ask again.
    tx.ring();
    Ok(Ok(account))
}

/// Reports the end of an attempt, which is no longer counted among the leased tasks.
///
/// # Errors
/// When a statement fails.
pub async fn ended<T: Tx>(tx: &mut T, name: &str, end: &AccountEnd<'_>) -> Result<(), T::Error> {
    let (before, now) = (read(tx, name).await?, tx.now());
    let mut account = before.clone();
    let throttled = matches!(end.effect, Effect::HoldUntil(_));
    let in_flight = match before.window {
        None if !throttled => 1,
        Some(_) | None => tx.leased_of_account(name).await?.saturating_add(1),
    };
    let reading = end.reading.map(bounded_reading);
    account.ended(&AccountEnd { reading: reading.as_ref(), ..*end }, in_flight, now);
    write(tx, name, &before, &account).await?;
    if before.most().or(account.most()).is_some() {
        // Claims that found every place taken ask again.
        tx.ring();
    }
    Ok(())
}

async fn is_full<T: Tx>(tx: &T) -> Result<bool, T::Error> {
    let count: i64 = one(tx, "SELECT count(*) FROM ostler.account", params![]).await?.get(0)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX) >= MAX_ACCOUNTS)
}

async fn write<T: Tx>(tx: &T, name: &str, before: &Account, account: &Account) -> Result<(), T::Error> {
    if account == before {
        return Ok(());
    }
    if *account == Account::default() {
        tx.exec("DELETE FROM ostler.account WHERE name = $1", params![name]).await?;
        return Ok(());
    }
    let Account { hold, cap, window, reading } = account;
    let until = hold.as_ref().map(|hold| hold.until.map_or(NO_TIME, Timestamp::millis));
    tx.exec(
        "INSERT INTO ostler.account(name, cap, held_until, held_why, window_milli, lowered_at, allowance, used_permille, resets_at)
         VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT(name) DO UPDATE SET cap = excluded.cap, held_until = excluded.held_until, held_why = excluded.held_why,
            window_milli = excluded.window_milli, lowered_at = excluded.lowered_at, allowance = excluded.allowance,
            used_permille = excluded.used_permille, resets_at = excluded.resets_at",
        params![
            name,
            cap,
            until,
            hold.as_ref().map(|hold| hold.why.as_str()),
            window.map(|window| window.milli),
            window.map(|window| window.lowered_at.millis()),
            reading.as_ref().map(|reading| reading.window.as_str()),
            reading.as_ref().map(|reading| reading.utilization_permille),
            reading.as_ref().and_then(|reading| reading.resets_at).map(Timestamp::millis),
        ],
    )
    .await?;
    Ok(())
}

fn account_from<R: Row>(row: &R) -> Result<Account, R::Error> {
    let time = |at: usize| Ok(row.get::<Option<i64>>(at)?.map(Timestamp::from_millis));
    let (until, why): (Option<i64>, Option<String>) = (row.get(1)?, row.get(2)?);
    let hold = until.map(|until| AccountHold {
        until: (until != NO_TIME).then(|| Timestamp::from_millis(until)),
        why: why.unwrap_or_default(),
    });
    let lowered_at = time(4)?.unwrap_or_default();
    let window = row.get::<Option<u64>>(3)?.map(|milli| AccountWindow { milli, lowered_at });
    let (resets_at, used): (_, Option<u32>) = (time(7)?, row.get(6)?);
    let reading = row.get::<Option<String>>(5)?.map(|window| AccountReading {
        window,
        utilization_permille: used.unwrap_or(0),
        resets_at,
    });
    Ok(Account { hold, cap: row.get(0)?, window, reading })
}
