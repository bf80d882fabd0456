//! What a script can reach: nothing of the machine. Each script looks for canaries: a variable of the environment, a file, a global of the
//! host, and the host function of the prelude.

use std::rc::Rc;

use ostler_isolate::{FunctionLimits, FunctionSource, HostProgram, Isolation, Reuse};

#[cfg(feature = "weakened")]
use crate::bench::example;
use crate::bench::{Bench, work};
use crate::desk::{Desk, call, run, worker};
use crate::engines::tested;

on_each_engine_async!(no_script_gets_out_of_a_host);
#[cfg(feature = "weakened")]
on_each_engine_async!(the_corpus_notices_a_host_without_its_sandbox);
on_each_engine!(the_global_object_has_nothing_else, no_script_gets_out, the_corpus_notices_a_weak_isolate,);

/// Everything that is on the global object, without the language itself.
const OURS: [&str; 23] = [
    "AbortController",
    "AbortSignal",
    "Headers",
    "Request",
    "Response",
    "TextDecoder",
    "TextEncoder",
    "URL",
    "URLSearchParams",
    "atob",
    "btoa",
    "clearInterval",
    "clearTimeout",
    "console",
    "crypto",
    "escape",
    "fetch",
    "globalThis",
    "queueMicrotask",
    "setInterval",
    "setTimeout",
    "structuredClone",
    "unescape",
];

/// What ECMAScript defines.
const LANGUAGE: [&str; 52] = [
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "BigInt",
    "BigInt64Array",
    "BigUint64Array",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "FinalizationRegistry",
    "Float16Array",
    "Float32Array",
    "Float64Array",
    "Function",
    "Infinity",
    "Int16Array",
    "Int32Array",
    "Int8Array",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "Proxy",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "String",
    "Symbol",
    "SyntaxError",
    "TypeError",
    "URIError",
    "Uint16Array",
    "Uint32Array",
    "Uint8Array",
    "Uint8ClampedArray",
    "WeakMap",
    "WeakRef",
    "WeakSet",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "eval",
    "isFinite",
];

/// The same, without a place in the list above.
const MORE_LANGUAGE: [&str; 7] = [
    "InternalError",
    "SuppressedError",
    "DisposableStack",
    "AsyncDisposableStack",
    "isNaN",
    "parseFloat",
    "parseInt",
];

fn the_global_object_has_nothing_else() {
    let names = "export default () => Reflect.ownKeys(globalThis).map(String).sort()";
    let output = run(names, "null").0.expect("it returns").expect("a list");
    let names: Vec<String> = serde_json::from_str(&output).expect("a list");
    let known = |name: &str| {
        OURS.contains(&name)
            || LANGUAGE.contains(&name)
            || MORE_LANGUAGE.contains(&name)
            || name == "undefined"
            || name == "Symbol(Symbol.toStringTag)"
    };
    let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for name in OURS {
        assert!(names.iter().any(|known| known == name), "{name} is missing");
    }
}

/// Each script returns the canary if it finds it. `CANARY` stands for its file.
const ESCAPES: &[&str] = &[
    "return process.env.PATH",
    "return require('fs').readFileSync('CANARY', 'utf8')",
    "return (await import('fs')).readFileSync('CANARY', 'utf8')",
    "return (await import('file://CANARY')).default",
    "return (await import('CANARY')).default",
    "return (await import('../../../../../../../CANARY')).default",
    "return (await import('data:text/javascript,export default 1')).default",
    "return (await import('std')).getenv('PATH')",
    "return (await import('os')).readFile('CANARY')",
    "return (await import('qjs:std')).getenv('PATH')",
    "return std.getenv('PATH')",
    "return std.loadFile('CANARY')",
    "return os.readdir('/')",
    "return Deno.readTextFileSync('CANARY')",
    "return Bun.env.PATH",
    "return scriptArgs[0]",
    "return navigator.userAgent",
    "return print('x')",
    "return load('CANARY')",
    "return read('CANARY')",
    "return new Worker('CANARY')",
    "return new XMLHttpRequest()",
    "return new WebSocket('ws://127.0.0.1')",
    "return new WebAssembly.Memory({ initial: 1 })",
    "return new SharedArrayBuffer(1)",
    "return host('secret', 'token')",
    "return globalThis.host('secret', 'token')",
    "return this.constructor.constructor('return 1')()",
    "return ctx.constructor.constructor('return this')().host",
    "return ctx.step.constructor('return 1')()",
    "return Function('return 1')()",
    "return new Function('return 1')()",
    "return Reflect.construct(Function, ['return 1'])()",
    "return (0, eval)('1')",
    "return eval('1')",
    "return (function* () {}).constructor('yield 1')().next().value",
    "return (async () => {}).constructor('return 1')()",
    "return (async function* () {}).constructor('yield 1')().next()",
    "return class extends Function {}('return 1')()",
    "return new (class extends Function {})('return 1')()",
    "return Object.getPrototypeOf(async () => {}).constructor.constructor('return 1')()",
    "return setTimeout('globalThis.x = 1', 0)",
    "return new Proxy(function () {}, {}).constructor('return 1')()",
    "return ctx.log.caller",
    "return (function f() { return f.caller })().name",
    "return console.log.arguments",
    "const f = []; Error.prepareStackTrace = (e, s) => s; for (const c of new Error().stack) f.push(c.getFunction()); return f.length",
    "Array.prototype.push = function (x) { globalThis.got = x }; new URL('http://x'); return got('secret', 'token')",
    "Function.prototype.call = function (x) { globalThis.got = this }; console.log('x'); return got('secret', 'token')",
    "Object.prototype.then = function (f) { globalThis.got = f }; return got('secret', 'token')",
    "Map.prototype.set = function (k, v) { globalThis.got = v }; setTimeout(() => {}); return got('secret', 'token')",
    "return AbortSignal.of({}).signal",
];

