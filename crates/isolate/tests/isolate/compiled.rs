//! Compiled code: a function that an engine has loaded before does what it does when its source is compiled.

use std::collections::BTreeMap;
use std::rc::Rc;

use ostler_isolate::{
    FunctionEnd, FunctionLimits, FunctionSource, FunctionWorker, ModuleKind, ModuleText, Reuse,
};

use crate::desk::{Desk, Output, call, worker};

on_each_engine!(
    the_second_isolate_of_a_function_does_what_the_first_did,
    modules_of_compiled_functions_find_each_other,
    a_changed_function_is_another_one,
    a_function_that_cannot_be_linked_fails_each_time,
);

/// How often each function runs, in isolates of its own.
const RUNS: usize = 3;

fn run(worker: &mut FunctionWorker, source: &FunctionSource) -> (Output, Vec<String>) {
    let host = Rc::new(Desk::default());
    let output = worker.run(source, call(r#"{"n":3}"#, &host));
    (output, host.lines())
}

/// The same result in every isolate.
fn runs_alike(source: &FunctionSource) -> (Output, Vec<String>) {
    let mut worker = worker(FunctionLimits::default(), Reuse::Fresh);
    let first = run(&mut worker, source);
    for _ in 1..RUNS {
        assert_eq!(run(&mut worker, source), first, "{:?}", source.entry());
    }
    first
}

fn modules(entry: &str, modules: &[(&str, &str)]) -> FunctionSource {
    let module = |(path, text): &(&str, &str)| {
        ((*path).to_owned(), ModuleText { kind: ModuleKind::of(path), text: (*text).into() })
    };
    FunctionSource::new(entry, modules.iter().map(module).collect::<BTreeMap<_, _>>())
}

/// Everything that a compiler writes into code, and what tells its place in the source.
const MODULES: [&str; 14] = [
    "export default function named(payload) { return [named.toString(), named.name, named.length] }",
    "let calls = 0;\nexport default () => ++calls",
    "const top = await Promise.resolve(7);\nexport default () => top",
    "export default () => {\n  const inner = () => { throw new TypeError('here') };\n  inner();\n}",
    "export default () => { try { null.x } catch (error) { return error.stack } }",
    "const tag = (parts, ...rest) => [parts.raw, Object.isFrozen(parts), rest];\nexport default () => tag`a\\n${1}b`",
    "export default () => ['aXbx'.split(/x/i), /(?<y>\\d+)/u.exec('é12').groups.y, /\\p{L}/v.test('ü')]",
    "export default () => [String(12345678901234567890n), 1e400, -0, 0.1 + 0.2, 'é\\u{1F600}\\ud800']",
    "class A { #x = 1; static #y = 2; get x() { return this.#x + A.#y } static { this.z = 3 } }\n\
     export default () => [new A().x, A.z, new (class extends A { x = super.x })().x]",
    "function* g() { try { yield 1; yield* [2, 3] } finally { console.log('end') } }\nexport default () => [...g()]",
    "export default async ({ n }, ctx) => {\n  for await (const x of (async function* () { yield n })()) console.log(x, ctx.task);\n  \
     return [new URL('https://a.b/c?d=1').searchParams.get('d'), structuredClone({ n })] }",
    "label: for (let i = 0; ; i++) { switch (i) { case 3: break label; default: continue } }\n\
     export default function ({ n = 1, ...rest }) { const [a, b = 2] = [n]; return [n, rest, a, b, new.target === undefined] }",
    "export default { fetch: (request) => new Response(`${request.method}`) }",
    "export default () => { debugger; with_ = 1 }",
];

fn the_second_isolate_of_a_function_does_what_the_first_did() {
    let mut outputs = Vec::new();
    for text in MODULES {
        outputs.push(runs_alike(&FunctionSource::single("test.js", text)).0);
    }
    assert_eq!(outputs[1], Ok(Some("1".to_owned())), "isolates share no state");
    let Err(FunctionEnd::Thrown(thrown)) = &outputs[3] else { panic!("{:?}", outputs[3]) };
    assert!(thrown.stack.contains("test.js:2"), "{thrown:?}");
    let failed = outputs.iter().filter(|output| output.is_err()).count();
    assert_eq!(failed, 2, "{outputs:?}");
}

fn modules_of_compiled_functions_find_each_other() {
    let source = modules(
        "main.js",
        &[
            (
                "main.js",
                "import data from './lib/data.json' with { type: 'json' };\nimport * as a from './lib/a.js';\n\
                 export default async () => [data, a.own(), a.other(), (await import('./lib/b.js')).name]",
            ),
            ("lib/data.json", r#"{"__proto__": 1, "text": "é"}"#),
            (
                "lib/a.js",
                "import { name } from './b.js';\nexport const own = () => 'a';\nexport const other = () => name;\n",
            ),
            (
                "lib/b.js",
                "import { own } from './a.js';\nexport const name = 'b';\nexport { own as back };\nexport * from './c.js';",
            ),
            ("lib/c.js", "export let c = 1;\nexport default 2"),
        ],
    );
    let (output, _) = runs_alike(&source);
    assert_eq!(output, Ok(Some(r#"[{"__proto__":1,"text":"é"},"a","b","b"]"#.to_owned())));
}

fn a_changed_function_is_another_one() {
    let mut worker = worker(FunctionLimits::default(), Reuse::Fresh);
    for round in 0..2 {
        for number in 0..5 {
            let library = format!("export const number = {number}");
            let entry = ("main.js", "import { number } from './lib.js';\nexport default () => number");
            let source = modules("main.js", &[entry, ("lib.js", &library)]);
            let (output, _) = run(&mut worker, &source);
            assert_eq!(output, Ok(Some(number.to_string())), "round {round}");
        }
    }
}

fn a_function_that_cannot_be_linked_fails_each_time() {
    for (entry, words) in [
        ("export default () => 1 1", "SyntaxError"),
        ("import { missing } from './lib.js';\nexport default () => missing", "missing"),
        ("import './other.js';\nexport default () => 1", "other.js"),
    ] {
        let source = modules("main.js", &[("main.js", entry), ("lib.js", "export const there = 1")]);
        let (output, _) = runs_alike(&source);
        assert!(
            matches!(&output, Err(FunctionEnd::Module(why)) if why.contains(words)),
            "{entry}: {output:?}"
        );
    }
}
