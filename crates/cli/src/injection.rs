//! Shell injection: arguments that an interpreter reads as program text, and data that is pasted into them. `sh -c "convert {}"`
//! with the item `x; rm -rf ~` runs two programs. Data that is the whole script is another matter: it is meant to be run.

/// A sort of program that reads an argument as program text.
struct Interpreter {
    names: &'static [&'static str],
    /// The short option before it, which may stand together with others: `-lc`, `-euc`.
    letters: &'static [char],
    /// The long ones.
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
/// Options of interpreters that have a value.
const VALUES: [&str; 7] = ["-o", "+o", "-O", "-W", "-X", "-I", "-r"];
/// Programs whose options may stand behind a name: `su anna -c …`.
const MIXED: [&str; 2] = ["su", "runuser"];
/// Options of ssh that have a value.
const SSH_VALUES: &str = "BbcDEeFIiJLlmOopPQRSWw";

/// What an argument has in it beside fixed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Nothing.
    None,
    /// It is all of the argument.
    Whole,
    /// It stands among other text.
    Piece,
}

/// One argument of a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandWord<'a> {
    /// As it was written.
    pub(crate) text: &'a str,
    /// What is put into it.
    pub(crate) data: Data,
}

/// Data that becomes program text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pasted {
    /// The program that reads it.
    pub(crate) program: String,
    /// The argument.
    pub(crate) argument: String,
    /// How to give it the data safely.
    pub(crate) remedy: &'static str,
}

const BY_SHELL: &str =
    "give the data as an argument of its own, which the script calls \"$1\", or by standard input";
const BY_SCRIPT: &str = "give the data as an argument of its own, which the script finds among its arguments, or by standard input";
const BY_SSH: &str =
    "ssh joins its arguments to one line for the shell of the other side: send the data by standard input";

/// The first data that an interpreter would read as a part of its program.
pub(crate) fn pasted(argv: &[CommandWord<'_>]) -> Option<Pasted> {
    // An interpreter may stand behind others: env, sudo, timeout 5, docker exec NAME.
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
            // What eval is given is program text once more.
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

/// Where the program text of an interpreter stands among its arguments. What comes after a file is for the program in that file.
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

/// The data that a shell on the other side of ssh would read, unless it is the whole line.
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
