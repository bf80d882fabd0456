//! What pools of children share in the config: environment, folders, output files, and the sandbox.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_config::{BuildContext, FindingLevel, FoundValue, PoolCommon, PoolFinding, Section, WritablePath};
use ostler_core::visible;
use ostler_exec::is_variable_name;

use super::SUPERVISOR;
use crate::sandbox::{Attributes, Network, PROBE, Sandbox, prove as prove_sandbox};
use crate::supervisor::Supervisor;
use crate::worktrees::{Worktrees, usual_folder as usual_worktrees};
use crate::{Environment, FilePatterns, Folders};

/// The range of `memory`. With less, hardly anything starts.
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 44;
/// The range of `files`, per process: its three streams, and a few more.
const OPEN_FILES: RangeInclusive<u64> = 8..=1 << 20;
/// The range of `file_size`.
const FILE_SIZE: RangeInclusive<u64> = 1..=1 << 50;
/// The range of `processes`, threads included.
const PROCESSES: RangeInclusive<u64> = 1..=4_000_000;

/// When an attempt without a sign of life is stuck.
pub fn stuck_after(section: &mut Section<'_>) -> Option<Duration> {
    section.find("stuck_after")?.duration()
}

/// The patterns of files to record with an attempt.
pub fn files(section: &mut Section<'_>) -> Vec<String> {
    let patterns = section.find("files").and_then(|found| {
        let patterns = found.texts("[\"*.pdf\"]")?;
        match FilePatterns::new(&patterns) {
            Ok(_) => Some(patterns),
            Err(fault) => found.refuse(format!("is invalid: {fault}")),
        }
    });
    patterns.unwrap_or_default()
}

/// Where the children of a pool run.
pub fn folders(pool: &str, section: &mut Section<'_>) -> Folders {
    let mut path = |key| section.find(key).and_then(|found| one_path(&found));
    let (start, all) = (path("folder"), path("folders"));
    Folders { start, each: all.map(|all| all.join(subfolder(pool))), ..Folders::default() }
}

/// The same for children that may work in git worktrees.
pub fn folders_or_worktrees(pool: &str, section: &mut Section<'_>, sandbox: Option<&Sandbox>) -> Folders {
    let folders = folders(pool, section);
    let Some(found) = section.find("worktrees") else { return folders };
    let Some(worktrees) = worktrees(&found) else { return folders };
    if folders.start.is_some() {
        found.refuse::<()>("cannot be used with \"folder\": each task starts in its worktree");
    }
    if sandbox.is_some() {
        found.refuse::<()>(
            "cannot be used with \"sandbox\": git in a worktree writes to its repository, which is elsewhere",
        );
    }
    let each = folders.each.or_else(|| Some(usual_worktrees()?.join(subfolder(pool))));
    if each.is_none() {
        found.refuse::<()>(
            "has no folder for the worktrees: set \"folders\", or one of XDG_STATE_HOME and HOME",
        );
    }
    Folders { each, worktrees: Some(worktrees), ..folders }
}

fn worktrees(found: &FoundValue<'_>) -> Option<Worktrees> {
    const RIGHT: &str =
        "the path of a git repository, or a table such as { repository = \".\", base = \"main\" }";
    let (repository, base) = if found.json()?.is_string() {
        (one_path(found), None)
    } else {
        let mut table = found.table_or(RIGHT)?;
        let repository = table.required("repository", "the path of a git repository");
        let base = table.find("base").and_then(|found| {
            let base = found.text()?;
            // Git would take it for an option.
            let is_name = !base.is_empty() && !base.starts_with('-');
            if is_name { Some(base) } else { found.refuse("is not the name of a branch, tag or commit") }
        });
        table.close(&[]);
        (repository.and_then(|found| one_path(&found)), base)
    };
    Some(Worktrees { repository: repository?, base })
}

/// Why the worktrees of a pool cannot be made on this machine. Runs git.
pub fn worktree_finding(pool: &str, folders: &Folders) -> Option<PoolFinding> {
    let why = folders.worktrees.as_ref()?.fault()?;
    Some(PoolFinding {
        code: "worktree-repository",
        level: FindingLevel::Error,
        sentence: format!("pool.{pool}.worktrees: {why}"),
        advice: "Correct the path of the repository or the name of its base",
    })
}

fn one_path(found: &FoundValue<'_>) -> Option<PathBuf> {
    let text = found.text()?;
    if text.is_empty() {
        found.refuse("is empty, but must be the path of a folder")
    } else {
        Some(text.into())
    }
}

/// The sandbox: none, the strictest, or as configured by a table.
pub fn sandbox(section: &mut Section<'_>) -> Option<Sandbox> {
    let found = section.find("sandbox")?;
    match found.truth() {
        Some(true) => Some(Sandbox::default()),
        Some(false) => None,
        None => {
            let mut table = found.table_or("true, false or a table such as { memory = \"512MiB\" }")?;
            let sandbox = Sandbox {
                network: table.find("network").and_then(|found| network(&found)).unwrap_or_default(),
                attributes: table
                    .find("chmod")
                    .and_then(|found| found.choice(Attributes::Changeable, Attributes::Fixed))
                    .unwrap_or_default(),
                read: paths(&mut table, "read"),
                write: paths(&mut table, "write"),
                memory_bytes: table.find("memory").and_then(|found| found.size(MEMORY)),
                processes: table.find("processes").and_then(|found| found.whole(PROCESSES)),
                cpu: table.find("cpu").and_then(|found| found.duration()),
                open_files: table.find("files").and_then(|found| found.whole(OPEN_FILES)),
                file_bytes: table.find("file_size").and_then(|found| found.size(FILE_SIZE)),
                hidden: Vec::new(),
            };
            table.close(&[]);
            Some(sandbox)
        }
    }
}

