//! The login of an agent: which key or credentials file a pool uses, and the account that follows from it.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::policy::AgentPolicy;
use crate::dialect::Dialect;

/// Bytes of the digest in the name of an account.
const DIGEST_BYTES: usize = 4;

/// Where the login of a pool is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// In a variable.
    Key { variable: String, value: String },
    /// In the user's config folder.
    Folder(PathBuf),
    /// There is none.
    Missing,
}

/// The variables of the node.
type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Login {
    pub(crate) fn of(policy: &AgentPolicy, env: Env<'_>) -> Self {
        let Some(place) = policy.dialect.login() else { return Self::Missing };
        let own = policy.provider.iter().map(|provider| provider.key_variable.as_str());
        for variable in own.chain(place.keys.iter().copied()) {
            if let Some(value) = variable_of(policy, variable, env) {
                return Self::Key { variable: variable.to_owned(), value };
            }
        }
        match user_folder(policy.dialect, env) {
            Some(folder) if folder.join(place.file).exists() => Self::Folder(folder),
            Some(_) | None => Self::Missing,
        }
    }

    /// The account of this login: the same on every node that has the same key, or the same folder.
    pub(crate) fn account(&self, dialect: Dialect) -> String {
        let source = match self {
            Self::Key { value, .. } => value.clone(),
            Self::Folder(folder) => folder.display().to_string(),
            Self::Missing => return dialect.name().to_owned(),
        };
        let digest = Sha256::digest(format!("{}\n{source}", dialect.name()));
        let digits: String = digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}", dialect.name())
    }
}

/// The user's own config folder.
pub(super) fn user_folder(dialect: Dialect, env: Env<'_>) -> Option<PathBuf> {
    let place = dialect.login()?;
    let set = env(place.folder_variable).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(env("HOME")?).join(place.folder)))
}

/// The value that an agent of the pool has of a variable.
fn variable_of(policy: &AgentPolicy, name: &str, env: Env<'_>) -> Option<String> {
    let set = || policy.environment.set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
    let secret = policy.secrets.get(name).map(|secret| secret.expose().to_owned());
    secret.or_else(set).or_else(|| env(name)).filter(|value| !value.is_empty())
}

/// A variable of this process.
pub(crate) fn node_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_follows_from_the_key_or_the_folder_and_never_has_the_key() {
        let policy = AgentPolicy::new("p", Dialect::Claude);
        let key =
            |value: &'static str| move |name: &str| (name == "ANTHROPIC_API_KEY").then(|| value.to_owned());
        let one = Login::of(&policy, &key("sk-one")).account(Dialect::Claude);
        let other = Login::of(&policy, &key("sk-other")).account(Dialect::Claude);
        assert_ne!(one, other);
        assert!(one.starts_with("claude-") && !one.contains("sk-"), "{one}");
        assert_eq!(one, Login::of(&policy, &key("sk-one")).account(Dialect::Claude));
        assert_eq!(Login::of(&policy, &|_| None), Login::Missing);
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join(".claude");
        std::fs::create_dir(&folder).expect("a folder");
        let env = |name: &str| (name == "HOME").then(|| home.path().display().to_string());
        assert_eq!(Login::of(&policy, &env), Login::Missing, "a folder without a login is none");
        std::fs::write(folder.join(".credentials.json"), "{}").expect("a file");
        assert_eq!(Login::of(&policy, &env), Login::Folder(folder));
    }
}
