//! A tour on a temporary embedded store: work in two processes, one of which is killed in the middle.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ostler_core::{Ending, Overrides, StateName, TaskId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Enqueued, NewTask, QueueChange, Replay, ReplayAnswer};
use ostler_store::views::{Counts, Filter, Survey, Which};
use ostler_store::{Store, SystemClock};

use crate::worker::{KIND, QUEUE};

const DOCUMENTS: usize = 200;
const FLAKY: usize = 5;
/// The one that can never work.
const BROKEN: usize = 1;
/// How often the demo looks.
const LOOK: Duration = Duration::from_millis(20);
/// It takes a few seconds; after this something is wrong.
const LIMIT: Duration = Duration::from_secs(60);
/// Rows in a bite of maintenance.
const BITE: usize = 1_000;

pub(crate) fn run() -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(tour())
}

async fn tour() -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let path = folder.path().join("demo.db");
    let began = Instant::now();
    println!("1. A store: {}", path.display());
    let store = Sqlite::open(&path, Arc::new(SystemClock), Options::default())?;
    let quick = Overrides { base: Some(Duration::from_millis(100)), ..Overrides::NONE };
    store.configure(QUEUE, vec![QueueChange::Overrides(quick)]).await?;

    let total = DOCUMENTS + FLAKY + BROKEN;
    println!("2. {total} documents: {FLAKY} will fail at first, {BROKEN} can never work");
    let tasks = documents()?;
    let broken = tasks.last().expect("there are documents").id;
    let answers = store.enqueue(tasks).await?;
    ensure!(
        answers.iter().all(|answer| matches!(answer, Enqueued::Created(_))),
        "not all were taken: {answers:?}"
    );

    println!("3. Two worker processes on the same file");
    let mut anna = spawn(&path, "anna")?;
    let mut bert = spawn(&path, "bert")?;
    watch(&store, "   both are up", |survey| survey.nodes.len() == 2).await?;
    watch(&store, "   one is killed at a third", |survey| counts(survey).completed >= DOCUMENTS as u64 / 3)
        .await?;

    anna.kill().context("anna could not be killed")?;
    anna.wait()?;
    let killed = Instant::now();
    // Whoever looks first finds it: the demo, or bert.
    store.expire(BITE).await?;
    watch(&store, "4. anna was killed with -9, and this is known", |survey| survey.nodes.len() == 1).await?;
    println!("   {} ms later", killed.elapsed().as_millis());

    watch(&store, "   bert does the rest", |survey| unfinished(survey) == 0).await?;
    let counts = counts(&store.survey().await?);
    ensure!(
        counts.completed == (DOCUMENTS + FLAKY) as u64 && counts.failed == BROKEN as u64,
        "it ended with {counts:?}"
    );
    println!("5. Done: {} completed, none lost, none twice", counts.completed);

    revive(&store, broken).await?;
    drop(bert.stdin.take());
    bert.wait()?;
    let Effects { twice, taken_over } = effects(&store).await?;
    ensure!(twice == 0, "{twice} documents completed twice");
    println!("   {taken_over} documents were in anna's hands when she died; bert has done them");
    println!(
        "\n{} documents, 2 processes, 1 kill -9, 0 lost, 0 twice, {:.1} s",
        total,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The dead letter is mended and replayed.
async fn revive(store: &Sqlite, broken: TaskId) -> anyhow::Result<()> {
    let dead = store.show(Which::Id(broken)).await?.context("the dead letter is gone")?;
    let why = dead.task.last_failure.map(|failure| failure.message).unwrap_or_default();
    println!("6. One dead letter: \"{why}\". It is mended and replayed");
    let how = Replay { payload: Some(r#"{"text":"now it has one"}"#.to_owned()), ..Replay::default() };
    let answers = store.replay(vec![broken], how).await?;
    ensure!(answers == [ReplayAnswer::Requeued], "the replay was answered with {answers:?}");
    watch(store, "   again", |survey| counts(survey).failed == 0 && unfinished(survey) == 0).await?;
    let mended = store.show(Which::Id(broken)).await?.context("the task is gone")?;
    let output = mended.task.output.unwrap_or_default();
    println!("   {} after {} attempts: {output}", mended.task.state.name().name(), mended.attempts.len());
    Ok(())
}

fn documents() -> anyhow::Result<Vec<NewTask>> {
    let ids = ostler::ids().context("no randomness from the system")?;
    let mut payloads: Vec<String> = (0..DOCUMENTS)
        .map(|number| format!(r#"{{"text":"document number {number} of the demo"}}"#))
        .collect();
    payloads.extend((0..FLAKY).map(|_| r#"{"text":"hard to get","flaky":true}"#.to_owned()));
    payloads.extend((0..BROKEN).map(|_| r#"{"title":"empty"}"#.to_owned()));
    Ok(payloads.into_iter().map(|payload| NewTask::new(TaskId(ids()), QUEUE, KIND, payload)).collect())
}

fn spawn(store: &Path, name: &str) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("where is this program?")?;
    Command::new(program)
        .arg("demo-worker")
        .arg(store)
        .arg(name)
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("{name} could not be started"))
}

/// Shows progress until `enough`, and makes ready what is due.
async fn watch(store: &Sqlite, what: &str, enough: impl Fn(&Survey) -> bool) -> anyhow::Result<()> {
    let until = Instant::now() + LIMIT;
    let mut look = tokio::time::interval(LOOK);
    let live = std::io::stdout().is_terminal();
    loop {
        store.make_ready(BITE).await?;
        let survey = store.survey().await?;
        let done = enough(&survey);
        let counts = counts(&survey);
        if live || done {
            let line_start = if live { "\r" } else { "" };
            print!("{line_start}{what}: {} of {} ", counts.completed + counts.failed, counts.submitted());
            std::io::stdout().flush()?;
        }
        if done {
            println!();
            return Ok(());
        }
        ensure!(Instant::now() < until, "the demo takes too long; it stands at {counts:?}");
        look.tick().await;
    }
}

fn counts(survey: &Survey) -> Counts {
    survey.lanes.first().map(|lane| lane.counts).unwrap_or_default()
}

fn unfinished(survey: &Survey) -> u64 {
    let counts = counts(survey);
    counts.queued + counts.claimed + counts.running
}

/// What the attempts tell afterwards.
struct Effects {
    /// Documents with more than one attempt that succeeded.
    twice: usize,
    /// Documents with an attempt that ended with its node.
    taken_over: usize,
}

async fn effects(store: &Sqlite) -> anyhow::Result<Effects> {
    let filter = Filter { state: Some(StateName::Completed), ..Filter::default() };
    let page = store.list(filter, None, BITE).await?;
    let mut effects = Effects { twice: 0, taken_over: 0 };
    for task in page.tasks {
        let detail = store.show(Which::Id(task.id)).await?.context("a task is gone")?;
        let ended = |ending| {
            let ends = detail.attempts.iter().filter_map(|attempt| attempt.end.as_ref());
            ends.filter(|end| end.ending == ending).count()
        };
        effects.twice += usize::from(ended(Ending::Success) != 1);
        effects.taken_over += usize::from(ended(Ending::NodeDied) > 0);
    }
    Ok(effects)
}
