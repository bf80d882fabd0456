//! Shell injection: finds data that is pasted into an argument which an interpreter reads as program text. `sh -c "convert {}"`
//! with the item `x; rm -rf ~` runs two programs. Data that is the whole script is allowed: it is meant to be run.

/// A program that takes program text as an argument.
struct Interpreter {
    names: &'static [&'static str],
    /// Short options that announce program text; they may be combined with others: `-lc`, `-euc`.
    letters: &'static [char],
    /// Long options that announce program text.
    words: &'static [&'static str],
    remedy: &'static str,
}

const INTERPRETERS: [Interpreter; 6] = [
    Interpreter {
        names: &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "su", "runuser"],
        letters: &['c'],
        words: &["--command"],
        remedy: BY_SHELL,
    },
    Interpreter {
        names: &["python", "python2", "python3", "pypy", "pypy3"],
        letters: &['c'],
        words: &[],
        remedy: BY_SCRIPT,
    },
    Interpreter { names: &["perl"], letters: &['e', 'E'], words: &[], remedy: BY_SCRIPT },
    Interpreter { names: &["ruby"], letters: &['e'], words: &[], remedy: BY_SCRIPT },
    Interpreter {
        names: &["node", "nodejs", "bun", "deno"],
        letters: &['e', 'p'],
        words: &["--eval", "--print"],
        remedy: BY_SCRIPT,
    },
    Interpreter { names: &["php"], letters: &['r'], words: &["--run"], remedy: BY_SCRIPT },
];
/// Options of interpreters that take a value.
const VALUES: [&str; 7] = ["-o", "+o", "-O", "-W", "-X", "-I", "-r"];
/// Programs that accept options after an operand: `su anna -c …`.
const MIXED: [&str; 2] = ["su", "runuser"];
/// Options of ssh that take a value.
const SSH_VALUES: &str = "BbcDEeFIiJLlmOopPQRSWw";

/// How much of an argument is data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    None,
    /// The whole argument.
    Whole,
    /// A part of the argument.
    Piece,
}

/// An argument of a command.
#[derive(Clone, Debug)]
pub struct CommandWord<'a> {
    /// The argument as written in the template.
    pub text: &'a str,
    pub data: Data,
}

/// Data that becomes program text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pasted {
    /// The interpreter.
    pub program: String,
    pub argument: String,
    /// How to pass the data safely.
    pub remedy: &'static str,
}

const BY_SHELL: &str = "pass the data as a separate argument (\"$1\" in the script), or on standard input";
const BY_SCRIPT: &str = "pass the data as a separate argument, or on standard input";
const BY_SSH: &str =
    "ssh joins its arguments into one line for the remote shell: send the data on standard input";

/// Finds the first data that an interpreter would read as part of its program.
#[must_use]
pub fn pasted(argv: &[CommandWord<'_>]) -> Option<Pasted> {
    // An interpreter may follow other programs: env, sudo, timeout 5, docker exec NAME.
    (0..argv.len()).find_map(|at| {
        let name = argv[at].text.rsplit('/').next().unwrap_or_default();
        let rest = &argv[at + 1..];
        if name == "ssh" {
            return remote(rest).map(|argument| found(name, argument, BY_SSH));
        }
        let known = INTERPRETERS.iter().find(|known| known.names.contains(&name))?;
        let script_at = script_at(name, known, rest)?;
        let script = rest.get(script_at)?;
        match script.data {
            Data::Piece => Some(found(name, script, known.remedy)),
            // The arguments of eval are program text again.
            Data::None if has_eval(script.text) => {
                let given = rest[script_at + 1..].iter().find(|argument| argument.data != Data::None)?;
                Some(found("eval", given, BY_SHELL))
            }
            Data::None | Data::Whole => None,
        }
    })
}

fn has_eval(script: &str) -> bool {
    script.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "eval")
}

