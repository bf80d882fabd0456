//! A kind that no worker of the job's pool serves: its items are never claimed, so the user has to be told why they wait.

use std::sync::Arc;
use std::time::Duration;

use ostler_config::nearest;
use ostler_exec::{Executor, Served};
use ostler_ops::jobs::JobPool;
use tokio::time::Instant;

use crate::print::visible;

/// The interval between two looks at the kinds. Workers announce theirs when they are ready.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// How often the line is repeated.
const REPEAT: Duration = Duration::from_secs(60);

/// Compares the kind of a job with those of its workers.
pub(crate) struct KindWatch {
    executor: Arc<dyn Executor>,
    pool: String,
    kind: String,
    said: Option<Instant>,
}

impl KindWatch {
    pub(crate) fn new(executor: Arc<dyn Executor>, pool: &JobPool) -> Self {
        Self { executor, pool: pool.name.clone(), kind: pool.kind.clone(), said: None }
    }

    /// What is to be said now, if anything.
    pub(crate) fn complaint(&mut self, now: Instant) -> Option<String> {
        if self.said.is_some_and(|said| now.duration_since(said) < REPEAT) {
            return None;
        }
        let sentence = unserved(&self.executor.served(), &self.pool, &self.kind)?;
        self.said = Some(now);
        Some(sentence)
    }
}

fn unserved(served: &Served, pool: &str, kind: &str) -> Option<String> {
    let kinds = match served {
        Served::Any => return None,
        Served::Only(kinds) if kinds.iter().any(|served| served == kind) => return None,
        Served::Only(kinds) => kinds,
    };
    let mut kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    kinds.sort_unstable();
    let guess = nearest(kind, &kinds).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let has = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    Some(visible(&format!(
        "no worker of pool \"{pool}\" serves the kind \"{kind}\", so the items wait; its kinds: {has}{guess}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_among_those_of_the_workers_is_named_with_the_nearest_one() {
        let only = |kinds: &[&str]| Served::Only(kinds.iter().map(|kind| (*kind).to_owned()).collect());
        assert_eq!(unserved(&Served::Any, "docs", "x"), None);
        assert_eq!(unserved(&only(&["x"]), "docs", "x"), None);
        assert_eq!(
            unserved(&only(&["translate", "review"]), "docs", "reveiw").as_deref(),
            Some(
                "no worker of pool \"docs\" serves the kind \"reveiw\", so the items wait; its kinds: review, translate; did you mean \
                 review?"
            )
        );
        let nothing = unserved(&only(&[]), "docs", "x");
        assert!(nothing.is_some_and(|sentence| sentence.ends_with("its kinds: none")));
    }
}
