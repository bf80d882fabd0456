//! `ostler schedule`: shows, adds, pauses and removes recurring tasks.

use ostler_core::{Overrides, Timestamp, millis};
use ostler_runtime::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{
    Activity, PutAnswer, ScheduleAnswer as Answer, ScheduleChange, ScheduleRecord, TaskTemplate,
};
use ostler_store::{Clock as _, Store, SystemClock, check_schedule};
use ostler_wire::schedule::{RecurrenceView, RunView, ScheduleActionView, ScheduleDetail, ScheduleView};
use ostler_wire::time::TimeView;

use super::{Console, payload};
use crate::args::{AddSchedule, ScheduleCommand};
use crate::config::UTC;
use crate::exit::{Code, refused};
use crate::print::{self, visible};
use crate::store_location::IfMissing;

/// The number of upcoming runs in `show`.
const UPCOMING: usize = 5;

pub(super) async fn run(console: &Console, what: ScheduleCommand) -> anyhow::Result<Code> {
    match what {
        ScheduleCommand::Ls => list(console).await,
        ScheduleCommand::Show(named) => show(console, &named.name).await,
        ScheduleCommand::Add(add) => self::add(console, *add).await,
        ScheduleCommand::Rm(named) => remove(console, &named.name).await,
        ScheduleCommand::Pause(named) => pause(console, &named.name, Activity::Paused).await,
        ScheduleCommand::Resume(named) => pause(console, &named.name, Activity::Active).await,
    }
}

async fn list(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let records = store.schedules().await?;
    let views: Vec<ScheduleView> = records.iter().map(view).collect();
    console.out.answer(&views, |looks| print::schedules(&records, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn show(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let record = find(store.as_ref(), name).await?;
    let upcoming = upcoming(&record);
    let moments = upcoming.iter().copied().map(TimeView::from).collect();
    let detail = ScheduleDetail { schedule: view(&record), upcoming: moments };
    console.out.answer(&detail, |_| print::schedule(&record, &upcoming, SystemClock.now()))?;
    Ok(Code::Done)
}

async fn add(console: &Console, add: AddSchedule) -> anyhow::Result<Code> {
    let place = console.place()?;
    let times = match (&add.times.cron, add.times.every, add.times.at) {
        (Some(line), _, _) => ScheduleSpec::cron(line, add.timezone.as_deref().unwrap_or(UTC)),
        (None, Some(step), _) => ScheduleSpec::every(step),
        (None, None, Some(moment)) => Ok(ScheduleSpec::at(moment)),
        (None, None, None) => unreachable!("clap requires one of the three"),
    };
    let times = times.map_err(|error| refused(Code::BadInput, error.to_string()))?;
    let payload = match add.payload {
        Some(given) => payload::read(given, place.bounds()).await?,
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
    // Checked before the store is opened: a refused schedule creates no store.
    check_schedule(&plan.schedule(SystemClock.now()))?;
    let store = place.open(IfMissing::Make).await?;
    let result = match store.put_schedule(plan.schedule(store.now().await?)).await? {
        PutAnswer::Created => "created",
        PutAnswer::Replaced => "replaced",
        PutAnswer::TooMany { limit } => {
            let sentence = format!(
                "the store has {limit} schedules, the maximum; to remove one: ostler schedule rm NAME"
            );
            return Err(refused(Code::BadInput, sentence));
        }
    };
    let record = find(store.as_ref(), &plan.name).await?;
    let next = next(&record);
    let answer = answer(&plan.name, result, next);
    console.out.answer(&answer, |_| {
        let name = visible(&plan.name);
        match (next, record.activity) {
            (Some(next), _) => format!("{name} is {result}; next run: {}\n", TimeView::from(next)),
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

async fn remove(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    match store.change_schedule(name, ScheduleChange::Remove).await? {
        Answer::Done => {}
        Answer::NotFound => return Err(not_found(name)),
    }
    console.out.answer(&answer(name, "removed", None), |_| format!("{} is removed\n", visible(name)))?;
    Ok(Code::Done)
}

async fn pause(console: &Console, name: &str, activity: Activity) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    match store.change_schedule(name, ScheduleChange::Set(activity)).await? {
        Answer::Done => {}
        Answer::NotFound => return Err(not_found(name)),
    }
    let next = next(&find(store.as_ref(), name).await?);
    let shown = visible(name);
    let (result, more) = match activity {
        Activity::Paused => ("paused", format!("; to resume it: ostler schedule resume {shown}")),
        Activity::Active => ("resumed", String::new()),
    };
    console.out.answer(&answer(name, result, next), |_| format!("{shown} is {result}{more}\n"))?;
    Ok(Code::Done)
}

fn answer(name: &str, result: &'static str, next: Option<Timestamp>) -> ScheduleActionView {
    ScheduleActionView { schedule: name.to_owned(), result, next_at: next.map(TimeView::from) }
}

async fn find(store: &dyn Store, name: &str) -> anyhow::Result<ScheduleRecord> {
    let all = store.schedules().await?;
    all.into_iter().find(|record| record.schedule.name == name).ok_or_else(|| not_found(name))
}

fn not_found(name: &str) -> anyhow::Error {
    let sentence = format!("there is no schedule \"{}\"; see: ostler schedule ls", visible(name));
    refused(Code::NotFound, sentence)
}

/// The next run; `None` while paused.
fn next(record: &ScheduleRecord) -> Option<Timestamp> {
    match record.activity {
        Activity::Active => record.schedule.next_at,
        Activity::Paused => None,
    }
}

fn upcoming(record: &ScheduleRecord) -> Vec<Timestamp> {
    let (Some(first), Ok(times)) = (next(record), ScheduleSpec::parse(&record.schedule.spec)) else {
        return Vec::new();
    };
    std::iter::successors(Some(first), |last| times.next(first, *last)).take(UPCOMING).collect()
}

fn view(record: &ScheduleRecord) -> ScheduleView {
    let schedule = &record.schedule;
    let when = match ScheduleSpec::parse(&schedule.spec) {
        Ok(ScheduleSpec::Cron(line)) => RecurrenceView {
            cron: Some(line.line().to_owned()),
            timezone: Some(line.timezone().to_owned()),
            ..RecurrenceView::default()
        },
        Ok(ScheduleSpec::Every(step)) => {
            RecurrenceView { every_ms: Some(millis(step.length())), ..RecurrenceView::default() }
        }
        Ok(ScheduleSpec::At(moment)) => {
            RecurrenceView { at: Some(moment.into()), ..RecurrenceView::default() }
        }
        Err(_) => RecurrenceView::default(),
    };
    let TaskTemplate { queue, kind, payload, priority, overrides } = &schedule.task;
    let run = RunView::new(queue, kind, payload, *priority, overrides);
    let view = ScheduleView::new(&schedule.name, when, schedule.overlap, schedule.missed, run);
    let view = view.with_runs(next(record), record.last_at, record.last_task);
    ScheduleView { state: print::schedule_state(record), ..view }
}
