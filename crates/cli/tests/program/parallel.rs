//! `ostler map` as users of GNU parallel know it: several sources of items, tags, shells, results, and signals.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ostler_testkit::ProcessSignal;
use ostler_wire::time::TimeView;
use serde_json::Value;

use crate::map::{jobs, mapped, times};
use crate::ostler::{Place, Running};
use crate::up::appears;

#[test]
fn several_sources_are_combined_and_their_parts_have_numbers() {
    let place = Place::new();
    let words = ["-k", "echo", "{1}-{2}", "{}", ":::", "a", "b c", ":::", "1", "2"];
    assert_eq!(mapped(&place, &words), "a-1 a 1\na-2 a 2\nb c-1 b c 1\nb c-2 b c 2\n");
    place.write("list", "x/y.md:1\nz: 2\n");
    let words = ["-k", "printf '<%s>' {2} {1/} {}; echo", "::::", "list", ":::", "a b"];
    assert_eq!(mapped(&place, &words), "<a b><y.md:1><x/y.md:1><a b>\n<a b><z: 2><z: 2><a b>\n");
    let words = ["-k", "-a", "list", "--colsep", ":", "printf", "<%s>", "{2}", "{1/.}", "{}"];
    assert_eq!(mapped(&place, &words), "<1><y><x/y.md><1><2><z><z><2>");
    let words = ["-k", "-n2", "printf", "<%s>\n", "{2}", "{}", ":::", "a", "b", "c"];
    assert_eq!(mapped(&place, &words), "<b>\n<a>\n<b>\n<>\n<c>\n", "the last one has no second part");
    let ran = place.run_with(["map", "-qk0", "-a", "-", "echo", "{1}", ":::", "1", "2"], b"a\0b\0");
    assert_eq!(ran.out, "a\na\nb\nb\n", "{ran:?}");
    assert_eq!(mapped(&place, &["-P", "1", "echo", "{1}", ":::", "a"]), "a\n", "{{1}} of one source is {{}}");
}

#[test]
fn an_item_is_quoted_only_where_it_needs_it() {
    let place = Place::new();
    let words = ["-k", "echo $(( {} % 2 )) {#}; echo {}>f{}; cat f{}", ":::", "1", "20"];
    assert_eq!(mapped(&place, &words), "1 1\n1\n0 2\n20\n");
    let out = place.done(["map", "--dry-run", "X=x; echo $X{} {}.txt", ":::", "1", "a b"]);
    assert_eq!(
        out,
        "sh -c 'X=x; echo $X'\\''1'\\'' 1.txt'\nsh -c 'X=x; echo $X'\\''a b'\\'' '\\''a b'\\''.txt'\n"
    );
    // The item would end the comment, and be run.
    mapped(&place, &["true # {}", ":::", "\ntouch made"]);
    assert!(!place.folder().join("made").exists());
}

#[test]
fn a_command_of_one_string_runs_in_the_shell_that_is_named() {
    let place = Place::new();
    let words = ["map", "-q", "--shell", "bash", "a=(x {}); echo ${#a[@]} ${a[1]}", ":::", "b c"];
    assert_eq!(place.done(words), "2 b c\n");
    // An exported function is a word that a shell understands.
    let mut command = place.command(["map", "-q", "--shell", "bash", "greet", ":::", "anna b"]);
    command.env("BASH_FUNC_greet%%", "() { echo \"hello $1\"; }");
    let output = command.output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello anna b\n", "{output:?}");
    let other = ["map", "--once", "a=(x {}); echo ${#a[@]} ${a[1]}", ":::", "b c"];
    assert_eq!(place.run(other).code, Some(1), "another shell is another job");
    assert_eq!(jobs(&place).len(), 3);
}

