//! The PostgreSQL store beside bare statements on the same server, and beside its peers.
//!
//! The server is the benchmark's own (`server.rs`). `side.rs` drives the store, `bare.rs` is the ceiling; both are open at once and take
//! turns. `latency.rs`: how long one thing takes. `faults.rs`: how fast it is after
//! faults. `peers.rs`: other queues, installed by name and driven by scripts of ours.

pub(crate) mod bare;
pub(crate) mod faults;
mod latency;
mod peers;
pub(crate) mod server;
mod side;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::args::Output;
use crate::ceiling::Rows;
use crate::load::Tally;
use crate::machine::{self, Machine};
use crate::ours::Ours;
use crate::report::{BacklogRound, BacklogRow, Report, Round, ThroughputRow};
use crate::scale::Scale;
use crate::{Bench, Error, disk};

pub(crate) use latency::serve_enqueuer;

use bare::{Bare, CONNECTIONS, connect};
use server::{SETTINGS, Server};

/// Tasks of a call while a backlog is made.
const FILL: usize = 1_000;
/// Tasks in each call.
const BATCHES: [usize; 5] = [1, 32, 128, 500, 1_000];
/// Callers at once.
const CALLERS: [usize; 2] = [8, 64];
/// The batch that peers and backlogs are measured with.
const BATCH: usize = 500;
/// More than a second of any batch could drain: the share of a slice is laid in before it.
const MOST_A_SECOND: usize = 150_000;
/// Commits that one connection makes a second at most.
const COMMITS_A_SECOND: usize = 5_000;

/// Everything that is measured here.
struct Parts<'a> {
    bench: &'a Bench,
    server: &'a Server,
    /// `disk` or `tmpfs`.
    place: &'static str,
    schemas: AtomicUsize,
}

/// Measures the store, and prints what was found.
pub(crate) fn run(
    scale: Scale,
    output: &Output,
    dir: Option<PathBuf>,
    only: Option<String>,
) -> Result<(), Error> {
    let bench = Bench::new(scale, only)?;
    // A folder that the server's user can get to, which one of the user who builds often is not.
    let server = Server::start(&dir.unwrap_or_else(std::env::temp_dir))?;
    let memory = machine::file_system(server.folder()).starts_with(crate::TMPFS);
    let place = if memory { crate::TMPFS } else { crate::DISK };
    let parts = Parts { bench: &bench, server: &server, place, schemas: AtomicUsize::new(0) };
    let version = bench.runtime.block_on(async {
        let row = connect(&server.url()).await?.query_one("show server_version", &[]).await?;
        Ok::<String, Error>(row.get(0))
    })?;
    let facts = vec![("PostgreSQL", version), ("its settings", SETTINGS.join(", "))];
    let mut report = Report::new(Machine::with(server.folder(), facts));
    let peers = peers::install(&bench)?;
    let measured = parts.measure(&peers, &mut report);
    report.end(machine::load());
    // What was measured before something went wrong is worth being seen.
    output.write(&report)?;
    measured
}

/// How tasks are brought through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They are there; they are claimed and finished, the finish of one batch together with the claim of the next.
    Drain,
    /// They are enqueued, claimed and finished, one after the other.
    Cycle,
    /// They are enqueued by as many callers as a batch has tasks, one in each call. The ceiling enqueues batches: what an ideal group
    /// commit could reach.
    Callers,
}

impl Way {
    /// The batches that it is measured with.
    const fn batches(self) -> &'static [usize] {
        match self {
            Self::Drain | Self::Cycle => &BATCHES,
            Self::Callers => &CALLERS,
        }
    }
}

/// The store and the ceiling, each in a schema of its own.
struct Sides {
    ours: Arc<Ours>,
    bare: Bare,
}

