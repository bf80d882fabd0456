//! Runs each operation on the reference and on the store, and compares their answers and their contents.

use std::sync::Arc;
use std::time::Duration;

use super::super::fixture::{Constructor, Fixture, Halfway};
use super::super::picture::{Picture, list_all, survey};
use super::op::{Act, Names, Op, QUEUES, SUBSCRIBERS, Step, Via};
use super::say::{GrantedLease, Said, Speaker};
use ostler_store::Checks;
use ostler_store::Store;

use ostler_store::views::{Filter, LeaseFilter, Survey};
use ostler_store::{MAX_MAINTENANCE_BATCH, MAX_PAGE};

/// Compares everything, not only the counts, every this many operations.
const FULL_LOOK_EVERY: usize = 10;
const PAGE: usize = 7;
/// A session that no sequence draws.
const LAST: usize = 9_999;

/// Runs a sequence. `Err` names the operation at which the stores differ, and the difference.
pub(super) async fn compare(
    make: &Constructor,
    reference: &Constructor,
    names: Names,
    steps: &[Step],
) -> Result<(), (usize, String)> {
    let mut pair = Pair::new(make, reference, names).await;
    for (at, step) in steps.iter().enumerate() {
        pair.step(step).await.map_err(|why| (at, why))?;
        let last = at + 1 == steps.len();
        let looked = if last || at % FULL_LOOK_EVERY == FULL_LOOK_EVERY - 1 {
            pair.look_at_everything(step.via).await
        } else {
            pair.look(step.via).await
        };
        looked.map_err(|why| (at, why))?;
        if at == steps.len() / 2 && pair.tested.halfway().await == Halfway::Moved {
            pair.follow().await;
            pair.look_at_everything(step.via).await.map_err(|why| (at, format!("after the move: {why}")))?;
        }
        if last {
            pair.hear_the_rest(step.via).await.map_err(|why| (at, why))?;
        }
    }
    Ok(())
}

/// The reference, the store, and the leases granted by both.
struct Pair {
    reference: Box<dyn Fixture>,
    tested: Box<dyn Fixture>,
    expected: Arc<dyn Store>,
    first: Arc<dyn Store>,
    second: Arc<dyn Store>,
    names: Names,
    open: Vec<[GrantedLease; 2]>,
    closed: Vec<[GrantedLease; 2]>,
    submitted: u64,
}

impl Pair {
    async fn new(make: &Constructor, reference: &Constructor, names: Names) -> Self {
        let reference = reference(Checks::default()).await;
        let tested = make(Checks::default()).await;
        assert_eq!(reference.now(), tested.now(), "the clocks of both stores must start at the same moment");
        let (expected, first, second) = (reference.store(), tested.store(), tested.second().await);
        let (open, closed) = (Vec::new(), Vec::new());
        Self { reference, tested, expected, first, second, names, open, closed, submitted: 0 }
    }

    /// Switches to the store that the tested one moved to. The move ended all sessions, so those of the reference end too.
    async fn follow(&mut self) {
        (self.first, self.second) = (self.tested.store(), self.tested.second().await);
        while self.expected.expire(MAX_MAINTENANCE_BATCH).await.expect("expire answers").more {}
        for node in survey(self.expected.as_ref()).await.nodes {
            self.expected.leave(node.session).await.expect("leave answers");
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.act {
            Act::Pass { ms } => {
                for fixture in [&self.reference, &self.tested] {
                    fixture.advance(Duration::from_millis(*ms));
                }
                Ok(())
            }
            // A dead node makes no calls: between its death and its expiry, its session is only observed.
            Act::Kill { session } => {
                for fixture in [&self.reference, &self.tested] {
                    fixture.kill(self.names.session(*session)).await;
                }
                self.look(step.via).await?;
                let stale = Filter { lease: LeaseFilter::Stale, ..Filter::default() };
                let (expected, got) = (
                    list_all(self.expected.as_ref(), &stale, PAGE).await,
                    list_all(self.tested(step.via).as_ref(), &stale, PAGE).await,
                );
                equal("stale leases after a kill", &expected, &got)?;
                self.say(step.via, &Op::Expire { batch: 0 }).await
            }
            Act::Say(op) => self.say(step.via, op).await,
        }
    }

    /// Only `take_outbox` shows pending outbox entries, so a new session takes the rest at the end.
    async fn hear_the_rest(&mut self, via: Via) -> Result<(), String> {
        self.say(via, &Op::Join { session: LAST, ttl_ms: 60_000 }).await?;
        for queue in 0..QUEUES.len() {
            for subscriber in 0..SUBSCRIBERS.len() {
                self.say(via, &Op::Hear { session: LAST, queue, subscriber, limit: MAX_PAGE }).await?;
            }
        }
        Ok(())
    }

    async fn say(&mut self, via: Via, op: &Op) -> Result<(), String> {
        let now = self.reference.now();
        let [expected, got] =
            [(0, Arc::clone(&self.expected)), (1, self.tested(via))].map(|(side, store)| {
                let grants =
                    |list: &[[GrantedLease; 2]]| list.iter().map(|grant| grant[side]).collect::<Vec<_>>();
                let (open, closed) = (grants(&self.open), grants(&self.closed));
                Speaker { store, names: self.names, now, open, closed }
            });
        let (expected, got): (Said, Said) = (expected.say(op).await, got.say(op).await);
        equal("the answer", &expected.answer, &got.answer)?;
        self.submitted += expected.created;
        for at in expected.spent {
            if let Some(place) = self.open.iter().position(|grant| grant[0].same(&at)) {
                let grant = self.open.remove(place);
                self.closed.push(grant);
            }
        }
        self.open.extend(expected.granted.into_iter().zip(got.granted).map(|(one, other)| [one, other]));
        Ok(())
    }

    fn tested(&self, via: Via) -> Arc<dyn Store> {
        match via {
            Via::First => Arc::clone(&self.first),
            Via::Second => Arc::clone(&self.second),
        }
    }

    /// The connection that was not used: a change made through one must be visible to the other.
    fn other(&self, via: Via) -> Arc<dyn Store> {
        match via {
            Via::First => self.tested(Via::Second),
            Via::Second => self.tested(Via::First),
        }
    }

    async fn look(&self, via: Via) -> Result<(), String> {
        let expected = survey(self.expected.as_ref()).await;
        self.check_counts(&expected)?;
        equal("the survey", &expected, &survey(self.other(via).as_ref()).await)
    }

    async fn look_at_everything(&self, via: Via) -> Result<(), String> {
        let expected = Picture::take(self.expected.as_ref()).await;
        let got = Picture::take(self.other(via).as_ref()).await;
        self.check_counts(&expected.survey)?;
        equal("the survey", &expected.survey, &got.survey)?;
        equal("the schedules", &expected.schedules, &got.schedules)?;
        equal("the jobs", &expected.jobs, &got.jobs)?;
        for (expected, got) in expected.tasks.iter().zip(&got.tasks) {
            equal("a task", expected, got)?;
        }
        equal("the number of tasks", &expected.tasks.len(), &got.tasks.len())
    }

    fn check_counts(&self, survey: &Survey) -> Result<(), String> {
        let sum: u64 = survey.lanes.iter().map(|lane| lane.counts.submitted()).sum();
        equal("submitted, as the sum of the six counts", &self.submitted, &sum)
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, got: &T) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{what}\n  expected: {expected:?}\n       got: {got:?}"))
}
