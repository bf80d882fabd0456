//! The bomb corpus: scripts that use up time, memory or stack. Each is a list of statements.

use crate::engines::by_engine;

/// The end of the process: V8 aborts when it needs more memory than it can get.
pub(crate) const ABORT: &str = "abort";

/// A script, and the causes by which it may end on a thread. Which of several comes first depends on the machine.
#[derive(Clone, Copy)]
pub(crate) struct Bomb {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    pub(crate) quickjs: &'static [&'static str],
    pub(crate) v8: &'static [&'static str],
}

impl Bomb {
    /// The causes in the engine under test.
    pub(crate) fn ends(&self) -> &'static [&'static str] {
        by_engine(self.quickjs, self.v8)
    }
}

/// A script that ends in the same way in both engines.
pub(crate) const fn bomb(name: &'static str, script: &'static str, ends: &'static [&'static str]) -> Bomb {
    Bomb { name, script, quickjs: ends, v8: ends }
}

/// The same script, with other ends in V8.
const fn in_v8(bomb: Bomb, v8: &'static [&'static str]) -> Bomb {
    Bomb { v8, ..bomb }
}

/// Scripts that end on their thread: the engine looks at the limits while they run, or refuses what they ask for.
pub(crate) const ENDING: &[Bomb] = &[
    bomb("loop", "for (;;);", &["cpu"]),
    bomb("loop in a catch", "for (;;) try { for (;;); } catch {} finally { for (;;); }", &["cpu"]),
    bomb("generator", "for (const x of (function* () { for (;;) yield 1 })());", &["cpu"]),
    bomb("microtasks", "await (async () => { for (;;) await 0 })()", &["cpu"]),
    bomb("microtasks that are not awaited", "(async () => { for (;;) await 0 })()", &["cpu"]),
    bomb(
        "timers without end",
        "await new Promise(() => { const f = () => setTimeout(f, 0); f() })",
        &["cpu"],
    ),
    bomb(
        "forking microtasks",
        "let p = Promise.resolve(); const f = () => { p.then(f); p.then(f) }; f()",
        &["cpu", "memory"],
    ),
    bomb("backtracking", "/^(a+)+$/.test('a'.repeat(40) + 'b')", &["cpu"]),
    // V8 looks at the end only, because the match is not longer than 60.
    in_v8(
        bomb("backtracking of choices", "'a'.repeat(3e6).match(/(?:a?){30}a{30}$/)", &["cpu"]),
        &["output"],
    ),
    bomb(
        "fill of a proxy",
        "[].fill.call(new Proxy({ length: 2 ** 32 - 1 }, { set: () => true }), 1)",
        &["cpu"],
    ),
    bomb("objects", "let x = []; for (;;) x.push({ a: 1, b: [1, 2, 3] });", &["memory", "cpu"]),
    bomb("buffers", "let x = []; for (;;) x.push(new ArrayBuffer(1 << 20));", &["memory"]),
    bomb("one buffer", "new Uint8Array(5e8).fill(1)", &["memory"]),
    bomb("string that doubles", "let s = 'a'; for (;;) s += s;", &["memory", "thrown"]),
    in_v8(
        bomb("string repeated", "'a'.repeat(1 << 29).replaceAll('a', 'bb').length", &["memory"]),
        &["thrown"],
    ),
    in_v8(bomb("string split", "'x'.padEnd(1 << 29).split('').length", &["memory"]), &["thrown"]),
    in_v8(bomb("array from a length", "Array.from({ length: 1e9 })", &["memory", "cpu"]), &[ABORT, "cpu"]),
    bomb("closures", "let f = () => 1; for (;;) { const g = f; f = () => g() }", &["memory", "cpu"]),
    bomb("map", "const m = new Map(); for (let i = 0; ; i++) m.set(i, String(i))", &["memory", "cpu"]),
    bomb("recursion", "const f = () => f() + 1; f()", &["stack"]),
    bomb("recursion in a getter", "const o = { get x() { return this.x } }; o.x", &["stack"]),
    bomb("recursion in a proxy", "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x", &["stack"]),
    in_v8(
        bomb(
            "deep JSON",
            "let o = {}; for (let i = 0; i < 20000; i++) o = { o }; JSON.stringify(o)",
            &["stack", "memory"],
        ),
        &["output"],
    ),
    in_v8(bomb("deep text of JSON", "JSON.parse('['.repeat(1e6))", &["stack", "thrown"]), &["cpu", "thrown"]),
    bomb(
        "keys of a proxy",
        "Object.keys(new Proxy({}, { ownKeys: () => Array.from({ length: 2e6 }, (_, i) => 'k' + i) }))",
        &["memory", "cpu"],
    ),
    bomb("large integer", "let a = (1n << 20000000n) - 1n; a * a", &["thrown", "memory"]),
    in_v8(
        bomb("long text as JSON", "JSON.stringify('x'.repeat(2 ** 29 - 25)).length", &["memory"]),
        &["cpu", "memory", ABORT],
    ),
    bomb("code from a string", "new Function('return ' + '1+'.repeat(1e5) + '1')()", &["thrown"]),
    bomb("eval", "(0, eval)('for (;;);')", &["thrown"]),
    bomb("constructor of functions", "(async () => {}).constructor('for (;;);')()", &["thrown"]),
    bomb("atomic wait", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", &["thrown"]),
    in_v8(
        bomb(
            "regular expression",
            "new RegExp('(?:'.repeat(20000) + ')'.repeat(20000))",
            &["thrown", "stack"],
        ),
        &["output"],
    ),
    bomb("log lines", "for (;;) console.log('x')", &["log lines"]),
    bomb("log lines in a catch", "for (;;) try { console.log('x') } catch {}", &["log lines"]),
    bomb("timers", "for (;;) setTimeout(() => {}, 1e6)", &["timers"]),
    bomb("error with a loop", "throw { get message() { for (;;); } }", &["cpu"]),
    bomb("error with a long message", "throw new Error('x'.repeat(1e6))", &["thrown"]),
    bomb("rejections", "for (;;) Promise.reject(1)", &["cpu", "memory", "unhandled rejection"]),
    bomb("promise without end", "await new Promise(() => {})", &["never settles"]),
    bomb("thenable without end", "await { then() {} }", &["never settles"]),
];

/// Scripts inside of builtins that never look at the limits: they cannot be ended on their thread in time.
pub(crate) struct DeafScript {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    /// How they end in V8, which depends on the machine for some.
    pub(crate) v8: &'static [&'static str],
}

