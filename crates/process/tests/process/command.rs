//! The command executor: results for what children do.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, EventBody, Outcome};
use ostler_exec::{AttemptResult, EventReceiver, Work};
use ostler_process::{CommandPolicy, Environment, Input};
use tokio::task::JoinSet;

use crate::bench::{ROLE, failure, run, runs, supervisor, until, work};

fn shell(script: &str) -> CommandPolicy {
    CommandPolicy::new(["sh", "-c", script, "sh"])
}

fn output(ended: AttemptResult) -> String {
    assert_eq!(ended.outcome, Outcome::Success);
    ended.output.expect("there is output")
}

#[tokio::test]
async fn each_element_is_one_argument_whatever_it_contains() {
    let supervisor = supervisor().await;
    let texts = ["two words", "it's \"quoted\"", "a\nb\\n", "--leading", "", "$(id) `id` ; *", "{{ id }}"];
    for text in texts {
        let policy = CommandPolicy::new(["sh", "-c", "printf '%s|%s|' $# \"$1\"", "sh", "{{ payload }}"]);
        let payload = format!("{text:?}").replace("\\'", "'");
        let (ended, _) = run(&supervisor, policy, work(payload)).await;
        let expected = format!("{:?}", format!("1|{text}|")).replace("\\'", "'");
        assert_eq!(output(ended), expected);
    }
}

#[tokio::test]
async fn a_missing_field_is_a_permanent_failure_that_names_it() {
    let supervisor = supervisor().await;
    let policy = CommandPolicy::new(["echo", "{{ payload.to }}"]);
    let failure = failure(run(&supervisor, policy, work("{}")).await.0);
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("\"to\""), "{}", failure.message);
}

#[tokio::test]
async fn what_cannot_be_started_is_permanent_and_named() {
    let supervisor = supervisor().await;
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "no program").expect("a file");
    let plain = plain.to_str().expect("the path is text");
    for program in ["no-such-program", "/no/such/program", plain] {
        let failure = failure(run(&supervisor, CommandPolicy::new([program]), work("1")).await.0);
        assert_eq!(failure.class, ErrorClass::Permanent, "{failure:?}");
        assert!(failure.message.contains(program), "{}", failure.message);
    }
    let nowhere = Work { folder: Some("/no/such/folder".into()), ..work("1") };
    let failure = failure(run(&supervisor, shell("true"), nowhere).await.0);
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("/no/such/folder"), "{}", failure.message);
}

#[tokio::test]
async fn the_payload_can_come_by_stdin_and_need_not_be_read() {
    let supervisor = supervisor().await;
    let payload = format!("\"{}\"", "x".repeat(1 << 20));
    let policy = |script| CommandPolicy { input: Input::Payload, ..shell(script) };
    let (ended, _) = run(&supervisor, policy("cat"), work(payload.clone())).await;
    assert_eq!(output(ended).len(), payload.len());
    let (ended, _) = run(&supervisor, policy("echo 1"), work(payload)).await;
    assert_eq!(output(ended), "1");
    let (ended, _) = run(&supervisor, shell("cat; echo end"), work("7")).await;
    assert_eq!(output(ended), "\"end\"", "without it, there is nothing to read");
}

#[tokio::test]
async fn a_child_gets_its_folder_and_only_the_variables_it_may_have() {
    let supervisor = supervisor().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("it is there").to_str().expect("text").to_owned();
    let environment = Environment { keep: vec!["PATH".into()], set: vec![("GIVEN".into(), "1 2".into())] };
    let policy = CommandPolicy { environment, ..shell("pwd -P; env | cut -d= -f1 | sort | tr '\\n' ' '") };
    let (ended, _) = run(&supervisor, policy, Work { folder: Some(path.clone()), ..work("1") }).await;
    let text = output(ended);
    assert!(text.contains(&path), "{text}");
    // Without the variables that the shell adds.
    let names = text.replace("PWD ", "").replace("OLDPWD ", "").replace("SHLVL ", "").replace("_ ", "");
    assert!(names.ends_with("\\nGIVEN OSTLER_CHILD PATH \""), "{names}");
}

