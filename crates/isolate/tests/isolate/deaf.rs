//! Scripts that cannot be ended on their thread: the watchdog reports them, and the end of the process ends them.

use std::rc::Rc;
use std::time::Duration;

use ostler_isolate::{FunctionEnd, FunctionSource, Reuse, Watchdog};

use crate::bombs::limits;
use crate::children;
use crate::corpus::{ABORT, DEAF, DeafScript};
use crate::desk::{Desk, call, worker};
use crate::engines::{by_engine, on, tested};

/// The guide that lists these scripts, between two marks.
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/functions.md");
const MARKS: [&str; 2] =
    ["<!-- made by crates/isolate/tests/isolate/deaf.rs -->\n", "<!-- end of what is made by deaf.rs -->\n"];

on_each_engine!(the_watchdog_reports_what_cannot_be_ended, the_watchdog_leaves_calls_alone_that_end);

/// How long a stopped call may run on before it is reported: as in a pool on threads.
const PATIENCE: Duration = Duration::from_millis(100);
/// How such scripts end in QuickJS.
const ENDS: &[&str] = &["deaf", "ended cpu", "ended memory", "ended thrown", "ended output"];

/// Runs in a child of the next test: one script, under a watchdog that ends the process.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let Some((engine, script)) = children::assignment() else { return };
    let watchdog = Watchdog::start(PATIENCE, |deaf| {
        children::report(&format!("deaf {:?} after {:?}", deaf.cause, deaf.wall));
        std::process::exit(0);
    });
    let watchdog = watchdog.expect("a thread can be started");
    let worker = on(engine, || worker(limits(), Reuse::Fresh));
    let mut worker = worker.watched(watchdog.watch_this_thread());
    let source = FunctionSource::single("test.js", &format!("export default async () => {{ {script} }}"));
    let output = worker.run(&source, call("null", &Rc::new(Desk::default())));
    children::report(&format!("ended {}", output.err().map_or("output", |end| FunctionEnd::cause(&end))));
}

/// Runs a script in a process of its own, and returns how it ended.
fn in_child(script: &str) -> String {
    let child = children::run("deaf::child", tested(), script);
    match (child.lines.into_iter().next(), child.signal) {
        (Some(line), _) => line,
        (None, Some(_)) => ABORT.to_owned(),
        (None, None) => panic!("{script}: neither ended nor reported"),
    }
}

fn the_watchdog_reports_what_cannot_be_ended() {
    let mut deaf = Vec::new();
    let mut wrong = Vec::new();
    for DeafScript { name, script, v8 } in DEAF {
        let line = in_child(script);
        println!("{name}: {line}");
        // Either way the call is over: by the watchdog, or by a limit that the engine noticed late.
        let end = if line.starts_with("deaf Cpu ") { "deaf" } else { line.as_str() };
        let known = by_engine(ENDS, v8);
        // V8 interrupts these, but a busy machine may be too slow for it.
        let is_late = end == "deaf" && known.contains(&"ended cpu");
        if !known.contains(&end) && !is_late {
            wrong.push(format!("{name}: {line}"));
        }
        if end == "deaf" {
            deaf.push(*name);
        }
    }
    println!("{} of {} are deaf: {}", deaf.len(), DEAF.len(), deaf.join(", "));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let always = by_engine("join", "concat");
    assert!(deaf.contains(&always) && deaf.contains(&"String.raw"), "{deaf:?}");
    // Only QuickJS runs on threads.
    by_engine(compare_with_guide as fn(&[&str]), |_| {})(&deaf);
}

/// The list in the guide has every script that was deaf in this run, and those that are so on a slow machine.
/// `OSTLER_UPDATE=1` writes it.
fn compare_with_guide(deaf: &[&str]) {
    let page = std::fs::read_to_string(GUIDE).expect("the guide is there");
    let (begin, end) = (page.find(MARKS[0]).expect("a mark"), page.find(MARKS[1]).expect("a mark"));
    let listed = &page[begin + MARKS[0].len()..end];
    let is_listed = |script: &DeafScript| listed.contains(&format!("`{}`", script.script));
    let line = |script: &DeafScript| {
        let ends = if script.may_end_in_quickjs() { "; on a fast machine it may end in time" } else { "" };
        format!("- `{}`{ends}\n", script.script)
    };
    if std::env::var_os("OSTLER_UPDATE").is_some() {
        let kept = DEAF.iter().filter(|script| deaf.contains(&script.name) || script.may_end_in_quickjs());
        let list: String = kept.map(line).collect();
        let page = format!("{}{list}{}", &page[..begin + MARKS[0].len()], &page[end..]);
        std::fs::write(GUIDE, page).expect("it can be written");
        return;
    }
    for script in DEAF {
        let belongs = deaf.contains(&script.name) || script.may_end_in_quickjs();
        assert!(!belongs || is_listed(script), "{} cannot be ended, and is not in the guide", script.name);
        assert!(belongs || !is_listed(script), "{} is in the guide, and has ended", script.name);
        assert!(
            !is_listed(script) || listed.contains(&line(script)),
            "{}: the guide has another text",
            script.name
        );
    }
    assert_eq!(listed.lines().count(), DEAF.iter().filter(|script| is_listed(script)).count());
}

fn the_watchdog_leaves_calls_alone_that_end() {
    assert_eq!(in_child("return 1"), "ended output");
    assert_eq!(in_child("for (;;);"), "ended cpu");
}
