//! A host of functions that is weak on purpose: tests ask what their corpus of escapes sees in it.

use std::process::ExitCode;

use ostler_isolate::host_process::{HOST, Weakness, run_weakened};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let weakness = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [HOST, "native-calls"] => Weakness::NativeCalls,
        [HOST, "no-sandbox"] => Weakness::NoSandbox,
        _ => {
            eprintln!("this program is started by a test, with the arguments \"{HOST}\" and a weakness");
            return ExitCode::from(2);
        }
    };
    let Err(fault) = run_weakened(weakness);
    eprintln!("{fault}");
    ExitCode::FAILURE
}
