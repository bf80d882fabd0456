//! Output files of attempts.

use std::path::Path;
use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, Id, Outcome, TaskId};
use ostler_exec::{EventReceiver, Work};
use ostler_process::{CommandPolicy, Folders, PolicyError};

use crate::bench::{failure, run, supervisor, work};
use crate::desk::{Desk, heard, output, policy as workers, task};

/// The SHA-256 of the empty input.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn leaving(script: &str, files: &[&str], each: &Path) -> CommandPolicy {
    CommandPolicy {
        files: files.iter().map(|pattern| (*pattern).to_owned()).collect(),
        folders: Folders { start: None, each: Some(each.to_owned()), ..Folders::default() },
        ..CommandPolicy::new(["sh", "-c", script])
    }
}

pub(crate) fn recorded(notes: &EventReceiver) -> Vec<(String, u64)> {
    let file = |note| if let EventBody::File { path, size, .. } = note { Some((path, size)) } else { None };
    heard(notes).into_iter().filter_map(file).collect()
}

#[tokio::test]
async fn files_that_match_are_recorded_with_size_and_sum_whether_it_succeeds_or_fails() {
    let (supervisor, folder) = (supervisor().await, tempfile::tempdir().expect("a folder"));
    let script = "mkdir pages; echo 12 > a.pdf; : > pages/b.png; echo x > c.txt; ln -s /etc/passwd d.pdf";
    for (end, outcome) in [("", true), ("; exit 3", false)] {
        let each = folder.path().join(format!("each{}", end.len()));
        let policy = leaving(&format!("{script}{end}"), &["*.pdf", "**/*.png"], &each);
        let (ended, notes) = run(&supervisor, policy, work("1")).await;
        assert_eq!(matches!(ended.outcome, Outcome::Success), outcome, "{ended:?}");
        let (first, second) = (notes.try_recv(), notes.try_recv());
        assert!(
            matches!(&first, Some(EventBody::File { path, size: 3, .. }) if path == "a.pdf"),
            "{first:?}"
        );
        let png = EventBody::File { path: "pages/b.png".into(), size: 0, sha256: EMPTY.into() };
        assert_eq!((second, notes.try_recv()), (Some(png), None));
    }
}

#[tokio::test]
async fn each_task_has_a_folder_of_its_own_which_its_next_attempt_finds_again() {
    let (supervisor, folder) = (supervisor().await, tempfile::tempdir().expect("a folder"));
    let policy = leaving("ls; echo x > $$.txt; pwd -P >&2", &["*"], folder.path());
    let first = run(&supervisor, policy.clone(), work("1")).await;
    assert_eq!(first.0.output, None, "it is empty");
    assert_eq!(recorded(&first.1).len(), 1);
    let again = run(&supervisor, policy.clone(), Work { attempt: 2, ..work("1") }).await;
    assert!(again.0.output.is_some(), "what was there is there");
    let other = Work { task: TaskId(Id::from_bits(7)), ..work("1") };
    assert_eq!(run(&supervisor, policy.clone(), other).await.0.output, None, "another task has another one");
    // A task that was submitted with a folder works in that one.
    let own = tempfile::tempdir().expect("a folder");
    std::fs::write(own.path().join("mine"), "").expect("a file");
    let mine = Work { folder: own.path().to_str().map(Into::into), ..work("1") };
    assert_eq!(output(run(&supervisor, policy, mine).await.0), "\"mine\"");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
}

#[tokio::test]
async fn a_pool_says_where_its_commands_start() {
    let (supervisor, folder) = (supervisor().await, tempfile::tempdir().expect("a folder"));
    let start = folder.path().canonicalize().expect("it is there");
    let policy = CommandPolicy {
        folders: Folders { start: Some(start.clone()), each: None, ..Folders::default() },
        files: vec!["*".to_owned()],
        ..CommandPolicy::new(["pwd", "-P"])
    };
    let (ended, notes) = run(&supervisor, policy.clone(), work("1")).await;
    assert_eq!(output(ended), format!("{start:?}"));
    let warned = heard(&notes);
    assert!(
        matches!(&warned[..], [EventBody::Warning { text: message }] if message.contains("no folder of its own")),
        "{warned:?}"
    );
    let gone = CommandPolicy {
        folders: Folders { start: Some("/no/such".into()), each: None, ..Folders::default() },
        ..policy
    };
    let failure = failure(run(&supervisor, gone, work("1")).await.0);
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("/no/such"), "{failure:?}");
}

#[tokio::test]
async fn a_pattern_that_is_none_is_refused() {
    let policy = leaving("true", &["a["], Path::new("/"));
    let refused = ostler_process::Command::new(supervisor().await, policy).expect_err("it is wrong");
    assert!(matches!(refused, PolicyError::Files(_)), "{refused}");
}

#[tokio::test]
async fn a_file_that_takes_too_long_to_read_does_not_hold_up_the_answer() {
    let (supervisor, folder) = (supervisor().await, tempfile::tempdir().expect("a folder"));
    // A sparse file, which takes forever to read.
    let policy = leaving("truncate -s 8T big.pdf", &["*.pdf"], folder.path());
    let short = Work { timeout: Duration::from_secs(2), grace: Duration::from_millis(200), ..work("1") };
    let (ended, notes) = run(&supervisor, policy, short).await;
    assert_eq!(ended.outcome, Outcome::Success);
    let received = heard(&notes);
    assert!(
        matches!(received.last(), Some(EventBody::Warning { text: message }) if message.contains("no time left")),
        "{received:?}"
    );
}

#[tokio::test]
async fn files_of_workers_are_recorded_before_the_answer_and_after_a_death_too() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a"), "1").expect("a file");
    std::fs::write(folder.path().join("b"), "22").expect("a file");
    let desk = Desk::of(workers("well")).await;
    let in_folder =
        |what: &str, how: &str| Work { folder: folder.path().to_str().map(Into::into), ..task(what, how) };
    let worker = desk.open().await;
    let (ended, notes) = desk.run(worker, in_folder("files", "[\"a\", \"no\", \"b\"]")).await;
    assert_eq!(ended.outcome, Outcome::Success);
    let received = heard(&notes);
    assert!(
        matches!(
            &received[..],
            [EventBody::File { .. }, EventBody::Warning { .. }, EventBody::File { size: 2, .. }]
        ),
        "{received:?}"
    );
    let (ended, notes) = desk.run(worker, in_folder("file-and-die", "\"b\"")).await;
    assert!(matches!(ended.outcome, Outcome::Failed(_)), "{ended:?}");
    assert_eq!(recorded(&notes), [("b".to_owned(), 2)]);
}
