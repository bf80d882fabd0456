//! The progress bar of `ostler map` on a terminal: beside outputs, on a narrow screen, and after an interrupt.

use std::process::Child;
use std::time::Instant;

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use rustix::process::{Pid, kill_process};

use crate::ostler::{Place, Terminal};
use crate::pool_jobs;

/// The screen of a terminal with this width after all of this was written to it: one text per row, and whether any row was ever
/// filled to its end, as by a line that wraps.
fn seen(written: &str, columns: usize) -> (Vec<String>, bool) {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column, mut wrapped) = (0_usize, 0_usize, false);
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' => {
                assert_eq!(chars.next(), Some('['), "only sequences of this sort are known here");
                let mut number = String::new();
                let end = loop {
                    match chars.next().expect("a sequence ends") {
                        digit @ ('0'..='9' | ';' | '?') => number.push(digit),
                        end => break end,
                    }
                };
                let by = number.parse::<usize>().unwrap_or(1);
                match end {
                    'A' => row = row.saturating_sub(by),
                    'B' => row += by,
                    'K' if number == "2" => rows[row].clear(),
                    'K' => rows[row].truncate(column),
                    'm' | 'h' | 'l' => {}
                    other => panic!("the sequence {number}{other} is not known here"),
                }
            }
            c => {
                if column == columns {
                    (row, column, wrapped) = (row + 1, 0, true);
                }
                rows.resize(rows.len().max(row + 1), Vec::new());
                let at = &mut rows[row];
                at.resize(at.len().max(column + 1), ' ');
                at[column] = c;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    let rows = rows.into_iter().map(|row| row.into_iter().collect::<String>().trim_end().to_owned());
    (rows.filter(|row| !row.is_empty()).collect(), wrapped)
}

/// Runs a map on a terminal of this width.
fn started(place: &Place, terminal: &Terminal, columns: u16, words: &[&str]) -> Child {
    terminal.columns(columns);
    let mut command = place.command(["map"].iter().chain(words));
    command.env("TERM", "xterm").stdout(terminal.end()).stderr(terminal.end());
    command.spawn().expect("it starts")
}

fn is_bar(row: &str) -> bool {
    row.contains(['█', '░'])
}

#[test]
fn outputs_that_do_not_end_their_line_and_the_bar_keep_apart_on_a_narrow_screen() {
    let place = Place::new();
    let terminal = Terminal::open();
    let script = "printf 'output of {#}'; test {} != b || exit 1; : {}; sleep 0.3";
    let mut child = started(&place, &terminal, 50, &["-j1", script, ":::", "a", "c", "d"]);
    let written = terminal.screen();
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{written}");
    assert!(is_bar(&written), "there was a bar: {written:?}");
    let (rows, wrapped) = seen(&written, 50);
    assert!(!wrapped, "no line is longer than the screen: {written:?}");
    let outputs: Vec<&String> = rows.iter().filter(|row| row.starts_with("output of")).collect();
    assert_eq!(outputs, ["output of 1", "output of 2", "output of 3"], "{rows:?}");
    assert!(!rows.iter().any(|row| is_bar(row)), "nothing of the bar is left: {rows:?}");
    assert!(rows.last().is_some_and(|row| row.contains("3 completed")), "{rows:?}");
}

#[test]
fn the_bar_has_the_percentage_and_the_time_though_nothing_has_ended() {
    let place = Place::new();
    let terminal = Terminal::open();
    let script = "until test -e go; do sleep 0.05; done; : {}";
    let mut child = started(&place, &terminal, 80, &["-j1", script, ":::", "a"]);
    let go = place.folder().join("go");
    let written = terminal.screen_and(" 0% 0/1 1s", || std::fs::write(go, "").expect("a file"));
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{written}");
}

/// Says what it does, and waits for the file "go", which the test writes when that is on the screen.
const WORKER: &str = r#"
import os, time
from ostler import worker

@worker.task("look")
def look(payload, ctx):
    ctx.usage(model="m", cost_usd=0.02)
    ctx.message("I read all of it, from the first line to the last one")
    until = time.monotonic() + 120
    while not os.path.exists("go") and time.monotonic() < until:
        time.sleep(0.01)
    return "done"

worker.run()
"#;

#[test]
fn the_items_that_the_workers_of_a_pool_run_are_a_table_on_a_narrow_screen() {
    let place = Place::new();
    let script = place.write("worker.py", WORKER);
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
    place.write(
        "ostler.toml",
        format!(
            "[pool.docs]\nexecutor = \"process\"\ncommand = [\"python3\", \"{}\"]\nmin_workers = 1\n\
             env = {{ PYTHONPATH = \"{sdk}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\n",
            script.display()
        ),
    );
    let terminal = Terminal::open();
    let words = ["-j1", "--pool", "docs", "--kind", "look", ":::", "a-file-with-quite-a-long-name.md"];
    let mut child = started(&place, &terminal, 50, &words);
    let go = place.folder().join("go");
    let written = terminal.screen_and("turn 1  $0.02  I read", || std::fs::write(go, "").expect("a file"));
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{written}");
    assert!(written.contains("a-file-with-qui…"), "the item is cut: {written:?}");
    let (rows, _) = seen(&written, 50);
    assert_eq!(rows.first().map(String::as_str), Some("done"), "nothing of the table is left: {rows:?}");
    assert!(rows.last().is_some_and(|row| row.contains("1 completed")), "{rows:?}");
}

