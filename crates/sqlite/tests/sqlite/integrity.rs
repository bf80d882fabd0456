//! Integrity of a store's file: checks, versions, backups.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, Outcome};
use ostler_sqlite::integrity::{self, Versions};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, NewStep, Prune, Pruned, Replay, Report, StepsOnReplay};
use ostler_store::views::Filter;
use ostler_store::{ErrorKind, Store, SystemClock};
use ostler_testkit::{Ids, TempStore, scratch};
use rusqlite::Connection;

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Arc::new(SystemClock), Options::default()).expect("the store opens")
}

async fn filled() -> TempStore {
    let made = TempStore::real();
    made.store().enqueue(Ids::new(1).new_tasks(300, "mail", "send")).await.expect("enqueue answers");
    made
}

#[tokio::test]
async fn a_store_at_work_is_whole() {
    let made = filled().await;
    let health = integrity::check(made.path()).expect("it can be read");
    assert_eq!(integrity::versions(made.path()).map(|versions| versions.found), Ok(Some(health.version)));
    assert_eq!(health.problems, Vec::<String>::new());
}

#[tokio::test]
async fn a_count_that_is_wrong_and_rows_that_belong_to_nothing_are_found() {
    let made = filled().await;
    let conn = Connection::open(made.path()).expect("a stranger opens it");
    conn.execute_batch(
        "UPDATE lane SET queued = 7; INSERT INTO event(task, number, at, token, kind, data) VALUES(99999, 1, 0, 1, 0, 'lost'); UPDATE task SET phase = 3 WHERE id = 1",
    )
    .expect("a stranger writes");
    let problems = integrity::check(made.path()).expect("it can be read").problems;
    for part in
        ["the counts of queue \"mail\", kind \"send\"", "1 events without a task", "1 leased tasks without"]
    {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
    }
}

#[tokio::test]
async fn what_a_stranger_left_without_its_task_is_found_and_swept_once_it_is_old() {
    let made = filled().await;
    let conn = Connection::open(made.path()).expect("a stranger opens it");
    conn.execute_batch(
        "INSERT INTO step VALUES(99999, 'old', 0, '1', 0, 1), (99999, 'young', 1, '1', 9000000000000000, 1), (1, 'mine', 0, '1', 0, 1);
         INSERT INTO event(task, number, at, token, kind, data) VALUES(99999, 1, 0, 1, 0, 'lost'), (1, 1, 0, 1, 0, 'mine');
         INSERT INTO attempt VALUES(99999, 1, 1, x'00', x'00', 0, NULL, NULL, NULL);
         INSERT INTO chunk VALUES(99999, 1, 0, 1, x'00'); INSERT INTO conversation VALUES(99999, 1, NULL, NULL, '[]')",
    )
    .expect("a stranger writes");
    let strays = || integrity::check(made.path()).expect("it can be read").problems;
    assert_eq!(
        strays(),
        [
            "1 attempts without a task",
            "2 steps without a task",
            "1 events without a task",
            "1 parts of long texts without a task",
            "1 conversations without a task"
        ]
    );
    let store = open(&made.path());
    let orphans = |batch| Prune::Orphans { older: Duration::from_secs(60), batch };
    assert_eq!(store.prune(orphans(10)).await, Ok(Pruned { orphans: 5, ..Pruned::default() }));
    assert_eq!(strays(), ["1 steps without a task"], "young rows stay, so that they can be examined");
    assert_eq!(store.prune(orphans(10)).await, Ok(Pruned::default()));
    let mine: i64 = conn
        .query_row(
            "SELECT (SELECT count(*) FROM step WHERE task = 1) + (SELECT count(*) FROM event)",
            [],
            |row| row.get(0),
        )
        .expect("it can be read");
    assert_eq!(mine, 2, "what has its task stays");
}

