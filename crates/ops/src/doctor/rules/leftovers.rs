//! Rules about leftovers of pruned tasks: those that cannot be removed without losing work.

use super::Finding;
use crate::doctor::facts::KeptLeftover;

pub(super) fn finding(kept: &KeptLeftover) -> Finding {
    let sentence = format!("{} is kept although its task is gone: {}", kept.path.display(), kept.why);
    Finding::warning("leftover-kept", sentence, kept.advice.clone())
}
