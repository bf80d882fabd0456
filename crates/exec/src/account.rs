//! What an attempt learns about its account while it runs: a provider says with each answer how many more requests it lets through.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ostler_core::{AccountChange, AccountReading};

/// Stores what attempts of a pool learn about its account, which other pools and nodes may share.
#[async_trait]
pub trait AccountStore: Debug + Send + Sync {
    /// Applies a change. One that cannot be stored is left out: the next answer says it again.
    async fn change(&self, change: AccountChange);
}

/// The account of an attempt. An attempt without one tells its news to no store.
#[derive(Clone, Debug, Default)]
pub struct AccountFeed(Option<Arc<FeedOfAccount>>);

#[derive(Debug)]
struct FeedOfAccount {
    store: Arc<dyn AccountStore>,
    /// The last one that the work learned, to be recorded at the end of the attempt.
    reading: Mutex<Option<AccountReading>>,
}

impl AccountFeed {
    /// Kept in this store.
    #[must_use]
    pub fn kept(store: Arc<dyn AccountStore>) -> Self {
        Self(Some(Arc::new(FeedOfAccount { store, reading: Mutex::default() })))
    }

    /// No account.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Reports a change. Claims see it when this returns.
    pub async fn tell(&self, change: AccountChange) {
        if let Some(feed) = &self.0 {
            feed.store.change(change).await;
        }
    }

    /// Keeps what an agent that the work has asked says of the account's allowance. The last reading counts.
    pub fn read(&self, reading: AccountReading) {
        if let Some(feed) = &self.0 {
            *feed.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        }
    }

    /// The reading that was kept.
    #[must_use]
    pub fn reading(&self) -> Option<AccountReading> {
        let feed = self.0.as_ref()?;
        feed.reading.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
