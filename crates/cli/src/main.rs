//! The program `ostler`: parse, run, exit.
//!
//! - `args/`: what may be said. `commands/`: what is done, one file for each. `print/`: what is shown.
//! - `hooks/`: what is done when a task has failed for good.
//! - `place.rs`: which store. `config/`: the config file. `exit.rs`: exit codes, and the one place that tells of errors.

mod args;
mod attempt_output;
mod commands;
mod config;
mod demo;
mod doctor;
mod exit;
mod hooks;
mod injection;
mod map;
mod print;
mod store_location;

use std::process::ExitCode;

/// The stack on which commands run.
const STACK_BYTES: usize = 8 << 20;
/// The exit code of a program that panicked, as Rust has it.
const PANICKED: u8 = 101;

fn main() -> ExitCode {
    // A node starts this program once more as the supervisor of its children: nothing may come before.
    if std::env::args_os().nth(1).is_some_and(|word| word == commands::SUPERVISOR) {
        return exit::end(commands::keep());
    }
    // Or as a child that tries out the sandbox of a pool.
    if std::env::args_os().nth(1).is_some_and(|word| word == commands::PROBE) {
        return exit::end(commands::try_sandbox());
    }
    // The stack of the main thread is as small as the caller's limit says (ulimit -s); this one is not.
    let work = || match args::parse() {
        Ok(args) => exit::end(commands::run(args)),
        Err(code) => code.into(),
    };
    match std::thread::Builder::new().name("ostler".to_owned()).stack_size(STACK_BYTES).spawn(work) {
        Ok(thread) => thread.join().unwrap_or(PANICKED.into()),
        Err(error) => {
            exit::say(&format!("no thread of {STACK_BYTES} bytes to work on: {error}"));
            exit::Code::WorkFailed.into()
        }
    }
}
