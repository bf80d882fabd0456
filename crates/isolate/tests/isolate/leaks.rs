//! What one call leaves behind for the next: nothing in a fresh isolate, and in a warm one only what the function keeps.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use ostler_isolate::{FunctionEnd, FunctionLimits, FunctionSource, FunctionWorker, Reuse, WarmPolicy};

use crate::desk::{Desk, Output, call, worker};

on_each_engine!(
    a_fresh_isolate_looks_like_a_virgin_one,
    the_picture_sees_what_a_script_changes,
    a_warm_isolate_keeps_the_state_of_its_modules,
    a_warm_isolate_is_dropped_after_an_error_enough_calls_or_much_memory,
    what_a_call_left_behind_does_not_act_in_the_next,
    a_cancelled_call_writes_nothing_into_the_next,
);

/// All that can be reached from the global object: own keys and symbols, prototypes, values of properties and accessors. Each object
/// has the path by which it is found first, and functions their source.
const PICTURE: &str = r#"
const seen = new Map();
const lines = [];
const name = (key) => typeof key === "symbol" ? `[${String(key)}]` : key;
const walk = (value, path) => {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) {
    lines.push(`${path} = ${typeof value} ${typeof value === "symbol" ? String(value) : value}`);
    return;
  }
  if (seen.has(value)) {
    lines.push(`${path} -> ${seen.get(value)}`);
    return;
  }
  seen.set(value, path);
  lines.push(`${path}: ${Object.prototype.toString.call(value)} ${typeof value === "function" ? Function.prototype.toString.call(value) : ""} ${Object.isExtensible(value)}`);
  for (const key of Reflect.ownKeys(value)) {
    const property = Reflect.getOwnPropertyDescriptor(value, key);
    lines.push(`${path}.${name(key)} ${property.writable} ${property.enumerable} ${property.configurable}`);
    if ("value" in property) walk(property.value, `${path}.${name(key)}`);
    else {
      walk(property.get, `${path}.get ${name(key)}`);
      walk(property.set, `${path}.set ${name(key)}`);
    }
  }
  walk(Reflect.getPrototypeOf(value), `${path}.__proto__`);
};
const picture = () => { seen.clear(); lines.length = 0; walk(globalThis, "globalThis"); walk([][Symbol.iterator]().__proto__, "array iterator"); walk((async () => {}).__proto__, "async function"); walk(RegExp.lastMatch, "lastMatch"); return lines.join("\n"); };
export default () => picture();
"#;

/// What hostile calls do to an isolate.
const HOSTILE: &[&str] = &[
    "globalThis.leak = 'A'; globalThis[Symbol.for('leak')] = 'A'; var x = 1",
    "Object.prototype.leak = 'A'; Array.prototype.push = () => 'A'; Object.freeze(Array.prototype)",
    "JSON.stringify = () => '\"A\"'; JSON.parse = () => 'A'; Promise.prototype.then = () => {}; Map.prototype.get = () => 'A'",
    "Error.prepareStackTrace = () => 'A'; Error.stackTraceLimit = 0; Error.prototype.name = 'A'",
    "console.log = () => {}; globalThis.console = null; globalThis.setTimeout = null; delete globalThis.URL; crypto.x = 1",
    "/(A+)/.exec('xAAx'); RegExp.prototype.exec = () => null",
    "String.prototype.toWellFormed = () => 'A'; Function.prototype.call = () => 'A'; Function.prototype.bind = () => 'A'",
    "Object.defineProperty(globalThis, 'undefined2', { value: 1 }); Object.setPrototypeOf(globalThis, { leak: 'A' })",
    "setTimeout(() => { globalThis.leak = 'A' }, 0); setInterval(() => {}, 1); Promise.resolve().then(() => { globalThis.leak = 1 })",
    "new Promise(() => {}); (async () => { await new Promise((done) => setTimeout(done, 1)); globalThis.leak = 'A' })()",
    "Math.random = () => 0; Date.now = () => 0; globalThis.Date = null; globalThis.Math = null",
    "Reflect.ownKeys = () => []; Object.keys = () => []; Symbol.iterator; Array.prototype[Symbol.iterator] = null",
    "throw new Error('A')",
    "for (;;);",
];

