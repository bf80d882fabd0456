//! The tables `[account.NAME]`: limits that the queues of an account share.

use std::ops::RangeInclusive;

use ostler_config::{FoundValue, Section};

/// The range of `concurrency`.
const COUNTS: RangeInclusive<u32> = 1..=1_000_000;

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountSettings {
    pub(crate) name: String,
    /// The maximum number of running tasks, over all queues and nodes; `None`: no limit.
    pub(crate) concurrency: Option<u32>,
}

pub(super) fn read_all(section: &Section<'_>) -> Vec<AccountSettings> {
    section.entries().into_iter().filter_map(|(name, found)| read(name, &found)).collect()
}

fn read(name: String, found: &FoundValue<'_>) -> Option<AccountSettings> {
    let named = ostler_store::check_name(found.path(), &name).map_err(|error| found.fault(error.to_string()));
    let mut section = found.table()?;
    let concurrency = section.find("concurrency").and_then(|found| found.count(COUNTS));
    section.close(&[]);
    named.ok()?;
    Some(AccountSettings { name, concurrency })
}

/// The account of a pool.
pub(super) fn of_pool(pool: &mut Section<'_>) -> Option<String> {
    let found = pool.find("account")?;
    let name = found.text()?;
    ostler_store::check_name(found.path(), &name).map_err(|error| found.fault(error.to_string())).ok()?;
    Some(name)
}
