//! The keeper and the executors of children, with real processes.

mod bench;
mod command;
mod conformance;
mod containment;
mod desk;
mod escapes;
mod files;
mod flood;
mod keeper;
mod leaks;
mod links;
mod misbehaviour;
mod pids;
mod sandbox;
mod sdk;
mod worker_suite;
mod workers;

/// Not a test: the keeper's process is this program, started again for this one.
#[test]
#[ignore = "it is the keeper's process"]
fn serve_as_the_keeper() {
    if std::env::var_os(bench::ROLE).is_some_and(|role| role == "keeper") {
        ostler_process::supervisor::serve().expect("the keeper serves");
    }
}