/// The index of an interpreter's program text. Arguments after a script file belong to that script.
fn script_at(name: &str, known: &Interpreter, rest: &[CommandWord<'_>]) -> Option<usize> {
    let mut at = 0;
    loop {
        let text = rest.get(at)?.text;
        if asks(text, known) {
            return Some(at + 1);
        }
        if !text.starts_with(['-', '+']) && !MIXED.contains(&name) {
            return None;
        }
        at += if VALUES.contains(&text) { 2 } else { 1 };
    }
}

fn found(program: &str, argument: &CommandWord<'_>, remedy: &'static str) -> Pasted {
    Pasted { program: program.to_owned(), argument: argument.text.to_owned(), remedy }
}

/// Whether the next argument of an interpreter is program text.
fn asks(argument: &str, known: &Interpreter) -> bool {
    let is_short = |given: &str| {
        !given.is_empty() && given.chars().all(|c| c.is_ascii_alphabetic()) && given.ends_with(known.letters)
    };
    known.words.contains(&argument) || argument.strip_prefix('-').is_some_and(is_short)
}

/// The data that a remote shell would read, unless it is the whole line.
fn remote<'a, 'b>(arguments: &'a [CommandWord<'b>]) -> Option<&'a CommandWord<'b>> {
    let mut at = 0;
    while let Some(option) = arguments.get(at).and_then(|argument| argument.text.strip_prefix('-')) {
        let has_value = option.len() == 1 && SSH_VALUES.contains(option);
        at += if has_value { 2 } else { 1 };
    }
    match arguments.get(at + 1..)? {
        [CommandWord { data: Data::Whole, .. }] => None,
        line => line.iter().find(|argument| argument.data != Data::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data is written `{}` here.
    fn looked(argv: &[&str]) -> Option<(String, String)> {
        let data = |text: &str| match text {
            "{}" => Data::Whole,
            text if text.contains("{}") => Data::Piece,
            _ => Data::None,
        };
        let argv: Vec<CommandWord<'_>> =
            argv.iter().map(|text| CommandWord { text, data: data(text) }).collect();
        pasted(&argv).map(|pasted| (pasted.program, pasted.argument))
    }

    #[test]
    fn data_that_is_pasted_into_a_script_is_seen() {
        for argv in [
            &["sh", "-c", "convert {}"][..],
            &["/bin/bash", "-lc", "convert {}"],
            &["bash", "-o", "pipefail", "-euc", "cat {} | wc"],
            &["env", "A=1", "timeout", "5", "dash", "-c", "x {}"],
            &["zsh", "-c", "'{}'"],
            &["ksh", "-c", "x{}"],
            &["su", "-c", "x {}", "anna"],
            &["python3", "-c", "print('{}')"],
            &["perl", "-ne", "print if /{}/"],
            &["node", "--eval", "f('{}')"],
            &["docker", "exec", "box", "sh", "-c", "ls {}"],
            &["ssh", "host", "convert {}"],
            &["ssh", "-p", "22", "-q", "anna@host", "convert", "{}"],
            &["sh", "-c", "eval \"$1\"", "sh", "{}"],
        ] {
            assert!(looked(argv).is_some(), "{argv:?}");
        }
        assert_eq!(looked(&["sh", "-c", "convert {}"]), Some(("sh".to_owned(), "convert {}".to_owned())));
    }

    #[test]
    fn whole_scripts_and_arguments_of_their_own_are_no_pieces() {
        for argv in [
            &["sh", "-c", "{}"][..],
            &["sh", "-c", "convert \"$1\"", "sh", "{}"],
            &["sh", "script.sh", "--to={}"],
            &["sh", "-e", "script.sh", "x{}"],
            &["convert", "-c", "x{}"],
            &["python3", "-c", "import sys; f(sys.argv[1])", "{}"],
            &["python3", "worker.py", "-c", "x{}"],
            &["sh", "run.sh", "-c", "x{}"],
            &["ssh", "host", "{}"],
            &["ssh", "-i", "key-{}", "host", "uptime"],
            &["convert", "{}", "-resize", "{}x{}"],
        ] {
            assert_eq!(looked(argv), None, "{argv:?}");
        }
    }
}
