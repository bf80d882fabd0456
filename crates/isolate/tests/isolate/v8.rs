//! Rules of V8 alone: memory outside of its heap, and what isolates share.

use ostler_isolate::{Engine as _, FunctionEnd, FunctionLimits, V8};

use crate::desk::run_in;
use crate::engines::{Tested, on};

fn output(memory_bytes: usize, body: &str) -> Result<Option<String>, FunctionEnd> {
    let limits = FunctionLimits { memory_bytes, ..FunctionLimits::default() };
    let module = format!("export default async (payload, ctx) => {{ {body} }}");
    on(Tested::V8, || run_in(limits, &module, "null").0)
}

#[test]
fn buffers_and_heap_share_the_limit() {
    let limit = 32 << 20;
    assert_eq!(output(limit, "return new Uint8Array(16 << 20).length"), Ok(Some((16 << 20).to_string())));
    assert_eq!(output(limit, "new Uint8Array(33 << 20)"), Err(FunctionEnd::Memory));
    // What is not used any more makes room.
    let reused = "let n = 0; for (let i = 0; i < 50; i++) n += new Uint8Array(8 << 20).length; return n";
    assert_eq!(output(limit, reused), Ok(Some((50 * (8 << 20)).to_string())));
    // Neither is too large alone.
    let both = "const all = []; const bytes = new Uint8Array(20 << 20); for (let i = 0; i < 8e5; i++) all.push({ i }); return bytes.length";
    assert_eq!(output(limit, both), Err(FunctionEnd::Memory));
    // A script cannot catch a refusal, and go on.
    let caught = "try { new ArrayBuffer(1 << 30) } catch (error) { return error.name }";
    assert_eq!(output(limit, caught), Err(FunctionEnd::Memory));
}

#[test]
fn there_are_no_resizable_buffers() {
    let body = "const b = new ArrayBuffer(8, { maxByteLength: 1 << 30 }); class Own extends ArrayBuffer {}; \
                const own = new Own(4, { maxByteLength: 1 << 30 }); \
                const other = new (new Uint8Array(1).buffer.constructor)(2, { maxByteLength: 1 << 30 }); \
                return [b.resizable, own.resizable, other.resizable, b.slice(4).byteLength, own instanceof Own, b.constructor === ArrayBuffer]";
    assert_eq!(output(32 << 20, body), Ok(Some("[false,false,false,4,true,true]".to_owned())));
}

#[test]
fn fresh_isolates_do_not_share_random_numbers() {
    let random = "return [Math.random(), crypto.randomUUID()]";
    assert_ne!(output(32 << 20, random), output(32 << 20, random));
}

#[test]
fn imports_are_listed_in_order() {
    let engine = V8::initialize_among_threads().expect("it starts");
    let source = "import a from './a.js'; export * from './b.js'; import './c.json' with { type: 'json' }; import('./d.js')";
    assert_eq!(engine.imports("x.js", source), Ok(vec!["./a.js".into(), "./b.js".into(), "./c.json".into()]));
    assert!(engine.imports("x.js", "\n export const = 1").unwrap_err().contains("x.js:2:"));
}
