//! Tests of the agent dialects against recorded lines of the real programs, and of the executor with stand-ins for them.

mod acp;
mod acp_runs;
mod app_server;
mod bench;
mod codex;
mod conformance;
mod conversations;
mod endings;
mod executor;
mod gateway;
mod launches;
mod llm;
mod properties;
mod recording;
mod snapshots;

/// Not a test: the supervisor process is this program, started again for this test.
#[test]
#[ignore = "it is the supervisor's process"]
fn serve_as_the_supervisor() {
    if std::env::var_os(bench::ROLE).is_some_and(|role| role == "supervisor") {
        ostler_process::supervisor::serve().expect("the supervisor serves");
    }
}
