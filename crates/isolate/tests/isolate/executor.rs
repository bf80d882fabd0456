//! The executor of functions, in host processes and on threads: what both do alike.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ostler_core::{ErrorClass, EventBody, Outcome};
use ostler_exec::{
    ClassSource, Control, OutputRedaction, Secret, Secrets, Served, StepError, StepLookup, StepStore, Steps,
    Work, event_channel,
};
use ostler_isolate::{Reuse, WarmPolicy};

use crate::bench::{Bench, failure, lines, output, work};
use crate::engines::isolations;

on_each_engine_async!(
    a_function_runs_and_reports,
    a_thrown_error_has_its_message_its_stack_and_its_class,
    limits_end_a_call_with_their_names,
    a_changed_file_is_used_from_the_next_task_on_and_a_broken_one_fails_its_tasks,
    warm_functions_keep_the_state_of_their_modules_and_fresh_ones_do_not,
    the_files_of_the_folder_are_the_kinds,
    steps_are_saved_and_a_later_attempt_gets_them,
    files_stay_in_the_folder_and_a_task_without_one_is_refused_with_a_sentence,
    many_calls_of_one_attempt_run_beside_its_other_frames,
);

async fn a_function_runs_and_reports() {
    for &isolation in isolations() {
        let secret = Secret::new("TOKEN", "s3cret-value").expect("a secret");
        let secrets = Secrets::new(vec![secret], OutputRedaction::Off).expect("secrets");
        let bench = Bench::new(isolation, |policy| policy.secrets = secrets).await;
        bench.body(
            "report",
            "console.log('hello', payload.name); console.warn('careful'); ctx.progress(1, 3, 'one'); \
             await ctx.file('deep/out.txt', 'text'); \
             return [payload.name, ctx.secret('TOKEN').length, ctx.kind, ctx.queue, ctx.attempt, ctx.deadline > Date.now()]",
        );
        let (ended, events) = bench.once("report", r#"{"name": "ü"}"#).await;
        assert_eq!(output(ended), r#"["ü",12,"report","functions",1,true]"#, "{isolation:?}");
        assert_eq!(lines(&events), ["hello ü", "careful"], "{isolation:?}");
        let file = |event: &EventBody| matches!(event, EventBody::File { path, size: 4, .. } if path == "deep/out.txt");
        assert!(events.iter().any(file), "{isolation:?}: {events:?}");
        let progress = EventBody::Progress { done: 1, total: Some(3), note: Some("one".to_owned()) };
        assert!(events.contains(&progress), "{isolation:?}: {events:?}");
        let task = work("report", "null").task.to_string();
        let written = bench.folder.path().join("tasks").join(task).join("deep/out.txt");
        assert_eq!(std::fs::read(written).expect("it is written"), b"text");
    }
}

async fn a_thrown_error_has_its_message_its_stack_and_its_class() {
    for &isolation in isolations() {
        let bench = Bench::new(isolation, |_| {}).await;
        bench.body(
            "throw",
            "await ctx.step('move', () => { throw Object.assign(new RangeError('too far'), payload) })",
        );
        let (ended, _) = bench.once("throw", "{}").await;
        assert_eq!((failure(&ended).class, ended.classing), (ErrorClass::Transient, ClassSource::Assumed));
        assert_eq!(failure(&ended).message, "RangeError: too far");
        assert_eq!(failure(&ended).step.as_deref(), Some("move"));
        let details = failure(&ended).details.as_deref().unwrap_or_default();
        assert!(details.contains("throw.js:1"), "{isolation:?}: {details}");
        let (ended, _) = bench.once("throw", r#"{"class":"permanent","hint":"go back"}"#).await;
        assert_eq!((failure(&ended).class, ended.classing), (ErrorClass::Permanent, ClassSource::Given));
        assert_eq!(failure(&ended).hint.as_deref(), Some("go back"));
        bench.body("twice", "await ctx.step('a', () => 1); await ctx.step('a', () => 2)");
        let (ended, _) = bench.once("twice", "null").await;
        assert_eq!(failure(&ended).class, ErrorClass::Permanent);
        assert!(failure(&ended).message.contains("done twice in one attempt"), "{ended:?}");
    }
}

async fn limits_end_a_call_with_their_names() {
    for &isolation in isolations() {
        let bench = Bench::new(isolation, |policy| {
            policy.limits.memory_bytes = 8 << 20;
            policy.limits.cpu = std::time::Duration::from_millis(300);
            policy.limits.log_lines = 3;
            policy.limits.output_bytes = 100;
        })
        .await;
        let mut worker = bench.open().await;
        for (body, class, says) in [
            ("for (;;);", ErrorClass::Timeout, "more CPU time than its limit"),
            (
                "const a = []; for (;;) a.push('x'.repeat(1000) + a.length)",
                ErrorClass::Transient,
                "more memory",
            ),
            ("const f = () => f() + 1; return f()", ErrorClass::Permanent, "exhausted its stack"),
            ("for (;;) console.log('x')", ErrorClass::Permanent, "more log lines"),
            ("return 'x'.repeat(1000)", ErrorClass::Permanent, "output of the function is larger"),
            ("return new Promise(() => {})", ErrorClass::Permanent, "nothing can settle"),
        ] {
            bench.body("bomb", body);
            let (ended, _) = bench.run(worker, work("bomb", "null")).await;
            assert_eq!(failure(&ended).class, class, "{isolation:?}: {body}: {ended:?}");
            assert!(failure(&ended).message.contains(says), "{isolation:?}: {body}: {ended:?}");
            worker = bench.next_worker(worker, ended.slot).await;
        }
        bench.body("bomb", "return 'on'");
        assert_eq!(output(bench.run(worker, work("bomb", "null")).await.0), "\"on\"");
        bench.executor.close(worker).await;
    }
}

async fn a_changed_file_is_used_from_the_next_task_on_and_a_broken_one_fails_its_tasks() {
    for &isolation in isolations() {
        let bench = Bench::new(isolation, |_| {}).await;
        let worker = bench.open().await;
        for version in 1..=3 {
            bench.body("change", &format!("return {version}"));
            for _ in 0..2 {
                let (ended, _) = bench.run(worker, work("change", "null")).await;
                assert_eq!(output(ended), version.to_string(), "{isolation:?}");
            }
        }
        bench.function("change", "export default async () => {\n  return 4 4\n}");
        let (ended, _) = bench.run(worker, work("change", "null")).await;
        let broken = failure(&ended);
        assert_eq!(broken.class, ErrorClass::Permanent);
        assert!(
            broken.message.contains("the function \"change\" cannot be used: SyntaxError")
                && broken.message.contains("change.js:2"),
            "{isolation:?}: {}",
            broken.message
        );
        bench.body("change", "return 5");
        assert_eq!(output(bench.run(worker, work("change", "null")).await.0), "5");
        bench.executor.close(worker).await;
    }
}

async fn warm_functions_keep_the_state_of_their_modules_and_fresh_ones_do_not() {
    let counter = "let calls = 0;\nexport default () => ++calls";
    let warm = Reuse::Warm(WarmPolicy::default());
    for (isolation, reuse, expected) in
        isolations().iter().flat_map(|isolation| [(*isolation, Reuse::Fresh, "1"), (*isolation, warm, "3")])
    {
        let bench = Bench::new(isolation, |policy| policy.reuse = reuse).await;
        bench.function("count", counter);
        let worker = bench.open().await;
        let mut last = String::new();
        for _ in 0..3 {
            last = output(bench.run(worker, work("count", "null")).await.0);
        }
        assert_eq!(last, expected, "{isolation:?} {reuse:?}");
        bench.executor.close(worker).await;
    }
}

async fn the_files_of_the_folder_are_the_kinds() {
    for &isolation in isolations() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.js", "a.js", "lib.mjs", "data.json", ".hidden.js"] {
            std::fs::write(folder.path().join(name), "export default () => 1").expect("a file");
        }
        let bench = Bench::new(isolation, |policy| policy.scripts = folder.path().to_owned()).await;
        assert_eq!(bench.executor.served(), Served::Only(vec!["a".to_owned(), "b".to_owned()]));
    }
}

/// Steps in memory.
#[derive(Debug, Default)]
struct Shelf(Mutex<BTreeMap<String, String>>);

#[async_trait]
impl StepStore for Shelf {
    async fn begin(&self, name: &str) -> Result<StepLookup, StepError> {
        let saved = self.0.lock().expect("no panic").get(name).cloned();
        Ok(saved.map_or(StepLookup::New, StepLookup::Done))
    }

    async fn done(&self) -> Result<Vec<(String, String)>, StepError> {
        Ok(self.0.lock().expect("no panic").clone().into_iter().collect())
    }

    async fn previous_session(&self) -> Result<Option<String>, StepError> {
        Ok(None)
    }

    async fn save(&self, name: &str, value: &str) -> Result<(), StepError> {
        if name == "refused" {
            return Err(StepError::Refused("it is too large".to_owned()));
        }
        self.0.lock().expect("no panic").insert(name.to_owned(), value.to_owned());
        Ok(())
    }
}

async fn steps_are_saved_and_a_later_attempt_gets_them() {
    for &isolation in isolations() {
        let bench = Bench::new(isolation, |_| {}).await;
        bench.body(
            "steps",
            "const a = await ctx.step('a', () => { ctx.log('ran a'); return { n: 1 } }); \
             if (ctx.attempt === 1) throw new Error('once'); return a",
        );
        let shelf = Arc::new(Shelf::default());
        let mut ran = Vec::new();
        for attempt in 1..=2 {
            let (sender, events) = event_channel();
            let control = Control { steps: Steps::kept(Arc::clone(&shelf) as _), ..Control::new(sender) };
            let worker = bench.open().await;
            let ended = bench.run_with(worker, Work { attempt, ..work("steps", "null") }, control).await;
            bench.executor.close(worker).await;
            ran.push((ended.output, std::iter::from_fn(|| events.try_recv()).count()));
        }
        assert_eq!(ran, [(None, 1), (Some(r#"{"n":1}"#.to_owned()), 0)], "{isolation:?}");
        bench.body("refused", "await ctx.step('refused', () => 1)");
        let (sender, _events) = event_channel();
        let control = Control { steps: Steps::kept(shelf), ..Control::new(sender) };
        let worker = bench.open().await;
        let ended = bench.run_with(worker, work("refused", "null"), control).await;
        bench.executor.close(worker).await;
        assert!(matches!(ended.outcome, Outcome::Failed(_)), "{isolation:?}: {ended:?}");
        assert_eq!(failure(&ended).class, ErrorClass::Permanent, "{isolation:?}: {ended:?}");
        assert!(failure(&ended).message.contains("is not kept: it is too large"), "{isolation:?}: {ended:?}");
    }
}

async fn files_stay_in_the_folder_and_a_task_without_one_is_refused_with_a_sentence() {
    for &isolation in isolations() {
        let bench = Bench::new(isolation, |_| {}).await;
        bench.body(
            "escape",
            "const refused = []; for (const path of payload) { try { await ctx.file(path, 'x') } catch (error) { refused.push(error.message) } } \
             return refused",
        );
        let refused = bench.output("escape", r#"["../up.txt", "/abs.txt", ""]"#).await;
        assert_eq!(refused.matches("cannot be written").count(), 3, "{isolation:?}: {refused}");
        let bench = Bench::new(isolation, |policy| policy.folders.each = None).await;
        bench.body("file", "await ctx.file('a.txt', 'x')");
        let (ended, _) = bench.once("file", "null").await;
        assert!(failure(&ended).message.contains("the task has no folder"), "{isolation:?}: {ended:?}");
    }
}

async fn many_calls_of_one_attempt_run_beside_its_other_frames() {
    for &isolation in isolations() {
        let bench = Bench::new(isolation, |_| {}).await;
        bench.body(
            "many",
            "const files = []; for (let i = 0; i < 200; i++) { files.push(ctx.file(`f${i}.txt`, `${i}`)); ctx.progress(i) } \
             await Promise.all(files); return files.length",
        );
        let (ended, events) = bench.once("many", "null").await;
        assert_eq!(output(ended), "200", "{isolation:?}");
        let files = events.iter().filter(|event| matches!(event, EventBody::File { .. })).count();
        assert_eq!(files, 200, "{isolation:?}");
    }
}
