//! Calls a second of CPU time on one thread, without a node: `cargo test --release -p ostler-isolate -- --ignored speed --nocapture`.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ostler_isolate::{FunctionEnd, FunctionLimits, FunctionSource, Reuse, WarmPolicy};
use rustix::time::{ClockId, clock_gettime};

use crate::desk::{Desk, call, worker};
use crate::engines::{Tested, on};

const PAYLOAD: &str = r#"{"name":"ostler","items":[1,2,3,4,5]}"#;
const OUTPUT: &str = r#"{"name":"OSTLER","total":15}"#;
/// How long each figure is measured.
const MEASURED: Duration = Duration::from_secs(2);

/// The CPU time of this thread in seconds: the machine may be busy with other work.
fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The payload is parsed and the output made in each call. All limits are on.
#[test]
#[ignore = "a measurement"]
fn speed() {
    for engine in Tested::ALL {
        on(*engine, || measure(engine.name()));
    }
}

fn measure(engine: &str) {
    let source = FunctionSource::single(
        "test.js",
        "export default async (payload, ctx) => ({ name: payload.name.toUpperCase(), total: payload.items.reduce((a, b) => a + b, 0) })",
    );
    let throws =
        FunctionSource::single("test.js", "export default async (payload, ctx) => { throw payload.name }");
    let warm = Reuse::Warm(WarmPolicy::default());
    // An error has a description, which costs more than an output.
    for (name, source, reuse) in [
        ("fresh", &source, Reuse::Fresh),
        ("fresh, and throws", &throws, Reuse::Fresh),
        ("warm", &source, warm),
    ] {
        let mut worker = worker(FunctionLimits::default(), reuse);
        let host = Rc::new(Desk::default());
        let (mut calls, started, cpu) = (0_u32, Instant::now(), thread_cpu());
        while started.elapsed() < MEASURED {
            let output = worker.run(source, call(PAYLOAD, &host));
            assert!(matches!(
                output.as_ref().map(Option::as_deref),
                Ok(Some(OUTPUT)) | Err(FunctionEnd::Thrown(_))
            ));
            calls += 1;
        }
        let seconds = thread_cpu() - cpu;
        println!(
            "{engine}, {name}: {:.0} calls/s, {:.1} us each",
            f64::from(calls) / seconds,
            seconds * 1e6 / f64::from(calls)
        );
    }
}