#[test]
fn a_tag_stands_before_each_line_of_an_output() {
    let place = Place::new();
    let script = "echo 1; printf 2; echo bad >&2; test {} = a";
    let ran = place.run(["map", "-qk", "--tag", script, ":::", "a", "b\nc"]);
    assert_eq!(ran.out, "a\t1\na\t2b\\nc\t1\nb\\nc\t2", "{ran:?}");
    assert!(ran.err.contains("a\tbad\n") && ran.err.contains("b\\nc\tbad\n"), "{ran:?}");
}

#[test]
fn items_that_look_like_options_are_warned_of() {
    let place = Place::new();
    let ran = place.run(["map", "-k", "echo", ":::", "a", "--fail-fast"]);
    assert_eq!(ran.out, "a\n--fail-fast\n", "{ran:?}");
    assert!(ran.err.contains("warning: \"--fail-fast\" is an item"), "{ran:?}");
    let ran = place.run(["map", "-q", "echo", ":::", "--fail-fast"]);
    assert_eq!(ran.err, "");
}

#[test]
fn files_of_results_are_named_after_their_items() {
    let place = Place::new();
    mapped(&place, &["--results", "out", "echo", ":::", "docs/a.md", "docs_a.md", "../x", "a b"]);
    let mut names: Vec<String> = std::fs::read_dir(place.folder().join("out"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .filter(|name| name.ends_with(".out"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["_.._x.out", "a_b.out", "docs_a.md-2.out", "docs_a.md.out"]);
    let second = std::fs::read_to_string(place.folder().join("out/docs_a.md-2.out")).expect("an output");
    assert_eq!(second, "docs_a.md\n");
}

#[test]
fn a_closed_terminal_is_an_interrupt_unless_it_is_to_be_survived() {
    let place = Place::new();
    let script =
        "echo $$ > pid; echo > begun-{}; until test -e go-{}; do sleep 0.1; done; echo done > end-{}";
    let running = Running::start(place.command(["map", script, ":::", "a"]));
    appears(&place.folder().join("begun-a"));
    running.signal(ProcessSignal::HUP);
    assert_eq!(running.end().0, Some(130));
    assert!(!place.folder().join("end-a").exists());
    let pid = times(&place.folder().join("pid"))[0].clone();
    assert!(!Path::new("/proc").join(&pid).join("exe").exists(), "{pid} is still there");

    let ostler = place.command(["map", script, ":::", "b"]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(ostler.get_program()).args(ostler.get_args());
    command.envs(ostler.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(ostler.get_current_dir().expect("a folder"));
    let running = Running::start(command);
    appears(&place.folder().join("begun-b"));
    running.signal(ProcessSignal::HUP);
    place.write("go-b", "");
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn how_many_run_at_once_is_up_to_the_last_command() {
    let place = Place::new();
    let script = "test -e go || exit 1; echo > begun-{}; until test -e begun-a && test -e begun-b; do sleep 0.05; done";
    let words = |jobs: &'static str| ["map", "-q", jobs, "--timeout", "60s", script, ":::", "a", "b"];
    assert_eq!(place.run(words("-j1")).code, Some(1));
    place.write("go", "");
    let ran = place.run(words("-j2"));
    assert_eq!(ran.code, Some(0), "they wait for each other: {ran:?}");
    assert_eq!(jobs(&place).len(), 1);
}

#[test]
fn items_start_as_far_apart_as_is_asked_for() {
    let place = Place::new();
    mapped(&place, &["-j4", "--delay", "700ms", "--results", "out.jsonl", "echo", ":::", "1", "2", "3"]);
    let text = std::fs::read_to_string(place.folder().join("out.jsonl")).expect("the results");
    let starts = text.lines().map(|line| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        TimeView::parse(row["started_at"].as_str().expect("a time")).expect("a time")
    });
    let (first, last) = (starts.clone().min().expect("a start"), starts.max().expect("a start"));
    // The pause is between claims; the first item may have started a little after its claim.
    assert!(last.since(first) >= Duration::from_millis(700), "{text}");
}
