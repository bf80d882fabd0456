//! A node whose store is removed, replaced, damaged, full or away: it reports that once, waits if the store can come back, and exits
//! with 3 if it cannot.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Instant;

use ostler_testkit::{Disk, MAX_WAIT, PrivatePostgres, ProcessSignal, Twin, Voice};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, mount};

use crate::ostler::{Place, Running};
use crate::up::{appears, is_gone, script, up};

/// Short intervals, so that the node soon notices what happened to the store.
const CONFIG: &str = "\
lease = { ttl = \"60s\", heartbeat = \"200ms\", poll = \"200ms\" }
[pool.shell]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
max_workers = 1
grace = \"200ms\"
";

fn node(place: &Place) -> Running {
    place.write("ostler.toml", CONFIG);
    up(place, &[])
}

/// A task that writes its pid, waits for a file, and succeeds. It keeps the only worker busy.
fn busy(place: &Place) -> (String, String) {
    let (began, gate) = (place.folder().join("began"), place.folder().join("gate"));
    let text = format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.05; done; echo done",
        began.display(),
        gate.display()
    );
    let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]).trim().to_owned();
    (id, appears(&began))
}

/// The lines after this one, until the end.
fn ends_with_3(node: Running, words: &str) {
    let said = node.says(words);
    assert!(said.starts_with("ostler: "), "{said}");
    assert_eq!(node.end().0, Some(3));
}

#[test]
fn a_store_that_is_removed_ends_the_node_and_its_work() {
    let place = Place::new();
    let node = node(&place);
    let (_, pid) = busy(&place);
    std::fs::remove_file(place.store()).expect("it is removed");
    ends_with_3(node, "was removed or replaced while it was open");
    is_gone(&pid);
}

#[test]
fn a_store_that_is_replaced_ends_the_node_and_what_it_held_counts_no_death_where_it_is_found_again() {
    let place = Place::new();
    let node = node(&place);
    let (id, pid) = busy(&place);
    let aside = place.folder().join("aside");
    let other = Place::new();
    other.done(["submit", "shell", "run"]);
    std::fs::rename(place.store(), &aside).expect("it is put aside");
    std::fs::copy(other.store(), place.store()).expect("another one is put in its place");
    ends_with_3(node, "was removed or replaced while it was open");
    is_gone(&pid);
    // Back in its place, with its log, work goes on.
    std::fs::rename(&aside, place.store()).expect("it is put back");
    place.write("gate", "");
    let next = up(&place, &[]);
    let until = Instant::now() + MAX_WAIT;
    while place.json(["show", &id])["state"] != "completed" {
        assert!(Instant::now() < until, "it is not run again");
    }
    let attempts = &place.json(["show", &id])["attempts"];
    assert_eq!(attempts[0]["state"], "handed_back", "{attempts}");
    next.signal(ProcessSignal::TERM);
    assert_eq!(next.end().0, Some(0));
}

#[test]
fn a_store_that_is_cut_to_nothing_ends_the_node() {
    let place = Place::new();
    let node = node(&place);
    let (_, pid) = busy(&place);
    OpenOptions::new().write(true).truncate(true).open(place.store()).expect("it is cut");
    ends_with_3(node, "was truncated to nothing while it was open");
    is_gone(&pid);
}

#[test]
fn a_log_that_is_removed_ends_the_node_and_what_it_had_acknowledged_is_kept() {
    let place = Place::new();
    let node = node(&place);
    for _ in 0..3 {
        place.done(["submit", "shell", "run", "--payload", &script("true"), "--wait"]);
    }
    std::fs::remove_file(place.folder().join("ostler.db-wal")).expect("the log is removed");
    ends_with_3(node, "ostler.db-wal was removed or replaced while it was open");
    assert_eq!(place.json(["ls", "--state", "completed"]).as_array().map(Vec::len), Some(3));
}

#[test]
fn a_map_whose_store_is_removed_says_so() {
    let place = Place::new();
    let words = ["map", "-q", "-j1", "echo $$ > began; exec sleep 600 #", ":::", "a"];
    let running = Running::start(place.command(words));
    let pid = appears(&place.folder().join("began"));
    std::fs::remove_file(place.store()).expect("it is removed");
    ends_with_3(running, "was removed or replaced while it was open");
    is_gone(&pid);
}

#[test]
fn a_full_disk_is_said_once_and_waited_for() {
    let mut twin = Twin::start_apart("store_lost::full_disk", &[]);
    twin.expect("went on");
    twin.succeed();
}

/// In its own process, with its own small disk.
#[test]
#[ignore = "the other process of the test above"]
fn full_disk() {
    let place = Place::new();
    mount("tmpfs", place.folder(), "tmpfs", MountFlags::empty(), Some(c"size=4m"))
        .expect("this test needs to mount a small disk: as root, or where user namespaces are allowed");
    let node = node(&place);
    let (id, _) = busy(&place);
    let ballast = place.folder().join("ballast");
    fill(&ballast);
    place.write("gate", "");
    let said = node.says("the node waits for the store");
    assert!(said.contains("is full"), "{said}");
    place.refused(["submit", "shell", "run", "--payload", &script("true")], 3, "is full");
    std::fs::remove_file(&ballast).expect("there is room again");
    let back = node.says("");
    assert!(back.contains("the store is back after"), "there is no message in between: {back}");
    let until = Instant::now() + MAX_WAIT;
    while place.json(["show", &id])["state"] != "completed" {
        assert!(Instant::now() < until, "its result is not written");
    }
    assert_eq!(place.json(["show", &id])["runs"], 1);
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
    Voice::say("went on");
}

/// Fills the disk.
fn fill(path: &Path) {
    const STEP: u64 = 4 << 10;
    let file = File::create(path).expect("a file");
    let mut bytes = 0;
    while fallocate(&file, FallocateFlags::empty(), bytes, STEP).is_ok() {
        bytes += STEP;
    }
}

#[test]
fn a_server_that_is_away_is_said_once_and_waited_for() {
    let mut server = PrivatePostgres::start(Disk::Unsynced);
    let place = Place::at(server.url());
    let node = node(&place);
    server.stop();
    node.says("the node waits for the store");
    server.start_again();
    let back = node.says("");
    assert!(back.contains("the store is back after"), "there is no message in between: {back}");
    place.done(["submit", "shell", "run", "--payload", &script("true"), "--wait"]);
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_node_that_goes_while_its_server_is_away_says_that_it_could_not_leave() {
    let mut server = PrivatePostgres::start(Disk::Unsynced);
    let place = Place::at(server.url());
    let node = node(&place);
    server.stop();
    node.says("the node waits for the store");
    node.signal(ProcessSignal::TERM);
    ends_with_3(node, "the store did not accept all results");
}

#[test]
fn tables_that_are_dropped_end_the_node() {
    let place = Place::on_server();
    let node = node(&place);
    let (url, schema) = place.url().split_once("?schema=").expect("a schema");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        use ostler_postgres::tokio_postgres::error::SqlState;
        use ostler_postgres::tokio_postgres::{NoTls, connect};
        let (client, connection) = connect(url, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let until = Instant::now() + MAX_WAIT;
        // The node's statements lock several tables, in another order than DROP: the server may end the DROP to break a deadlock.
        while let Err(error) = client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await {
            assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED), "{error}");
            assert!(Instant::now() < until, "it is not dropped");
        }
    });
    ends_with_3(node, "the tables of the store are gone");
}
