//! `ctx`: steps, progress, logs, files, secrets.

use std::rc::Rc;

use ostler_core::Level;
use ostler_isolate::{FunctionEnd, FunctionLimits, FunctionSource, Reuse};

use crate::desk::{Desk, call, run, worker};

on_each_engine!(
    a_step_is_saved_once_and_a_later_attempt_gets_its_value,
    a_step_that_throws_is_not_saved,
    ctx_tells_about_the_attempt_and_reports,
    a_long_log_line_is_truncated,
);

fn a_step_is_saved_once_and_a_later_attempt_gets_its_value() {
    let module = "export default async (payload, ctx) => { \
                  const a = await ctx.step('a', async () => { console.log('ran a'); return { n: 1, d: new Date(0) } }); \
                  const b = await ctx.step('b', () => { console.log('ran b') }); \
                  return [a, b] }";
    let source = FunctionSource::single("test.js", module);
    let host = Rc::new(Desk::default());
    let mut worker = worker(FunctionLimits::default(), Reuse::Fresh);
    let first = worker.run(&source, call("null", &host));
    let second = worker.run(&source, call("null", &host));
    assert_eq!(first, Ok(Some(r#"[{"n":1,"d":"1970-01-01T00:00:00.000Z"},null]"#.to_owned())));
    assert_eq!(first, second, "both attempts see the saved value");
    assert_eq!(host.lines(), ["ran a", "ran b"], "the second attempt ran no step");
    assert_eq!(host.saves.get(), 2);
}

fn a_step_that_throws_is_not_saved() {
    let (output, host) =
        run("export default (payload, ctx) => ctx.step('a', () => { throw new Error('no') })", "null");
    assert!(matches!(output, Err(FunctionEnd::Thrown(_))), "{output:?}");
    assert_eq!(host.saves.get(), 0);
    for bad in ["ctx.step('', () => 1)", "ctx.step('a')", "ctx.step(7, () => 1)"] {
        let (output, _) = run(&format!("export default (payload, ctx) => {bad}"), "null");
        assert!(
            matches!(&output, Err(FunctionEnd::Thrown(error)) if error.name == "TypeError"),
            "{bad}: {output:?}"
        );
    }
}

fn ctx_tells_about_the_attempt_and_reports() {
    let module = "export default async (payload, ctx) => { \
                  ctx.progress(1, 3, 'one'); ctx.progress(2); ctx.log('hello', { a: 1 }); console.error(new Error('bad').message); \
                  await ctx.file('out.txt', 'ü'); await ctx.file('out.bin', new Uint8Array([0, 255])); \
                  let missing; try { ctx.secret('none') } catch (error) { missing = error.message } \
                  return [ctx.task, ctx.queue, ctx.kind, ctx.attempt, ctx.deadline, ctx.secret('token').length, missing, ctx.signal.aborted] }";
    let (output, host) = run(module, "null");
    let expected = r#"["t-1","functions","test",2,1700000000000,12,"the pool has no secret \"none\"",false]"#;
    assert_eq!(output, Ok(Some(expected.to_owned())));
    let progress: Vec<_> = host.progress.borrow().iter().map(|p| (p.done, p.total, p.note.clone())).collect();
    assert_eq!(progress, [(1, Some(3), Some("one".to_owned())), (2, None, None)]);
    assert_eq!(
        *host.logs.borrow(),
        [(Level::Info, r#"hello {"a":1}"#.to_owned()), (Level::Error, "bad".to_owned())]
    );
    assert_eq!(
        *host.files.borrow(),
        [("out.txt".to_owned(), "ü".as_bytes().to_vec()), ("out.bin".to_owned(), vec![0, 255])]
    );
}

fn a_long_log_line_is_truncated() {
    let (_, host) = run("export default () => console.log('ü'.repeat(20_000))", "null");
    let line = host.lines().remove(0);
    assert!(
        line.len() <= ostler_isolate::MAX_LINE_BYTES && line.ends_with("… (cut)"),
        "{} bytes",
        line.len()
    );
}
