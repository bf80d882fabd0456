//! The smallest program that hosts functions: nothing runs in `main` before it, so that V8 finds no other thread. The tests of this crate
//! start it as their host process; `ostler` and programs that call `ostler::process::init` are such programs themselves.

use std::process::ExitCode;

use ostler_isolate::host_process::{HOST, run};

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_none_or(|word| word != HOST) {
        eprintln!("this program is started by a node, with the argument \"{HOST}\"");
        return ExitCode::from(2);
    }
    let Err(fault) = run();
    eprintln!("{fault}");
    ExitCode::FAILURE
}
