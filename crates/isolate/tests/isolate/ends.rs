//! Every way in which a call ends.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use ostler_isolate::{FunctionEnd, FunctionLimits, FunctionSource, Interrupter, LimitCause, Reuse};

use crate::desk::{Desk, Output, call, output, run, run_in, worker};
use crate::engines::by_engine;

on_each_engine!(
    a_function_returns_json,
    a_function_that_returns_nothing_has_no_output,
    what_a_function_throws_has_name_message_and_stack,
    an_unhandled_rejection_fails_the_call,
    a_promise_that_nothing_can_settle_ends_the_call,
    faults_of_modules_are_named,
    limits_end_a_call_by_their_name,
    wall_time_ends_a_call_that_waits,
    a_stop_from_another_thread_ends_a_loop_and_a_wait,
    a_cancellation_aborts_the_signal_and_the_function_decides,
    a_cancellation_while_modules_are_loaded_is_not_lost,
);

fn thrown(output: Output) -> (String, String) {
    match output {
        Err(FunctionEnd::Thrown(error)) => (error.name, error.message),
        other => panic!("not thrown: {other:?}"),
    }
}

fn a_function_returns_json() {
    let (output, _) =
        run("export default async (payload) => ({ sum: payload.a + payload.b })", r#"{"a":1,"b":2}"#);
    assert_eq!(output, Ok(Some(r#"{"sum":3}"#.to_owned())));
}

fn a_function_that_returns_nothing_has_no_output() {
    for value in ["undefined", "() => 1", "Symbol('x')", "({ toJSON: () => () => 1 })"] {
        let (output, _) = run(&format!("export default () => {value}"), "null");
        assert_eq!(output, Ok(None), "{value}");
    }
    assert_eq!(output("return null"), "null");
}

fn what_a_function_throws_has_name_message_and_stack() {
    let (output, _) = run("export default () => { throw new RangeError('too far') }", "null");
    let Err(FunctionEnd::Thrown(error)) = output else { panic!("{output:?}") };
    assert_eq!((error.name.as_str(), error.message.as_str()), ("RangeError", "too far"));
    assert!(error.stack.contains("test.js:1"), "{}", error.stack);
    for (value, message) in [("'text'", "text"), ("42", "42"), ("{ a: 1 }", r#"{"a":1}"#)] {
        let (output, _) = run(&format!("export default async () => {{ throw {value} }}"), "null");
        assert_eq!(thrown(output), (String::new(), message.to_owned()), "{value}");
    }
    let (output, _) = run(
        "setTimeout(() => { throw new TypeError('late') }, 1); export default () => new Promise(() => {})",
        "null",
    );
    assert_eq!(thrown(output), ("TypeError".to_owned(), "late".to_owned()));
    let (output, _) =
        run("export default () => { queueMicrotask(() => { throw new TypeError('job') }) }", "null");
    assert_eq!(thrown(output), ("TypeError".to_owned(), "job".to_owned()));
}

fn an_unhandled_rejection_fails_the_call() {
    for body in [
        "Promise.reject(new Error('lost')); return 1",
        "(async () => { throw new Error('lost') })(); return 1",
    ] {
        let (output, _) = run(&format!("export default async () => {{ {body} }}"), "null");
        let Err(FunctionEnd::UnhandledRejection(error)) = output else { panic!("{output:?}") };
        assert_eq!(error.message, "lost");
    }
    // A handler that comes before the jobs are done is in time.
    assert_eq!(output("const p = Promise.reject(1); await null; return await p.catch((e) => e + 1)"), "2");
}

fn a_promise_that_nothing_can_settle_ends_the_call() {
    for module in
        ["export default () => new Promise(() => {})", "await new Promise(() => {}); export default () => 1"]
    {
        assert_eq!(run(module, "null").0, Err(FunctionEnd::NeverSettles), "{module}");
    }
}

fn faults_of_modules_are_named() {
    for (module, words) in [
        ("export default () => {", "SyntaxError"),
        ("import x from './none.js'; export default x", "none.js"),
        ("import fs from 'fs'; export default fs", "fs"),
        ("export const x = 1", "no default export"),
        ("export default 42", "no default export"),
    ] {
        match run(module, "null").0 {
            Err(FunctionEnd::Module(message)) => assert!(message.contains(words), "{module}: {message}"),
            other => panic!("{module}: {other:?}"),
        }
    }
    assert_eq!(thrown(run("throw new Error('top'); export default 1", "null").0).1, "top");
    let (output, _) = run("export default () => import('./other.js')", "null");
    assert!(thrown(output).1.contains("statically"));
}

fn limits_end_a_call_by_their_name() {
    let limits = FunctionLimits {
        memory_bytes: 8 << 20,
        cpu: Duration::from_millis(500),
        wall: Duration::from_secs(60),
        output_bytes: 1_000,
        log_lines: 10,
        timers: 10,
        ..FunctionLimits::default()
    };
    for (body, end) in [
        ("for (;;);", FunctionEnd::Cpu),
        ("const all = []; for (;;) all.push({ all })", FunctionEnd::Memory),
        (
            // V8 repeats a text without a copy of it.
            by_engine("return 'x'.repeat(1 << 28).length", "return new Uint8Array(1 << 28).length"),
            FunctionEnd::Memory,
        ),
        ("const f = () => f() + 1; return f()", FunctionEnd::Stack),
        ("return 'x'.repeat(999)", FunctionEnd::Output),
        ("return 'ü'.repeat(600)", FunctionEnd::Output),
        ("for (let i = 0; i < 11; i++) console.log(i)", FunctionEnd::LogLines),
        ("for (let i = 0; i < 11; i++) try { ctx.log(i) } catch {}", FunctionEnd::LogLines),
        ("for (let i = 0; i < 11; i++) setTimeout(() => {}, 1000)", FunctionEnd::Timers),
        ("for (let i = 0; i < 11; i++) try { setInterval(() => {}, 1000) } catch {}", FunctionEnd::Timers),
    ] {
        let module = format!("export default async function (payload, ctx) {{ {body} }}");
        assert_eq!(run_in(limits.clone(), &module, "null").0, Err(end), "{body}");
    }
    // Up to the limit, nothing ends.
    let module = "export default async () => { for (let i = 0; i < 10; i++) { console.log(i); setTimeout(() => {}) } return 'x'.repeat(998) }";
    let (output, host) = run_in(limits, module, "null");
    assert!(output.is_ok(), "{output:?}");
    assert_eq!(host.lines().len(), 10);
}

fn wall_time_ends_a_call_that_waits() {
    let limits = FunctionLimits { wall: Duration::from_millis(50), ..FunctionLimits::default() };
    for body in
        ["await new Promise((done) => setTimeout(done, 60_000))", "await fetch('https://example.org/never')"]
    {
        let started = Instant::now();
        let (output, _) = run_in(limits.clone(), &format!("export default async () => {{ {body} }}"), "null");
        assert_eq!(output, Err(FunctionEnd::Wall), "{body}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

/// Runs a function; when it logs a line, another thread acts on its interrupter.
fn run_interrupted(body: &str, act: fn(&Interrupter)) -> Output {
    let host = Rc::new(Desk::default());
    let call = call("null", &host);
    let interrupter = call.interrupter();
    *host.on_log.borrow_mut() = Some(Box::new(move || {
        let interrupter = interrupter.clone();
        thread::spawn(move || act(&interrupter));
    }));
    let limits = FunctionLimits { cpu: Duration::from_secs(20), ..FunctionLimits::default() };
    let module = format!("export default async function (payload, ctx) {{ {body} }}");
    worker(limits, Reuse::Fresh).run(&FunctionSource::single("test.js", &module), call)
}

fn a_stop_from_another_thread_ends_a_loop_and_a_wait() {
    let stop: fn(&Interrupter) = |interrupter| interrupter.stop(LimitCause::Cancelled);
    assert_eq!(run_interrupted("console.log('up'); for (;;);", stop), Err(FunctionEnd::Cancelled));
    // Often enough that some stops come before the wait, and some in it.
    let started = Instant::now();
    for _ in 0..30 {
        let waits = "console.log('up'); await new Promise((done) => setTimeout(done, 60_000))";
        assert_eq!(run_interrupted(waits, stop), Err(FunctionEnd::Cancelled));
    }
    assert!(started.elapsed() < Duration::from_secs(25), "a stop did not wake the call");
}

fn a_cancellation_aborts_the_signal_and_the_function_decides() {
    let waits = "const aborted = new Promise((done) => ctx.signal.addEventListener('abort', done)); \
                 const timer = setTimeout(() => {}, 20_000); console.log('up'); await aborted; clearTimeout(timer);";
    for (rest, expected) in [
        ("return 'saved'", Ok(Some(r#""saved""#.to_owned()))),
        ("ctx.signal.throwIfAborted()", Err(FunctionEnd::Cancelled)),
    ] {
        assert_eq!(run_interrupted(&format!("{waits} {rest}"), Interrupter::cancel), expected, "{rest}");
    }
}

fn a_cancellation_while_modules_are_loaded_is_not_lost() {
    let host = Rc::new(Desk::default());
    let call = call("null", &host);
    call.interrupter().cancel();
    let source = FunctionSource::single(
        "test.js",
        "await new Promise((done) => setTimeout(done, 1)); \
         export default async (payload, ctx) => { const timer = setTimeout(() => {}, 20_000); \
         await new Promise((done) => ctx.signal.addEventListener('abort', done)); clearTimeout(timer); return ctx.signal.aborted }",
    );
    let output = worker(FunctionLimits::default(), Reuse::Fresh).run(&source, call);
    assert_eq!(output, Ok(Some("true".to_owned())));
}