fn canary() -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".js").tempfile().expect("a file can be made");
    std::fs::write(file.path(), "export default 'canary'").expect("a file can be written");
    file
}

fn no_script_gets_out() {
    assert!(std::env::var("PATH").is_ok(), "there is a variable to find");
    let canary = canary();
    let path = canary.path().to_str().expect("it is text");
    let mut found = Vec::new();
    for script in ESCAPES {
        let script = script.replace("CANARY", path);
        let (output, host) =
            run(&format!("export default async function (payload, ctx) {{ {script} }}"), "null");
        if let Ok(Some(output)) = &output {
            found.push(format!("{script}: {output}"));
        }
        assert!(host.requests.borrow().is_empty() && host.files.borrow().is_empty(), "{script}");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// More for scripts in host processes. `PORT` stands for a socket of this machine that is open, `PID` for this process.
const FROM_HOSTS: [&str; 4] = [
    "return (await fetch('http://127.0.0.1:PORT/')).status",
    "return (await fetch('http://localhost:PORT/')).status",
    "return (await fetch('file://CANARY')).text()",
    "await ctx.file('CANARY', 'x'); return 'written'",
];

/// What a script that has broken out of its engine would do. Only a weakened host does it.
const NATIVE: [&str; 5] = [
    "return ctx.secret('native:read CANARY')",
    "return ctx.secret('native:read /proc/PID/environ')",
    "return ctx.secret('native:run CANARY')",
    "return ctx.secret('native:connect 127.0.0.1:PORT') + 'connected'",
    "return ctx.secret('native:write CANARY') + 'written'",
];

/// What the corpus found in hosts.
struct Found {
    /// Scripts with an output.
    scripts: Vec<String>,
    has_connected: bool,
    has_written: bool,
}

/// Runs the corpus through the executor, in hosts of this program. `None`: real ones.
async fn escape(program: Option<HostProgram>) -> Found {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it can be set");
    let port = listener.local_addr().expect("an address").port().to_string();
    let canary = canary();
    let path = canary.path().to_str().expect("it is text");
    let bench = Bench::new(Isolation::Process, |policy| {
        policy.program = program.unwrap_or_else(|| policy.program.clone());
    })
    .await;
    let mut worker = bench.open().await;
    let mut scripts = Vec::new();
    for script in ESCAPES.iter().chain(&FROM_HOSTS).chain(&NATIVE) {
        let known = [("CANARY", path), ("PORT", &port), ("PID", &std::process::id().to_string())];
        let text = known.iter().fold((*script).to_owned(), |text, (name, value)| text.replace(name, value));
        bench.body("escape", &text);
        let (ended, _) = bench.run(worker, work("escape", "null")).await;
        if ended.output.is_some() {
            scripts.push((*script).to_owned());
        }
        worker = bench.next_worker(worker, ended.slot).await;
    }
    bench.executor.close(worker).await;
    Found {
        scripts,
        has_connected: listener.accept().is_ok(),
        has_written: std::fs::read(canary.path()).expect("it is there") != b"export default 'canary'",
    }
}

async fn no_script_gets_out_of_a_host() {
    let found = escape(None).await;
    assert!(found.scripts.is_empty(), "{}", found.scripts.join("\n"));
    assert!(!found.has_connected && !found.has_written);
}

/// A sandbox holds scripts that are out of their engine, and without it the corpus sees every one of them.
#[cfg(feature = "weakened")]
async fn the_corpus_notices_a_host_without_its_sandbox() {
    let weakened = |weakness| Some(example("weakened_host", &[weakness]));
    let found = escape(weakened("native-calls")).await;
    assert!(found.scripts.is_empty(), "{}", found.scripts.join("\n"));
    assert!(!found.has_connected && !found.has_written);
    let found = escape(weakened("no-sandbox")).await;
    assert_eq!(found.scripts, NATIVE);
    assert!(found.has_connected && found.has_written);
}

/// The same corpus in isolates that are weak on purpose, as if a host had put more on the global object: it notices what is reachable.
fn the_corpus_notices_a_weak_isolate() {
    let canary = canary();
    let path = canary.path().to_str().expect("it is text");
    let weaken = "globalThis.process = { env: { PATH: 'x' } }; globalThis.std = { getenv: () => 'x', loadFile: () => 'x' }; \
                  globalThis.host = () => 'x'; globalThis.require = () => ({ readFileSync: () => 'x' }); \
                  globalThis.Deno = { readTextFileSync: () => 'x' }; globalThis.eval = () => 1; \
                  Object.defineProperty(Function.prototype, 'constructor', { value: () => () => 'x' });";
    let mut found = 0;
    for script in ESCAPES {
        let script = script.replace("CANARY", path);
        let text = format!("{weaken} export default async function (payload, ctx) {{ {script} }}");
        let source = FunctionSource::single("test.js", &text);
        let output = worker(FunctionLimits::default(), Reuse::Fresh)
            .run(&source, call("null", &Rc::new(Desk::default())));
        found += usize::from(matches!(output, Ok(Some(_))));
    }
    println!("{}: {found} of {} scripts notice that an isolate is weak", tested().name(), ESCAPES.len());
    assert!(found >= 11, "only {found} scripts notice that an isolate is weak");
}
