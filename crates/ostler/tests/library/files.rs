//! Files of handlers: recorded with their attempt, and found without its log.

use std::time::Duration;

use ostler::{Context, ErrorClass, EventBody, EventKind, Overrides, StateName, Submission};
use ostler_testkit::{MAX_WAIT, scratch};

/// The well-known test vector of SHA-256.
const SUM_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_a_handler_leaves_are_recorded_with_its_attempt() {
    let folder = scratch();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).expect("a folder");
    std::os::unix::fs::symlink("/etc", work.join("etc")).expect("a link");
    std::fs::write(folder.path().join("beside"), "no").expect("a file");
    let handler = |(): (), ctx: Context| async move {
        let own = ctx.folder().expect("it has a folder").to_owned();
        std::fs::write(format!("{own}/a.txt"), "abc")?;
        ctx.file("a.txt").await?;
        ctx.file(format!("{own}/./a.txt")).await?;
        ctx.write_file("pages/b.txt", "abc").await?;
        for wrong in ["missing", "../beside", "/etc/passwd", "etc/passwd", "pages", ""] {
            let failure = ctx.file(wrong).await.expect_err(wrong).into_failure();
            assert_eq!(failure.class, ErrorClass::Permanent, "{wrong}: {failure:?}");
        }
        let failure = ctx.write_file("../beside", "x").await.expect_err("it leads out").into_failure();
        assert_eq!(failure.message, "the file \"../beside\" is not in the task's folder");
        Ok(())
    };
    let homeless = |(): (), ctx: Context| async move { ctx.file("a.txt").await };
    let once = Overrides { attempts: Some(1), base: Some(Duration::from_millis(5)), ..Overrides::NONE };
    let builder = ostler::open(folder.path().join("jobs.db")).expect("the store opens").defaults(once);
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let builder = builder.handle("work", handler).handle("homeless", homeless).on_completed(move |ended| {
        let _ = told.send(ended);
        async {}
    });
    let pool = builder.start().await.expect("the pool starts");
    let about = Submission { folder: work.to_str().map(Into::into), ..Submission::default() };
    let id = pool.submit_with("work", &(), about).await.expect("it is taken");
    let done = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.expect("in time").expect("it ends");
    assert_eq!(done.state.name(), StateName::Completed, "{:?}", done.last_failure);
    let events = pool.events(id, 0, 100).await.expect("events are read");
    let files: Vec<EventBody> =
        events.into_iter().map(|event| event.body).filter(|body| body.kind() == EventKind::File).collect();
    let file = |path: &str| EventBody::File { path: path.into(), size: 3, sha256: SUM_OF_ABC.into() };
    assert_eq!(files, ["a.txt", "a.txt", "pages/b.txt"].map(file));
    let ended = tokio::time::timeout(MAX_WAIT, heard.recv()).await.expect("in time").expect("it is called");
    let paths: Vec<&str> = ended.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a.txt", "a.txt", "pages/b.txt"], "the callback gets them");
    assert_eq!(std::fs::read(folder.path().join("beside")).expect("it is there"), b"no");
    let id = pool.submit("homeless", &()).await.expect("it is taken");
    let done = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.expect("in time").expect("it ends");
    let failure = done.last_failure.expect("it fails");
    assert_eq!(failure.message, "the file \"a.txt\" is not recorded: the task has no folder");
    pool.drain(MAX_WAIT).await;
}