fn network(found: &FoundValue<'_>) -> Option<Network> {
    match found.truth() {
        Some(false) => Some(Network::None),
        Some(true) => Some(Network::Open),
        None if found.is_text("unix") => Some(Network::Unix),
        None => found.refuse(format!("is {}, but must be false, true or \"unix\"", found.shown())),
    }
}

fn paths(section: &mut Section<'_>, key: &'static str) -> Vec<PathBuf> {
    let texts = section.find(key).and_then(|found| {
        let texts = found.texts("[\"/srv/fonts\"]")?;
        if texts.iter().any(String::is_empty) {
            return found.refuse("contains an empty path");
        }
        Some(texts)
    });
    texts.unwrap_or_default().into_iter().map(PathBuf::from).collect()
}

/// Resolves relative paths from this folder.
pub fn beside(folders: &mut Folders, sandbox: Option<&mut Sandbox>, folder: &Path) {
    let listed = sandbox.into_iter().flat_map(|sandbox| sandbox.read.iter_mut().chain(&mut sandbox.write));
    let repository = folders.worktrees.iter_mut().map(|worktrees| &mut worktrees.repository);
    for path in folders.start.iter_mut().chain(&mut folders.each).chain(repository).chain(listed) {
        let joined = folder.join(&path);
        *path = std::path::absolute(&joined).unwrap_or(joined);
    }
}

/// Hides these paths from the sandbox.
pub fn confine(sandbox: Option<&mut Sandbox>, hidden: &[PathBuf]) -> Result<(), String> {
    let Some(sandbox) = sandbox else { return Ok(()) };
    sandbox.hidden.extend_from_slice(hidden);
    sandbox.faults().first().map_or(Ok(()), |fault| Err(fault.to_string()))
}

/// What children in a sandbox may change.
pub fn writable<'a>(folders: &'a Folders, sandbox: Option<&'a Sandbox>) -> Vec<WritablePath<'a>> {
    let Some(sandbox) = sandbox else { return Vec::new() };
    let listed = sandbox.write.iter().map(|path| WritablePath { key: "sandbox.write", path });
    listed.chain(folders.each.iter().map(|path| WritablePath { key: "folders", path })).collect()
}

/// Runs the self-test of the sandbox.
pub async fn prove(sandbox: Option<&Sandbox>, context: BuildContext<'_>) -> Result<(), String> {
    let Some(sandbox) = sandbox else { return Ok(()) };
    let supervisor = context.need::<Supervisor>(SUPERVISOR).map_err(|error| error.to_string())?;
    prove_sandbox(supervisor, sandbox, &[PROBE], &[]).await.map_err(|error| error.to_string())
}

/// Openings in the sandbox that are wider than they look.
pub fn findings(pool: &str, sandbox: Option<&Sandbox>) -> Vec<PoolFinding> {
    let Some(sandbox) = sandbox else { return Vec::new() };
    let key = |key: &str| format!("pool.{pool}.sandbox.{key}");
    let network = match sandbox.network {
        Network::None | Network::Open => None,
        Network::Unix => Some(PoolFinding {
            code: "sandbox-unix-sockets",
            level: FindingLevel::Warning,
            sentence: format!(
                "{} = \"unix\": its children can connect to any Unix socket of this machine, such as that of a container \
                 engine, a database or the session bus, with the rights of the node's user",
                key("network")
            ),
            advice: "If one of these would let them escape, run the node as a user without access to it, or leave the network closed",
        }),
    };
    let attributes = match sandbox.attributes {
        Attributes::Fixed => None,
        Attributes::Changeable => Some(PoolFinding {
            code: "sandbox-chmod",
            level: FindingLevel::Warning,
            sentence: format!(
                "{} = true: its children can change the modes and times of every file of the node's user, including the store's",
                key("chmod")
            ),
            advice: "Leave it out if they do not need it: files can be created with the right mode (umask)",
        }),
    };
    network.into_iter().chain(attributes).collect()
}

/// A pool's name as a folder name: slashes, percent signs and a leading dot are percent-encoded.
#[must_use]
pub fn subfolder(pool: &str) -> String {
    let mut name = pool.replace('%', "%25").replace('/', "%2F");
    if name.starts_with('.') {
        name.replace_range(..1, "%2E");
    }
    name
}

pub fn bytes(found: Option<FoundValue<'_>>, most: u64) -> Option<usize> {
    usize::try_from(found?.size(1..=most)?).ok()
}

pub fn environment(pool: &PoolCommon<'_>, section: &mut Section<'_>, default: Environment) -> Environment {
    let no_name = "the name of a variable consists of letters, digits and _";
    let keep = section.find("keep_env").and_then(|found| {
        let names = found.texts("[\"PATH\", \"HOME\"]")?;
        for name in names.iter().filter(|name| !is_variable_name(name)) {
            found.refuse::<()>(format!("contains \"{}\"; {no_name}", visible(name)));
        }
        Some(names)
    });
    let mut set = Vec::new();
    for (name, found) in section.section("env").entries() {
        if !is_variable_name(&name) {
            found.refuse::<()>(format!("cannot be set; {no_name}"));
        }
        if pool.secrets.get(&name).is_some() {
            found.refuse::<()>("is set by \"secrets\" too; keep one of them");
        }
        set.extend(found.text().map(|value| (name, value)));
    }
    Environment { keep: keep.unwrap_or(default.keep), set }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_pool_is_the_name_of_one_folder() {
        for (pool, folder) in [
            ("mail", "mail"),
            ("old mail", "old mail"),
            ("a/b", "a%2Fb"),
            ("..", "%2E."),
            ("a%2Fb", "a%252Fb"),
        ] {
            assert_eq!(subfolder(pool), folder);
        }
    }
}