fn source(text: &str) -> FunctionSource {
    FunctionSource::single("test.js", text)
}

fn hostile(script: &str) -> FunctionSource {
    source(&format!("let kept = 0; export default async (payload, ctx) => {{ {script} }}"))
}

fn run(worker: &mut FunctionWorker, source: &FunctionSource) -> Output {
    worker.run(source, call("null", &Rc::new(Desk::default())))
}

fn limits() -> FunctionLimits {
    FunctionLimits { cpu: Duration::from_millis(500), ..FunctionLimits::default() }
}

fn warm(calls: u32, memory_bytes: u64) -> FunctionWorker {
    worker(limits(), Reuse::Warm(WarmPolicy { calls, memory_bytes }))
}

fn a_fresh_isolate_looks_like_a_virgin_one() {
    let picture = source(PICTURE);
    let virgin = run(&mut worker(limits(), Reuse::Fresh), &picture).expect("it returns").expect("a text");
    assert!(virgin.matches("\\n").count() > 3_000, "the picture is small: {}", virgin.len());
    let mut worker = worker(limits(), Reuse::Fresh);
    for script in HOSTILE {
        let _ = run(&mut worker, &hostile(script));
        let after = run(&mut worker, &picture).expect("it returns").expect("a text");
        assert!(after == virgin, "{script}: the global object differs");
    }
}

/// The picture shows what it should: in one isolate, each script changes it.
fn the_picture_sees_what_a_script_changes() {
    let virgin = run(&mut worker(limits(), Reuse::Fresh), &source(PICTURE)).expect("it returns");
    for script in [
        "globalThis.leak = 1",
        "globalThis[Symbol.for('leak')] = 1",
        "Object.prototype.leak = 1",
        "Object.freeze(Array.prototype)",
        "JSON.parse = () => 1",
        "Object.defineProperty(globalThis, 'leak', { get: () => 1 })",
        "Object.setPrototypeOf(globalThis, { leak: 1 })",
    ] {
        let first = format!("export default () => {{ {script}; return picture() }}");
        let text = PICTURE.replace("export default () => picture();", &first);
        let after = run(&mut worker(limits(), Reuse::Fresh), &source(&text)).expect("it returns");
        assert_ne!(after, virgin, "{script}");
    }
}

fn a_warm_isolate_keeps_the_state_of_its_modules() {
    let counter = source("let n = 0; export default () => ++n");
    let other = source("let n = 10; export default () => ++n");
    let mut warm = warm(1_000, 16 << 20);
    let mut next = |source: &FunctionSource| run(&mut warm, source).expect("it returns").expect("a number");
    assert_eq!((next(&counter), next(&counter), next(&counter)), ("1".into(), "2".into(), "3".into()));
    assert_eq!(next(&other), "11", "another function has an isolate of its own");
    assert_eq!(next(&counter), "1", "and the former one is gone");
    let mut fresh = worker(limits(), Reuse::Fresh);
    let mut next = || run(&mut fresh, &counter).expect("it returns").expect("a number");
    assert_eq!((next(), next()), ("1".into(), "1".into()));
}

