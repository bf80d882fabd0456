//! Closed outputs, and terminals.

use std::process::{Command, Stdio};

use crate::hands::Hands;
use crate::ostler::{Place, Ran, Terminal};

/// Runs it with a standard output whose other end is closed.
fn into_nowhere(command: &mut Command) -> Ran {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output =
        command.stdout(writer).stderr(Stdio::piped()).spawn().and_then(std::process::Child::wait_with_output);
    let output = output.expect("it runs");
    Ran {
        code: output.status.code(),
        out: String::new(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_closed_output_is_no_trouble() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    for words in [
        &["ls"][..],
        &["ls", "--json"],
        &["show", &id],
        &["stats"],
        &["nodes"],
        &["submit", "mail", "send"],
        &["completions", "bash"],
        &["config", "--default"],
        &["--help"],
        &["--version"],
        &["submit", "--help"],
    ] {
        let ran = into_nowhere(&mut place.command(words));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{words:?}");
    }
    assert_eq!(place.json(["stats"])["submitted"], 2, "what was asked for is done all the same");
}

#[test]
fn an_output_that_takes_nothing_is_told() {
    let place = Place::new();
    let full = std::fs::File::options().write(true).open("/dev/full").expect("this machine has one");
    let output = place.command(["config", "--default"]).stdout(full).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("ostler: cannot write the output: "), "{said}");
}

#[test]
fn closed_complaints_are_no_trouble_either() {
    let place = Place::new();
    for words in [&["show", "17"][..], &["ls"], &["nonsense"], &[]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let status = place.command(words).stderr(writer).stdout(Stdio::null()).status().expect("it runs");
        assert!(matches!(status.code(), Some(2 | 3)), "{words:?}: {status}");
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "1");
    hands.fail("mail", "no");
    let screen = |no_color: Option<&str>| {
        let terminal = Terminal::open();
        let mut command = place.command(["ls"]);
        command.stdout(terminal.end());
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        assert!(command.status().expect("it runs").success());
        drop(command);
        terminal.screen()
    };
    assert!(screen(None).contains("\x1b[31mfailed (permanent)\x1b[0m"));
    assert!(!screen(Some("1")).contains('\x1b'));
    assert!(!place.done(["ls"]).contains('\x1b'));
}
