//! Rules about presence in Redis. Work does not depend on it, so nothing here is an error.

use super::Finding;
use crate::doctor::facts::PresenceFacts;

pub(super) fn finding(PresenceFacts { address, fault }: &PresenceFacts) -> Finding {
    match fault {
        None => Finding::info("presence", format!("Nodes can publish their presence in {address}"), ""),
        Some(fault) => Finding::warning(
            "presence-away",
            format!("Nodes cannot publish their presence in {address}: {}", fault.sentence),
            format!("{} Work goes on, and nodes keep retrying", fault.advice),
        ),
    }
}