#[tokio::test]
async fn neither_a_replay_nor_pruning_leaves_steps_without_their_task() {
    let made = TempStore::real();
    let (store, ids) = (made.store(), Ids::new(3));
    let node = ids.new_session("node", Duration::from_secs(60));
    let session = node.id;
    store.join(node).await.expect("join answers");
    for how in [StepsOnReplay::Keep, StepsOnReplay::Drop] {
        store.enqueue(vec![ids.new_task("mail", "send")]).await.expect("enqueue answers");
        let claim = || Claim { session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 1 };
        let mut task = None;
        // Fails with a step, is replayed, and fails again.
        for round in 0..2 {
            let ClaimAnswer::Tasks { mut tasks, .. } = store.claim(claim()).await.expect("claim answers")
            else {
                panic!("the session is alive")
            };
            let lease = tasks.remove(0).lease;
            let id = *task.insert(lease.task());
            let step = NewStep { name: format!("step {round}"), value: "1".to_owned() };
            store.save_step(lease.as_ref(), step).await.expect("save_step answers");
            let outcome = Outcome::Failed(Failure::new(ErrorClass::Permanent, "no"));
            let report = Report { lease, ran: None, outcome, output: None, reading: None };
            store.finish(vec![report]).await.expect("finish answers");
            if round == 0 {
                let how = Replay { steps: how, payload: None };
                store.replay(vec![id], how).await.expect("replay answers");
            }
        }
        store.prune(Prune::Tasks(task.into_iter().collect())).await.expect("prune answers");
        assert_eq!(
            integrity::check(made.path()).expect("it can be read").problems,
            Vec::<String>::new(),
            "{how:?}"
        );
    }
    let conn = Connection::open(made.path()).expect("a stranger opens it");
    let left: i64 =
        conn.query_row("SELECT count(*) FROM step", [], |row| row.get(0)).expect("it can be read");
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_damaged_page_is_found() {
    let mut made = filled().await;
    made.close();
    let file = std::fs::OpenOptions::new().write(true).open(made.path()).expect("the file");
    let bytes = file.metadata().expect("its size").len();
    for page in 4..bytes / 4096 {
        file.write_all_at(&[0xa5; 512], page * 4096 + 8).expect("a page is overwritten");
    }
    let problems = integrity::check(made.path()).map(|health| health.problems);
    assert!(problems.as_ref().map_or(true, |problems| !problems.is_empty()), "{problems:?}");
}

#[test]
fn a_store_that_is_not_there_has_no_version_and_is_not_made() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    let newest = integrity::versions(&path).expect("nothing is in the way").newest;
    assert_eq!(integrity::versions(&path), Ok(Versions { found: None, newest }));
    for error in [integrity::check(&path).err(), integrity::backup(&path, folder.path().join("b")).err()] {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unavailable));
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    drop(open(&path));
    assert_eq!(integrity::versions(&path), Ok(Versions { found: Some(newest), newest }));
}

#[tokio::test]
async fn a_backup_is_a_whole_store_that_only_its_owner_reads() {
    let made = filled().await;
    // Characters in the name that need quoting in SQL and in URIs.
    let copy = made.folder().join("it's a \"copy\" %.db");
    let bytes = integrity::backup(made.path(), &copy).expect("the backup is made");
    let file = std::fs::metadata(&copy).expect("the copy");
    assert_eq!((file.len(), file.permissions().mode() & 0o777), (bytes, 0o600));
    assert_eq!(integrity::check(&copy).expect("it can be read").problems, Vec::<String>::new());
    let page = open(&copy).list(Filter::default(), None, 1_000).await.expect("it lists");
    assert_eq!(page.tasks.len(), 300);
    let left =
        std::fs::read_dir(made.folder()).expect("the folder").map(|entry| entry.expect("it").file_name());
    let partial: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with("partial")).collect();
    assert_eq!(partial, Vec::<std::ffi::OsString>::new());
}

#[tokio::test]
async fn a_backup_beside_a_writer_is_one_moment() {
    let made = TempStore::real();
    let (store, ids) = (made.store(), Ids::new(3));
    store.enqueue(ids.new_tasks(100, "mail", "send")).await.expect("enqueue answers");
    let more = ids.new_tasks(2_000, "mail", "send");
    let writing = tokio::spawn(async move {
        for task in more {
            store.enqueue(vec![task]).await.expect("enqueue answers");
        }
    });
    let (from, copy) = (made.path(), made.folder().join("copy.db"));
    let to = copy.clone();
    tokio::task::spawn_blocking(move || integrity::backup(from, to))
        .await
        .expect("no panic")
        .expect("it is made");
    writing.await.expect("the writer is not disturbed");
    assert_eq!(integrity::check(&copy).expect("it can be read").problems, Vec::<String>::new());
    let survey = open(&copy).survey().await.expect("it answers");
    assert!(survey.lanes[0].counts.queued >= 100, "{survey:?}");
}

#[tokio::test]
async fn a_backup_overwrites_nothing() {
    let made = filled().await;
    for target in [made.path(), made.folder().join("diary")] {
        if !target.exists() {
            std::fs::write(&target, "Dear diary").expect("a diary");
        }
        let before = std::fs::metadata(&target).expect("it is there").len();
        let error = integrity::backup(made.path(), &target).expect_err("it is there");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&target.display().to_string()), "{error}");
        assert_eq!(std::fs::metadata(&target).expect("it is still there").len(), before);
    }
    let nowhere =
        integrity::backup(made.path(), made.folder().join("no/such/folder")).expect_err("no folder");
    assert_eq!(nowhere.kind(), ErrorKind::Unavailable);
}
