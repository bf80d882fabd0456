//! Host processes: what ends them, what survives them, and what they cannot do.

use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, WorkerId};
use ostler_exec::{Control, Work, WorkerFate, event_channel};
use ostler_isolate::Isolation;

use crate::bench::{Bench, SOON, failure, lines, output, work};
use crate::engines::by_engine;

on_each_engine_async!(
    a_deaf_script_ends_with_its_cause_and_its_host_with_it,
    a_host_that_is_killed_is_a_crash_of_its_task,
    all_threads_of_a_host_are_restricted_and_it_has_no_other_descriptors,
    a_host_serves_many_functions_and_logs_stay_with_their_task,
    what_ignores_a_cancel_is_ended_after_the_grace,
);

/// A builtin that cannot be interrupted.
const DEAF: &str = "return [].reverse.call({ length: 2 ** 32 - 1 })";

async fn bench() -> Bench {
    Bench::new(Isolation::Process, |policy| policy.limits.cpu = Duration::from_millis(100)).await
}

fn pid(bench: &Bench, worker: WorkerId) -> u32 {
    bench.executor.vitals(worker).pid.expect("a host is a process")
}

/// Polls until a process is gone.
async fn is_gone(pid: u32) {
    let began = Instant::now();
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(began.elapsed() < SOON, "the process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_deaf_script_ends_with_its_cause_and_its_host_with_it() {
    let bench = bench().await;
    bench.body("deaf", DEAF);
    bench.body("well", "return 'on'");
    let (worker, other) = (bench.open().await, bench.open().await);
    let host = pid(&bench, worker);
    let (ended, _) = bench.run(worker, work("deaf", "null")).await;
    assert_eq!(failure(&ended).class, ErrorClass::Timeout, "{ended:?}");
    assert_eq!(failure(&ended).message, "the function used more CPU time than its limit");
    assert!(failure(&ended).hint.as_deref().is_some_and(|hint| hint.contains("interrupted")), "{ended:?}");
    assert!(matches!(ended.slot, WorkerFate::Spent | WorkerFate::Dead), "{ended:?}");
    bench.executor.close(worker).await;
    is_gone(host).await;
    assert_eq!(output(bench.run(other, work("well", "null")).await.0), "\"on\"");
    let next = bench.open().await;
    assert_eq!(output(bench.run(next, work("well", "null")).await.0), "\"on\"");
    for worker in [other, next] {
        bench.executor.close(worker).await;
    }
}

async fn a_host_that_is_killed_is_a_crash_of_its_task() {
    let bench = bench().await;
    bench.body("wait", "ctx.log('waiting'); return new Promise((resolve) => setTimeout(resolve, 3600_000))");
    let worker = bench.open().await;
    let host = rustix::process::Pid::from_raw(pid(&bench, worker).try_into().expect("a pid")).expect("a pid");
    let (sender, events) = event_channel();
    let running = bench.run_with(worker, work("wait", "null"), Control::new(sender));
    let kill = async {
        let _ = events.recv().await;
        rustix::process::kill_process(host, rustix::process::Signal::KILL).expect("it is there");
    };
    let (ended, ()) = tokio::join!(running, kill);
    assert_eq!((failure(&ended).class, ended.slot), (ErrorClass::Crash, WorkerFate::Dead), "{ended:?}");
}

async fn all_threads_of_a_host_are_restricted_and_it_has_no_other_descriptors() {
    let bench = bench().await;
    bench.body("well", "return 'on'");
    let worker = bench.open().await;
    let host = pid(&bench, worker);
    let mut threads = 0;
    for task in std::fs::read_dir(format!("/proc/{host}/task")).expect("it is there") {
        let status = std::fs::read_to_string(task.expect("a thread").path().join("status")).expect("text");
        assert!(status.contains("Seccomp:\t2"), "{status}");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        threads += 1;
    }
    assert_eq!(
        threads,
        by_engine(3, 4),
        "reader, isolate and watchdog; with V8 its ticker, and no thread of its own"
    );
    let inet = ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"]
        .map(|table| std::fs::read_to_string(format!("/proc/{host}/net/{table}")).unwrap_or_default());
    for entry in std::fs::read_dir(format!("/proc/{host}/fd")).expect("it is there") {
        let target = std::fs::read_link(entry.expect("a descriptor").path()).expect("a link");
        let target = target.display().to_string();
        if let Some(inode) = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
            let is_inet = |line: &str| line.split_whitespace().nth(9) == Some(inode);
            assert!(!inet.iter().flat_map(|table| table.lines()).any(is_inet), "a host has an inet socket");
        }
        let known = ["socket:", "pipe:", "/schedstat", "/statm"].iter().any(|part| target.contains(part));
        assert!(known, "a host has {target} open");
    }
    assert_eq!(output(bench.run(worker, work("well", "null")).await.0), "\"on\"");
    let environ = std::fs::read(format!("/proc/{host}/environ")).expect("it is there");
    let environ = String::from_utf8_lossy(&environ).into_owned();
    assert!(!environ.contains("PATH=") && environ.contains("OSTLER_FD=0"), "{environ}");
    bench.executor.close(worker).await;
    is_gone(host).await;
}

async fn a_host_serves_many_functions_and_logs_stay_with_their_task() {
    let bench = bench().await;
    for number in 0..300 {
        bench.body(&format!("f{number}"), &format!("console.log('f{number}'); return {number}"));
    }
    let worker = bench.open().await;
    for round in 0..2 {
        for number in 0..300 {
            let (ended, events) = bench.run(worker, work(&format!("f{number}"), "null")).await;
            assert_eq!(output(ended), number.to_string(), "round {round}");
            assert_eq!(lines(&events), [format!("f{number}")]);
        }
    }
    bench.executor.close(worker).await;
}

async fn what_ignores_a_cancel_is_ended_after_the_grace() {
    let bench = bench().await;
    bench.body("wait", "ctx.log('waiting'); return new Promise((resolve) => setTimeout(resolve, 3600_000))");
    let worker = bench.open().await;
    let (sender, events) = event_channel();
    let control = Control::new(sender);
    let cancel = control.cancel.clone();
    let work = Work { grace: Duration::from_millis(200), ..work("wait", "null") };
    let running = bench.run_with(worker, work, control);
    let stop = async {
        let _ = events.recv().await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(running, stop);
    assert_eq!(ended.outcome, ostler_core::Outcome::Cancelled, "{ended:?}");
}
