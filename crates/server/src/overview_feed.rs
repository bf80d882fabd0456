//! The overview as a live stream of coalesced state: the newest value of each section, at most four times a second. One sampler serves
//! all readers, and runs only while there is one. `changes` counts what the sections do not show, such as events of a task: a page of a task
//! fetches itself again when it rises, so that a browser needs one stream for all of its pages.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ostler_ops::OpsError;
use ostler_ops::overview::{JobQueues, Overview};
use ostler_store::{Clock, Store, Woken};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::sse::{EventWriter, Gone, PING, event, notice};

/// The minimum interval between two samples.
const SPACING: Duration = Duration::from_millis(250);
/// The longest time between two: the store reports ends and events, and other changes, such as a new task, are found by looking.
const LONGEST: Duration = Duration::from_millis(300);

/// One part of the overview, as it is sent.
#[derive(Clone, Debug)]
struct OverviewSection {
    name: &'static str,
    /// When it last changed.
    number: u64,
    data: Arc<str>,
}

/// The newest value of each section.
#[derive(Clone, Debug, Default)]
struct OverviewSample {
    number: u64,
    sections: Vec<OverviewSection>,
}

struct OverviewSampler {
    epoch: String,
    newest: watch::Receiver<Arc<OverviewSample>>,
    /// Ends the sampler with its last reader.
    _stop: DropGuard,
}

/// The overview of a node, for its readers.
pub(crate) struct OverviewFeed {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// What tells the samplers of this start from others.
    start: String,
    running: Mutex<(u64, Weak<OverviewSampler>)>,
}

impl OverviewFeed {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, start: String) -> Arc<Self> {
        Arc::new(Self { store, clock, start, running: Mutex::new((0, Weak::new())) })
    }

    /// Sends the overview to one reader that last saw this event, until the reader is gone or the node stops.
    pub(crate) async fn serve(self: Arc<Self>, last: Option<String>, mut writer: EventWriter) {
        let _ = self.follow(last, &mut writer).await;
    }

    async fn follow(&self, last: Option<String>, writer: &mut EventWriter) -> Result<(), Gone> {
        let sampler = self.sampler();
        let mut newest = sampler.newest.clone();
        let mut seen = match last.as_deref().map(|last| position(last, &sampler.epoch)) {
            None => 0,
            Some(Some(number)) => number,
            Some(None) => {
                writer.write(notice("reset", "{}")).await?;
                0
            }
        };
        loop {
            let sample = Arc::clone(&newest.borrow_and_update());
            for section in sample.sections.iter().filter(|section| section.number > seen) {
                let id = format!("{}-{}", sampler.epoch, section.number);
                writer.write(event(&id, Some(section.name), &section.data)).await?;
            }
            seen = seen.max(sample.number);
            tokio::select! {
                changed = tokio::time::timeout(PING, newest.changed()) => match changed {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(Gone),
                    Err(_) => writer.comment().await?,
                },
                () = writer.stopped() => return Err(Gone),
            }
        }
    }

    fn sampler(&self) -> Arc<OverviewSampler> {
        let mut running = self.running.lock().expect("no panic while the sampler is held");
        if let Some(sampler) = running.1.upgrade() {
            return sampler;
        }
        running.0 += 1;
        let (sender, newest) = watch::channel(Arc::default());
        let stop = CancellationToken::new();
        let (stopped, store, clock) = (stop.clone(), Arc::clone(&self.store), Arc::clone(&self.clock));
        tokio::spawn(async move {
            tokio::select! {
                () = sample(store, clock, &sender) => {}
                () = stopped.cancelled() => {}
            }
        });
        let epoch = format!("{}.{}", self.start, running.0);
        let sampler = Arc::new(OverviewSampler { epoch, newest, _stop: stop.drop_guard() });
        running.1 = Arc::downgrade(&sampler);
        sampler
    }
}

/// The number of an event of this epoch.
fn position(last: &str, epoch: &str) -> Option<u64> {
    let (known, number) = last.rsplit_once('-')?;
    if known == epoch { number.parse().ok() } else { None }
}

async fn sample(store: Arc<dyn Store>, clock: Arc<dyn Clock>, newest: &watch::Sender<Arc<OverviewSample>>) {
    let (mut changes, mut last, mut reported) = (store.changes(), OverviewSample::default(), 0_u64);
    loop {
        let began = Instant::now();
        // A store that does not answer changes nothing that is known.
        if let Ok(sections) = sections(store.as_ref(), clock.as_ref(), reported).await {
            let mut next = OverviewSample { number: last.number + 1, sections: Vec::new() };
            let mut changed = false;
            for (name, data) in sections {
                let before = last.sections.iter().find(|section| section.name == name);
                match before.filter(|before| *before.data == *data) {
                    Some(same) => next.sections.push(same.clone()),
                    None => {
                        changed = true;
                        next.sections.push(OverviewSection { name, number: next.number, data: data.into() });
                    }
                }
            }
            if changed {
                last = next.clone();
                newest.send_replace(Arc::new(next));
            }
        }
        if let Ok(Woken::Hint) = tokio::time::timeout(LONGEST, changes.wait()).await {
            reported += 1;
        }
        tokio::time::sleep_until(began + SPACING).await;
    }
}

async fn sections(
    store: &dyn Store,
    clock: &dyn Clock,
    reported: u64,
) -> Result<[(&'static str, String); 5], OpsError> {
    let overview = Overview::take(store).await?;
    Ok([
        ("stats", text(&overview.stats(None))),
        ("queues", text(&overview.queues(JobQueues::Hidden))),
        ("nodes", text(&overview.nodes())),
        ("workers", text(&overview.workers(clock.now()))),
        ("changes", format!("{{\"count\":{reported}}}")),
    ])
}

fn text(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("a view is JSON")
}
