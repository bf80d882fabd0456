//! The executor with a stand-in for claude: what an agent gets, what is stored, and what is kept of what it writes.

use std::time::Duration;

use ostler_config::PoolSpec as _;
use ostler_core::{ErrorClass, EventBody, Outcome, Role};
use ostler_exec::{Control, Executor as _, OutputRedaction, Secret, Secrets, event_channel};
use serde_json::json;

use crate::bench::{Bench, Earlier, runs, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_a_conversation_whose_answer_is_the_output() {
    let bench = Bench::claude().await;
    let ran = bench.run(&json!("[[text]] please")).await;
    assert_eq!(ran.output(), json!("Hello."));
    let kinds: Vec<&str> =
        ran.events.iter().map(|event| event.kind().name()).filter(|kind| *kind != "raw").collect();
    assert_eq!(kinds[..2], ["prompt", "session"], "{kinds:?}");
    let said = EventBody::Message { role: Role::Assistant, text: "Hello.".into() };
    assert!(ran.events.contains(&said) && kinds.contains(&"usage") && kinds.contains(&"result"), "{kinds:?}");
    assert!(ran.events.iter().any(|event| event.text() == Some("a line on standard error")), "{kinds:?}");
    assert_eq!(ran.sessions().len(), 1);
    assert_eq!(bench.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_and_then_the_session_are_stored_before_the_first_request() {
    let bench = Bench::claude().await;
    let (sender, receiver) = event_channel();
    let (executor, work, control) = (bench.executor(), bench.work(&json!("[[text]]")), Control::new(sender));
    let running = tokio::spawn(async move { executor.run(work, control).await });
    for is_next in [
        |body: &EventBody| matches!(body, EventBody::Prompt { .. }),
        |body: &EventBody| matches!(body, EventBody::Session { .. }),
    ] {
        let mut first = Vec::new();
        receiver.recv_many(&mut first, 1).await;
        let next = first.pop().expect("there is an event");
        assert!(is_next(&next.body), "{next:?}");
        // The store has not answered: nothing else happens.
        assert!(tokio::time::timeout(Duration::from_millis(300), receiver.recv()).await.is_err());
        assert_eq!(bench.log(), Vec::<serde_json::Value>::new());
        next.receipt.stored();
    }
    while receiver.recv().await.is_some() {}
    running.await.expect("it never panics");
    assert_eq!(bench.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_is_no_argument_and_the_environment_has_only_what_the_agent_needs() {
    let mut bench = Bench::claude().await;
    bench.policy.environment.set.push(("CHOSEN".into(), "yes".into()));
    let ran = bench.run(&json!("[[who]] --dangerously-skip-permissions")).await;
    let who: serde_json::Value = serde_json::from_str(ran.output().as_str().expect("a text")).expect("JSON");
    let argv = who["argv"].to_string();
    assert!(!argv.contains("[[who]]") && !argv.contains("dangerously"), "{argv}");
    let env = who["env"].as_object().expect("an object");
    assert_eq!(env["CHOSEN"], "yes");
    assert_eq!(env["CLAUDE_CONFIG_DIR"], bench.config().display().to_string());
    // The variables of this test itself are those of another program.
    let foreign = ["OPENAI_API_KEY", "CARGO_MANIFEST_DIR", "CARGO", crate::bench::ROLE];
    assert_eq!(
        foreign.iter().filter(|name| env.contains_key(**name)).collect::<Vec<_>>(),
        Vec::<&&str>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_its_folder_and_a_pool_its_model() {
    let mut bench = Bench::claude().await;
    bench.policy.model = Some("of-the-pool".into());
    let work = ostler_exec::Work {
        folder: Some(bench.folder.path().display().to_string()),
        ..bench.work(&json!({"prompt": "[[who]]", "model": "of-the-task", "permission": "edit"}))
    };
    let ran = bench.start_work(work, Earlier::default()).end().await;
    let who: serde_json::Value = serde_json::from_str(ran.output().as_str().expect("a text")).expect("JSON");
    let folder = bench.folder.path().canonicalize().expect("it is there");
    assert_eq!(who["cwd"], folder.display().to_string());
    let argv = who["argv"].to_string();
    assert!(argv.contains("--model=of-the-task") && argv.contains("--permission-mode=acceptEdits"), "{argv}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_an_agent_leaves_are_recorded_if_they_match() {
    let mut bench = Bench::claude().await;
    bench.policy.files = vec!["*.md".to_owned()];
    let folder = bench.folder.path().join("own");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("notes.txt"), "no match").expect("a file");
    let work = ostler_exec::Work {
        folder: Some(folder.display().to_string()),
        ..bench.work(&json!("[[file report.md]]"))
    };
    let ran = bench.start_work(work, Earlier::default()).end().await;
    assert_eq!(ran.output(), json!("It wrote a file."));
    let files: Vec<(&str, u64)> = ran
        .events
        .iter()
        .filter_map(|event| {
            if let EventBody::File { path, size, .. } = event { Some((path.as_str(), *size)) } else { None }
        })
        .collect();
    assert_eq!(files, [("report.md", 9)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lines_bytes_that_are_no_text_and_a_last_line_without_an_end_are_kept() {
    let bench = Bench::claude().await;
    let huge = bench.run(&json!("[[huge]]")).await;
    assert_eq!(huge.output(), json!("It was long."));
    let longest = huge.events.iter().filter_map(|event| event.text()).map(str::len).max();
    assert!(longest.is_some_and(|bytes| bytes > 4 << 20), "{longest:?}");

    let bytes = bench.run(&json!("[[bytes]]")).await;
    assert_eq!(bytes.output(), json!("No line break."));
    assert!(bytes.events.iter().any(|event| event.text().is_some_and(|text| text.starts_with("[255,254,"))));

    let many = bench.run(&json!("[[many 3000]]")).await;
    let said = many.events.iter().filter(|event| event.kind().name() == "message").count();
    assert_eq!(said, 3_000, "more than the buffer holds");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_secrets_are_in_no_event() {
    const VALUE: &str = "sk-T0pS3cret-\"quoted\"-é";
    let mut bench = Bench::claude().await;
    let secret = Secret::new("API_KEY", VALUE).expect("a secret");
    bench.policy.secrets = Secrets::new(vec![secret], OutputRedaction::Off).expect("secrets");
    let ran = bench.run(&json!("[[secret]]")).await;
    assert_eq!(ran.output(), json!("Done."));
    let texts: Vec<&str> = ran.events.iter().filter_map(EventBody::text).collect();
    assert!(texts.iter().any(|text| text.contains("The key is [secret API_KEY]")), "{texts:?}");
    assert!(texts.iter().all(|text| !text.contains("T0pS3cret")), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_schema_does_not_allow_is_sent_back_and_then_a_failure() {
    let mut bench = Bench::claude().await;
    bench.policy.schema_retries = 2;
    let schema =
        json!({"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]});
    let mended = bench.run(&json!({"prompt": "[[schema 2]]", "schema": schema})).await;
    assert_eq!(mended.output(), json!({"score": 7}));
    let requests = bench.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests[1]["prompt"].as_str().is_some_and(|prompt| prompt.contains("/score: \"seven\"")),
        "{requests:?}"
    );
    assert_eq!((&requests[1]["session"], &requests[1]["resumed"]), (&requests[0]["session"], &json!(true)));

    let hopeless = bench.run(&json!({"prompt": "[[schema 99]]", "schema": schema})).await;
    let failure = hopeless.failure();
    assert_eq!(
        (failure.class, failure.step.as_deref()),
        (ErrorClass::Permanent, Some("schema")),
        "{failure:?}"
    );
    assert_eq!(bench.requests().len(), 6, "three for each task");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_is_wrong_starts_nothing() {
    let bench = Bench::claude().await;
    let ran = bench.run(&json!({"prompt": "[[text]]", "permission": "root"})).await;
    assert_eq!(ran.failure().class, ErrorClass::Permanent);
    assert!(ran.failure().message.contains("payload.permission"), "{:?}", ran.failure());
    assert_eq!((bench.log().len(), ran.events.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_missing_or_too_old_stops_the_queue_with_a_sentence() {
    let mut bench = Bench::claude().await;
    bench.policy.environment.set.push(("STAND_IN_VERSION".into(), "1.0.3 (Claude Code)".into()));
    let old = bench.run(&json!("[[text]]")).await;
    assert_eq!(old.failure().class, ErrorClass::QueueStop);
    assert!(
        old.failure().message.contains("is Claude Code 1.0.3, and 2.1.197 or newer"),
        "{:?}",
        old.failure()
    );
    bench.policy.command = vec!["no-such-agent".into()];
    let missing = bench.run(&json!("[[text]]")).await;
    assert!(
        missing.failure().message.contains("`no-such-agent` is not installed"),
        "{:?}",
        missing.failure()
    );
    assert_eq!(bench.log().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_say_its_version_in_time_is_asked_again_by_the_next_attempt() {
    let mut bench = Bench::claude().await;
    let lingers = ("STAND_IN_LINGERS".to_owned(), "yes".to_owned());
    bench.policy.environment.set.push(lingers);
    let known = bench.run(&json!("[[text]]")).await;
    assert!(matches!(known.ended.outcome, Outcome::Success), "what it printed counts: {:?}", known.ended);
    let usual = bench.policy.version_timeout;
    bench.policy.environment.set.push(("STAND_IN_VERSION".into(), String::new()));
    bench.policy.version_timeout = Duration::from_millis(300);
    let silent = bench.run(&json!("[[text]]")).await;
    assert_eq!(silent.failure().class, ErrorClass::Transient, "a busy machine is no reason to stop a queue");
    assert!(silent.failure().message.contains("did not answer within 300ms"), "{:?}", silent.failure());
    bench.policy.environment.set.retain(|(name, _)| name != "STAND_IN_VERSION");
    bench.policy.version_timeout = usual;
    let next = bench.run(&json!("[[text]]")).await;
    assert!(matches!(next.ended.outcome, Outcome::Success), "{:?}", next.ended);
}

const MAX_PROBES: usize = 10;

/// A probe whose launcher has started another process, by the node or by a command that has no supervisor, ends; nothing of it is left.
async fn launches_and_leaves_nothing(bench: &Bench, probe: impl AsyncFn(&Bench)) {
    let launched = || bench.log().iter().filter_map(|line| line.get("launched").cloned()).collect::<Vec<_>>();
    let before = launched().len();
    // A busy machine may not come to the launch in time.
    for _ in 0..MAX_PROBES {
        probe(bench).await;
        if launched().len() > before {
            break;
        }
    }
    assert!(launched().len() > before, "it was launched");
    let log = bench.log();
    let pids = log.iter().flat_map(|line| [line.get("launched"), line.get("pid")]).flatten();
    let pids: Vec<_> = pids.collect();
    until("launcher and child are gone", || pids.iter().all(|pid| !runs(pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_that_has_started_another_process_leaves_none_behind_when_it_was_asked_for_its_version() {
    let mut bench = Bench::claude().await;
    bench.policy.environment.set.push(("STAND_IN_LAUNCHES".into(), "yes".into()));
    let by_node = async |bench: &Bench| drop(bench.run(&json!("[[text]]")).await);
    let by_command = async |bench: &Bench| drop(bench.policy.examine("reviews").await);
    launches_and_leaves_nothing(&bench, by_node).await;
    launches_and_leaves_nothing(&bench, by_command).await;

    // It hangs.
    bench.policy.environment.set.push(("STAND_IN_LINGERS".into(), "yes".into()));
    bench.policy.environment.set.push(("STAND_IN_VERSION".into(), String::new()));
    bench.policy.version_timeout = Duration::from_secs(2);
    let is_silent = async |bench: &Bench| {
        let ran = bench.run(&json!("[[text]]")).await;
        assert!(ran.failure().message.contains("did not answer within 2s"), "{:?}", ran.failure());
    };
    launches_and_leaves_nothing(&bench, is_silent).await;
    let is_found = async |bench: &Bench| {
        let findings = bench.policy.examine("reviews").await;
        assert!(
            findings.iter().any(|finding| finding.sentence.contains("did not answer within 2s")),
            "{findings:?}"
        );
    };
    launches_and_leaves_nothing(&bench, is_found).await;
}
