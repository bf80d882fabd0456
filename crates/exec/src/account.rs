//! What an attempt learns about its account while it runs: a provider says with each answer how many more requests it lets through.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::AccountChange;

/// Stores what attempts of a pool learn about its account, which other pools and nodes may share.
#[async_trait]
pub trait AccountStore: Debug + Send + Sync {
    /// Applies a change. One that cannot be stored is left out: the next answer says it again.
    async fn change(&self, change: AccountChange);
}

/// The account of an attempt. An attempt without one tells its news to no store.
#[derive(Clone, Debug, Default)]
pub struct AccountFeed(Option<Arc<dyn AccountStore>>);

impl AccountFeed {
    /// Kept in this store.
    #[must_use]
    pub fn kept(store: Arc<dyn AccountStore>) -> Self {
        Self(Some(store))
    }

    /// No account.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Reports a change. Claims see it when this returns.
    pub async fn tell(&self, change: AccountChange) {
        if let Some(store) = &self.0 {
            store.change(change).await;
        }
    }
}
