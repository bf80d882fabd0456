//! The families of metrics: names, help, types, units and labels. All names begin with `ostler_`, which the registry adds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::StateName;
use ostler_ops::figures::{FigureNames, QueueFigures, StoreFigures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::counts::{Durations, LaneCounts, NodeCounts, PoolCounts};

/// The label of the node, which everything has that a node did.
const NODE: &str = "node";
const QUEUE: &str = "queue";
const POOL: &str = "pool";

type Labels<'l> = Vec<(&'static str, &'l str)>;
type Written = Result<(), fmt::Error>;
/// A family of one number: its name, its help, and where the number is.
type NamedField<T> = (&'static str, &'static str, fn(&T) -> u64);

/// All metrics of one scrape.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) counts: NodeCounts,
    /// `None`: the store did not answer.
    pub(super) figures: Option<Arc<StoreFigures>>,
    /// Readings of the store for metrics.
    pub(super) reads: u64,
}

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Written {
        let mut out = FamilyWriter(encoder);
        self.node(&mut out)?;
        self.tasks(&mut out)?;
        self.pools(&mut out)?;
        let exported = self.figures.as_ref().filter(|figures| figures.exporter == Some(self.counts.session));
        out.gauge(
            "store_up",
            "Whether the store answers",
            [(self.own(), u64::from(self.figures.is_some()))],
        )?;
        let exports = u64::from(exported.is_some());
        out.gauge(
            "store_exporter",
            "Whether this node exports what the store holds: one node at a time does",
            [(self.own(), exports)],
        )?;
        exported.map_or(Ok(()), |figures| store(figures, &mut out))
    }
}

impl Families {
    fn own(&self) -> Labels<'_> {
        vec![(NODE, &self.counts.node)]
    }

    /// What the node did as a whole.
    fn node(&self, out: &mut FamilyWriter<'_>) -> Written {
        let counts = &self.counts;
        let version = [(NODE, counts.node.as_str()), ("version", env!("CARGO_PKG_VERSION"))];
        let mut info = out.0.encode_descriptor("node", "The node and its version", None, MetricType::Info)?;
        info.encode_info(&version)?;
        out.gauge("attempts_running", "Attempts that run on the node", [(self.own(), counts.running)])?;
        for (name, help, value) in [
            ("heartbeats", "Renewals of the leases of the node", counts.heartbeats),
            ("store_errors", "Calls of the store that failed", counts.store_errors),
            ("store_outages", "How often the store could not be used", counts.store_outages),
            ("store_figure_reads", "Readings of the store for metrics", self.reads),
            ("node_fenced", "How often the node lost its leases", counts.fenced),
        ] {
            out.counter(name, help, [(self.own(), value)])?;
        }
        Ok(())
    }

    /// What the node did with tasks, by queue.
    fn tasks(&self, out: &mut FamilyWriter<'_>) -> Written {
        let counts = &self.counts;
        let names = FigureNames::new(counts.lanes.iter().map(|lane| lane.queue.as_str()));
        let mut queues: BTreeMap<&str, LaneCounts> = BTreeMap::new();
        for lane in &counts.lanes {
            let sum = queues.entry(names.of_queue(&lane.queue)).or_default();
            sum.submitted += lane.submitted;
            sum.started += lane.started;
            sum.waited.add(&lane.waited);
            sum.took.add(&lane.took);
            for (outcome, count) in &lane.ended {
                match sum.ended.iter_mut().find(|(known, _)| known == outcome) {
                    Some((_, known)) => *known += count,
                    None => sum.ended.push((outcome, *count)),
                }
            }
        }
        let labels = |queue| vec![(NODE, counts.node.as_str()), (QUEUE, queue)];
        let submitted = queues.iter().map(|(queue, lane)| (labels(queue), lane.submitted));
        out.counter("tasks_submitted", "Tasks that the node stored", submitted)?;
        let started = queues.iter().map(|(queue, lane)| (labels(queue), lane.started));
        out.counter("attempts_started", "Attempts that the node started", started)?;
        let ended = queues.iter().flat_map(|(queue, lane)| {
            let of = move |(outcome, count): &(&'static str, u64)| {
                let mut all = labels(queue);
                all.push(("outcome", outcome));
                (all, *count)
            };
            lane.ended.iter().map(of)
        });
        out.counter(
            "attempts_ended",
            "Attempts that ended on the node, by what became of their task; returned ones were handed back",
            ended,
        )?;
        let took = queues.iter().map(|(queue, lane)| (labels(queue), &lane.took));
        out.durations("attempt_duration", "From the start of an attempt to its end", took)?;
        let waited = queues.iter().map(|(queue, lane)| (labels(queue), &lane.waited));
        out.durations("task_wait", "From the submission of a task to its first start", waited)
    }

    /// What the node did for its pools.
    fn pools(&self, out: &mut FamilyWriter<'_>) -> Written {
        let counts = &self.counts;
        let names = FigureNames::new(counts.pools.iter().map(|pool| pool.pool.as_str()));
        let fields: [NamedField<PoolCounts>; 7] = [
            ("tasks_claimed", "Tasks that the node claimed", |pool| pool.claimed),
            ("workers_started", "Workers that started", |pool| pool.workers_started),
            ("worker_start_failures", "Workers that did not start", |pool| pool.failed_starts),
            (
                "workers_recycled",
                "Workers that were replaced after their share of work, or on request",
                |pool| pool.workers_recycled,
            ),
            ("worker_crashes", "Workers that died by themselves", |pool| pool.workers_crashed),
            ("workers_stuck", "Workers that were killed because they did nothing", |pool| pool.workers_stuck),
            ("workers_stalled", "Workers that did not stop when they were asked to", |pool| {
                pool.workers_stalled
            }),
        ];
        for (name, help, field) in fields {
            let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
            for pool in &counts.pools {
                *sums.entry(names.of_queue(&pool.pool)).or_default() += field(pool);
            }
            let rows =
                sums.into_iter().map(|(pool, sum)| (vec![(NODE, counts.node.as_str()), (POOL, pool)], sum));
            out.counter(name, help, rows)?;
        }
        Ok(())
    }
}

