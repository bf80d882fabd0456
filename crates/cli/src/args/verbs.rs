//! Verbs of other tools: some mean the same here and are translated, for the others the error names the command that does it.

use std::ffi::OsString;

/// Verbs of other tools, after the name of a group of commands or an empty text, and what does the same here.
const ELSEWHERE: [(&str, &str, &str); 28] = [
    ("", "start", "ostler up"),
    ("", "serve", "ostler up"),
    ("", "worker", "ostler up"),
    ("", "list", "ostler ls"),
    ("", "ps", "ostler ls --state running"),
    ("", "enqueue", "ostler submit QUEUE KIND"),
    ("", "push", "ostler submit QUEUE KIND"),
    ("", "exec", "ostler add -- COMMAND"),
    ("", "tail", "ostler logs -f ID"),
    ("", "new", "ostler init"),
    ("", "replay", "ostler retry ID, or ostler dead replay ID"),
    ("", "delete", "ostler cancel ID, or ostler dead drop ID"),
    ("", "remove", "ostler cancel ID, or ostler dead drop ID"),
    ("", "migrate", "ostler db migrate"),
    ("job", "retry", "ostler job retry-failed JOB"),
    ("schedule", "start", "ostler schedule run NAME"),
    ("", "log", "ostler logs ID"),
    ("", "follow", "ostler logs -f ID"),
    ("", "rm", "ostler cancel ID, or ostler dead drop ID"),
    ("", "restart", "ostler retry ID, or ostler recycle POOL"),
    ("", "stop", "ostler drain NODE, or ostler cancel ID"),
    ("", "parallel", "ostler map"),
    ("", "cron", "ostler schedule"),
    ("", "backup", "ostler db backup FILE"),
    ("job", "logs", "ostler ls --queue QUEUE and ostler logs ID; ostler job show JOB names the queue"),
    ("job", "status", "ostler job show JOB"),
    ("job", "stop", "ostler job pause JOB, or ostler job cancel JOB"),
    ("db", "info", "ostler stats and ostler db check"),
];

/// `help MAP` and `version` as options, which clap knows.
pub(super) fn translate(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    match words.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(1);
            words.push("--help".into());
        }
        Some("version") if words.len() == 2 => words[1] = "--version".into(),
        Some(_) | None => {}
    }
    words
}

/// The command of this program for a verb that it does not have. The words are those before the verb, without options.
pub(super) fn instead(verb: &str, words: &[OsString]) -> Option<&'static str> {
    let at = words.iter().position(|word| word == verb)?;
    let group =
        words[..at].iter().skip(1).filter_map(|word| word.to_str()).rfind(|word| !word.starts_with('-'));
    let found =
        ELSEWHERE.iter().find(|(known, name, _)| *known == group.unwrap_or_default() && *name == verb);
    found.map(|(_, _, command)| *command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn help_and_version_are_options() {
        assert_eq!(translate(words("ostler help job ls")), words("ostler job ls --help"));
        assert_eq!(translate(words("ostler help")), words("ostler --help"));
        assert_eq!(translate(words("ostler version")), words("ostler --version"));
        assert_eq!(translate(words("ostler submit version help")), words("ostler submit version help"));
    }

    #[test]
    fn a_verb_of_another_tool_leads_to_a_command_of_this_one() {
        assert_eq!(instead("tail", &words("ostler tail 17")), Some("ostler logs -f ID"));
        assert_eq!(instead("status", &words("ostler --json job status x")), Some("ostler job show JOB"));
        assert_eq!(instead("logs", &words("ostler logs x")), None);
        assert_eq!(instead("frobnicate", &words("ostler frobnicate")), None);
    }

    #[test]
    fn what_is_named_instead_exists() {
        for (_, _, commands) in ELSEWHERE {
            for command in
                commands.split(" and ").flat_map(|part| part.split("; ")).flat_map(|part| part.split(", or "))
            {
                let command = command.trim_end_matches(" names the queue");
                let verbs = command
                    .split(' ')
                    .skip(1)
                    .take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
                let mut known = super::super::command();
                for verb in verbs {
                    known =
                        known.find_subcommand(verb).unwrap_or_else(|| panic!("{command}: {verb}")).clone();
                }
            }
        }
    }
}
