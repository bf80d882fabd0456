//! Secrets in the config: who has which, and what is refused.

use ostler_exec::{OutputRedaction, Secret};
use ostler_process::ProcessPolicy;

use super::*;

const DECLARED: &str = "[secrets]\nKEY = \"${LONG}\"\nPIN = \"x${PASSWORD}\"\n";

fn read(text: &str) -> Result<Config, ConfigErrors> {
    let env = |name: &str| if name == "LONG" { Some("long-hunter2".to_owned()) } else { env(name) };
    parse(text, "ostler.toml", &env, POOL_KINDS, PriceTable::built_in())
}

fn refused(text: &str) -> String {
    let errors = read(text).expect_err("it should be refused").to_string();
    assert!(!errors.contains("hunter2"), "{errors}");
    errors
}

#[test]
fn a_pool_has_the_secrets_that_it_names() {
    let workers = "[pool.docs]\nexecutor = \"process\"\ncommand = [\"w\"]\nsecrets = [\"PIN\"]\n";
    let text = format!("{DECLARED}{}{workers}", pool("secrets = [\"KEY\", \"PIN\"]\nredact_output = true"));
    let config = read(&text).unwrap_or_else(|errors| panic!("{errors}"));
    let names = |secrets: &Secrets| secrets.iter().map(|secret| secret.name().to_owned()).collect::<Vec<_>>();
    let [docs, shell] = config.pools.as_slice() else { panic!("{:?}", config.pools) };
    assert_eq!(
        (names(&shell.secrets), names(&docs.secrets)),
        (vec!["KEY".into(), "PIN".into()], vec!["PIN".into()])
    );
    assert_eq!(shell.secrets.get("KEY").map(Secret::expose), Some("long-hunter2"));
    assert_eq!(policy::<CommandPolicy>(shell).secrets, shell.secrets, "its programs get them");
    assert_eq!(policy::<ProcessPolicy>(docs).secrets, docs.secrets);
    assert_eq!(
        (shell.secrets.outputs(), docs.secrets.outputs()),
        (OutputRedaction::On, OutputRedaction::Off)
    );
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert!(config.findings().is_empty(), "{:?}", config.findings());
}

#[test]
fn secrets_that_are_short_or_unused_are_findings() {
    let config =
        read(&format!("{}\n{}", DECLARED.replace("x${PASSWORD}", "abc"), pool("secrets = [\"PIN\"]")));
    let config = config.unwrap_or_else(|errors| panic!("{errors}"));
    let told: Vec<(&str, String)> =
        config.findings().into_iter().map(|found| (found.code, found.sentence)).collect();
    let short =
        "secrets.PIN: its value has fewer than 8 bytes, so it is not redacted in logs, events and errors";
    let expected =
        [("secret-short", short.to_owned()), ("secret-unused", "secrets.KEY: no pool has it".to_owned())];
    assert_eq!(told, expected);
}

#[test]
fn what_cannot_be_a_secret_is_refused_without_its_value() {
    let declared = |line: &str| refused(&format!("[secrets]\n{line}"));
    for (line, told) in [
        (
            "KEY = \"hunter2-${NOT_SET}\"",
            "ostler.toml:2: secrets.KEY cannot be read: the variable NOT_SET is not set; for a literal ${NOT_SET} write $${NOT_SET}",
        ),
        (
            "KEY = [\"hunter2\"]",
            "ostler.toml:2: secrets.KEY must be a string in quotes, such as \"${API_KEY}\"",
        ),
        ("KEY = \"\"", "ostler.toml:2: secrets.KEY: the secret KEY is empty"),
        (
            "A-B = \"${LONG}\"",
            "ostler.toml:2: secrets.A-B: the name of a secret consists of letters, digits and _",
        ),
    ] {
        assert!(declared(line).starts_with(told), "{}", declared(line));
    }
    let in_pool = |lines: &str| refused(&format!("{DECLARED}{}", pool(lines)));
    assert_eq!(
        in_pool("secrets = [\"KEYS\"]"),
        "ostler.toml:7: pool.shell.secrets contains \"KEYS\", which is not in [secrets]; did you mean KEY?"
    );
    assert!(in_pool("secrets = [\"TOKEN\"]").contains("add it there, such as TOKEN = \"${TOKEN}\""));
    assert!(in_pool("secrets = [\"KEY\", \"KEY\"]").contains("is invalid: the secret KEY is there twice"));
    assert!(
        in_pool("secrets = [\"KEY\"]\nenv = { KEY = \"a\" }")
            .contains("pool.shell.env.KEY is set by \"secrets\" too")
    );
    assert_eq!(
        refused(&format!("[secrets]\nKEY = \"${{NOT_SET}}\"\n{}", pool("secrets = [\"KEY\"]")))
            .lines()
            .count(),
        1,
        "a fault is reported once"
    );
}