/// What the store holds. No label names the node that exports it: the series go on when another one does.
fn store(figures: &StoreFigures, out: &mut FamilyWriter<'_>) -> Written {
    let tasks = figures.queues.iter().flat_map(|(queue, found)| {
        StateName::ALL.into_iter().map(move |state| {
            let mut counts = found.tasks;
            (vec![(QUEUE, queue.as_str()), ("state", state.name())], *counts.of(state))
        })
    });
    out.gauge("tasks", "Tasks by state; ended ones are counted for ever, unless they are replayed", tasks)?;
    let fields: [NamedField<QueueFigures>; 8] = [
        ("total_submitted", "Tasks that were ever submitted", |queue| queue.totals.submitted),
        ("total_completed", "How often a task completed", |queue| queue.totals.completed),
        ("total_failed", "How often a task failed for good", |queue| queue.totals.failed),
        ("total_cancelled", "How often a task was cancelled", |queue| queue.totals.cancelled),
        ("total_retried", "Failed attempts after which the task was queued again", |queue| {
            queue.totals.retried
        }),
        ("queue_high_water", "The most tasks that ever waited at once", |queue| queue.high_water),
        ("queue_paused", "Whether the queue is paused; of several queues, how many are", |queue| {
            queue.paused
        }),
        ("breakers_open", "Breakers of the queue and of its limit keys that are not closed", |queue| {
            queue.breakers_open
        }),
    ];
    for (name, help, field) in fields {
        let rows = figures.queues.iter().map(|(queue, found)| (vec![(QUEUE, queue.as_str())], field(found)));
        out.gauge(name, help, rows)?;
    }
    let workers = figures.workers.iter().map(|((pool, state), count)| {
        let labels = vec![(POOL, pool.as_str()), ("state", *state)];
        (labels, *count)
    });
    out.gauge("workers", "Workers of all nodes, by state", workers)?;
    for (name, help, value) in [
        ("nodes", "Live nodes", figures.nodes),
        (
            "call_breakers_open",
            "Breakers around calls of handlers that are not closed",
            figures.call_breakers_open,
        ),
        ("accounts_held", "Accounts of which nothing starts", figures.accounts_held),
    ] {
        out.gauge(name, help, [(Vec::new(), value)])?;
    }
    let cost =
        figures.queues.iter().map(|(queue, found)| (vec![(QUEUE, queue.as_str())], found.cost_today.usd()));
    let dollars = Unit::Other("dollars".to_owned());
    out.gauge_in("cost_today", "What was spent on models since midnight in UTC", Some(&dollars), cost)?;
    let oldest = figures.oldest_ready.map(|age| (Vec::new(), age.as_secs_f64()));
    out.gauge_in(
        "oldest_ready_age",
        "How long the oldest ready task has waited; absent if each of the oldest tasks waits for something else",
        Some(&Unit::Seconds),
        oldest,
    )
}

/// Writes families.
struct FamilyWriter<'e>(DescriptorEncoder<'e>);

impl FamilyWriter<'_> {
    fn counter<'l>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'l>, u64)>,
    ) -> Written {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauge<'l>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'l>, u64)>,
    ) -> Written {
        self.gauge_in(name, help, None, rows)
    }

    fn gauge_in<'l, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        rows: impl IntoIterator<Item = (Labels<'l>, V)>,
    ) -> Written {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn durations<'l>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'l>, &'l Durations)>,
    ) -> Written {
        let mut family = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, durations) in rows.into_iter().filter(|(_, durations)| !durations.buckets.is_empty()) {
            let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
            let buckets: Vec<(f64, u64)> =
                durations.buckets.iter().map(|(upper, count)| (bound(*upper), *count)).collect();
            let (sum, count) = (durations.sum.as_secs_f64(), durations.count());
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}
