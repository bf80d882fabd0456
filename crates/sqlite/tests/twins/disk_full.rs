//! Full disk: acknowledged writes stay, a failed write is handed back with an error, no lease is lost, and everything
//! continues once there is space again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Outcome, SessionId, StateName, TaskId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{
    Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Finished, Kinds, NewSession, NewTask, QueueChange,
    Renewed, Report,
};
use ostler_store::views::{Counts, TaskRef};
use ostler_store::{Clock, ErrorKind, Store};
use ostler_testkit::{Ids, ManualClock, Twin, Voice, scratch};
use rusqlite::Connection;
use rustix::mount::{MountFlags, mount};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
/// The size of the disk, and of the file on it that is deleted to free space.
const DISK: &str = "size=4m";
const BALLAST_BYTES: u64 = 512 << 10;
const TTL: Duration = Duration::from_secs(60);
/// More tasks than fit.
const MANY: usize = 10_000;

#[test]
fn a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room() {
    let folder = scratch();
    let mut twin = Twin::start_apart("disk_full::full_disk", &[(FOLDER, folder.path().as_os_str())]);
    twin.expect("mounted");
    twin.expect("went on");
    twin.succeed();
}

/// Runs in its own process, with its own small disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of the test above"]
async fn full_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let disk = Path::new(&folder);
    let size = std::ffi::CString::new(DISK).expect("no NUL");
    mount("tmpfs", disk, "tmpfs", MountFlags::empty(), Some(size.as_c_str()))
        .expect("this test needs to mount a small disk: as root, or where user namespaces are allowed");
    Voice::say("mounted");
    Disk::new(disk).await.fills_up_and_goes_on().await;
    Voice::say("went on");
}

/// A store on the small disk, with a node that holds two tasks.
struct Disk {
    path: PathBuf,
    ballast: PathBuf,
    clock: ManualClock,
    ids: Ids,
    store: Arc<Sqlite>,
    session: SessionId,
    held: Vec<Claimed>,
}

fn open(path: &Path, clock: &ManualClock) -> Arc<Sqlite> {
    let opened = Sqlite::open(path, Arc::new(clock.clone()), Options::default());
    Arc::new(opened.unwrap_or_else(|error| panic!("{error}")))
}

fn large(ids: &Ids) -> NewTask {
    NewTask { payload: format!("\"{}\"", "x".repeat(10_000)), ..ids.new_task("mail", "send") }
}

fn success(claimed: Claimed) -> Report {
    Report {
        lease: claimed.lease,
        ran: None,
        outcome: Outcome::Success,
        output: Some("\"done\"".to_owned()),
        reading: None,
    }
}

