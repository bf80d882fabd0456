//! Schedules by a node.

use std::time::Duration;

use ostler::{ApiMethod, ApiRequest, RemoteClient};
use ostler_core::{Overrides, Priority};
use ostler_ops::schedules;
use ostler_runtime::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{Activity, TaskTemplate};
use ostler_store::{Bounds, Clock as _, SystemClock};
use ostler_wire::input::ScheduleInput;
use ostler_wire::schedule::{RunView, ScheduleActionView, ScheduleDetail};
use ostler_wire::time::TimeView;
use serde_json::json;
use serde_json::value::RawValue;

use super::look;
use super::submit::input as submission;
use crate::args::ScheduleCommand;
use crate::commands::{Console, schedule};
use crate::exit::Code;
use crate::print;

pub(super) async fn run(
    console: &Console,
    node: &RemoteClient,
    command: ScheduleCommand,
) -> anyhow::Result<Code> {
    match command {
        ScheduleCommand::Ls => super::system::schedules(console, node).await,
        ScheduleCommand::Show(named) => {
            let detail: ScheduleDetail = look(node, &["schedules", &named.name]).await?;
            console.out.answer(&detail, |looks| print::schedule(&detail, SystemClock.now(), looks))?;
            Ok(Code::Done)
        }
        ScheduleCommand::Add(add) => {
            let plan = schedule::plan(*add, Bounds::default()).await?;
            let request = ApiRequest::new(ApiMethod::Put, &["schedules", &plan.name]).body(&input(&plan)?);
            let answer: ScheduleActionView = node.request(request).await?;
            // Why it has no next run is not in the answer.
            let activity = match answer.next_at {
                Some(_) => Activity::Active,
                None => {
                    let detail: ScheduleDetail = look(node, &["schedules", &plan.name]).await?;
                    if detail.schedule.state == "paused" { Activity::Paused } else { Activity::Active }
                }
            };
            schedule::added(console, &answer, activity)
        }
        ScheduleCommand::Run(named) => {
            let detail: ScheduleDetail = look(node, &["schedules", &named.name]).await?;
            let request = schedules::extra_run(&template(&detail.schedule.task), node.new_id());
            let made = node.submit_input(&submission(&request)?, None).await?;
            console.out.answer(&made, |_| format!("{}\n", made.id))?;
            Ok(Code::Done)
        }
        ScheduleCommand::Rm(named) => {
            let request = ApiRequest::new(ApiMethod::Delete, &["schedules", &named.name]);
            schedule::removed(console, &node.request(request).await?)
        }
        ScheduleCommand::Pause(named) => set(console, node, &named.name, Activity::Paused).await,
        ScheduleCommand::Resume(named) => set(console, node, &named.name, Activity::Active).await,
    }
}

async fn set(console: &Console, node: &RemoteClient, name: &str, activity: Activity) -> anyhow::Result<Code> {
    let verb = match activity {
        Activity::Paused => "pause",
        Activity::Active => "resume",
    };
    let answer = node.request(ApiRequest::new(ApiMethod::Post, &["schedules", name, verb])).await?;
    schedule::is_set(console, &answer, activity)
}

/// The task of each run.
fn template(run: &RunView) -> TaskTemplate {
    let timeout = run.timeout_ms.map(|ms| Duration::from_millis(ms.unsigned_abs()));
    TaskTemplate {
        queue: run.queue.clone(),
        kind: run.kind.clone(),
        payload: run.payload.as_str().to_owned(),
        priority: Priority::new(run.priority).unwrap_or_default(),
        overrides: Overrides { attempts: run.attempts, timeout, ..Overrides::NONE },
    }
}

/// A schedule as the API has it.
fn input(plan: &PlannedSchedule) -> anyhow::Result<ScheduleInput> {
    let PlannedSchedule { name: _, times, overlap, missed, task } = plan;
    let span = |span: Duration| format!("{}ms", span.as_millis());
    let (cron, timezone, every, at) = match times {
        ScheduleSpec::Cron(line) => {
            (Some(line.line().to_owned()), Some(line.timezone().to_owned()), None, None)
        }
        ScheduleSpec::Every(step) => (None, None, Some(span(step.length())), None),
        ScheduleSpec::At(moment) => (None, None, None, Some(TimeView::from(*moment).to_string())),
    };
    let mut input: ScheduleInput = serde_json::from_value(json!({
        "queue": task.queue,
        "kind": task.kind,
        "cron": cron,
        "every": every,
        "at": at,
        "timezone": timezone,
        "priority": task.priority.points(),
        "overlap": overlap.name(),
        "missed": missed.name(),
        "attempts": task.overrides.attempts,
        "timeout": task.overrides.timeout.map(span),
    }))?;
    // Apart, so that its text stays as it is.
    input.payload = Some(RawValue::from_string(task.payload.clone())?);
    Ok(input)
}