/// Not a test: a node that was started with one descriptor too many.
#[tokio::test]
#[ignore = "it is the node with a descriptor too many"]
async fn start_many_children() {
    const AT_ONCE: usize = 20;
    if std::env::var_os(ROLE).is_none_or(|role| role != "many") {
        return;
    }
    assert!(std::path::Path::new("/proc/self/fd/9").exists(), "it was started with descriptor 9");
    let supervisor = supervisor().await;
    let mut attempts = JoinSet::new();
    for _ in 0..AT_ONCE {
        let supervisor = supervisor.clone();
        // No shell: it would have pipes of its own.
        let list = CommandPolicy::new(["ls", "/proc/self/fd"]);
        attempts.spawn(async move { output(run(&supervisor, list, work("1")).await.0) });
    }
    for text in attempts.join_all().await {
        assert_eq!(text, "\"0\\n1\\n2\\n3\"", "three, and the folder that is listed");
    }
}

#[test]
fn children_inherit_nothing_but_their_three_pipes() {
    let program = std::env::current_exe().expect("this program");
    let status = std::process::Command::new("sh")
        .args(["-c", "exec 9</dev/null; exec \"$@\"", "sh"])
        .arg(program)
        .args(["--exact", "command::start_many_children", "--ignored", "--nocapture"])
        .env(ROLE, "many")
        .stdout(Stdio::null())
        .status()
        .expect("it starts");
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_child_begins_with_every_signal_at_its_default() {
    let supervisor = supervisor().await;
    let policy = CommandPolicy::new(["sed", "-nE", "s/Sig(Blk|Ign):\t//p", "/proc/self/status"]);
    let text = output(run(&supervisor, policy, work("1")).await.0);
    // libc has two signals of its own, after the named ones.
    const NAMED: u64 = 0x7fff_ffff;
    let masks =
        text.trim_matches('"').split("\\n").map(|mask| u64::from_str_radix(mask, 16).expect("a mask"));
    let masks: Vec<_> = masks.map(|mask| mask & NAMED).collect();
    assert_eq!(masks, [0, 0], "{text}");
}

#[tokio::test]
async fn a_program_is_the_first_in_the_path_that_can_be_run() {
    let supervisor = supervisor().await;
    let folder = tempfile::tempdir().expect("a folder");
    for (place, mode) in [("first", 0o600), ("second", 0o700)] {
        let place = folder.path().join(place);
        std::fs::create_dir(&place).expect("a folder");
        std::fs::write(place.join("tool"), "#!/bin/sh\necho 2\n").expect("a file");
        std::fs::set_permissions(place.join("tool"), Permissions::from_mode(mode)).expect("it is ours");
    }
    let path = folder.path().to_str().expect("text");
    let path = format!("/no/such/place:{path}/first:{path}/second:/bin:/usr/bin");
    let environment = Environment { keep: Vec::new(), set: vec![("PATH".into(), path)] };
    let policy = CommandPolicy { environment, ..CommandPolicy::new(["tool"]) };
    assert_eq!(output(run(&supervisor, policy, work("1")).await.0), "2");
}

#[tokio::test]
async fn a_signal_is_a_crash_with_the_end_of_stderr() {
    let supervisor = supervisor().await;
    let failure = failure(run(&supervisor, shell("echo going down >&2; kill -SEGV $$"), work("1")).await.0);
    assert_eq!(failure.class, ErrorClass::Crash);
    assert!(failure.message.contains("SIGSEGV"), "{}", failure.message);
    assert_eq!(failure.details.as_deref(), Some("going down"));
}

/// The recorded standard output, and the warnings.
fn stdout(notes: &EventReceiver) -> (String, Vec<String>) {
    let (mut text, mut warnings) = (String::new(), Vec::new());
    for note in std::iter::from_fn(|| notes.try_recv()) {
        if let EventBody::Stdout { text: piece } = &note {
            text.push_str(&serde_json::from_str::<String>(piece).expect("text"));
        } else if let EventBody::Warning { text: warning } = note {
            warnings.push(warning);
        }
    }
    (text, warnings)
}

#[tokio::test]
async fn too_much_output_is_cut_in_the_middle_and_fails_nothing() {
    let supervisor = supervisor().await;
    let policy = CommandPolicy { max_output_bytes: 1_000, ..shell("seq 100000") };
    let (ended, notes) = run(&supervisor, policy, work("1")).await;
    let text: String = serde_json::from_str(&output(ended)).expect("a text");
    assert!(text.starts_with("1\n2\n") && text.ends_with("\n100000") && text.len() < 1_000, "{text}");
    assert!(text.contains(" bytes left out …\n"), "{text}");
    let (told, warnings) = stdout(&notes);
    assert_eq!(told, "", "it succeeded: its output is there");
    assert!(warnings.len() == 1 && warnings[0].contains("it wrote 588895 bytes"), "{warnings:?}");
}

#[tokio::test]
async fn a_command_that_never_stops_writing_ends_at_its_deadline_and_not_before() {
    let supervisor = supervisor().await;
    let policy = CommandPolicy { max_output_bytes: 1_000, max_log_bytes: 500, ..shell("yes") };
    let hung = Work { timeout: Duration::from_millis(300), ..work("1") };
    let (ended, notes) = run(&supervisor, policy, hung).await;
    assert_eq!(failure(ended).class, ErrorClass::Timeout);
    let (told, warnings) = stdout(&notes);
    assert!(told.starts_with("y\ny\n") && told.ends_with("y\n") && told.len() < 600, "{told}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test]
async fn the_stdout_of_a_command_that_did_not_succeed_is_kept() {
    let supervisor = supervisor().await;
    let short = Work { timeout: Duration::from_millis(300), ..work("1") };
    for (script, work, code) in [
        ("echo 'expected 200, got 500'; exit 3", work("1"), Some(3)),
        ("echo 'expected 200, got 500'; kill -KILL $$", work("1"), None),
        ("echo 'expected 200, got 500'; exec sleep 600", short, None),
    ] {
        let (ended, notes) = run(&supervisor, shell(script), work).await;
        assert_eq!(ended.output, None, "{script}");
        assert_eq!(failure(ended).exit_code, code, "{script}");
        assert_eq!(stdout(&notes), ("expected 200, got 500\n".to_owned(), vec![]), "{script}");
    }
}

#[tokio::test]
async fn a_mebibyte_on_stderr_before_stdout_blocks_nothing() {
    let supervisor = supervisor().await;
    let script = "head -c 1048576 /dev/zero | tr '\\0' e >&2; echo '\"done\"'";
    let (ended, notes) = run(&supervisor, shell(script), work("1")).await;
    assert_eq!(output(ended), "\"done\"");
    let Some(EventBody::Log { text: message, .. }) = notes.try_recv() else { panic!("there is a line") };
    assert!(
        message.starts_with("eee") && message.ends_with("(cut)"),
        "a line without an end is cut and marked"
    );
}

#[tokio::test]
async fn a_grandchild_that_holds_stdout_does_not_delay_the_result() {
    let supervisor = supervisor().await;
    // One stays in the group and dies with it; the other leaves it and is swept.
    let script = "sleep 600 & setsid sleep 600 & echo '\"here\"'";
    let began = Instant::now();
    let (ended, _) = run(&supervisor, shell(script), work("1")).await;
    assert_eq!(output(ended), "\"here\"");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_child_that_stops_itself_ends_at_its_deadline() {
    let supervisor = supervisor().await;
    let timeout = Duration::from_millis(200);
    let hung = Work { timeout, grace: Duration::from_millis(200), ..work("1") };
    let failure = failure(run(&supervisor, shell("kill -STOP $$"), hung).await.0);
    assert_eq!(failure.class, ErrorClass::Timeout);
}

#[tokio::test]
async fn twenty_hung_children_end_in_parallel_in_about_one_grace() {
    const HUNG: usize = 20;
    let supervisor = supervisor().await;
    let (timeout, grace) = (Duration::from_secs(1), Duration::from_secs(2));
    let began = Instant::now();
    let mut attempts = JoinSet::new();
    for _ in 0..HUNG {
        let supervisor = supervisor.clone();
        attempts.spawn(async move {
            let hung = Work { timeout, grace, ..work("1") };
            run(&supervisor, shell("trap '' TERM; while :; do sleep 60; done"), hung).await.0
        });
    }
    for ended in attempts.join_all().await {
        assert_eq!(failure(ended).class, ErrorClass::Timeout);
    }
    let took = began.elapsed();
    assert!(took >= timeout + grace && took < (timeout + grace) * 5, "{took:?}");
}

#[tokio::test]
async fn an_attempt_that_is_given_up_leaves_no_child_behind() {
    let supervisor = supervisor().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; sleep 600", file.display());
    let attempt = {
        let supervisor = supervisor.clone();
        tokio::spawn(async move { run(&supervisor, shell(&script), work("1")).await.0 })
    };
    let mut pid = None;
    until("the child runs", || {
        pid = crate::bench::pids(folder.path()).first().copied();
        file.exists() && pid.is_some()
    })
    .await;
    attempt.abort();
    until("the child is gone", || pid.is_none_or(|pid| !runs(pid))).await;
}
