//! The PostgreSQL store, compared with bare statements on the same server, and with its peers.
//!
//! The benchmark has its own server (`server.rs`). `side.rs` drives the store, `bare.rs` is the ceiling; both are open at once and
//! alternate. `latency.rs`: single operations. `faults.rs`: throughput after faults.
//! `peers.rs`: other queues, installed by name and driven by our scripts.

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
use crate::{Bench, Error, disk, lists};

pub(crate) use latency::serve_enqueuer;

use bare::{Bare, CONNECTIONS, connect};
use server::{SETTINGS, Server};

/// Tasks per call while a backlog is created.
const FILL: usize = 1_000;
/// Tasks per call.
const BATCHES: [usize; 5] = [1, 32, 128, 500, 1_000];
/// Concurrent callers.
const CALLERS: [usize; 2] = [8, 64];
/// The batch size for peers and backlogs.
const BATCH: usize = 500;
/// More than any batch size could drain in a second: enough for a slice is enqueued before it.
const MOST_A_SECOND: usize = 150_000;
/// The maximum number of commits per second on one connection.
const COMMITS_A_SECOND: usize = 5_000;

/// State shared by all parts of the measurement.
struct Parts<'a> {
    bench: &'a Bench,
    server: &'a Server,
    /// `disk` or `tmpfs`.
    place: &'static str,
    schemas: AtomicUsize,
}

/// Measures the store, and prints the report.
pub(crate) fn run(
    scale: Scale,
    output: &Output,
    dir: Option<PathBuf>,
    only: Option<String>,
) -> Result<(), Error> {
    let bench = Bench::new(scale, only)?;
    // A folder that the server's user can access, which the build folder often is not.
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
    // Print the finished rows even after an error.
    output.write(&report)?;
    measured
}

/// How tasks are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Claims and finishes tasks already enqueued, the finish of one batch together with the claim of the next.
    Drain,
    /// Enqueues, claims and finishes, one after the other.
    Cycle,
    /// Enqueues by as many callers as a batch has tasks, one per call. The ceiling enqueues batches, like an ideal group
    /// commit.
    Callers,
}

impl Way {
    /// The batch sizes to measure.
    const fn batches(self) -> &'static [usize] {
        match self {
            Self::Drain | Self::Cycle => &BATCHES,
            Self::Callers => &CALLERS,
        }
    }
}

/// The store and the ceiling, each in its own schema.
struct Sides {
    ours: Arc<Ours>,
    bare: Bare,
}

impl Parts<'_> {
    /// Measures everything, one after the other.
    fn measure(&self, peers: &[peers::Installed], report: &mut Report) -> Result<(), Error> {
        disk::probe(self.server.folder(), self.bench.scale.drain)?;
        peers::run(self, peers, report)?;
        self.throughput(Way::Drain, report)?;
        self.throughput(Way::Cycle, report)?;
        self.throughput(Way::Callers, report)?;
        latency::run(self, report)?;
        self.lists(report)?;
        self.backlog(report)?;
        self.holder(report)?;
        faults::run(self, report)
    }

    fn fdatasync(&self) -> Result<f64, Error> {
        disk::probe(self.server.folder(), self.bench.scale.probe)
    }

    /// An unused schema name.
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

    /// Alternates both sides.
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
        let stock = stock(batch, about);
        self.bench.runtime.block_on(async {
            match way {
                Way::Drain => {
                    side::fill_ready(&sides.ours, stock).await?;
                    sides.bare.fill_ready(stock).await?;
                    ours.add(side::drain(&sides.ours, batch, about).await?);
                    ceiling.add(sides.bare.drain(batch, about).await?);
                    // Clear the rest for the next slice.
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

    fn lists(&self, report: &mut Report) -> Result<(), Error> {
        if !self.bench.wants("latency: lists") {
            return Ok(());
        }
        let open =
            |name: &str| self.bench.runtime.block_on(side::open(&self.server.url(), &self.schema(name)));
        lists::run(self.bench, self.place, [open("few")?, open("many")?], self.fdatasync()?, report)
    }

    /// The same with a large backlog.
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

    /// With an idle transaction of another session that holds an old snapshot: no dead row can be vacuumed.
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
            // The first query takes the snapshot, and gives the transaction an id.
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

/// As many tasks as a drain of this length could not empty.
fn stock(batch: usize, about: Duration) -> usize {
    let a_second = MOST_A_SECOND.min(batch * COMMITS_A_SECOND) as f64;
    (a_second * about.as_secs_f64()) as usize + 2 * batch
}

/// A store in a new schema.
pub(crate) async fn open_empty(url: &str, schema: &str) -> Result<Arc<Ours>, Error> {
    side::open(url, schema).await
}

/// A store in a new schema, warmed up.
pub(crate) async fn open_warm(url: &str, schema: &str, count: usize) -> Result<Arc<Ours>, Error> {
    let ours = side::open(url, schema).await?;
    side::fill(&ours, Rows::Finished, count).await?;
    Ok(ours)
}

/// One slice of the store alone.
pub(crate) async fn slice(ours: &Arc<Ours>, way: Way, batch: usize, about: Duration) -> Result<Tally, Error> {
    match way {
        Way::Drain => {
            side::fill_ready(ours, stock(batch, about)).await?;
            let did = side::drain(ours, batch, about).await?;
            side::drain(ours, FILL, Duration::MAX).await?;
            Ok(did)
        }
        Way::Cycle => side::cycle(ours, batch, about).await,
        Way::Callers => side::call(ours, batch, about).await,
    }
}
