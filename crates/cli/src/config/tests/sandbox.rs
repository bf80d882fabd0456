//! Folders and sandboxes of children.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_config::{PoolSpec, SecretValues};
use ostler_process::sandbox::{Attributes, Network, Sandbox};
use ostler_process::{CommandPolicy, Folders, ProcessPolicy};
use ostler_testkit::scratch;

use super::super::PoolSettings;
use super::{fault, good, policy, pool};
use crate::pool_kinds::POOL_KINDS;

/// A pool, with the reference's examples for keys that have no default.
pub(super) fn with_examples(plain: &PoolSettings, shown: &PoolSettings) -> Box<dyn PoolSpec> {
    let (plain, shown): (&CommandPolicy, &CommandPolicy) = (policy(plain), policy(shown));
    assert_eq!(shown.sandbox.as_ref().map(|sandbox| sandbox.network), Some(Network::None));
    assert_eq!((plain.stuck_after, shown.stuck_after), (None, Some(Duration::from_secs(120))));
    let (folders, sandbox, stuck_after) = (shown.folders.clone(), shown.sandbox.clone(), shown.stuck_after);
    Box::new(CommandPolicy { folders, sandbox, stuck_after, ..plain.clone() })
}

fn sandbox(lines: &str) -> Option<Sandbox> {
    policy::<CommandPolicy>(&good(&pool(lines)).pools[0]).sandbox.clone()
}

#[test]
fn a_sandbox_is_off_on_or_a_table() {
    assert_eq!((sandbox(""), sandbox("sandbox = false")), (None, None));
    assert_eq!(sandbox("sandbox = true"), Some(Sandbox::default()));
    assert_eq!(sandbox("sandbox = {}"), Some(Sandbox::default()));
    let table = sandbox(
        "sandbox = { network = \"unix\", chmod = true, read = [\"${DATA}\"], write = [\"out\"], memory = \"1MiB\", processes = 7, cpu = \"90s\",
         files = 8, file_size = \"1KiB\" }",
    );
    let expected = Sandbox {
        network: Network::Unix,
        attributes: Attributes::Changeable,
        read: vec!["/srv/data".into()],
        write: vec!["out".into()],
        memory_bytes: Some(1 << 20),
        processes: Some(7),
        cpu: Some(Duration::from_secs(90)),
        open_files: Some(8),
        file_bytes: Some(1_024),
        hidden: Vec::new(),
    };
    assert_eq!(table, Some(expected));
    let open = sandbox("sandbox = { network = true }").expect("there is one");
    assert_eq!(open.network, Network::Open);
}

#[test]
fn workers_have_one_too() {
    let text = "[pool.docs]\nexecutor = \"process\"\ncommand = [\"w\"]\nsandbox = true\nfolder = \"a\"\nfolders = \"b\"";
    let config = good(text);
    let policy: &ProcessPolicy = policy(&config.pools[0]);
    assert_eq!(policy.sandbox, Some(Sandbox::default()));
    assert_eq!(
        policy.folders,
        Folders { start: Some("a".into()), each: Some("b/docs".into()), ..Folders::default() }
    );
}

#[test]
fn what_a_sandbox_cannot_be_is_refused_with_a_sentence() {
    for (lines, words) in [
        ("sandbox = 1", "pool.shell.sandbox is 1, but must be true, false or a table"),
        ("sandbox = \"yes\"", "must be true, false or a table"),
        (
            "sandbox = { network = \"tcp\" }",
            "pool.shell.sandbox.network is \"tcp\", but must be false, true or \"unix\"",
        ),
        ("sandbox = { chmod = \"x\" }", "pool.shell.sandbox.chmod is \"x\", but must be true or false"),
        ("sandbox = { reed = [] }", "did you mean read?"),
        ("sandbox = { read = \"/usr\" }", "must be a list of strings"),
        ("sandbox = { write = [\"\"] }", "pool.shell.sandbox.write contains an empty path"),
        ("sandbox = { memory = \"1KiB\" }", "must be from 1MiB"),
        ("sandbox = { cpu = 30 }", "pool.shell.sandbox.cpu is 30"),
        ("sandbox = { files = 3 }", "must be a whole number from 8"),
        ("folder = \"\"", "pool.shell.folder is empty"),
        ("folders = [\"a\"]", "pool.shell.folders is [\"a\"], but must be a string"),
    ] {
        let told = fault(&pool(lines));
        assert!(told.contains(words), "{lines}: {told}");
    }
}

#[test]
fn relative_paths_begin_at_the_folder_of_the_file() {
    let folder = scratch();
    let file = folder.path().join("ostler.toml");
    let lines =
        "folder = \"start\"\nfolders = \"/each\"\nsandbox = { read = [\"r\", \"/usr\"], write = [\"../w\"] }";
    std::fs::write(&file, pool(lines)).expect("a file");
    let config = super::super::read(&file, &|_| None, POOL_KINDS, SecretValues::Read).expect("it is right");
    let policy: &CommandPolicy = policy(&config.pools[0]);
    let at = |name: &str| -> PathBuf { Path::new(folder.path()).join(name) };
    let guarded = vec![at("../w"), "/each/shell".into()];
    assert_eq!(
        policy.folders,
        Folders { start: Some(at("start")), each: Some("/each/shell".into()), guarded, ..Folders::default() }
    );
    let sandbox = policy.sandbox.as_ref().expect("there is one");
    assert_eq!(sandbox.read, [at("r"), "/usr".into()]);
    assert_eq!(sandbox.write, [at("../w")]);
}

#[test]
fn task_folders_that_another_sandbox_reaches_are_refused() {
    let folder = scratch();
    let file = folder.path().join("ostler.toml");
    std::fs::create_dir(folder.path().join("work")).expect("a folder");
    std::os::unix::fs::symlink("work", folder.path().join("alias")).expect("a link");
    let told = |one: &str, other: &str| {
        let pool =
            |name, lines| format!("[pool.{name}]\nexecutor = \"command\"\ncommand = [\"true\"]\n{lines}\n");
        std::fs::write(&file, pool("one", one) + &pool("other", other)).expect("a file");
        super::super::read(&file, &|_| None, POOL_KINDS, SecretValues::Read)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    for (one, other) in [
        ("folders = \"work\"\nsandbox = true", "folders = \"work\"\nsandbox = true"),
        ("folders = \"work\"\nsandbox = { write = [\"work/one\", \"cache\"] }", "folders = \"work\""),
        ("folders = \"work\"", "folders = \"work/one\""),
    ] {
        assert_eq!(told(one, other), Ok(()), "{one} {other}");
    }
    for (one, other, words) in [
        (
            "folders = \"work\"\nsandbox = true",
            "folders = \"work/one\"",
            [
                "pool.other.folders: its task folders are in",
                "in the sandbox of pool.one may change",
                "in its folders",
            ],
        ),
        (
            "sandbox = { write = [\"alias\"] }",
            "folders = \"work\"\nsandbox = true",
            [
                "pool.other.folders: its task folders are in",
                "in the sandbox of pool.one may change",
                "in its sandbox.write",
            ],
        ),
        (
            "folders = \"work\"\nsandbox = { write = [\"work\"] }",
            "",
            [
                "pool.one.folders: its task folders are in",
                "in the sandbox of pool.one may change",
                "in its sandbox.write",
            ],
        ),
    ] {
        let refused = told(one, other).expect_err("it is reached");
        assert!(words.iter().all(|words| refused.contains(words)), "{refused}");
    }
}
