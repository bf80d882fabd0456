//! The table of all topics, and the runner of cases.

use super::super::fixture::{BoxFuture, Constructor};
use super::super::scene::Scene;
use ostler_store::Checks;

/// One case: a name and a function that panics when the store deviates.
pub(in super::super) type Case = (&'static str, for<'a> fn(&'a Scene) -> BoxFuture<'a, ()>);

pub(in super::super) type Topic = (&'static str, &'static [Case]);

/// Cases that run concurrently, so that a store that waits for its disk does not slow down the suite.
const AT_ONCE: usize = 8;

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        pub(in super::super) const CASES: &[crate::topics::runner::Case] =
            &[$((stringify!($case), |scene| Box::pin($case(scene)))),*];
    };
}
pub(super) use cases;

pub(in super::super) const fn topics() -> &'static [Topic] {
    &[
        ("enqueue", super::enqueue::CASES),
        ("unique keys", super::unique::CASES),
        ("claim", super::claim::CASES),
        ("start", super::start::CASES),
        ("finish", super::finish::CASES),
        ("hand_back", super::hand_back::CASES),
        ("events", super::events::CASES),
        ("transitions", super::transitions::CASES),
        ("steps", super::steps::CASES),
        ("sessions", super::sessions::CASES),
        ("node commands", super::node_commands::CASES),
        ("expire", super::expire::CASES),
        ("maintenance", super::maintenance::CASES),
        ("deadlines", super::deadlines::CASES),
        ("dependencies", super::dependencies::CASES),
        ("dependents", super::dependents::CASES),
        ("schedules", super::schedules::CASES),
        ("overlaps", super::overlaps::CASES),
        ("jobs", super::jobs::CASES),
        ("limit keys", super::limits::CASES),
        ("concurrency", super::concurrency::CASES),
        ("payload paths", super::paths::CASES),
        ("holds", super::holds::CASES),
        ("rates", super::rates::CASES),
        ("breakers", super::breakers::CASES),
        ("queues served by a pool", super::served::CASES),
        ("accounts", super::accounts::CASES),
        ("call breakers", super::call_breakers::CASES),
        ("budgets", super::budgets::CASES),
        ("costs", super::costs::CASES),
        ("cancel", super::cancel::CASES),
        ("replay", super::replay::CASES),
        ("amend", super::amend::CASES),
        ("queues", super::queues::CASES),
        ("list", super::list::CASES),
        ("show", super::show::CASES),
        ("survey", super::survey::CASES),
        ("prune", super::prune::CASES),
        ("outbox", super::outbox::CASES),
        ("taking from the outbox", super::outbox_take::CASES),
        ("wakeups", super::wakeups::CASES),
        ("control", super::control::CASES),
        ("changes", super::changes::CASES),
        ("bounds", super::bounds::CASES),
    ]
}

/// Runs every case, each on its own store, prints the counts and returns the number of cases.
///
/// # Panics
/// With the names and messages of the failed cases.
pub async fn run(make: &Constructor) -> usize {
    let mut red = Vec::new();
    let mut count = 0;
    for (topic, cases) in topics() {
        for some in cases.chunks(AT_ONCE) {
            let running: Vec<_> = some
                .iter()
                .map(|case| (case.0, tokio::spawn(outcome(make.clone(), Checks::default(), *case))))
                .collect();
            for (name, case) in running {
                if let Err(why) = case.await.expect("a case that panics is an answer") {
                    red.push(format!("{topic}: {name}: {why}"));
                }
            }
        }
        println!("{topic}: {} cases", cases.len());
        count += cases.len();
    }
    assert!(red.is_empty(), "{} of {count} cases failed:\n{}", red.len(), red.join("\n"));
    count
}

/// Runs one case on a new store. `Err` is its panic message.
pub(in super::super) async fn outcome(make: Constructor, checks: Checks, case: Case) -> Result<(), String> {
    let fixture = make(checks).await;
    let run = tokio::spawn(async move { (case.1)(&Scene::new(fixture)).await });
    match run.await {
        Ok(()) => Ok(()),
        Err(error) => Err(words(error)),
    }
}

/// The message of a panic.
pub(in super::super) fn words(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned()),
        Err(error) => error.to_string(),
    }
}
