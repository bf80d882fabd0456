//! Accounts: list and show them, hold and release them, and set their concurrency.

use std::time::Duration;

use ostler_core::{AccountChange, Timestamp, show_duration};
use ostler_store::Store;
use ostler_store::accounts::{AccountRecord, check_account};
use ostler_wire::account::AccountView;

use crate::error::{Missing, OpsError};
use crate::queues::Lift;

/// When a hold by hand ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// When it is released.
    ByHand,
    After(Duration),
    At(Timestamp),
}

impl HoldEnd {
    fn at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::ByHand => None,
            Self::After(span) => Some(now.after(span)),
            Self::At(moment) => Some(moment),
        }
    }
}

/// All accounts that have state or are used by a queue.
///
/// # Errors
/// When the store cannot be read.
pub async fn list(store: &dyn Store) -> Result<Vec<AccountView>, OpsError> {
    let now = store.now().await?;
    Ok(store.accounts().await?.iter().map(|record| AccountView::new(record, now)).collect())
}

/// # Errors
/// When there is no such account.
pub async fn show(store: &dyn Store, name: &str) -> Result<AccountView, OpsError> {
    let now = store.now().await?;
    Ok(AccountView::new(&find(store, name).await?, now))
}

/// An allowance of an account that is nearly used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearLimit {
    pub window: String,
    /// What to tell the user.
    pub sentence: String,
}

impl NearLimit {
    /// The last reading of an account, if it shows that a limit is near.
    pub(crate) fn of(record: &AccountRecord, now: Timestamp) -> Option<Self> {
        let reading = record.account.near_limit(now)?;
        let resets = reading
            .resets_at
            .map(|reset| {
                let left = Duration::from_secs(reset.since(now).as_secs());
                format!(", which resets in {}", show_duration(left))
            })
            .unwrap_or_default();
        let window = reading.window.clone();
        let used = reading.utilization_permille / 10;
        let sentence =
            format!("Account \"{}\" has used {used} % of its allowance \"{window}\"{resets}", record.name);
        Some(Self { window, sentence })
    }
}

/// The allowance of an account that is nearly used up, if one is. `None` also if there is no such account yet.
///
/// # Errors
/// When the store cannot be read.
pub async fn near_limit(store: &dyn Store, name: &str) -> Result<Option<NearLimit>, OpsError> {
    let now = store.now().await?;
    let accounts = store.accounts().await?;
    Ok(accounts.iter().find(|record| record.name == name).and_then(|record| NearLimit::of(record, now)))
}

/// Refuses a hold that no store would take.
///
/// # Errors
/// When the name or the reason is too long.
pub fn check_hold(name: &str, reason: &str) -> Result<(), OpsError> {
    Ok(check_account(name, &AccountChange::Hold { until: None, why: reason.to_owned() })?)
}

/// Holds an account: nothing of it starts, in any queue. The later of two holds counts.
///
/// # Errors
/// When there is no such account, or the store cannot be written.
pub async fn hold(
    store: &dyn Store,
    name: &str,
    end: HoldEnd,
    reason: String,
) -> Result<AccountView, OpsError> {
    let (before, now) = (find(store, name).await?, store.now().await?);
    let change = AccountChange::Hold { until: end.at(now), why: reason };
    let after = AccountRecord { account: store.change_account(name, change).await?, ..before };
    Ok(AccountView::new(&after, now))
}

/// Ends the hold of an account.
///
/// # Errors
/// When there is no such account, or the store cannot be written.
pub async fn release(store: &dyn Store, name: &str) -> Result<(AccountView, Lift), OpsError> {
    let before = find(store, name).await?;
    let lift = if before.account.hold.is_some() { Lift::Lifted } else { Lift::NotNeeded };
    let after =
        AccountRecord { account: store.change_account(name, AccountChange::Release).await?, ..before };
    Ok((AccountView::new(&after, store.now().await?), lift))
}

/// Sets how many tasks of an account may run at once; `None`: no limit.
///
/// # Errors
/// When there is no such account, or the store cannot be written.
pub async fn cap(store: &dyn Store, name: &str, most: Option<u32>) -> Result<AccountView, OpsError> {
    let before = find(store, name).await?;
    let after =
        AccountRecord { account: store.change_account(name, AccountChange::Cap(most)).await?, ..before };
    Ok(AccountView::new(&after, store.now().await?))
}

async fn find(store: &dyn Store, name: &str) -> Result<AccountRecord, OpsError> {
    let found = store.accounts().await?.into_iter().find(|record| record.name == name);
    Ok(found.ok_or_else(|| Missing::Account(name.to_owned()))?)
}
