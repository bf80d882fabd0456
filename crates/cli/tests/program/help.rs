//! Help: every command has it, with an example.

use crate::ostler::Place;

/// The names under "Commands:" in a help text.
fn commands(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| line.starts_with("  "));
    // A long description continues in further lines, which are indented more.
    let names =
        names.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_command_has_help_with_one_example() {
    let place = Place::new();
    let mut left = vec![Vec::<String>::new()];
    let mut seen = Vec::new();
    while let Some(words) = left.pop() {
        let help = place.done(words.iter().map(String::as_str).chain(["--help"]));
        let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("Example: ostler ")).collect();
        let line = words.join(" ");
        if words.is_empty() {
            assert!(help.contains("Exit codes:") && help.contains("130"), "{help}");
        } else {
            assert_eq!(examples.len(), 1, "{line}: {help}");
            let begins = format!("Example: ostler {}", words[0]);
            assert!(examples[0].starts_with(&begins), "{line}: {}", examples[0]);
            seen.push(line);
        }
        left.extend(commands(&help).into_iter().map(|name| [words.clone(), vec![name]].concat()));
    }
    for known in ["submit", "ls", "dead replay", "db backup", "up", "doctor", "completions"] {
        assert!(seen.iter().any(|line| line == known), "{known} is not in {seen:?}");
    }
    assert!(!seen.iter().any(|line| line.contains("worker ") || line == "demo-worker"), "{seen:?}");
}

#[test]
fn nothing_said_is_answered_with_help_and_a_code() {
    let place = Place::new();
    let ran = place.run::<&str>([]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("Usage: ostler"), "{ran:?}");
}

#[test]
fn completions_are_printed_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(place.done(["completions", shell]).contains("submit"), "{shell}");
    }
}

#[test]
fn verbs_of_other_tools_are_understood_or_lead_to_the_right_command() {
    let place = Place::new();
    assert_eq!(place.done(["help", "job", "ls"]), place.done(["job", "ls", "--help"]));
    assert_eq!(place.done(["help"]), place.done(["--help"]));
    assert_eq!(place.done(["version"]), place.done(["--version"]));
    place.refused(["start"], 2, "there is no command \"start\"; use ostler up");
    place.refused(["exec", "make"], 2, "use ostler add -- COMMAND");
    place.refused(["--json", "job", "status", "x"], 2, "use ostler job show JOB");
    place.refused(["frobnicate"], 2, "unrecognized subcommand");
}
