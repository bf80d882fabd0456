//! The environment of an agent: which variables of the node it inherits. Its tools inherit them too, secrets included.

use std::ffi::OsString;

use crate::dialect::Dialect;

/// What every program needs: where programs and files are, the language, certificates.
const ALWAYS: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
];
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
/// By these an agent knows that it runs inside another one, and then behaves differently.
const MARKS_OF_NESTING: [&str; 5] = [
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION_ID",
    "CODEX_SANDBOX",
];

/// The variables that an agent inherits: the common ones, those of its dialect, and those that the pool keeps.
pub fn inherited<'a>(
    dialect: Dialect,
    all: impl IntoIterator<Item = (OsString, OsString)> + 'a,
    keep: &'a [String],
) -> impl Iterator<Item = (OsString, OsString)> + 'a {
    all.into_iter().filter(move |(name, _)| {
        name.to_str().is_some_and(|name| keep.iter().any(|kept| kept == name) || is_inherited(dialect, name))
    })
}

fn is_inherited(dialect: Dialect, name: &str) -> bool {
    let is_common = ALWAYS.contains(&name)
        || name.starts_with("LC_")
        || PROXIES.iter().any(|proxy| name.eq_ignore_ascii_case(proxy));
    let is_own = dialect.variables().iter().any(|prefix| name.starts_with(prefix));
    (is_common || is_own) && !MARKS_OF_NESTING.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dialect: Dialect, names: &[&str], keep: &[&str]) -> Vec<String> {
        let all: Vec<_> = names.iter().map(|name| (OsString::from(name), OsString::from("x"))).collect();
        let keep: Vec<String> = keep.iter().map(|name| (*name).to_owned()).collect();
        inherited(dialect, all, &keep).map(|(name, _)| name.into_string().expect("text")).collect()
    }

    #[test]
    fn an_agent_gets_its_own_variables_and_not_those_of_another() {
        let names = [
            "PATH",
            "LC_ALL",
            "https_proxy",
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
            "OPENAI_API_KEY",
            "CODEX_HOME",
            "AWS_SECRET_ACCESS_KEY",
            "OSTLER_STORE",
            "DATABASE_URL",
        ];
        assert_eq!(kept(Dialect::Claude, &names, &[]), [&names[..3], &names[3..5]].concat());
        assert_eq!(kept(Dialect::Codex, &names, &[]), [&names[..3], &names[5..7]].concat());
        assert_eq!(kept(Dialect::Command, &names, &["DATABASE_URL"]), [&names[..3], &names[9..]].concat());
    }

    #[test]
    fn marks_of_nesting_are_left_out() {
        assert_eq!(kept(Dialect::Claude, &["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"], &[]), [] as [&str; 0]);
    }
}
