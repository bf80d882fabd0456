//! `ostler breaker`: lists circuit breakers of queues and limit keys, and opens or resets them by hand.

use ostler_core::Timestamp;
use ostler_store::calls::QueueChange;
use ostler_store::views::{QueueRecord, Survey};
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::limits::{BreakerStateView, BreakerView};

use super::Console;
use super::queue::{named, rule};
use crate::args::BreakerCommand;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, command: BreakerCommand) -> anyhow::Result<Code> {
    match command {
        BreakerCommand::Ls => list(console).await,
        BreakerCommand::Open { queue, key, span } => {
            let change = |now: Timestamp| {
                let until = span.map(|span| now.after(span));
                match key.clone() {
                    None => QueueChange::OpenBreaker(until),
                    Some(key) => QueueChange::OpenKeyBreaker { key, until },
                }
            };
            set(console, &queue, key.as_deref(), change).await
        }
        BreakerCommand::Reset { queue, key } => {
            let change = |_| key.clone().map_or(QueueChange::ResetBreaker, QueueChange::ResetKeyBreaker);
            set(console, &queue, key.as_deref(), change).await
        }
    }
}

async fn list(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let survey = store.survey().await?;
    let views: Vec<BreakerView> = survey.queues.iter().flat_map(|record| of_queue(&survey, record)).collect();
    console.out.answer(&views, |looks| print::breakers(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

/// The breakers of a queue: its own, or the rule for its keys and the keys whose breakers are not closed.
fn of_queue(survey: &Survey, record: &QueueRecord) -> Vec<BreakerView> {
    let has_one = record.breaker.is_some() || record.settings.breaker.is_some();
    let own = has_one.then(|| one(record, None, record.breaker.map(Into::into)));
    let keys = survey.keys.iter().filter(|key| key.queue == record.name);
    let keys = keys.filter_map(|key| Some(one(record, Some(&key.key), Some(key.breaker?.into()))));
    own.into_iter().chain(keys).collect()
}

fn one(record: &QueueRecord, key: Option<&str>, state: Option<BreakerStateView>) -> BreakerView {
    BreakerView {
        queue: record.name.clone(),
        key: key.map(str::to_owned),
        state: state.map(|state| state.state),
        until: state.and_then(|state| state.until),
        breaker: rule(record),
    }
}

/// Applies a change computed from the store's time.
async fn set(
    console: &Console,
    queue: &str,
    key: Option<&str>,
    change: impl Fn(Timestamp) -> QueueChange,
) -> anyhow::Result<Code> {
    let place = console.place()?;
    place.bounds().check_changes(queue, &[change(SystemClock.now())])?;
    let store = place.open(IfMissing::Refuse).await?;
    named(&store.survey().await?, queue)?;
    store.configure(queue, vec![change(store.now().await?)]).await?;
    let survey = store.survey().await?;
    let record = named(&survey, queue)?;
    let state = match key {
        None => record.breaker,
        Some(key) => {
            let found = survey.keys.iter().find(|record| record.queue == queue && record.key == key);
            found.and_then(|record| record.breaker)
        }
    };
    // A breaker without stored state is closed.
    let closed = BreakerStateView { state: "closed", until: None };
    let view = one(record, key, Some(state.map_or(closed, Into::into)));
    console.out.answer(&view, |_| print::breaker(&view, SystemClock.now()))?;
    Ok(Code::Done)
}
