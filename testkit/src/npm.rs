//! Packages of npm: real programs that tests use, from the package registry, installed once into a folder of the build.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ostler_conformance::note;

/// What npm says when the registry cannot be reached, or a gateway before it cannot.
const UNREACHABLE: [&str; 11] = [
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTFOUND",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
    "E502",
    "E503",
    "E504",
];

/// Installs packages into a folder, unless all of these files are among its modules, and returns the folder of the modules.
///
/// `None`: there is no npm, or the registry cannot be reached. What is skipped then is shown at the end of a run of all tests.
///
/// # Panics
/// When npm fails for another reason, or the folder cannot be written.
#[must_use]
pub fn npm_modules(folder: &Path, packages: &[&str], files: &[&str]) -> Option<PathBuf> {
    std::fs::create_dir_all(folder).expect("the build has a folder");
    let lock = File::create(folder.join("lock")).expect("a file");
    lock.lock().expect("it can be locked");
    let modules = folder.join("node_modules");
    if files.iter().all(|file| modules.join(file).exists()) {
        return Some(modules);
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(folder).args(packages);
    let why = match npm.stdin(Stdio::null()).output() {
        Ok(done) if done.status.success() => return Some(modules),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(is_about_the_way(&said), "npm cannot install {packages:?}: {said}");
            said.lines().find(|line| line.contains(" code ")).unwrap_or_default().to_owned()
        }
        Err(error) => {
            assert!(error.kind() == ErrorKind::NotFound, "npm cannot be started: {error}");
            "there is no npm".to_owned()
        }
    };
    note(&format!("SKIPPED: tests of {packages:?}: {why}"));
    None
}

/// Whether npm did not get as far as the registry.
fn is_about_the_way(said: &str) -> bool {
    said.lines()
        .filter_map(|line| line.split_once(" code "))
        .any(|(_, code)| UNREACHABLE.contains(&code.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_registry_that_cannot_be_reached_is_an_excuse() {
        for (said, is_excuse) in [
            ("npm error code ENOTFOUND\nnpm error syscall getaddrinfo\n", true),
            ("npm warn old\nnpm ERR! code ECONNREFUSED\n", true),
            ("npm error code E503\nnpm error 503 Service Unavailable\n", true),
            ("npm error code ETARGET\nnpm error notarget No matching version found\n", false),
            ("npm error code E404\nnpm error 404 Not Found\n", false),
            ("npm error code ENOSPC\nnpm error nospc There appears to be insufficient space\n", false),
            ("", false),
        ] {
            assert_eq!(is_about_the_way(said), is_excuse, "{said}");
        }
    }
}
