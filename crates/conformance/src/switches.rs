//! Switches: disables one safety check of the store at a time, and expects a case to fail. A suite that passes
//! without a check does not test it.

use super::fixture::Constructor;
use super::topics::{Topic, outcome, topics};
use ostler_store::{Check, Checks};

/// Disables each check in turn, prints the case that noticed, and returns the number of checks.
///
/// # Panics
/// When all cases pass without some check.
pub async fn run(make: &Constructor) -> usize {
    for check in Check::ALL {
        let (topic, case, why) = first_red(make, check)
            .await
            .unwrap_or_else(|| panic!("no case turns red without {check:?}: the suite does not test it"));
        let first_line = why.lines().next().unwrap_or_default();
        println!("without {check:?}: {topic}: {case}: {first_line}");
    }
    Check::ALL.len()
}

async fn first_red(make: &Constructor, check: Check) -> Option<(&'static str, &'static str, String)> {
    let (likely, others): (Vec<&Topic>, Vec<&Topic>) =
        topics().iter().partition(|(topic, _)| *topic == likely_topic(check));
    for (topic, cases) in likely.into_iter().chain(others) {
        for case in *cases {
            if let Err(why) = outcome(make.clone(), Checks::without(check), *case).await {
                return Some((topic, case.0, why));
            }
        }
    }
    None
}

/// The topic to try first. A wrong guess only costs time.
const fn likely_topic(check: Check) -> &'static str {
    match check {
        Check::StartToken => "start",
        Check::FinishToken | Check::LeasedState => "finish",
        Check::ReleaseToken => "hand_back",
        Check::CancelToken => "cancel",
        Check::AppendToken => "events",
        Check::StepToken => "steps",
        Check::ClaimSession => "claim",
        Check::RenewSession | Check::ReportSession => "sessions",
        Check::HearSession | Check::ToldTaken => "hearing",
        Check::ExpireDead => "expire",
        Check::QueueGate | Check::KeyGate => "holds",
        Check::QueuePlaces => "concurrency",
        Check::AccountPlaces => "accounts",
        Check::Budget => "budgets",
        Check::ProbeEnd => "breakers",
        Check::FireExpected => "schedules",
    }
}
