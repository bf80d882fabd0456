//! Accounts: limits that queues share, for JSON.

use ostler_core::{Account, AccountHold, AccountReading, Timestamp};
use ostler_store::accounts::AccountRecord;
use serde::{Deserialize, Serialize};

use crate::time::TimeView;

/// An account, with the queues that use it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccountView {
    pub account: String,
    /// The queues that use it.
    pub queues: Vec<String>,
    /// Its claimed and running tasks, over all queues and nodes.
    pub running: u64,
    /// The maximum number of running tasks, as set; `null`: no limit.
    pub concurrency: Option<u32>,
    /// How many may run at most now: fewer than `concurrency` after the provider has throttled; `null`: no limit.
    pub most: Option<u32>,
    /// Why nothing of the account starts; `null`: it is not held.
    pub held: Option<AccountHoldView>,
    /// What an attempt last reported about the allowance.
    pub usage: Option<AccountUsageView>,
}

/// A hold of an account.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccountHoldView {
    /// `null` if it must be ended by hand.
    pub until: Option<TimeView>,
    pub reason: String,
}

/// How much of an allowance is used.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccountUsageView {
    /// The provider's name of the allowance.
    pub window: String,
    /// The share that is used, from 0 to 1.
    pub used: f64,
    pub resets_at: Option<TimeView>,
    /// Whether the usage limit is near.
    pub near_limit: bool,
}

impl AccountView {
    #[must_use]
    pub fn new(record: &AccountRecord, now: Timestamp) -> Self {
        let account = &record.account;
        Self {
            account: record.name.clone(),
            queues: record.queues.clone(),
            running: record.leased,
            concurrency: account.cap,
            most: account.most(),
            held: account.held(now).map(AccountHoldView::new),
            usage: account.reading.as_ref().map(|reading| AccountUsageView::new(reading, account, now)),
        }
    }
}

impl AccountHoldView {
    fn new(hold: &AccountHold) -> Self {
        Self { until: hold.until.map(Into::into), reason: hold.why.clone() }
    }
}

impl AccountUsageView {
    fn new(reading: &AccountReading, account: &Account, now: Timestamp) -> Self {
        Self {
            window: reading.window.clone(),
            used: f64::from(reading.utilization_permille) / 1_000.0,
            resets_at: reading.resets_at.map(Into::into),
            near_limit: account.near_limit(now).is_some(),
        }
    }
}
