//! Payloads and outputs: they cross as JSON text, whatever they look like.

use std::rc::Rc;
use std::time::Duration;

use ostler_isolate::{FunctionEnd, FunctionLimits, FunctionSource, Reuse};

use crate::bench::rounds;
use crate::children;
use crate::desk::{Desk, call, output, run, worker};
use crate::engines::{Tested, by_engine, on, tested};

on_each_engine!(
    a_payload_is_data,
    an_output_is_what_json_makes_of_it,
    an_output_that_cannot_be_json_is_an_error,
    no_memory_limit_aborts_the_process,
);

fn a_payload_is_data() {
    for (payload, expression, expected) in [
        (
            r#"{"__proto__":{"x":1}}"#,
            "[Object.keys(payload), payload.x === undefined, ({}).x === undefined]",
            r#"[["__proto__"],true,true]"#,
        ),
        (
            r#"{"constructor":{"prototype":{"x":1}}}"#,
            "[({}).x === undefined, payload.constructor.prototype.x]",
            "[true,1]",
        ),
        (r#"{"toJSON":1,"then":2}"#, "payload", r#"{"toJSON":1,"then":2}"#),
        (r#""\ud800 and \u0000""#, "[payload.length, payload]", r#"[7,"\ud800 and \u0000"]"#),
        ("9007199254740993", "payload", "9007199254740992"),
        ("1e400", "payload", "null"),
        (r#""</script>\u2028""#, "payload", "\"</script>\u{2028}\""),
    ] {
        let (output, _) = run(&format!("export default (payload) => ({expression})"), payload);
        assert_eq!(output, Ok(Some(expected.to_owned())), "{payload}");
    }
    let (output, _) = run("export default (payload) => payload", "not JSON");
    assert!(matches!(&output, Err(FunctionEnd::Thrown(error)) if error.name == "SyntaxError"), "{output:?}");
    // A promise-like payload is not called.
    assert_eq!(
        run("export default async (payload) => payload.then", r#"{"then":"text"}"#).0,
        Ok(Some(r#""text""#.to_owned()))
    );
}

fn an_output_is_what_json_makes_of_it() {
    for (expression, expected) in [
        ("'\\ud800'", r#""\ud800""#),
        ("new Proxy({ a: 1 }, {})", r#"{"a":1}"#),
        ("new Proxy([1], {})", "[1]"),
        ("({ toJSON: () => 5 })", "5"),
        ("({ a: undefined, b: () => 1, c: Symbol('x') })", "{}"),
        ("[undefined, NaN, Infinity, -0, new Date(NaN)]", "[null,null,null,0,null]"),
        ("new Map([[1, 2]])", "{}"),
        ("JSON.parse('{\"__proto__\":1}')", r#"{"__proto__":1}"#),
        (
            "Object.create({ inherited: 1 }, { own: { value: 1, enumerable: true }, hidden: { value: 1 } })",
            r#"{"own":1}"#,
        ),
        ("'a'.repeat(3) + '\\0'", r#""aaa\u0000""#),
    ] {
        assert_eq!(output(&format!("return {expression}")), expected, "{expression}");
    }
}

fn an_output_that_cannot_be_json_is_an_error() {
    for (body, name) in [
        ("const a = {}; a.a = a; return a", "TypeError"),
        ("return 1n", "TypeError"),
        ("return { get x() { throw new RangeError('no') } }", "RangeError"),
        ("return { toJSON() { throw new RangeError('no') } }", "RangeError"),
        ("return new Proxy({}, { ownKeys() { throw new RangeError('no') } })", "RangeError"),
        ("const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return { proxy }", "TypeError"),
    ] {
        let (output, _) = run(&format!("export default async () => {{ {body} }}"), "null");
        assert!(
            matches!(&output, Err(FunctionEnd::Thrown(error)) if error.name == name),
            "{body}: {output:?}"
        );
    }
    // A gigabyte of text is longer than any string may be.
    let (output, _) = run("export default () => 'x'.repeat(2 ** 30)", "null");
    assert!(matches!(&output, Err(FunctionEnd::Thrown(error)) if error.name == "RangeError"), "{output:?}");
    // A longer text is the end of a process with V8.
    let long = by_engine(
        "return ['x'.repeat(2 ** 29), 'x'.repeat(2 ** 29)]",
        "return ['x'.repeat(2 ** 24), 'x'.repeat(2 ** 24)]",
    );
    for body in [long, "return new Array(2e7).fill('xxxx')"] {
        let (output, _) = run(&format!("export default async () => {{ {body} }}"), "null");
        assert!(
            matches!(output, Err(FunctionEnd::Memory | FunctionEnd::Output | FunctionEnd::Cpu)),
            "{body}: {output:?}"
        );
    }
}

/// No limit, however small, aborts the process, and each call ends by a cause or with an output.
const SCRIPTS: [&str; 12] = [
    "return 1",
    "let x = []; for (;;) x.push({ a: 1 })",
    "let s = 'a'; for (;;) s += s",
    "let x = []; for (;;) x.push(new ArrayBuffer(1024))",
    "const f = () => f() + 1; return f()",
    "return JSON.parse(JSON.stringify(Array.from({ length: 1e4 }, (_, i) => ({ i }))))",
    "const m = new Map(); for (let i = 0; ; i++) m.set({}, i)",
    "let x = []; for (;;) { try { x.push('x'.repeat(1000) + x.length) } catch { x = [] ; throw new Error('caught') } }",
    "for (;;) await Promise.all(Array.from({ length: 100 }, async () => new Array(1000).fill(0)))",
    "for (let i = 0; i < 300; i++) new RegExp('a|'.repeat(i))",
    "return [new URL('https://example.org/?a=1').searchParams.get('a'), structuredClone({ a: [1] }), new TextEncoder().encode('x').length]",
    "class A { #x = new Array(100).fill(this) } let all = []; for (;;) all.push(new A())",
];

/// Memory limits in KiB.
const LIMITS: [usize; 17] =
    [0, 1, 64, 128, 200, 256, 300, 350, 400, 512, 700, 1_024, 2_048, 4_096, 16_384, 65_536, 262_144];
/// CPU time of a call, which ends most scripts before they have used up a large limit; and in the long test, where it does not.
const CPU: Duration = Duration::from_millis(40);
const LONG_CPU: Duration = Duration::from_secs(5);

/// Runs a script within each limit.
fn sweep(script: &str) -> usize {
    for kib in LIMITS {
        let limits = FunctionLimits {
            memory_bytes: kib << 10,
            cpu: if rounds().is_some() { LONG_CPU } else { CPU },
            wall: Duration::from_secs(60),
            ..FunctionLimits::default()
        };
        let module = format!("export default async () => {{ {script} }}");
        let source = FunctionSource::single("test.js", &module);
        let mut worker = worker(limits, Reuse::Fresh);
        // The second isolate reads compiled code.
        for isolate in ["first", "second"] {
            let output = worker.run(&source, call("null", &Rc::new(Desk::default())));
            let known = match &output {
                Ok(_) => true,
                Err(end) => ["memory", "cpu", "stack", "thrown"].contains(&end.cause()),
            };
            assert!(known, "{kib} KiB, the {isolate} isolate, {script}: {output:?}");
            if kib <= 1 {
                assert_eq!(output, Err(FunctionEnd::Memory), "{kib} KiB, {script}");
            }
        }
    }
    LIMITS.len()
}

/// Runs in a child: the sweep of one script.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let Some((engine, script)) = children::assignment() else { return };
    let runs = on(engine, || sweep(&script));
    children::report(&runs.to_string());
}

fn no_memory_limit_aborts_the_process() {
    for script in SCRIPTS {
        match tested() {
            Tested::QuickJs => assert_eq!(sweep(script), LIMITS.len()),
            #[cfg(feature = "v8")]
            Tested::V8 => {
                let child = children::run("crossing::child", Tested::V8, script);
                assert_eq!((child.lines.len(), child.signal), (1, None), "{script}");
            }
        }
    }
}
