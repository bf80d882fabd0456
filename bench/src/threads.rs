//! Closures on the pool of threads, compared with bare threads: the same closures, sent through a channel to threads with the same
//! runtimes, each in a `LocalSet` of its own. Both take turns.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use ostler::{Choice, Runtimes, ThreadPolicy, ThreadPool};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};

use crate::stats::median;
use crate::{Bench, Error, Scale, machine};

/// The requested run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Closures of each measurement.
    pub(crate) calls: u32,
    pub(crate) rounds: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { calls: 100_000, rounds: 7 }
    }
}

/// Thread counts, in turn.
const THREADS: [usize; 2] = [1, 2];
/// Callers for each thread, of which each waits for its closure: fewer than may run and wait.
const CALLERS: usize = 8;
/// Closures before the measurement, for each caller.
const WARM: u32 = 100;

/// Measures, and prints a table.
pub(crate) fn run(wanted: &Wanted) -> Result<(), Error> {
    let bench = Bench::new(Scale::QUICK, None)?;
    println!(
        "{} closures that do nothing, {CALLERS} callers for each thread, medians of {} rounds in turns; load {}",
        wanted.calls,
        wanted.rounds,
        machine::load()
    );
    println!(
        "| threads | runtime of a thread | choice | pool, closures/s | bare, closures/s | of bare | range |"
    );
    println!("|---:|---|---|---:|---:|---:|---|");
    for threads in THREADS {
        for runtimes in [Runtimes::CurrentThread, Runtimes::TwoWorkers] {
            for choice in [Choice::RoundRobin, Choice::LeastLoaded] {
                let policy = ThreadPolicy { choice, runtimes, ..ThreadPolicy::for_cores(threads) };
                let mut figures = Vec::new();
                for _ in 0..wanted.rounds {
                    figures.push(bench.runtime.block_on(round(policy, wanted.calls))?);
                }
                print_row(policy, &figures);
            }
        }
    }
    println!("\nload at the end: {}", machine::load());
    Ok(())
}

/// Closures per second of one round.
#[derive(Clone, Copy, Debug)]
struct Figures {
    pool: f64,
    bare: f64,
}

async fn round(policy: ThreadPolicy, calls: u32) -> Result<Figures, Error> {
    let pool = ThreadPool::start(policy)?;
    let on_pool = move |number: u32| {
        let pool = pool.clone();
        async move { Ok::<u32, Error>(pool.run(move || noop(number)).await?) }
    };
    let pool = measure(on_pool, policy.threads, calls).await?;
    let bare = Arc::new(BareThreads::start(policy)?);
    let on_bare = move |number: u32| {
        let bare = Arc::clone(&bare);
        async move { bare.run(move || noop(number)).await }
    };
    let bare = measure(on_bare, policy.threads, calls).await?;
    Ok(Figures { pool, bare })
}

/// The closure under test: its future is not `Send`, and it does no work.
async fn noop(number: u32) -> u32 {
    *Rc::new(number)
}

/// Closures per second, by callers that each wait for their closure.
async fn measure<F, R>(call: F, threads: usize, calls: u32) -> Result<f64, Error>
where
    F: Fn(u32) -> R + Clone + Send + 'static,
    R: Future<Output = Result<u32, Error>> + Send + 'static,
{
    let callers = threads * CALLERS;
    spread(&call, callers, WARM * u32::try_from(callers)?).await?;
    let began = Instant::now();
    spread(&call, callers, calls).await?;
    Ok(f64::from(calls) / began.elapsed().as_secs_f64())
}

async fn spread<F, R>(call: &F, callers: usize, calls: u32) -> Result<(), Error>
where
    F: Fn(u32) -> R + Clone + Send + 'static,
    R: Future<Output = Result<u32, Error>> + Send + 'static,
{
    let left = Arc::new(AtomicU32::new(calls));
    let mut all = JoinSet::new();
    for _ in 0..callers {
        let (call, left) = (call.clone(), Arc::clone(&left));
        all.spawn(async move {
            let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            while let Ok(number) = take() {
                if call(number).await? != number {
                    return Err("another closure's result".into());
                }
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    Ok(())
}

fn print_row(policy: ThreadPolicy, figures: &[Figures]) {
    let runtime = match policy.runtimes {
        Runtimes::CurrentThread => "the thread itself",
        Runtimes::TwoWorkers => "two workers",
    };
    let choice = match policy.choice {
        Choice::RoundRobin => "in turn",
        Choice::LeastLoaded => "least loaded",
    };
    let of = |pick: fn(&Figures) -> f64| median(figures.iter().map(pick).collect());
    let ratios: Vec<f64> = figures.iter().map(|figures| figures.pool / figures.bare).collect();
    let (least, most) =
        ratios.iter().fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
    println!(
        "| {} | {runtime} | {choice} | {:.0} | {:.0} | {:.2} | {least:.2}–{most:.2} |",
        policy.threads,
        of(|figures| figures.pool),
        of(|figures| figures.bare),
        median(ratios),
    );
}

type BareJob = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Threads without limits, permits, a drain, cancellation or a place for panics: what the pool adds to them is its cost.
struct BareThreads {
    senders: Vec<mpsc::Sender<BareJob>>,
    next: AtomicUsize,
}

impl BareThreads {
    fn start(policy: ThreadPolicy) -> Result<Self, Error> {
        let mut senders = Vec::new();
        for place in 0..policy.threads {
            let runtime: Runtime = match policy.runtimes {
                Runtimes::CurrentThread => Builder::new_current_thread().enable_all().build()?,
                Runtimes::TwoWorkers => Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
            };
            let (sender, jobs) = mpsc::channel::<BareJob>();
            let serve = move || {
                while let Ok(job) = jobs.recv() {
                    let local = LocalSet::new();
                    runtime.block_on(local.run_until(job()));
                }
            };
            std::thread::Builder::new().name(format!("bare-{place}")).spawn(serve)?;
            senders.push(sender);
        }
        Ok(Self { senders, next: AtomicUsize::new(0) })
    }

    async fn run<R>(&self, closure: impl FnOnce() -> R + Send + 'static) -> Result<u32, Error>
    where
        R: Future<Output = u32> + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: BareJob = Box::new(move || {
            Box::pin(async move {
                let _ = answer.send(closure().await);
            })
        });
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.senders.len();
        self.senders[turn].send(job).map_err(|_| "a bare thread has ended")?;
        Ok(answered.await?)
    }
}