impl DeafScript {
    /// Whether QuickJS may be done with it in time, or notice a limit, on a fast machine.
    pub(crate) fn may_end_in_quickjs(&self) -> bool {
        MAY_END.contains(&self.name)
    }
}

/// Loops of builtins that look at the limits between two calls, and work that is done after some time.
const MAY_END: [&str; 11] = [
    "indexOf of a long text",
    "lastIndexOf",
    "toUpperCase",
    "localeCompare",
    "encodeURIComponent",
    "text of a large integer",
    "division of large integers",
    "JSON of a sparse array",
    "power",
    "sort of numbers",
    "sort",
];

const fn deaf(name: &'static str, script: &'static str, v8: &'static [&'static str]) -> DeafScript {
    DeafScript { name, script, v8 }
}

pub(crate) const DEAF: &[DeafScript] = &[
    deaf("array to text", "new Array(1e9) + ''", &["ended thrown"]),
    deaf("join", "[].join.call({ length: 4e9 })", &["ended thrown"]),
    deaf(
        "concat",
        "[].concat.call([], Object.assign({ length: 2 ** 32 - 1 }, { [Symbol.isConcatSpreadable]: true }))",
        &["deaf"],
    ),
    deaf("flat", "[].flat.call({ length: 2 ** 32 - 1 })", &["deaf"]),
    deaf("slice", "[].slice.call({ length: 2 ** 32 - 1 })", &["deaf"]),
    deaf("splice", "[].splice.call({ length: 2 ** 32 - 1 }, 0, 1)", &["deaf"]),
    deaf("reverse", "[].reverse.call({ length: 2 ** 32 - 1 })", &["deaf"]),
    deaf("copyWithin", "[].copyWithin.call({ length: 2 ** 32 - 1 }, 1, 0)", &["deaf"]),
    deaf("sort", "[].sort.call({ length: 2 ** 32 - 1 })", &[ABORT]),
    deaf("String.raw", "String.raw({ raw: { length: 1e10 } })", &["deaf"]),
    deaf(
        "indexOf of a long text",
        "'a'.repeat(1e6).indexOf('a'.repeat(5e5) + 'b')",
        &["ended output", "ended cpu"],
    ),
    deaf(
        "lastIndexOf",
        "const s = 'a'.repeat(5e6); for (let i = 0; i < 1e5; i++) s.lastIndexOf('b')",
        &["deaf", "ended cpu"],
    ),
    deaf(
        "toUpperCase",
        "const s = 'ß'.repeat(1e6); for (let i = 0; i < 1e5; i++) s.toUpperCase()",
        &["ended memory", "ended cpu"],
    ),
    deaf(
        "localeCompare",
        "const s = 'é'.repeat(3e5); for (let i = 0; i < 1e5; i++) s.localeCompare(s + 'a')",
        &["deaf", "ended cpu", "ended memory"],
    ),
    deaf(
        "encodeURIComponent",
        "const s = 'é'.repeat(5e5); for (let i = 0; i < 1e5; i++) encodeURIComponent(s)",
        &["deaf", "ended cpu", "ended memory"],
    ),
    deaf(
        "text of a large integer",
        "((1n << 1000000n) - 1n).toString().length",
        &["ended output", "ended cpu"],
    ),
    deaf(
        "division of large integers",
        "const a = (1n << 400000n) - 1n; for (let i = 0; i < 1e4; i++) (a * a) / (a - 3n)",
        &["ended cpu"],
    ),
    deaf(
        "union of sets",
        "const a = new Set(Array.from({ length: 3e4 }, (_, i) => i)); for (let i = 0; i < 1e5; i++) a.union(a)",
        &["ended cpu"],
    ),
    deaf(
        "expression of many choices",
        "new RegExp(('(' + 'a|'.repeat(60000) + 'b)').repeat(3)).test('c'.repeat(1e5))",
        &["deaf", "ended cpu"],
    ),
    // QuickJS reads no more than a hundred characters, and so it ends there.
    deaf(
        "dates from a long text",
        "const s = ' '.repeat(3e6); for (;;) Date.parse(s)",
        &["deaf", "ended cpu"],
    ),
    deaf("JSON of a sparse array", "JSON.stringify(new Array(1e9))", &["ended thrown"]),
    deaf("power", "3n ** 20000000n", &["ended memory", "ended cpu", "ended thrown"]),
    deaf(
        "sort of numbers",
        "const a = new Float64Array(1e5).map(() => Math.random()); for (let i = 0; i < 1e4; i++) a.toSorted()",
        &["ended cpu"],
    ),
];
