//! Accounts: limits that queues share.

use ostler_core::{Account, AccountChange, AccountEnd, Task, Timestamp};
use ostler_store::accounts::{
    AccountRecord, AccountUse, MAX_ACCOUNTS, bounded_reading, places_for, too_many_accounts,
};
use ostler_store::{Check, Error};

use super::state::MemoryState;

/// What the account of a queue allows a claim to take.
pub(super) struct AccountPlaces {
    /// The most tasks that it may take.
    pub(super) places: usize,
    /// When the hold of the account ends.
    pub(super) until: Option<Timestamp>,
}

impl MemoryState {
    pub(super) fn change_account(&mut self, name: &str, change: &AccountChange) -> Result<Account, Error> {
        let mut account = self.account(name);
        account.apply(change, self.now);
        let is_new = !self.accounts.contains_key(name) && account != Account::default();
        if is_new && self.accounts.len() >= MAX_ACCOUNTS {
            return Err(too_many_accounts());
        }
        self.keep_account(name, account.clone());
        self.rings.ready = true;
        Ok(account)
    }

    pub(super) fn list_accounts(&self) -> Vec<AccountRecord> {
        let uses = self.queues.iter().filter_map(|(queue, entry)| {
            let account = entry.settings.account.clone()?;
            Some(AccountUse { account, queue: queue.clone(), leased: self.leased_in(queue) })
        });
        let stored = self.accounts.iter().map(|(name, account)| (name.clone(), account.clone()));
        AccountRecord::all(stored, uses, self.now)
    }

    /// How many of `limit` tasks a claim may take from a queue, as far as its account is concerned.
    pub(super) fn account_places(&self, queue: &str, limit: usize) -> AccountPlaces {
        let name = self.queues.get(queue).and_then(|queue| queue.settings.account.as_ref());
        let Some(name) = name.filter(|_| !self.checks.pass(Check::AccountPlaces, false)) else {
            return AccountPlaces { places: limit, until: None };
        };
        let account = self.account(name);
        AccountPlaces {
            places: places_for(&account, self.leased_of_account(name), limit, self.now),
            until: account.held(self.now).and_then(|hold| hold.until),
        }
    }

    /// Reports the end of an attempt, which is no longer leased, to the account of its queue.
    pub(super) fn tell_account(&mut self, name: &str, end: &AccountEnd<'_>) {
        let mut account = self.account(name);
        let reading = end.reading.map(bounded_reading);
        let in_flight = self.leased_of_account(name) + 1;
        account.ended(&AccountEnd { reading: reading.as_ref(), ..*end }, in_flight, self.now);
        self.keep_account(name, account);
        self.rings.ready = true;
    }

    fn account(&self, name: &str) -> Account {
        self.accounts.get(name).cloned().unwrap_or_default()
    }

    fn keep_account(&mut self, name: &str, account: Account) {
        if account == Account::default() {
            self.accounts.remove(name);
        } else {
            self.accounts.insert(name.to_owned(), account);
        }
    }

    fn leased_of_account(&self, name: &str) -> u64 {
        let uses = |task: &Task| {
            let queue = self.queues.get(&task.queue);
            queue.is_some_and(|queue| queue.settings.account.as_deref() == Some(name))
        };
        self.slots(|task| task.state.name().is_leased() && uses(task)).len() as u64
    }
}
