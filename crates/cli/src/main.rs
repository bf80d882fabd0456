//! The program `ostler`: parse, wire, run.
//!
//! So far it knows one command, the demo.

#[cfg_attr(not(test), expect(dead_code, reason = "the commands that read it are still to come"))]
mod config;
mod demo;
#[cfg_attr(not(test), expect(dead_code, reason = "the command that asks it is still to come"))]
mod doctor;
mod worker;

use std::process::ExitCode;

const USAGE: &str = "\
ostler: a durable worker pool

Usage:
  ostler demo         a tour on an embedded store: work, a crash, its recovery
  ostler --version    the version

Exit codes: 0 done, 1 work failed, 2 bad usage.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["demo"] => demo::run(),
        // Not for people: the demo starts these.
        ["demo-worker", store, name] => worker::run(store, name),
        ["--version" | "-V"] => {
            println!("ostler {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        ["--help" | "-h" | "help"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
        [other, ..] => {
            eprintln!("ostler: there is no command \"{}\"; try: ostler demo", other.escape_debug());
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ostler: {error:#}");
            ExitCode::FAILURE
        }
    }
}
