//! `ostler wait`: waits until tasks have ended.

use std::time::Duration;

use ostler_core::StateName;
use ostler_ops::submit;
use ostler_wire::task::Waited;
use tokio::time::Instant;

use super::{Console, task_name};
use crate::args::Wait;
use crate::exit::Code;
use crate::print::{Format, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, wait: &Wait) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let names = wait.tasks.iter().map(|task| task.in_queue(&wait.queue)).collect();
    let mut ids = Vec::new();
    for name in task_name::all_whole(store.as_ref(), names).await? {
        ids.push(ostler_ops::tasks::find(store.as_ref(), &name).await?.task.id);
    }
    let time = WaitTime::new(wait.timeout);
    let mut report = WaitReport::new(console);
    for id in ids {
        let task = submit::wait(store.as_ref(), id, time.left()).await?;
        report.add(Waited::from(&task))?;
    }
    report.end()
}

/// The time for all tasks together.
pub(super) struct WaitTime(Option<Instant>);

impl WaitTime {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    pub(super) fn left(&self) -> Option<Duration> {
        self.0.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

/// What became of the tasks: a line for each as it ends, or JSON at the end.
pub(super) struct WaitReport<'a> {
    console: &'a Console,
    all: Vec<Waited>,
}

impl<'a> WaitReport<'a> {
    pub(super) const fn new(console: &'a Console) -> Self {
        Self { console, all: Vec::new() }
    }

    pub(super) fn add(&mut self, task: Waited) -> anyhow::Result<()> {
        if self.console.out.format() == Format::People {
            let why = task.error.as_ref().map(|error| format!(": {}", visible(&error.message)));
            self.console.out.line(&format!("{} {}{}", task.id, task.state, why.unwrap_or_default()))?;
        }
        self.all.push(task);
        Ok(())
    }

    pub(super) fn end(self) -> anyhow::Result<Code> {
        if self.console.out.format() == Format::Json {
            self.console.out.json(&self.all)?;
        }
        let completed = |task: &Waited| task.state == StateName::Completed.name();
        Ok(if self.all.iter().all(completed) { Code::Done } else { Code::WorkFailed })
    }
}
