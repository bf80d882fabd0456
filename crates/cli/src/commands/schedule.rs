//! `ostler schedule`: shows, adds, pauses and removes recurring tasks.

use ostler_core::{Overrides, TaskId};
use ostler_ops::{schedules, submit};
use ostler_runtime::{PlannedSchedule, ScheduleSpec, local_timezone};
use ostler_store::schedules::{Activity, TaskTemplate};
use ostler_store::{Bounds, Clock as _, SystemClock};
use ostler_wire::schedule::{ScheduleActionView, ScheduleView};

use super::submit::ids;
use super::{Console, payload};
use crate::args::{AddSchedule, ScheduleCommand};
use crate::config::UTC;
use crate::exit::{Code, refused};
use crate::print::{self, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, what: ScheduleCommand) -> anyhow::Result<Code> {
    match what {
        ScheduleCommand::Ls => list(console).await,
        ScheduleCommand::Show(named) => show(console, &named.name).await,
        ScheduleCommand::Add(add) => self::add(console, *add).await,
        ScheduleCommand::Run(named) => run_now(console, &named.name).await,
        ScheduleCommand::Rm(named) => remove(console, &named.name).await,
        ScheduleCommand::Pause(named) => set(console, &named.name, Activity::Paused).await,
        ScheduleCommand::Resume(named) => set(console, &named.name, Activity::Active).await,
    }
}

async fn list(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let records = store.schedules().await?;
    let views: Vec<ScheduleView> = records.iter().map(ScheduleView::from).collect();
    console.out.answer(&views, |looks| print::schedules(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn show(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let detail = schedules::detail(&schedules::find(store.as_ref(), name).await?);
    console.out.answer(&detail, |looks| print::schedule(&detail, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn add(console: &Console, add: AddSchedule) -> anyhow::Result<Code> {
    let place = console.place()?;
    let plan = plan(add, place.bounds()).await?;
    let store = place.open(IfMissing::Make).await?;
    let (answer, record) = schedules::put(store.as_ref(), &plan).await?;
    added(console, &answer, record.activity)
}

async fn run_now(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let record = schedules::find(store.as_ref(), name).await?;
    let request = schedules::extra_run(&record.schedule.task, TaskId(ids()?()));
    let answer = submit::submit(store.as_ref(), &request).await?;
    console.out.answer(&answer.view(), |_| format!("{}\n", answer.id()))?;
    Ok(Code::Done)
}

/// The schedule that the options describe, checked without a store: a refused schedule creates none.
pub(super) async fn plan(add: AddSchedule, bounds: Bounds) -> anyhow::Result<PlannedSchedule> {
    let times = match (&add.times.cron, add.times.every, add.times.at) {
        (Some(line), _, _) => ScheduleSpec::cron(line, &add.timezone.unwrap_or_else(local)),
        (None, Some(step), _) => ScheduleSpec::every(step),
        (None, None, Some(moment)) => Ok(ScheduleSpec::at(moment)),
        (None, None, None) => unreachable!("clap requires one of the three"),
    };
    let times = times.map_err(|error| refused(Code::BadInput, error.to_string()))?;
    let payload = match add.payload {
        Some(given) => payload::read(given, bounds).await?,
        None => "null".to_owned(),
    };
    let task = TaskTemplate {
        queue: add.queue,
        kind: add.kind,
        payload,
        priority: add.priority.unwrap_or_default(),
        overrides: Overrides { attempts: add.attempts, timeout: add.timeout, ..Overrides::NONE },
    };
    let plan = PlannedSchedule { name: add.name, times, overlap: add.overlap, missed: add.missed, task };
    schedules::check(&plan, SystemClock.now())?;
    Ok(plan)
}

pub(super) fn added(
    console: &Console,
    answer: &ScheduleActionView,
    activity: Activity,
) -> anyhow::Result<Code> {
    console.out.answer(answer, |_| {
        let (name, result) = (visible(&answer.schedule), answer.result.name());
        match (answer.next_at, activity) {
            (Some(next), _) => {
                let zone = answer.timezone.as_ref().map(|zone| format!(" (time zone: {zone})"));
                format!("{name} is {result}; next run: {next}{}\n", zone.unwrap_or_default())
            }
            (None, Activity::Paused) => {
                format!("{name} is {result} and paused; to resume it: ostler schedule resume {name}\n")
            }
            (None, Activity::Active) => {
                format!(
                    "{name} is {result}, but its time has passed; choose another time, or remove it first\n"
                )
            }
        }
    })?;
    Ok(Code::Done)
}

/// The time zone of this machine. It is stored with the schedule: a node in another zone, or a later change, does not move it.
fn local() -> String {
    local_timezone().unwrap_or_else(|| UTC.to_owned())
}

async fn remove(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    removed(console, &schedules::remove(store.as_ref(), name).await?)
}

pub(super) fn removed(console: &Console, answer: &ScheduleActionView) -> anyhow::Result<Code> {
    console.out.answer(answer, |_| format!("{} is removed\n", visible(&answer.schedule)))?;
    Ok(Code::Done)
}

async fn set(console: &Console, name: &str, activity: Activity) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    is_set(console, &schedules::set(store.as_ref(), name, activity).await?, activity)
}

pub(super) fn is_set(
    console: &Console,
    answer: &ScheduleActionView,
    activity: Activity,
) -> anyhow::Result<Code> {
    let shown = visible(&answer.schedule);
    let more = match activity {
        Activity::Paused => format!("; to resume it: ostler schedule resume {shown}"),
        Activity::Active => String::new(),
    };
    console.out.answer(answer, |_| format!("{shown} is {}{more}\n", answer.result.name()))?;
    Ok(Code::Done)
}
