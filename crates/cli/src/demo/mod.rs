//! The demo: a tour on a temporary SQLite store, with every executor at work in two processes, one of which is killed.

mod next_step;
mod progress;
mod tasks;
mod worker;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ostler_core::{Ending, Overrides, StateName, TaskId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Enqueued, QueueChange, Replay, ReplayAnswer};
use ostler_store::views::{Counts, Filter, Survey, TaskRef};
use ostler_store::{Stats, Store, SystemClock};

use next_step::next_step;
use progress::DemoProgress;
use tasks::{DOCUMENTS, FUNCTIONS, LANES, NAME, SHELL, SUMS, Tasks};
pub(crate) use worker::run as run_worker;

/// The demo takes a few seconds; after this something is wrong.
const LIMIT: Duration = Duration::from_secs(60);
/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);
/// The batch size of maintenance.
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
    store.configure(DOCUMENTS.queue, vec![QueueChange::Overrides(quick)]).await?;

    let tasks = Tasks::new(folder.path())?;
    println!("2. {} tasks:", tasks.all.len());
    for lane in LANES {
        println!("   {:>4} for the executor {:<8} {}", lane.count, lane.executor, lane.what);
    }
    let (total, broken) = (tasks.all.len() as u64, tasks.broken);
    let answers = store.enqueue(tasks.all).await?;
    ensure!(
        answers.iter().all(|answer| matches!(answer, Enqueued::Created(_))),
        "not all were taken: {answers:?}"
    );

    println!("3. Two worker processes on the same file, anna and bert");
    let mut anna = spawn(&path, "anna")?;
    let mut bert = spawn(&path, "bert")?;
    let mut progress = DemoProgress::new();
    watch(&store, &mut progress, |survey| survey.nodes.len() == 2).await?;
    // Until each executor has completed something, and all have something left.
    watch(&store, &mut progress, |survey| {
        LANES.iter().all(|lane| counts(survey, lane.queue).completed * 4 >= lane.count as u64)
    })
    .await?;
    anna.kill().context("anna could not be killed")?;
    anna.wait()?;
    let killed = Instant::now();
    // The demo or bert finds it first. anna's lock is released only when her children are gone.
    watch(&store, &mut progress, |survey| survey.nodes.len() == 1).await?;
    progress.pause();
    println!("4. anna was killed with kill -9; noticed after {} ms", killed.elapsed().as_millis());
    let children = tasks::children_of(folder.path(), "anna");
    let left = children.iter().filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).count();
    ensure!(left == 0, "{left} children of anna live on");
    println!("   anna had started {} children; none is left", children.len());

    println!("5. bert finishes the rest");
    watch(&store, &mut progress, |survey| unfinished(survey) == 0).await?;
    progress.pause();
    let all = Stats::of(&store.survey().await?, None).tasks;
    ensure!(all.completed == total - 1 && all.failed == 1, "it finished with {all:?}");

    revive(&store, broken).await?;
    drop(bert.stdin.take());
    bert.wait()?;
    summary(&store, began).await?;
    println!("{}", next_step());
    Ok(())
}

/// Fixes and replays the dead letter.
async fn revive(store: &Sqlite, broken: TaskId) -> anyhow::Result<()> {
    let dead = store.show(TaskRef::Id(broken)).await?.context("the dead letter is gone")?;
    let why = dead.task.last_failure.map(|failure| failure.message).unwrap_or_default();
    println!("6. One dead letter: \"{why}\". Fixed and replayed");
    let how = Replay { payload: Some(r#"{"text":"now it has one"}"#.to_owned()), ..Replay::default() };
    let answers = store.replay(vec![broken], how).await?;
    ensure!(answers == [ReplayAnswer::Requeued], "the replay was answered with {answers:?}");
    let over = |survey: &Survey| unfinished(survey) == 0 && counts(survey, DOCUMENTS.queue).failed == 0;
    watch(store, &mut DemoProgress::silent(), over).await?;
    let mended = store.show(TaskRef::Id(broken)).await?.context("the task is gone")?;
    let output = mended.task.output.unwrap_or_default();
    println!("   {} after {} attempts: {output}", mended.task.state.name().name(), mended.attempts.len());
    Ok(())
}

/// Reads the outcome from the attempts.
async fn summary(store: &Sqlite, began: Instant) -> anyhow::Result<()> {
    println!("7. The outcome, from the store");
    let survey = store.survey().await?;
    let (mut lost, mut twice, mut total) = (0, 0, 0);
    for lane in LANES {
        let filter = Filter { queue: Some(lane.queue.to_owned()), ..Filter::default() };
        let (mut retried, mut taken_over) = (0, 0);
        for task in store.list(filter, None, BITE).await?.tasks {
            let detail = store.show(TaskRef::Id(task.id)).await?.context("a task is gone")?;
            let ended = |wanted: fn(Ending) -> bool| {
                let ends = detail.attempts.iter().filter_map(|attempt| attempt.end.as_ref());
                ends.filter(|end| wanted(end.ending)).count()
            };
            total += 1;
            lost += usize::from(task.state.name() != StateName::Completed);
            twice += usize::from(ended(|ending| ending == Ending::Success) > 1);
            retried += usize::from(ended(|ending| matches!(ending, Ending::Failed(_))) > 0);
            taken_over += usize::from(ended(|ending| ending == Ending::NodeDied) > 0);
        }
        let stats = Stats::of(&survey, Some(lane.queue));
        let p50 = stats.kinds.values().map(|kind| kind.p50_ms).max().unwrap_or_default();
        println!(
            "   {:<8} {:>4} completed, {retried} of them after a failure, {taken_over} after anna's death; median {p50} ms",
            lane.executor, stats.tasks.completed
        );
    }
    ensure!(lost == 0 && twice == 0, "{lost} tasks were lost, {twice} completed twice");
    let took = began.elapsed().as_secs_f64();
    let executors = LANES.len();
    println!("\n{total} tasks, {executors} executors, 2 processes, 1 kill -9, 0 lost, 0 twice, {took:.1} s");
    Ok(())
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

/// Shows progress until `enough`, and runs the store's maintenance as a node does.
async fn watch(
    store: &Sqlite,
    progress: &mut DemoProgress,
    enough: impl Fn(&Survey) -> bool,
) -> anyhow::Result<()> {
    let until = Instant::now() + LIMIT;
    let mut look = tokio::time::interval(LOOK);
    loop {
        store.expire(BITE).await?;
        store.make_ready(BITE).await?;
        let survey = store.survey().await?;
        progress.show(&survey)?;
        if enough(&survey) {
            return Ok(());
        }
        let all = Stats::of(&survey, None).tasks;
        ensure!(Instant::now() < until, "the demo takes too long; so far: {all:?}");
        look.tick().await;
    }
}

fn counts(survey: &Survey, queue: &str) -> Counts {
    Stats::of(survey, Some(queue)).tasks
}

fn unfinished(survey: &Survey) -> u64 {
    let all = Stats::of(survey, None).tasks;
    all.queued + all.claimed + all.running
}
