//! The program `ostler`: parse, run, exit.
//!
//! - `args/`: command-line arguments. `commands/`: the commands, one file each. `print/`: output for people.
//! - `up/`: a node as a program, from start to stop. `hooks/`: actions for tasks that have failed for good.
//! - `log/`: what a node writes to standard error. `pool_kinds.rs`: the kinds of pools that a config may have.
//! - `top/`: the system on a terminal. `store_location.rs`: which store. `config/`: the config file. `config_search.rs`: where it
//!   is. `exit.rs`: exit codes and error messages.

mod args;
mod commands;
mod config;
mod config_search;
mod demo;
mod doctor;
mod exit;
mod hooks;
mod leftovers;
mod log;
mod map;
mod pool_kinds;
mod print;
mod store_location;
mod top;
mod up;

use std::process::ExitCode;

/// The stack size of the thread that runs commands.
const STACK_BYTES: usize = 8 << 20;
/// The exit code of a Rust program that panicked.
const PANICKED: u8 = 101;

fn main() -> ExitCode {
    // A node starts this program again as the supervisor of its children; nothing may run before that.
    if std::env::args_os().nth(1).is_some_and(|word| word == up::SUPERVISOR) {
        return exit::end(up::keep());
    }
    // Or as a host of JavaScript functions.
    if std::env::args_os().nth(1).is_some_and(|word| word == ostler_isolate::host_process::HOST) {
        return exit::end(up::host_functions());
    }
    // Or as a child that tests the sandbox of a pool.
    if std::env::args_os().nth(1).is_some_and(|word| word == ostler_process::sandbox::PROBE) {
        return exit::end(up::sandbox::try_sandbox());
    }
    // The main thread's stack may be small (ulimit -s); this thread's is not.
    let work = || match args::parse() {
        Ok(args) => exit::end(commands::run(args)),
        Err(code) => code.into(),
    };
    match std::thread::Builder::new().name("ostler".to_owned()).stack_size(STACK_BYTES).spawn(work) {
        Ok(thread) => thread.join().unwrap_or(PANICKED.into()),
        Err(error) => {
            exit::say(&format!("cannot start a thread with a stack of {STACK_BYTES} bytes: {error}"));
            exit::Code::WorkFailed.into()
        }
    }
}
