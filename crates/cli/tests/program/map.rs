//! `ostler map`: a command over many items, in one process, on one store.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::time::Instant;

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::Value;

use crate::ostler::{Place, Ran, Running};
use crate::up::appears;

/// Maps quietly, and expects success.
pub(crate) fn mapped(place: &Place, words: &[&str]) -> String {
    place.done(["map", "-q"].iter().chain(words))
}

/// How often each item was run: one line of this file for each time.
pub(crate) fn times(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort_unstable();
    lines
}

pub(crate) fn jobs(place: &Place) -> Vec<Value> {
    place.json(["job", "ls"]).as_array().expect("a list").clone()
}

pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

// ---- commands ----

#[test]
fn each_item_is_one_argument_whatever_is_in_it() {
    let place = Place::new();
    let items = ["a b", "-n", "it's \"so\"", "$(x) `y` *", "new\nline", ""];
    let words: Vec<&str> = ["-k", "-j1", "printf", "<%s>", "{}", ":::"].into_iter().chain(items).collect();
    let expected: String = items.iter().map(|item| format!("<{item}>")).collect();
    assert_eq!(mapped(&place, &words), expected);
    // The same with a shell, where each of them would be dangerous.
    let words: Vec<&str> = ["-k", "-j1", "printf '<%s>' {}", ":::"].into_iter().chain(items).collect();
    assert_eq!(mapped(&place, &words), expected);
}

#[test]
fn placeholders_are_those_of_gnu_parallel() {
    let place = Place::new();
    let words = ["-k", "echo", "{}", "{.}", "{/}", "{//}", "{/.}", "{#}", ":::", "a/b.tar.gz", "plain"];
    assert_eq!(
        mapped(&place, &words),
        "a/b.tar.gz a/b.tar b.tar.gz a b.tar 1\nplain plain plain . plain 2\n"
    );
    assert_eq!(
        mapped(&place, &["echo", "done", ":::", "x"]),
        "done x\n",
        "an item that has no place comes last"
    );
    assert_eq!(mapped(&place, &["-k", "echo '\\{x}' {} | tr a-z A-Z", ":::", "a"]), "{X} A\n");
    assert_eq!(mapped(&place, &["X=1; echo ${X} {} | awk '{print}'", ":::", "a"]), "1 a\n");
}

#[test]
fn items_come_from_lines_records_files_and_tables() {
    let place = Place::new();
    let ran = place.run_with(["map", "-qk", "echo", "<{}>"], b"one two\nthree\n");
    assert_eq!(ran.out, "<one two>\n<three>\n", "{ran:?}");
    let ran = place.run_with(["map", "-qk0", "printf", "<%s>"], b"a\nb\0c\0");
    assert_eq!(ran.out, "<a\nb><c>", "{ran:?}");
    place.write("x1.txt", "1");
    place.write("x2.txt", "22");
    assert_eq!(mapped(&place, &["-k", "--files", "x*.txt", "cat {}; echo"]), "1\n22\n");
    place.write("people.csv", "name,city\n\"Anna, B\",Wien\nBen,Graz\n");
    assert_eq!(
        mapped(&place, &["-k", "--csv", "people.csv", "echo", "{city}:", "{name}"]),
        "Wien: Anna, B\nGraz: Ben\n"
    );
    place.write("rows.jsonl", "{\"n\":1,\"deep\":{\"a\":[2]}}\n\"text\"\n");
    assert_eq!(
        mapped(&place, &["-k", "--jsonl", "rows.jsonl", "echo", "{n}", "{deep}", "{}"]),
        "1 {\"a\":[2]} {\"deep\":{\"a\":[2]},\"n\":1}\n  text\n"
    );
}

#[test]
fn names_that_are_not_text_go_through_and_so_does_output() {
    let place = Place::new();
    let name = OsString::from_vec(b"na\xffme".to_vec());
    std::fs::write(place.folder().join(&name), b"in\xfeside").expect("a file");
    let words = [OsStr::new("map"), OsStr::new("-q"), OsStr::new("cat"), OsStr::new(":::"), &name];
    let output = place.command(words).output().expect("it runs");
    assert_eq!(output.stdout, b"in\xfeside", "{output:?}");
    let words = ["map", "-q", "--files", "na*", "echo"];
    let output = place.command(words).output().expect("it runs");
    assert_eq!(output.stdout, [name.as_bytes(), b"\n"].concat(), "{output:?}");
}

