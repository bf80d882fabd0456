//! The order in which V8 and threads are started. A program of its own, because a test of the harness runs on a thread beside the first.

use std::process::Command;
use std::rc::Rc;
use std::sync::Barrier;
use std::thread;

use ostler_core::Level;
use ostler_isolate::{
    CallInfo, FunctionCall, FunctionHost, FunctionLimits, FunctionProgress, FunctionSource, FunctionWorker,
    HostCall, HostReply, Reuse, V8, V8StartError,
};

/// Threads beside the first.
const THREADS: usize = 64;
/// Whether V8 is initialised before there are threads.
const ORDERS: [&str; 2] = ["first", "last"];

struct NoHost;

impl FunctionHost for NoHost {
    fn log(&self, _level: Level, _line: &str) {}
    fn progress(&self, _progress: &FunctionProgress) {}
    fn secret(&self, _name: &str) -> Option<String> {
        None
    }
    fn call(&self, _call: HostCall, _reply: HostReply) {}
}

/// Runs a function on this thread.
fn run_on_this_thread() {
    let engine = V8::initialize().expect("it is initialised");
    let mut worker = FunctionWorker::new(Box::new(engine), FunctionLimits::default(), Reuse::Fresh);
    let source = FunctionSource::single("test.js", "export default () => 1 + 1");
    for _ in 0..3 {
        let output = worker.run(&source, FunctionCall::new("null", CallInfo::default(), Rc::new(NoHost)));
        assert_eq!(output, Ok(Some("2".to_owned())));
    }
}

/// Initialises V8 before or after threads are created, and then runs it on all of them.
fn start(order: &str) {
    if order == "first" {
        V8::initialize().expect("there are no other threads");
    }
    let (waiting, initialised) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                waiting.wait();
                initialised.wait();
                run_on_this_thread();
            });
        }
        waiting.wait();
        if order == "last" {
            let refused = V8::initialize();
            assert!(matches!(refused, Err(V8StartError::OtherThreads(THREADS))), "{refused:?}");
            V8::initialize_among_threads().expect("it starts without a key");
        }
        initialised.wait();
    });
    run_on_this_thread();
}

fn main() {
    match std::env::args().nth(1) {
        Some(order) if ORDERS.contains(&order.as_str()) => start(&order),
        // Arguments of the harness are not for this program.
        _ => {
            for order in ORDERS {
                let program = std::env::current_exe().expect("a test is a program");
                let status = Command::new(program).arg(order).status().expect("it can be started");
                assert!(status.success(), "V8 initialised {order}: {status}");
                println!("test v8 is initialised {order}, with {THREADS} threads ... ok");
            }
        }
    }
}
