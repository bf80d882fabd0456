//! `ostler completions`: prints a shell completion script.

use clap_complete::Shell;

use super::Console;
use crate::args;
use crate::exit::Code;

pub(super) fn run(console: &Console, shell: Shell) -> anyhow::Result<Code> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "ostler", &mut script);
    console.out.text(&String::from_utf8(script)?)?;
    Ok(Code::Done)
}
