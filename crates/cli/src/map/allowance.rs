//! An account whose usage limit comes near: the user gets a warning before its items have to wait.

use std::collections::HashSet;

use ostler_ops::accounts;
use ostler_store::Store;

use crate::print::visible;

/// Looks at the account of a job's pool.
pub(crate) struct AllowanceWatch {
    account: String,
    said: HashSet<String>,
}

impl AllowanceWatch {
    pub(crate) fn new(account: String) -> Self {
        Self { account, said: HashSet::new() }
    }

    /// What is to be said now, if anything: once for each allowance.
    pub(crate) async fn complaint(&mut self, store: &dyn Store) -> Option<String> {
        // If the store does not answer, the next look may.
        let near = accounts::near_limit(store, &self.account).await.ok()??;
        self.said.insert(near.window).then(|| visible(&near.sentence))
    }
}