#[test]
fn a_dry_run_prints_what_a_shell_would_understand_and_makes_no_store() {
    let place = Place::new();
    let out = place.done(["map", "--dry-run", "pandoc", "{}", "-o", "{.}.html", ":::", "a b.md", "c.md"]);
    assert_eq!(out, "pandoc 'a b.md' -o 'a b.html'\npandoc c.md -o c.html\n");
    assert!(!place.store().exists());
}

#[test]
fn bad_input_is_refused_in_a_sentence_and_makes_no_store() {
    let place = Place::new();
    place.write("twice.csv", "a,a\n1,2\n");
    place.write("people.csv", "name,city\nAnna,Wien\n");
    let cases: [(&[&str], &str); 19] = [
        (&[":::", "a"], "no command before"),
        (&["echo", ":::"], "no items after"),
        (&["rm", "{nme}", ":::", "a"], "{nme} is not a placeholder"),
        (&["--csv", "people.csv", "rm", "{nme}"], "did you mean {name}?"),
        (&["--csv", "people.csv", "rm -f x {nme}"], "The columns are name, city"),
        (&["echo {1} {2}", ":::", "a"], "{2} is not a placeholder here: an item has one part"),
        (&["echo", "{%}", ":::", "a"], "{%} is a placeholder of GNU parallel that does not exist here"),
        (&["echo \"{}\"", ":::", "a"], "leave the quotes out"),
        (&["echo $(({} + 1))", ":::", "1", "$(x)"], "item 2: \"$(x)\" is no number"),
        (&["echo", ":::", "a", ":::+", "b"], "does not exist here"),
        (&["--shell", "bash", "echo", "{}", ":::", "a"], "quotes around the whole command"),
        (&["--shell", "fish", "echo a", ":::", "a"], "POSIX family"),
        (&["--pool", "p", "--kind", "k", ":::", "a", ":::", "b"], "use --csv or --jsonl"),
        (&["--files", "none*", "echo"], "no file matches"),
        (&["--files", "x", "echo", ":::", "a"], "not both"),
        (&["--csv", "twice.csv", "echo"], "duplicate"),
        (&["--csv", "missing.csv", "echo"], "cannot read"),
        (&["--halt", "sometimes", "echo", ":::", "a"], "now,fail=1"),
        (&["--results", "out.xlsx", "echo", ":::", "a"], ".jsonl"),
    ];
    for (words, sentence) in cases {
        place.refused(["map"].iter().chain(words), 2, sentence);
    }
    place.run_with(["map", "echo"], b"a\0b\n").is_refused(2, "NUL");
    assert!(!place.store().exists());
}

#[test]
fn items_that_a_shell_would_read_as_a_script_are_warned_of() {
    let place = Place::new();
    let ran = place.run(["map", "sh", "-c", "echo {}", ":::", "a"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.starts_with("ostler: warning: \"echo {}\" is program text for sh"), "{ran:?}");
    for words in
        [&["map", "echo {}", ":::", "a"][..], &["map", "sh", "-c", "echo \"$1\"", "sh", ":::", "$(x)"]]
    {
        let ran = place.run(words);
        assert!(ran.code == Some(0) && !ran.err.contains("warning"), "{ran:?}");
    }
}

#[test]
fn no_items_on_standard_input_is_nothing_to_do() {
    let place = Place::new();
    place.write("empty.csv", "name\n");
    place.write("r.jsonl", "of yesterday\n");
    for words in [&["map", "echo"][..], &["map", "-0", "echo"], &["map", "--csv", "empty.csv", "echo {name}"]]
    {
        let ran = place.run_with(words, b"");
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{ran:?}");
        assert!(ran.err.starts_with("ostler: no items ") && ran.err.contains("nothing to do"), "{ran:?}");
    }
    place.write("empty", "");
    let ran = place.run(["map", "echo", "::::", "empty", ":::", "a"]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (Some(0), "ostler: no items in empty: nothing to do\n"),
        "{ran:?}"
    );
    let ran = place.run_with(["map", "-q", "--results", "r.jsonl", "--json", "echo"], b"\n");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "null\n", ""), "{ran:?}");
    assert_eq!(std::fs::read(place.folder().join("r.jsonl")).expect("the results"), b"");
    assert!(!place.store().exists());
}

// ---- outcomes ----

#[test]
fn a_failure_is_said_and_the_others_go_on() {
    let place = Place::new();
    let ran = place.run(["map", "-k", "echo out{}; echo err{} >&2; test {} != 2", ":::", "1", "2", "3"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "out1\nout2\nout3\n"), "{ran:?}");
    for line in ["err1", "err2", "err3", "ostler: 2: exit code 1: err2"] {
        assert!(ran.err.lines().any(|said| said == line), "{line}: {ran:?}");
    }
    assert!(ran.err.contains("3 items: ") && ran.err.contains("2 completed, 1 failed"), "{ran:?}");
}

