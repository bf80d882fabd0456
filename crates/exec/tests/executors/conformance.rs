//! The Rust executors pass the conformance suite of all executors.

#![cfg(feature = "conformance")]

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Id, TaskId, WorkerId};
use ostler_exec::conformance::{Behaviour, Fixture, Report, act, run};
use ostler_exec::{
    ByKind, Choice, Executor, Inline, OutputRedaction, Runtimes, Secret, Secrets, ThreadPolicy, Threads, Work,
};

struct Rust(Arc<dyn Executor>);

impl Fixture for Rust {
    fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.0)
    }

    fn work(&self, behaviour: &Behaviour) -> Option<Work> {
        Some(Work {
            task: TaskId(Id::from_bits(1)),
            token: 1,
            worker: WorkerId(Id::from_bits(2)),
            attempt: 1,
            queue: "q".into(),
            kind: "act".into(),
            payload: behaviour.payload(),
            timeout: Duration::from_secs(60),
            grace: Duration::from_secs(1),
            folder: None,
            traceparent: None,
        })
    }
}

fn all_held(name: &str, report: &Report) {
    println!("{name}: {} cases", report.held.len());
    assert!(report.left_out.is_empty(), "Rust handlers can do all of it: {:?}", report.left_out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inline_passes() {
    let report = run(|| Arc::new(Rust(Arc::new(Inline::new().handle("act", act))))).await;
    all_held("inline", &report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_executor_with_secrets_passes() {
    let secret = Secret::new("API_KEY", "sk-1234567890").expect("it is valid");
    let secrets = Secrets::new(vec![secret], OutputRedaction::On).expect("they are valid");
    let guarded = || secrets.clone().guard(Arc::new(Inline::new().handle("act", act)));
    all_held("with secrets", &run(|| Arc::new(Rust(guarded()))).await);
}

fn threads(choice: Choice, runtimes: Runtimes) -> Arc<dyn Fixture> {
    let policy = ThreadPolicy { threads: 2, most: 20, choice, runtimes };
    Arc::new(Rust(Arc::new(Threads::start(policy).expect("there are threads").handle("act", act))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_in_turn_pass() {
    all_held("threads in turn", &run(|| threads(Choice::RoundRobin, Runtimes::TwoWorkers)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_by_load_with_one_runtime_each_pass() {
    all_held("threads by load", &run(|| threads(Choice::LeastLoaded, Runtimes::CurrentThread)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_sorts_in_one_executor_pass() {
    let two = || {
        let policy = ThreadPolicy::for_cores(2);
        let threads = Threads::start(policy).expect("there are threads");
        (Inline::new(), threads)
    };
    let inline = run(|| {
        let (inline, threads) = two();
        let threads = threads.handle("other", act);
        Arc::new(Rust(Arc::new(ByKind::new(inline.handle("act", act), threads))))
    });
    all_held("by kind, inline", &inline.await);
    let on_threads = run(|| {
        let (inline, threads) = two();
        let inline = inline.handle("other", act);
        Arc::new(Rust(Arc::new(ByKind::new(inline, threads.handle("act", act)))))
    });
    all_held("by kind, on threads", &on_threads.await);
}
