//! The differences between the engines, as a table: `differences.md`. Everything else of this suite is the same in both.
//!
//! `OSTLER_UPDATE=1 cargo test -p ostler-isolate --features v8 differences` writes the file anew; read the difference before you commit it.

use std::fmt::Write as _;
use std::path::Path;

use ostler_isolate::FunctionEnd;

use crate::corpus::{DEAF, ENDING};
use crate::desk::run;
use crate::engines::{Tested, on};

/// Functions whose results may differ: bodies of functions, within the default limits.
const PROBES: &[&str] = &[
    "return new Error('x').stack",
    "const f = () => { throw new TypeError('x') }; try { f() } catch (error) { return error.stack }",
    "return String(new RangeError('x'))",
    "console.log(new Error('x').message); return 1",
    "return null.x",
    "return undefined()",
    "return x",
    "return JSON.parse('{')",
    "return new Array(-1)",
    "return 'x'.repeat(1 << 28).length",
    "return 'x'.repeat(1 << 29).length",
    "return new ArrayBuffer(8, { maxByteLength: 16 }).resizable",
    "return import('./other.js')",
    "return import('fs')",
    "return Object.keys(import.meta)",
    "return typeof Error.stackTraceLimit",
    "return typeof Error.captureStackTrace",
    "return typeof Error.prepareStackTrace",
    "return eval('1')",
    "return new Function('return 1')()",
    "return typeof Intl",
    "return 'ä'.localeCompare('z')",
    "return (1234.5).toLocaleString()",
    "return new Date(0).toLocaleString()",
    "return new Date(-1e14).toLocaleDateString() + new Date(NaN).toLocaleTimeString()",
    "return [12345n.toLocaleString(), [1.5, 2].toLocaleString(), 'a'.localeCompare('b')]",
    "return ['Date', 'Number', 'String'].map((name) => globalThis[name].prototype.toLocaleString?.name)",
    "try { new ArrayBuffer(1 << 30) } catch (error) { return error.name }",
    "return 'Straße'.toLocaleUpperCase() + 'İ'.toLowerCase().length",
    "return ['\\u0041\\u030a'.normalize('NFC'), '\\ufb01'.normalize('NFKC')]",
    "return /\\p{Lu}\\p{Script=Greek}/u.test('ÄΩ')",
    "return (function f() {}).toString()",
    "return Math.max.toString()",
    "return [3, 1, 2].toSorted().at(-1)",
    "return Object.getOwnPropertyNames(new Error('x'))",
    "Promise.reject(new Error('lost')); return 1",
    "return await new Promise(() => {})",
    "queueMicrotask(1)",
    "return [typeof Iterator.prototype.map, typeof Promise.try, typeof Set.prototype.union, typeof RegExp.escape]",
    "return [typeof Math.sumPrecise, typeof Uint8Array.fromBase64, typeof Error.isError, typeof Array.fromAsync]",
    "return [typeof DisposableStack, typeof Float16Array, typeof Temporal, typeof ShadowRealm, typeof Iterator.concat]",
];

/// The result of a probe as one line.
fn result(engine: Tested, body: &str) -> String {
    let module = format!("export default async function (payload, ctx) {{ {body} }}");
    match on(engine, || run(&module, "null").0) {
        Ok(output) => output.unwrap_or_else(|| "nothing".to_owned()),
        Err(FunctionEnd::Thrown(error)) => format!("throws {error}"),
        Err(end) => format!("ends by {}: {end}", end.cause()),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', "\\n")
}

fn table() -> String {
    let mut table = String::from(
        "# Differences between QuickJS and V8\n\nMade by `differences.rs`, which compares this file with what the engines do.\n\n## Results\n\n| function | QuickJS | V8 |\n|---|---|---|\n",
    );
    for body in PROBES {
        let (quickjs, v8) = (result(Tested::QuickJs, body), result(Tested::V8, body));
        if quickjs != v8 {
            let _ = writeln!(table, "| `{}` | {} | {} |", cell(body), cell(&quickjs), cell(&v8));
        }
    }
    table.push_str("\n## Ends of scripts that use up their limits\n\nAn abort is the end of the process.\n\n| script | QuickJS | V8 |\n|---|---|---|\n");
    for bomb in ENDING.iter().filter(|bomb| bomb.quickjs != bomb.v8) {
        let (quickjs, v8) = (bomb.quickjs.join(", "), bomb.v8.join(", "));
        let _ = writeln!(table, "| `{}` | {quickjs} | {v8} |", cell(bomb.script));
    }
    table.push_str(
        "\n## Scripts inside of builtins that never look at the limits\n\nA deaf one is ended only with its process. In QuickJS all of these are deaf, unless the machine is fast. \
         In V8 some depend on the machine too.\n\n| script | V8 |\n|---|---|\n",
    );
    for script in DEAF {
        let _ = writeln!(table, "| `{}` | {} |", cell(script.script), script.v8.join(", "));
    }
    table
}

#[test]
fn the_table_of_differences_is_what_the_engines_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/isolate/differences.md");
    let table = table();
    if std::env::var_os("OSTLER_UPDATE").is_some() {
        std::fs::write(&path, &table).expect("the file can be written");
    }
    let known = std::fs::read_to_string(&path).expect("the file is there");
    assert!(known == table, "differences.md is out of date; now:\n{table}");
}