#[test]
fn a_program_that_is_not_there_fails_every_item() {
    let place = Place::new();
    let ran = place.run(["map", "no-such-program", ":::", "a", "b"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("\"no-such-program\" cannot be started"), "{ran:?}");
}

#[test]
fn an_item_is_tried_again_as_often_as_is_said() {
    let place = Place::new();
    let ran =
        place.run(["map", "--retries", "1", "echo x >> tries; test $(wc -l < tries) = 2 #", ":::", "a"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(times(&place.folder().join("tries")).len(), 2);
}

#[test]
fn an_item_that_takes_too_long_is_ended() {
    let place = Place::new();
    let ran = place.run(["map", "--timeout", "100ms", "sleep", ":::", "0", "600"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("600: it took longer than 100ms"), "{ran:?}");
}

#[test]
fn at_the_first_failure_nothing_more_begins() {
    let place = Place::new();
    let words = ["map", "-j1", "--fail-fast", "echo {} >> begun; test {} != 2", ":::", "1", "2", "3", "4"];
    let ran = place.run(words);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(times(&place.folder().join("begun")), ["1", "2"]);
    assert!(ran.err.contains("2 left"), "{ran:?}");
    let words = ["map", "-j1", "--halt", "soon,success=1", "echo {} >> more", ":::", "1", "2", "3"];
    assert_eq!(place.run(words).code, Some(0));
    assert_eq!(times(&place.folder().join("more")), ["1"]);
}

/// While the last allowed item finishes, another worker has often claimed the next one: seven rounds of eight would hang.
#[test]
fn a_job_that_halts_soon_ends_however_many_items_its_workers_have_taken() {
    const ROUNDS: usize = 4;
    let place = Place::new();
    for round in 0..ROUNDS {
        let script = format!(": round {round}; false {{}}");
        let mut words = vec!["map", "-q", "-j4", "--halt", "soon,fail=30", &script, ":::"];
        let items: Vec<String> = (1..=60).map(|item| item.to_string()).collect();
        words.extend(items.iter().map(String::as_str));
        let (code, _) = Running::start(place.command(words)).end();
        assert_eq!(code, Some(1), "round {round}");
        let running = place.json(["ls", "--items", "--state", "running"]);
        assert_eq!(running, serde_json::json!([]), "round {round}");
    }
}

#[test]
fn results_are_written_as_lines_as_a_table_and_as_files() {
    let place = Place::new();
    let words = |to: &str| {
        let script = "echo out{}; echo err{} >&2; test {} != 2";
        place.run(["map", "-q", "--results", to, script, ":::", "1", "2"])
    };
    assert_eq!(words("r.jsonl").code, Some(1));
    let text = std::fs::read_to_string(place.folder().join("r.jsonl")).expect("the results");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        (&rows[0]["number"], &rows[0]["item"], &rows[0]["output"]),
        (&1.into(), &"1".into(), &"out1\n".into())
    );
    assert_eq!((&rows[1]["state"], &rows[1]["runs"]), (&"failed".into(), &1.into()));
    assert_eq!((&rows[1]["exit_code"], &rows[1]["stderr"]), (&1.into(), &"err2\n".into()));
    assert_eq!(rows[1]["command"], "sh -c 'echo out'\\''2'\\''; echo err'\\''2'\\'' >&2; test 2 != 2'");
    let started = |row: &Value| row["started_at"].as_str().expect("a time").to_owned();
    assert!(started(&rows[0]).ends_with('Z') && rows[0]["duration_ms"].is_u64(), "{text}");
    assert_eq!(words("r.csv").code, Some(1));
    let text = std::fs::read_to_string(place.folder().join("r.csv")).expect("the results");
    assert!(
        text.starts_with("number,item,state,runs,duration_ms,output,error,task,exit_code,session_id,cost_usd,input_tokens,output_tokens,files,folder,started_at,stderr,command\n1,1,completed,"),
        "{text}"
    );
    assert_eq!(words("folder").code, Some(1));
    let file =
        |name: &str| std::fs::read_to_string(place.folder().join("folder").join(name)).expect("a file");
    assert_eq!(
        (file("1.out"), file("1.err"), file("2.err")),
        ("out1\n".into(), "err1\n".into(), "err2\n".into())
    );
    let exported = place.done(["job", "export", "echo"]);
    assert_eq!(exported.lines().count(), 2, "{exported}");
}

#[test]
fn json_is_the_job_and_nothing_else() {
    let place = Place::new();
    let job = place.run(["map", "--json", "echo", ":::", "a", "b"]).json();
    assert_eq!(
        (&job["name"], &job["state"], &job["items"]),
        (&"echo".into(), &"completed".into(), &2.into())
    );
    assert_eq!(job["tasks"]["completed"], 2);
}

// ---- resuming ----

#[test]
fn a_job_that_was_killed_goes_on_where_it_was() {
    let place = Place::new();
    let script = "echo {} >> done; test -e go || test {} -lt 3 || exec sleep 600";
    let words: Vec<&str> =
        ["map", "-j2", script, ":::"].into_iter().chain(["1", "2", "3", "4", "5"]).collect();
    let running = Running::start(place.command(&words));
    let until = Instant::now() + MAX_WAIT;
    while times(&place.folder().join("done")).len() < 4 {
        assert!(Instant::now() < until, "the first items are not done");
        std::thread::yield_now();
    }
    // It is killed with SIGKILL.
    drop(running);
    place.write("go", "");
    let ran = place.run(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("resuming job") && ran.err.contains("2 of 5 items are already done"), "{ran:?}");
    assert_eq!(
        times(&place.folder().join("done")),
        ["1", "2", "3", "3", "4", "4", "5"],
        "what was done stays done"
    );
    assert_eq!(jobs(&place).len(), 1);
}

#[test]
fn an_interrupted_job_says_so_and_leaves_nothing_behind() {
    let place = Place::new();
    let script = "echo $$ >> pids; exec sleep 600 #";
    let running = Running::start(place.command(["map", "-j2", script, ":::", "a", "b", "c"]));
    let until = Instant::now() + MAX_WAIT;
    while times(&place.folder().join("pids")).len() < 2 {
        assert!(Instant::now() < until, "nothing runs");
        std::thread::yield_now();
    }
    running.signal(ProcessSignal::INT);
    assert_eq!(running.end().0, Some(130));
    for pid in times(&place.folder().join("pids")) {
        assert!(!Path::new("/proc").join(&pid).join("exe").exists(), "{pid} is still there");
    }
    assert_eq!(jobs(&place)[0]["state"], "unfinished");
    // The doctor gives the right advice: no config has a pool for a job.
    let advice = place.done(["doctor"]);
    assert!(
        advice.contains("run the same \"ostler map\" command again") && advice.contains("ostler job rm"),
        "{advice}"
    );
    assert!(!advice.contains("ostler up"), "{advice}");
}

#[test]
fn interrupted_twice_it_goes_though_the_store_does_not_answer_and_no_item_counts_a_death() {
    let place = Place::new();
    // It ignores the request to stop; a second run finishes at once.
    let script = "if [ -e go ]; then exit 0; fi; trap 'echo > told' TERM; echo > began; while :; do sleep 0.1; done; #";
    let words = ["map", "-q", "-j1", script, ":::", "a"];
    let running = Running::start(place.command(words));
    appears(&place.folder().join("began"));
    let lock = std::fs::File::open(place.folder().join("ostler.db.nodes/main.lock")).expect("the lock");
    lock.lock().expect("it is not held for long");
    running.signal(ProcessSignal::INT);
    appears(&place.folder().join("told"));
    running.signal(ProcessSignal::INT);
    assert_eq!(running.end().0, Some(130));
    lock.unlock().expect("it is ours");
    place.write("go", "");
    assert_eq!(place.run(words).code, Some(0));
    let id = place.json(["ls", "--items"])[0]["id"].as_str().expect("an id").to_owned();
    let attempts = &place.json(["show", &id])["attempts"];
    assert_eq!(
        (&attempts[0]["state"], &attempts[1]["state"]),
        (&"handed_back".into(), &"completed".into()),
        "{attempts}"
    );
}

#[test]
fn only_what_failed_is_done_again_and_a_completed_job_anew() {
    let place = Place::new();
    let words = ["map", "-q", "echo {} >> done; test {} != 2 -o -e go", ":::", "1", "2", "3"];
    assert_eq!(place.run(words).code, Some(1));
    place.write("go", "");
    assert_eq!(place.run(words).code, Some(0));
    assert_eq!(times(&place.folder().join("done")), ["1", "2", "2", "3"]);
    assert_eq!(place.run(words).code, Some(0));
    assert_eq!(times(&place.folder().join("done")).len(), 7, "all of it once more");
    assert_eq!(jobs(&place).len(), 2);
    let once: Vec<&str> = ["map", "--once"].into_iter().chain(words.into_iter().skip(2)).collect();
    let ran = place.run(once);
    assert_eq!((ran.code, times(&place.folder().join("done")).len()), (Some(0), 7), "{ran:?}");
    assert!(ran.err.contains("all 3 items are already done"), "{ran:?}");
}

#[test]
fn a_job_that_had_a_failure_is_begun_anew_when_that_is_asked_for() {
    let place = Place::new();
    let words = ["map", "echo {} >> done; test {} != 2 -o -e go", ":::", "1", "2", "3"];
    let ran = place.run(words);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("(--fresh: all 3)"), "{ran:?}");
    place.write("go", "");
    let fresh: Vec<&str> = ["map", "--fresh"].into_iter().chain(words.into_iter().skip(1)).collect();
    let ran = place.run(&fresh);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(times(&place.folder().join("done")), ["1", "1", "2", "2", "3", "3"], "all of it");
    assert_eq!(jobs(&place).len(), 2, "the former job stays to be looked at");
    assert!(ran.err.contains("3 items: ") && !ran.err.contains("earlier"), "{ran:?}");
    place.refused(["map", "--fresh", "--once", "true", ":::", "a"], 2, "--once");
}

#[test]
fn what_is_skipped_is_said_and_how_old_it_is() {
    let place = Place::new();
    let words = ["map", "test {} != 2", ":::", "1", "2", "3"];
    assert_eq!(place.run(words).code, Some(1));
    let ran = place.run(words);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = ran.err.lines().find(|line| line.contains("resuming job")).expect("there is such a line");
    assert!(
        said.contains(", created ") && (said.contains(" ago: ") || said.contains("just now: ")),
        "{said}"
    );
    let rest = "2 of 3 items are already done, retrying 1; --fresh runs all 3";
    assert!(said.ends_with(rest), "{said}");
}

#[test]
fn what_a_superseded_job_had_left_is_cancelled() {
    let place = Place::new();
    let words = ["map", "-j1", "--fail-fast", "echo {} >> done; test -e go", ":::", "1", "2", "3"];
    assert_eq!(place.run(words).code, Some(1));
    assert_eq!(jobs(&place)[0]["tasks"]["queued"], 2);
    place.write("go", "");
    let fresh: Vec<&str> = ["map", "--fresh"].into_iter().chain(words.into_iter().skip(1)).collect();
    let ran = place.run(&fresh);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("cancelled 2 unfinished items of job "), "{ran:?}");
    let all = jobs(&place);
    assert_eq!((&all[0]["state"], &all[1]["state"]), (&"completed".into(), &"cancelled".into()), "{all:?}");
    assert_eq!(all[1]["tasks"]["queued"], 0);
}

#[test]
fn a_job_that_is_complete_still_answers_with_its_results() {
    let place = Place::new();
    mapped(&place, &["echo", ":::", "a"]);
    let ran = place.run(["map", "--once", "--json", "--results", "r.jsonl", "echo", ":::", "a"]);
    assert_eq!((ran.code, &ran.json()["state"]), (Some(0), &"completed".into()), "{ran:?}");
    let text = std::fs::read_to_string(place.folder().join("r.jsonl")).expect("the results");
    assert!(text.contains("\"output\":\"a\\n\""), "{text}");
}

#[test]
fn every_run_that_failed_is_counted_where_a_task_is_shown() {
    let place = Place::new();
    let words = ["map", "-q", "false", ":::", "a"];
    let runs = || {
        let task = place.json(["ls", "--items"])[0]["id"].as_str().expect("an id").to_owned();
        let shown = place.done(["show", &task]);
        shown.lines().find_map(|line| line.strip_prefix("runs ")).expect("its runs").trim().to_owned()
    };
    assert_eq!(place.run(words).code, Some(1));
    assert_eq!(runs(), "1, of which 1 failed");
    assert_eq!(place.run(words).code, Some(1));
    assert_eq!(runs(), "2, of which 2 failed, 1 since it was last replayed");
}

#[test]
fn equal_items_are_two_and_another_order_is_the_same_job() {
    let place = Place::new();
    let words = |items: &[&str]| -> Ran {
        place.run(["map", "-q", "echo {} >> done; test -e go", ":::"].iter().chain(items))
    };
    assert_eq!(words(&["a", "b", "a"]).code, Some(1));
    place.write("go", "");
    assert_eq!(words(&["b", "a", "a"]).code, Some(0));
    assert_eq!(times(&place.folder().join("done")), ["a", "a", "a", "a", "b", "b"]);
    assert_eq!(jobs(&place).len(), 1);
    assert_eq!(words(&["a", "b"]).code, Some(0));
    assert_eq!(jobs(&place).len(), 2, "other items are another job");
}
