//! Account writer: stores what attempts learn about the account of their pool.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::AccountChange;
use ostler_exec::{AccountFeed, AccountStore};
use ostler_store::Store;
use ostler_store::calls::QueueChange;

struct AccountWriter {
    store: Arc<dyn Store>,
    account: String,
}

impl fmt::Debug for AccountWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AccountWriter").field(&self.account).finish()
    }
}

#[async_trait]
impl AccountStore for AccountWriter {
    async fn change(&self, change: AccountChange) {
        // The store's health is watched elsewhere. What is lost here comes again with the next answer of the provider.
        let _ = self.store.change_account(&self.account, change).await;
    }
}

/// The account that these settings of a queue name.
pub(crate) fn account_feed(store: &Arc<dyn Store>, settings: &[QueueChange]) -> AccountFeed {
    let name = settings.iter().rev().find_map(|change| {
        if let QueueChange::Account(account) = change { Some(account.clone()) } else { None }
    });
    match name.flatten() {
        Some(account) => AccountFeed::kept(Arc::new(AccountWriter { store: Arc::clone(store), account })),
        None => AccountFeed::none(),
    }
}
