//! A move that is killed at any point and run again completes correctly. In between, no incomplete store is usable.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use ostler_conformance::{Picture, note};
use ostler_store::transfer::MoveStep;
use ostler_store::{ErrorKind, Store as _};
use ostler_testkit::{Ids, ManualClock, ProcessSignal, Twin, scratch};
use rustix::process::{getpid, kill_process};

use crate::fill::{LONG, QUEUE, fill};
use crate::place::{Place, URL};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const SCHEMA: &str = "OSTLER_TEST_SCHEMA";
/// The step at which the mover is killed.
const STEP: &str = "OSTLER_TEST_STEP";
/// The fail point of a write at which the mover is killed.
const CRASH_AT: &str = "OSTLER_CRASH_AT";
/// Every write of the move on the old store, and every fail point of a write.
const VERBS: [&str; 3] = ["set_out", "freeze", "go"];
const POINTS: [&str; 5] = ["taken", "begun", "written", "committed", "answered"];

/// Makes the filled file that the tests copy.
async fn filled(folder: &Path) {
    let place = Place::new(folder);
    let store = place.old().expect("the store opens");
    fill(&store, &place.clock).await;
}

/// Copies the filled file to another folder.
fn copy(from: &Path, to: &Path) -> Place {
    ostler_sqlite::integrity::backup(from.join("ostler.db"), to.join("ostler.db"))
        .expect("the file is copied");
    Place::new(to)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_killed_at_any_point_is_run_again_and_ends_right() {
    let original = scratch();
    filled(original.path()).await;
    // The steps of an uninterrupted move, and its result.
    let whole = scratch();
    let place = copy(original.path(), whole.path());
    let steps = Mutex::new(Vec::new());
    let said = |step| steps.lock().expect("no test panicked here").push(step);
    place.carry_told(Duration::ZERO, &said).await.expect("the store moves");
    let steps = steps.into_inner().expect("no test panicked here");
    let expected = Picture::take(&place.new_store().await.expect("the new store opens")).await;

    let gone = steps.iter().position(|step| *step == MoveStep::Gone).expect("it was marked");
    for (at, step) in steps.iter().enumerate() {
        let folder = scratch();
        let place = copy(original.path(), folder.path());
        killed(&place, STEP, &format!("{step:?}"));
        ends_right(&place, &format!("{step:?}"), at >= gone, &expected).await;
    }
    for verb in VERBS {
        for point in POINTS {
            let folder = scratch();
            let place = copy(original.path(), folder.path());
            let at = format!("{verb}.{point}");
            killed(&place, CRASH_AT, &at);
            let gone = verb == "go" && ["committed", "answered"].contains(&point);
            ends_right(&place, &at, gone, &expected).await;
        }
    }
    note(&format!(
        "a move: killed at {} steps and at {} points of its writes",
        steps.len(),
        VERBS.len() * POINTS.len()
    ));
}

fn killed(place: &Place, variable: &str, at: &str) {
    let url = place.url();
    let folder = place.file.parent().expect("the file is in a folder");
    let variables = [
        (URL, OsStr::new(&url)),
        (FOLDER, folder.as_os_str()),
        (SCHEMA, OsStr::new(&place.schema)),
        (variable, OsStr::new(at)),
    ];
    let status = Twin::start("killed::mover", &variables).wait();
    assert_eq!(status.signal(), Some(9), "{at}: it comes to this point and is killed there, not {status}");
}

async fn ends_right(place: &Place, at: &str, gone: bool, expected: &Picture) {
    // Before the old store is marked as moved, it opens and the new one is unused; afterwards it is the other way round.
    let opened = place.old().map(drop).map_err(|error| error.kind());
    assert_eq!(opened, if gone { Err(ErrorKind::Moved) } else { Ok(()) }, "{at}: the old store");
    if let Ok(new) = place.new_store().await {
        let survey = new.survey().await.expect("survey answers");
        let is_open = at == "Open";
        assert!(is_open || survey.queues.is_empty(), "{at}: no reader sees a part of a store");
    }
    place.carry().await.unwrap_or_else(|error| panic!("{at}: run again, it ends: {error}"));
    assert_eq!(place.old().map(drop).map_err(|error| error.kind()), Err(ErrorKind::Moved), "{at}");
    let new = place.new_store().await.unwrap_or_else(|error| panic!("{at}: the new store opens: {error}"));
    assert_eq!(Picture::take(&new).await, *expected, "{at}: all is there, once");
    let ids = Ids::new(9);
    new.join(ids.new_session("there", LONG)).await.expect("join answers");
    new.enqueue(ids.new_tasks(1, QUEUE, "send")).await.expect("enqueue answers");
    // A third run has nothing left to do.
    assert_eq!(place.carry().await.map(|moved| moved.tables), Ok(Vec::new()), "{at}");
}

/// Moves the store, and is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of the test above"]
async fn mover() {
    let (Some(folder), Ok(schema)) = (std::env::var_os(FOLDER), std::env::var(SCHEMA)) else { return };
    let place = Place::with(Path::new(&folder), &schema, ManualClock::new());
    let last = std::env::var(STEP).ok();
    let follow = |step: MoveStep| {
        if last.as_deref() == Some(&*format!("{step:?}")) {
            die();
        }
    };
    place.carry_told(Duration::ZERO, &follow).await.expect("the store moves");
}

fn die() {
    kill_process(getpid(), ProcessSignal::KILL).expect("a signal to oneself");
    // The signal is on its way; do nothing until it arrives.
    loop {
        std::thread::park();
    }
}