impl Disk {
    async fn new(disk: &Path) -> Self {
        let ballast = disk.join("ballast");
        let file = File::create(&ballast).expect("the ballast");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BALLAST_BYTES)
            .expect("the ballast");
        let (path, clock, ids) = (disk.join("ostler.db"), ManualClock::new(), Ids::new(1));
        let store = open(&path, &clock);
        let node = ids.new_session("here", TTL);
        let session = node.id;
        assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
        store.enqueue(ids.new_tasks(2, "mail", "send")).await.expect("there is room");
        let asks = Claim { session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 2 };
        let ClaimAnswer::Tasks { tasks: held, .. } = store.claim(asks).await.expect("there is room") else {
            panic!("the session is over")
        };
        Self { path, ballast, clock, ids, store, session, held }
    }

    async fn fills_up_and_goes_on(mut self) {
        let acknowledged = self.fill().await;
        self.stays_full().await;
        self.keeps_its_leases().await;
        self.fill_the_last_gap().await;
        let reports = self.gives_reports_back().await;
        let late = self.lets_no_node_in().await;
        self.holds_what_it_acknowledged(&acknowledged).await;

        std::fs::remove_file(&self.ballast).expect("the ballast goes");
        let finished = self.store.finish(reports).await.expect("there is room again");
        assert_eq!(finished, [Finished::Recorded(StateName::Completed); 2], "offered again, they are taken");
        self.store.enqueue(vec![large(&self.ids)]).await.expect("work goes on by itself");
        assert_eq!(self.store.join(late).await, Ok(Fenced::Recorded));
        self.reopens(&acknowledged).await;
    }

    /// Enqueues until the disk is full. Returns the acknowledged tasks.
    async fn fill(&self) -> Vec<TaskId> {
        let mut acknowledged = Vec::new();
        for _ in 0..MANY {
            let task = large(&self.ids);
            let id = task.id;
            match self.store.enqueue(vec![task]).await {
                Ok(answer) => assert_eq!(answer, [Enqueued::Created(id)]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                    assert!(error.is_transient(), "it may work again later");
                    break;
                }
            }
            acknowledged.push(id);
        }
        assert!((50..MANY).contains(&acknowledged.len()), "{} tasks fit", acknowledged.len());
        acknowledged
    }

    /// Repeated calls fail again, each with one error and without delay.
    async fn stays_full(&self) {
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (store, task) = (Arc::clone(&self.store), large(&self.ids));
                tokio::spawn(async move { store.enqueue(vec![task]).await })
            })
            .collect();
        for caller in callers {
            let error = caller.await.expect("the caller ends").expect_err("there is no room");
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        }
    }

    /// Two TTLs pass on the full disk, with a heartbeat every quarter of one.
    async fn keeps_its_leases(&self) {
        let held: Vec<_> = self.held.iter().map(|claimed| claimed.lease.as_ref()).collect();
        let second = open(&self.path, &self.clock);
        for _ in 0..8 {
            self.clock.advance(TTL / 4);
            let renewed = self.store.renew(self.session, &held).await;
            assert_eq!(
                renewed,
                Ok(Renewed::Held { cancelled: vec![], lost: vec![], unnamed: vec![], commands: vec![] })
            );
            let expired = second.expire(100).await.expect("nothing to expire is nothing to write");
            assert_eq!((expired.sessions, expired.tasks), (vec![], 0), "at {}", self.clock.now());
        }
    }

    /// The outcomes of attempts cannot be written, and are not lost.
    async fn gives_reports_back(&mut self) -> Vec<Report> {
        let reports: Vec<Report> = self.held.drain(..).map(success).collect();
        let unwritten = self.store.finish(reports).await.expect_err("there is no room");
        assert_eq!(unwritten.error.kind(), ErrorKind::Full, "{}", unwritten.error);
        assert_eq!(unwritten.reports.len(), 2, "all of them come back");
        unwritten.reports
    }

    /// Takes the last free bytes of the disk and of the log, in which a large write that did not fit has left some:
    /// afterwards not even the smallest commit fits.
    async fn fill_the_last_gap(&self) {
        let mut file = File::create(self.path.with_file_name("filler")).expect("a file takes no room");
        while std::io::Write::write_all(&mut file, &[7; 4_096]).is_ok() {}
        for change in 0..MANY {
            let small = vec![QueueChange::Pause(change.to_string())];
            if let Err(error) = self.store.configure("another", small).await {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                return;
            }
        }
        panic!("{MANY} commits fit on a full disk");
    }

    /// A node that starts now gets an error, and may retry with the same session.
    async fn lets_no_node_in(&self) -> NewSession {
        let node = self.ids.new_session("late", TTL);
        let error = self.store.join(node.clone()).await.expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        node
    }

    async fn holds_what_it_acknowledged(&self, acknowledged: &[TaskId]) {
        for id in acknowledged {
            let found = self.store.show(TaskRef::Id(*id)).await.expect("a full disk can be read");
            assert_eq!(found.map(|found| found.task.payload.len()), Some(10_002), "{id} is whole");
        }
        let lanes = self.store.survey().await.expect("a full disk can be read").lanes;
        let counts = Counts { queued: acknowledged.len() as u64, claimed: 2, ..Counts::default() };
        assert_eq!(lanes[0].counts, counts, "and nothing that was refused is there, not even in part");
    }

    /// After closing and reopening, the file is intact.
    async fn reopens(self, acknowledged: &[TaskId]) {
        let Self { path, clock, store, .. } = self;
        drop(store);
        let store = open(&path, &clock);
        let counts = store.survey().await.expect("survey answers").lanes[0].counts;
        let queued = acknowledged.len() as u64 + 1;
        assert_eq!(counts, Counts { queued, completed: 2, ..Counts::default() });
        drop(store);
        let conn = Connection::open(path).expect("the file opens");
        let verdict: String =
            conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("it reads");
        assert_eq!(verdict, "ok");
    }
}
