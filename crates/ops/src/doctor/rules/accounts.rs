//! Rules about accounts: those on hold, and those close to their usage limit.

use ostler_core::Timestamp;
use ostler_store::accounts::AccountRecord;

use super::{Finding, about, word};
use crate::accounts::NearLimit;
use crate::doctor::facts::StoreFacts;

pub(super) fn findings(seen: &StoreFacts, now: Timestamp) -> Vec<Finding> {
    seen.accounts.iter().filter_map(|record| held(record, now).or_else(|| near(record, now))).collect()
}

fn held(record: &AccountRecord, now: Timestamp) -> Option<Finding> {
    let hold = record.account.held(now)?;
    let (span, advice) = match hold.until {
        Some(until) => {
            (format!("for another {}", about(until.since(now))), "It resumes by itself. To resume now:")
        }
        None => ("until it is released".to_owned(), "To resume:"),
    };
    let sentence = format!(
        "Account \"{}\" is on hold {span}, so none of its tasks starts ({}): {}",
        record.name,
        queues(record.queues.len()),
        hold.why
    );
    let advice = format!("{advice} ostler account release {}", word(&record.name));
    Some(Finding::info("account-held", sentence, advice))
}

fn near(record: &AccountRecord, now: Timestamp) -> Option<Finding> {
    let near = NearLimit::of(record, now)?;
    let advice = format!(
        "At the limit, its tasks wait until the reset. To slow down: ostler account cap {} 1",
        word(&record.name)
    );
    Some(Finding::warning("account-near-limit", near.sentence, advice))
}

fn queues(count: usize) -> String {
    if count == 1 { "1 queue".to_owned() } else { format!("{count} queues") }
}
