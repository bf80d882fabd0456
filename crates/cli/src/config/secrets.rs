//! The table `[secrets]`, and `secrets` of a pool: values from the environment that must not be recorded.

use std::collections::BTreeMap;

use ostler_config::{FindingLevel, FoundValue, PoolFinding, Section, nearest};
use ostler_core::visible;
use ostler_exec::{MIN_REDACTED_BYTES, OutputRedaction, Secret, Secrets};

use super::{Config, PoolSettings};

/// The maximum number of secrets.
const MAX_SECRETS: usize = 256;

/// The secrets of the file by name. `None`: its value is invalid, which is a fault already.
pub(super) type DeclaredSecrets = BTreeMap<String, Option<Secret>>;

/// Reads `[secrets]`. No fault has a value.
pub(super) fn read_all(section: &Section<'_>) -> DeclaredSecrets {
    let entries = section.entries();
    if entries.len() > MAX_SECRETS {
        section.fault_all(format!("has {} secrets; the maximum is {MAX_SECRETS}", entries.len()));
    }
    let read = |(name, found): (String, FoundValue<'_>)| {
        let secret = found.secret().and_then(|value| {
            let secret = Secret::new(name.as_str(), value);
            secret.map_err(|error| found.fault(format!("{}: {error}", found.path()))).ok()
        });
        (name, secret)
    };
    entries.into_iter().map(read).collect()
}

/// Reads `secrets` and `redact_output` of a pool.
pub(super) fn of_pool(section: &mut Section<'_>, declared: &DeclaredSecrets) -> Secrets {
    let outputs = section
        .find("redact_output")
        .and_then(|found| found.choice(OutputRedaction::On, OutputRedaction::Off))
        .unwrap_or_default();
    let Some(found) = section.find("secrets") else { return Secrets::default() };
    let names = found.texts("[\"API_KEY\"]").unwrap_or_default();
    let known: Vec<&str> = declared.keys().map(String::as_str).collect();
    let mut all = Vec::new();
    for name in names {
        match declared.get(&name) {
            Some(secret) => all.extend(secret.clone()),
            None => {
                let guess = nearest(&name, &known).map_or_else(
                    || format!("add it there, such as {name} = \"${{{name}}}\""),
                    |near| format!("did you mean {near}?"),
                );
                found.refuse::<()>(format!(
                    "contains \"{}\", which is not in [secrets]; {guess}",
                    visible(&name)
                ));
            }
        }
    }
    Secrets::new(all, outputs)
        .map_err(|error| found.refuse::<()>(format!("is invalid: {error}")))
        .unwrap_or_default()
}

impl Config {
    /// Settings that are valid but deserve attention.
    pub(crate) fn findings(&self) -> Vec<PoolFinding> {
        let pools = self.pools.iter().flat_map(PoolSettings::findings);
        pools.chain(self.secret_findings()).collect()
    }

    /// Secrets that are too short to be redacted, or that no pool has.
    pub(crate) fn secret_findings(&self) -> Vec<PoolFinding> {
        let short = self.secrets.iter().filter(|secret| !secret.is_redacted()).map(|secret| PoolFinding {
            code: "secret-short",
            level: FindingLevel::Warning,
            sentence: format!(
                "secrets.{}: its value has fewer than {MIN_REDACTED_BYTES} bytes, so it is not redacted in logs, events and errors",
                secret.name()
            ),
            advice: "Use a longer value",
        });
        let is_unused =
            |secret: &&Secret| self.pools.iter().all(|pool| pool.secrets.get(secret.name()).is_none());
        let unused = self.secrets.iter().filter(is_unused).map(|secret| PoolFinding {
            code: "secret-unused",
            level: FindingLevel::Warning,
            sentence: format!("secrets.{}: no pool has it", secret.name()),
            advice: "Add its name to the \"secrets\" of a pool, or remove it",
        });
        short.chain(unused).collect()
    }
}
