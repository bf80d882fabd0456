//! The supervisor and the executors of children, with real processes.

mod bench;
mod command;
mod conformance;
mod containment;
mod conversations;
mod crowds;
mod desk;
mod escapes;
mod extension;
mod files;
mod flood;
mod leaks;
mod links;
mod misbehaviour;
mod pids;
mod sandbox;
mod sdk;
mod secrets;
mod stuck;
mod supervisor;
mod worker_suite;
mod workers;

/// Not a test: the supervisor process is this program, started again for this test.
#[test]
#[ignore = "it is the supervisor's process"]
fn serve_as_the_supervisor() {
    if std::env::var_os(bench::ROLE).is_some_and(|role| role == "supervisor") {
        ostler_process::supervisor::serve().expect("the supervisor serves");
    }
}