#[test]
fn a_pilot_asks_at_a_terminal_and_goes_on_in_the_same_process() {
    for (answer, code, runs) in [("y", 0, "1\n2\n3\n"), ("n", 1, "1\n"), ("", 6, "1\n")] {
        let place = Place::new();
        let mut terminal = Terminal::open();
        terminal.columns(80);
        terminal.type_line(answer);
        let mut command = place.command(["map", "-j1", "--pilot", "echo {} >> runs", ":::", "1", "2", "3"]);
        command.env("TERM", "xterm").stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        let mut child = command.spawn().expect("it starts");
        drop(command);
        let written = terminal.screen();
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{answer}: {written}");
        assert!(written.contains("run the other 2 items? [y/n]"), "{written}");
        assert_eq!(std::fs::read_to_string(place.folder().join("runs")).expect("runs"), runs, "{answer}");
    }
}

#[test]
fn a_budget_that_is_reached_asks_at_a_terminal_for_a_larger_one_and_goes_on() {
    for (answer, code, completed) in [("1", 0, 4), ("", 6, 2), ("much", 6, 2)] {
        let place = pool_jobs::place();
        let mut terminal = Terminal::open();
        terminal.columns(80);
        terminal.type_line(answer);
        let job = [
            "map",
            "-j1",
            "--pool",
            "docs",
            "--kind",
            "review",
            "--max-cost",
            "0.02",
            ":::",
            "1",
            "2",
            "3",
            "4",
        ];
        let mut command = place.command(job);
        command.env("TERM", "xterm").stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        let mut child = command.spawn().expect("it starts");
        drop(command);
        let written = terminal.screen();
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{answer}: {written}");
        assert!(written.contains("a larger budget in US dollars"), "{written}");
        let job = place.json(["job", "show", "docs"]);
        assert_eq!(job["tasks"]["completed"], completed, "{answer}: {written}");
    }
}

#[test]
fn an_output_that_goes_elsewhere_stays_as_it_is() {
    let place = Place::new();
    let terminal = Terminal::open();
    terminal.columns(80);
    let mut command = place.command(["map", "-k", "printf {}", ":::", "a", "b"]);
    let file = std::fs::File::create(place.folder().join("out")).expect("a file");
    command.env("TERM", "xterm").stdout(file).stderr(terminal.end());
    assert!(command.status().expect("it runs").success());
    drop(command);
    let (rows, _) = seen(&terminal.screen(), 80);
    assert_eq!(std::fs::read_to_string(place.folder().join("out")).expect("the output"), "ab");
    assert_eq!(rows.len(), 1, "the summary alone: {rows:?}");
}

/// Interrupts a map whose item runs this script, once or until it exits, and returns the screen.
fn interrupted(script: &str, how: Interrupts) -> Vec<String> {
    let place = Place::new();
    let terminal = Terminal::open();
    let mut child = started(&place, &terminal, 80, &["-j1", script, ":::", "a", "b"]);
    let until = Instant::now() + MAX_WAIT;
    while !place.folder().join("begun").exists() {
        assert!(Instant::now() < until, "nothing begins");
        std::thread::yield_now();
    }
    let screen = std::thread::spawn(move || terminal.screen());
    loop {
        // It may have just exited.
        let _ = kill_process(Pid::from_child(&child), ProcessSignal::INT);
        match how {
            Interrupts::One => break,
            Interrupts::Many if child.try_wait().expect("it can be looked at").is_some() => break,
            Interrupts::Many => std::thread::yield_now(),
        }
        assert!(Instant::now() < until, "it does not end");
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let written = screen.join().expect("the screen is read");
    seen(&written, 80).0
}

#[derive(Clone, Copy)]
enum Interrupts {
    One,
    Many,
}

#[test]
fn an_interrupt_leaves_no_bar_behind() {
    let patient = interrupted("echo > begun; exec sleep 600 #", Interrupts::One);
    let stubborn = interrupted("trap '' TERM; echo > begun; while :; do sleep 0.1; done #", Interrupts::Many);
    for rows in [patient, stubborn] {
        assert!(!rows.iter().any(|row| is_bar(row)), "nothing of the bar is left: {rows:?}");
        assert!(
            rows.iter()
                .any(|row| row.contains("stopping: waiting for 1 running item; Ctrl-C again to stop now")),
            "{rows:?}"
        );
    }
}