fn a_warm_isolate_is_dropped_after_an_error_enough_calls_or_much_memory() {
    let failing =
        source("let n = 0; export default (payload) => { n++; if (payload) throw new Error('x'); return n }");
    let mut worker = warm(1_000, 16 << 20);
    let mut next = |payload: &str| worker.run(&failing, call(payload, &Rc::new(Desk::default())));
    assert_eq!(next("0"), Ok(Some("1".into())));
    assert!(matches!(next("1"), Err(FunctionEnd::Thrown(_))));
    assert_eq!(next("0"), Ok(Some("1".into())), "after an error");

    let counter = source("let n = 0; export default () => ++n");
    let mut worker = warm(2, 16 << 20);
    let seen: Vec<_> =
        (0..5).map(|_| run(&mut worker, &counter).expect("it returns").expect("a number")).collect();
    assert_eq!(seen, ["1", "2", "1", "2", "1"], "after two calls");

    let hoard = source(
        "const all = []; export default () => { all.push(new ArrayBuffer(1 << 20)); return all.length }",
    );
    let mut worker = warm(1_000, 8 << 20);
    let most = (0..200).map(|_| run(&mut worker, &hoard).expect("it returns").expect("a number"));
    let most = most.map(|n| n.parse::<u32>().expect("a number")).max();
    assert!(most < Some(10), "above the memory mark it is dropped: {most:?}");
}

/// Timers, promises and contexts of a call that has returned.
fn what_a_call_left_behind_does_not_act_in_the_next() {
    let module = "const kept = []; let n = 0; \
        export default async (payload, ctx) => { \
          n++; \
          kept.push(ctx); \
          if (n === 1) { \
            setTimeout(() => console.log('late timer'), 0); \
            setInterval(() => console.log('late interval'), 1); \
            ctx.signal; \
            fetch('https://example.org/never').then(() => console.log('late answer'), () => console.log('late failure')); \
            return 1; \
          } \
          const errors = []; \
          for (const act of [(c) => c.log('x'), (c) => c.progress(1), (c) => c.secret('token')]) \
            try { act(kept[0]); errors.push('none') } catch (e) { errors.push(e.message) } \
          await kept[0].step('s', () => 1).catch((e) => errors.push(e.message)); \
          await new Promise((done) => setTimeout(done, 20)); \
          return errors.every((e) => e === 'the attempt of this ctx is over') }";
    let source = source(module);
    let mut warm = warm(1_000, 16 << 20);
    let (first, second) = (Rc::new(Desk::default()), Rc::new(Desk::default()));
    assert_eq!(warm.run(&source, call("null", &first)), Ok(Some("1".into())));
    assert_eq!(Rc::strong_count(&first), 1, "a warm isolate does not hold the host of a call that is over");
    // The answer comes when the call that asked is over.
    for reply in first.unanswered.take() {
        reply.send(Ok(ostler_isolate::HostAnswer::Json("{}".to_owned())));
    }
    assert_eq!(warm.run(&source, call("null", &second)), Ok(Some("true".into())));
    assert_eq!((first.lines(), second.lines()), (vec![], vec![]), "nothing late was logged");
}

/// Calls that are cancelled at different moments never write into the next one.
fn a_cancelled_call_writes_nothing_into_the_next() {
    let module = "export default async (payload, ctx) => { \
        for (let i = 0; i < payload.turns; i++) { console.log(payload.id); await null } \
        return payload.id }";
    let source = source(module);
    let mut warm = warm(10_000, 16 << 20);
    let ended = Cell::new(0);
    for round in 0..1_000 {
        let host = Rc::new(Desk::default());
        let cancelled = call(&format!(r#"{{"id":"A{round}","turns":900}}"#), &host);
        let interrupter = cancelled.interrupter();
        let stopper = thread::spawn(move || {
            for _ in 0..round % 50 {
                thread::yield_now();
            }
            interrupter.stop(ostler_isolate::LimitCause::Cancelled);
        });
        if warm.run(&source, cancelled).is_err() {
            ended.set(ended.get() + 1);
        }
        stopper.join().expect("it does not panic");
        let next = Rc::new(Desk::default());
        let output = warm.run(&source, call(&format!(r#"{{"id":"B{round}","turns":2}}"#), &next));
        assert_eq!(output, Ok(Some(format!("\"B{round}\""))));
        assert_eq!(next.lines(), [format!("B{round}"), format!("B{round}")]);
    }
    assert!(ended.get() > 0, "some calls were cancelled while they ran");
}
