//! One suite for every executor: whatever the work does, the answer comes, in time, and it is the right one.
//!
//! An executor brings a [`Fixture`] that says how its work can be made to behave. A behaviour that it cannot have (a
//! command cannot panic) is left out, and the report names it.

mod behaviour;
mod cases;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Executor, Work};
pub use behaviour::{Behaviour, act};

/// How long an attempt of the suite may take, where it is to run into its deadline.
pub const SHORT: Duration = Duration::from_millis(150);
/// How long it may take elsewhere. No case waits for it.
pub const LONG: Duration = Duration::from_secs(60);
/// How long it may take to stop: long enough that a busy machine is not taken for deaf work.
pub const GRACE: Duration = Duration::from_secs(2);

/// One executor under test.
pub trait Fixture: Send + Sync {
    /// The executor.
    fn executor(&self) -> Arc<dyn Executor>;

    /// Work that behaves like this; `None` where the executor's work cannot.
    fn work(&self, behaviour: &Behaviour) -> Option<Work>;
}

/// What was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Cases that held.
    pub held: Vec<&'static str>,
    /// Cases that this executor's work cannot have.
    pub left_out: Vec<&'static str>,
}

/// Runs every case, each on an executor of its own.
///
/// # Panics
/// With the names and reasons of all cases that failed.
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
