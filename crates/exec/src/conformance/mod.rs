//! Conformance suite for executors: whatever the work does, the right result comes, in time.
//!
//! An executor provides a [`Fixture`] that makes work behave as required. A behaviour that its work cannot have (a
//! command cannot panic) is skipped, and the report names it.

mod behaviour;
mod cases;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Executor, Work};
pub use behaviour::{Behaviour, act};

/// The timeout of an attempt that is to time out.
pub const SHORT: Duration = Duration::from_millis(150);
/// The timeout of every other attempt. No case waits for it.
pub const LONG: Duration = Duration::from_secs(60);
/// The grace period: long enough that work on a busy machine is not mistaken for unresponsive.
pub const GRACE: Duration = Duration::from_secs(2);

/// One executor under test.
pub trait Fixture: Send + Sync {
    fn executor(&self) -> Arc<dyn Executor>;

    /// Work that behaves like this; `None` if the executor's work cannot.
    fn work(&self, behaviour: &Behaviour) -> Option<Work>;
}

/// The result of a run of the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Cases that passed.
    pub held: Vec<&'static str>,
    /// Cases skipped because this executor's work cannot behave like that.
    pub left_out: Vec<&'static str>,
}

/// Runs every case, each on an executor of its own.
///
/// # Panics
/// With the names and reasons of all failed cases.
pub async fn run(make: impl Fn() -> Arc<dyn Fixture>) -> Report {
    let mut report = Report::default();
    let mut failed = Vec::new();
    for (name, case) in cases::ALL {
        let fixture = make();
        let tried = tokio::spawn(AssertUnwindSafe(case(fixture)).0).await;
        match tried {
            Ok(cases::Tried::Held) => report.held.push(name),
            Ok(cases::Tried::LeftOut) => report.left_out.push(name),
            Err(error) => {
                let panic = error.try_into_panic().map(|panic| crate::inline::panicked(panic.as_ref()));
                failed.push(format!("{name}: {panic:?}"));
            }
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
    report
}
