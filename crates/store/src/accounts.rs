//! Accounts: what queues that use one account of a provider share. The rules are in `ostler_core::Account`.

use std::collections::{BTreeMap, BTreeSet};

use ostler_core::{Account, AccountChange, AccountReading, Closed, Timestamp};

use crate::bounds::{MAX_MESSAGE_BYTES, MAX_NAME_BYTES, check_name, check_text, clean};
use crate::error::Error;

/// Accounts with state that a store keeps; `change_account` refuses to create more.
pub const MAX_ACCOUNTS: usize = 1_000;

/// An account, as a store shows it: it has state, or a queue uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    pub name: String,
    /// As of now: a hold that is over is left out.
    pub account: Account,
    /// Its leased tasks, over all queues.
    pub leased: u64,
    /// The queues that use it, ordered by name.
    pub queues: Vec<String>,
}

impl AccountRecord {
    /// Why nothing of the account may start now; `None`: at least one task may.
    #[must_use]
    pub fn closed(&self, now: Timestamp) -> Option<Closed> {
        self.account.closed(self.leased, now)
    }

    /// How many of `limit` tasks a claim may take, given the number of leased ones.
    #[must_use]
    pub fn places_for(&self, limit: usize, now: Timestamp) -> usize {
        places_for(&self.account, self.leased, limit, now)
    }

    /// Builds the records from accounts with state, ordered by name, and from the queues that use one, with the numbers of their
    /// leased tasks.
    #[must_use]
    pub fn all(
        stored: impl IntoIterator<Item = (String, Account)>,
        queues: impl IntoIterator<Item = AccountUse>,
        now: Timestamp,
    ) -> Vec<Self> {
        let mut records: BTreeMap<String, Self> = BTreeMap::new();
        let new = |name: &str| Self {
            name: name.to_owned(),
            account: Account::default(),
            leased: 0,
            queues: Vec::new(),
        };
        let mut used = BTreeSet::new();
        for AccountUse { account, queue, leased } in queues {
            let record = records.entry(account.clone()).or_insert_with(|| new(&account));
            record.leased += leased;
            record.queues.push(queue);
            used.insert(account);
        }
        for (name, account) in stored {
            records.entry(name.clone()).or_insert_with(|| new(&name)).account = account.as_of(now);
        }
        records.retain(|name, record| used.contains(name) || record.account != Account::default());
        records.values_mut().for_each(|record| record.queues.sort());
        records.into_values().collect()
    }
}

/// A queue that uses an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountUse {
    pub account: String,
    pub queue: String,
    /// The number of its leased tasks.
    pub leased: u64,
}

/// How many of `limit` tasks a claim may take, given the account and the number of its leased tasks.
#[must_use]
pub fn places_for(account: &Account, leased: u64, limit: usize, now: Timestamp) -> usize {
    if account.held(now).is_some() {
        return 0;
    }
    let free = account.places(leased).unwrap_or(u64::MAX);
    usize::try_from(free).unwrap_or(usize::MAX).min(limit)
}

/// Rejects a name or a change that no account can have.
///
/// # Errors
/// A sentence that names the field and its range.
pub fn check_account(name: &str, change: &AccountChange) -> Result<(), Error> {
    check_name("account", name)?;
    match change {
        AccountChange::Hold { why, .. } => check_text("reason", why, MAX_MESSAGE_BYTES),
        AccountChange::Cap(Some(0)) => {
            Err(Error::invalid("concurrency must be at least 1; to run nothing, hold the account"))
        }
        AccountChange::Cap(_) | AccountChange::Release | AccountChange::Allowance(_) => Ok(()),
    }
}

/// The refusal of one account too many.
#[must_use]
pub fn too_many_accounts() -> Error {
    Error::invalid(format!("there are {MAX_ACCOUNTS} accounts with a state, and no more are kept"))
}

/// The reading, with an overlong name truncated: the end of an attempt is never refused for it.
#[must_use]
pub fn bounded_reading(reading: &AccountReading) -> AccountReading {
    AccountReading { window: clean(&reading.window, MAX_NAME_BYTES), ..reading.clone() }
}