impl Parts<'_> {
    /// All of it, one after the other.
    fn measure(&self, peers: &[peers::Installed], report: &mut Report) -> Result<(), Error> {
        disk::probe(self.server.folder(), self.bench.scale.drain)?;
        peers::run(self, peers, report)?;
        self.throughput(Way::Drain, report)?;
        self.throughput(Way::Cycle, report)?;
        self.throughput(Way::Callers, report)?;
        latency::run(self, report)?;
        self.backlog(report)?;
        self.holder(report)?;
        faults::run(self, report)
    }

    fn fdatasync(&self) -> Result<f64, Error> {
        disk::probe(self.server.folder(), self.bench.scale.probe)
    }

    /// A name that no schema has yet.
    fn schema(&self, what: &str) -> String {
        format!("{what}_{}", self.schemas.fetch_add(1, Ordering::Relaxed))
    }

    /// New tables on both sides, with hardly anything in them but the warm-up.
    fn fresh(&self) -> Result<Sides, Error> {
        let (url, count) = (self.server.url(), self.bench.scale.warm_up);
        self.bench.runtime.block_on(async {
            let ours = side::open(&url, &self.schema("ours")).await?;
            let mut bare = Bare::make(&url, &self.schema("bare")).await?;
            side::fill(&ours, Rows::Finished, count).await?;
            bare.fill(Rows::Finished, count).await?;
            Ok(Sides { ours, bare })
        })
    }

    fn throughput(&self, way: Way, report: &mut Report) -> Result<(), Error> {
        for batch in way.batches().iter().copied() {
            let what = match way {
                Way::Drain => format!("drain, batch {batch}"),
                Way::Cycle => format!("enqueue to done, batch {batch}"),
                Way::Callers => format!("enqueue, {batch} callers of single tasks"),
            };
            if !self.bench.wants(&what) {
                continue;
            }
            let rounds = (0..self.bench.scale.rounds).map(|_| self.round(way, batch));
            let rounds = rounds.collect::<Result<_, Error>>()?;
            report.throughput.push(ThroughputRow { place: self.place, what, rounds });
        }
        Ok(())
    }

    fn round(&self, way: Way, batch: usize) -> Result<Round, Error> {
        let mut sides = self.fresh()?;
        let fdatasync = self.fdatasync()?;
        let (ours, ceiling) = self.slices(&mut sides, way, batch)?;
        Ok(Round { fdatasync, ours: ours.rate(), ceiling: ceiling.rate() })
    }

    /// Both take turns.
    fn slices(&self, sides: &mut Sides, way: Way, batch: usize) -> Result<(Tally, Tally), Error> {
        let (mut ours, mut ceiling) = (Tally::default(), Tally::default());
        for _ in 0..self.bench.scale.slices {
            self.slice(sides, way, batch, &mut ours, &mut ceiling)?;
        }
        Ok((ours, ceiling))
    }

    fn slice(
        &self,
        sides: &mut Sides,
        way: Way,
        batch: usize,
        ours: &mut Tally,
        ceiling: &mut Tally,
    ) -> Result<(), Error> {
        let about = self.bench.scale.slice;
        let a_second = MOST_A_SECOND.min(batch * COMMITS_A_SECOND) as f64;
        let stock = (a_second * about.as_secs_f64()) as usize + 2 * batch;
        self.bench.runtime.block_on(async {
            match way {
                Way::Drain => {
                    side::fill_ready(&sides.ours, stock).await?;
                    sides.bare.fill_ready(stock).await?;
                    ours.add(side::drain(&sides.ours, batch, about).await?);
                    ceiling.add(sides.bare.drain(batch, about).await?);
                    // What is left is not in the way of the next one.
                    side::drain(&sides.ours, FILL, Duration::MAX).await?;
                    sides.bare.drain(FILL, Duration::MAX).await?;
                }
                Way::Cycle => {
                    ours.add(side::cycle(&sides.ours, batch, about).await?);
                    ceiling.add(sides.bare.cycle(batch, about).await?);
                }
                Way::Callers => {
                    ours.add(side::call(&sides.ours, batch, about).await?);
                    ceiling.add(sides.bare.enqueues(batch / CONNECTIONS, about).await?);
                }
            }
            Ok(())
        })
    }

    /// The same with a great many rows in the way.
    fn backlog(&self, report: &mut Report) -> Result<(), Error> {
        let count = self.bench.scale.backlog;
        let title = format!("{count} finished, as many queued in another lane");
        if !self.bench.wants(&format!("backlog: {title}")) {
            return Ok(());
        }
        let mut full = self.fresh()?;
        self.bench.runtime.block_on(async {
            for rows in [Rows::Finished, Rows::Elsewhere] {
                side::fill(&full.ours, rows, count).await?;
                full.bare.fill(rows, count).await?;
            }
            Ok::<_, Error>(())
        })?;
        disk::settle();
        for (way, what) in [(Way::Drain, "drain"), (Way::Cycle, "enqueue to done")] {
            let round = |_| {
                let mut empty = self.fresh()?;
                let fdatasync = self.fdatasync()?;
                let (mut ours_empty, mut ceiling_empty) = (Tally::default(), Tally::default());
                let (mut ours, mut ceiling) = (Tally::default(), Tally::default());
                for _ in 0..self.bench.scale.slices {
                    self.slice(&mut empty, way, BATCH, &mut ours_empty, &mut ceiling_empty)?;
                    self.slice(&mut full, way, BATCH, &mut ours, &mut ceiling)?;
                }
                Ok(BacklogRound::of(fdatasync, (ours_empty, ceiling_empty), (ours, ceiling)))
            };
            let rounds = (0..self.bench.scale.rounds).map(round).collect::<Result<_, Error>>()?;
            let what = format!("{what}, batch {BATCH}");
            report.backlog.push(BacklogRow {
                place: self.place,
                backlog: title.clone(),
                outside_index: false,
                what,
                rounds,
            });
        }
        Ok(())
    }

    /// Somebody else's transaction sees an old moment, and does nothing: no dead row can be cleared away meanwhile.
    fn holder(&self, report: &mut Report) -> Result<(), Error> {
        let held = self.bench.scale.held;
        let title = format!("a transaction idle for {} s", held.as_secs_f32());
        if !self.bench.wants(&title) {
            return Ok(());
        }
        let mut sides = self.fresh()?;
        let fdatasync = self.fdatasync()?;
        let (ours_empty, ceiling_empty) = self.slices(&mut sides, Way::Cycle, BATCH)?;
        let holder = self.bench.runtime.block_on(async {
            let holder = connect(&self.server.url()).await?;
            holder.batch_execute("begin isolation level repeatable read").await?;
            // It sees a moment from its first question on, and has a number of its own.
            holder.query_one("select pg_current_xact_id()::text", &[]).await?;
            Ok::<_, Error>(holder)
        })?;
        let begun = Instant::now();
        let (mut ours, mut ceiling) = (Tally::default(), Tally::default());
        while begun.elapsed() < held {
            (ours, ceiling) = self.slices(&mut sides, Way::Cycle, BATCH)?;
        }
        drop(holder);
        let round = BacklogRound::of(fdatasync, (ours_empty, ceiling_empty), (ours, ceiling));
        let what = format!("enqueue to done, batch {BATCH}");
        report.backlog.push(BacklogRow {
            place: self.place,
            backlog: title,
            outside_index: false,
            what,
            rounds: vec![round],
        });
        Ok(())
    }
}
