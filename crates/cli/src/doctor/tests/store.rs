//! Faults of the store's file, its folder and its disk, and of the config.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ostler_config::SecretValues;
use ostler_ops::doctor::facts::{ContainedBy, DiskSpace, DoctorFacts, Site, SiteFacts, StoreLook};
use ostler_ops::doctor::findings;
use ostler_sqlite::{Options, Sqlite, integrity};
use ostler_testkit::{Twin, Voice, scratch};
use ostler_wire::system::Severity;
use rustix::mount::{MountFlags, mount, mount_remount};

use super::super::site::{self, remote_name};
use super::*;
use crate::config;
use crate::pool_kinds::POOL_KINDS;

/// The offset of the schema version in the file of a store.
const VERSION_OFFSET: u64 = 60;
const FOLDER: &str = "OSTLER_TEST_FOLDER";

async fn findings_at(path: &Path) -> Vec<Finding> {
    let store = Some(StoreUrl::Sqlite(path.to_owned()));
    looked(Subject {
        store,
        config: None,
        containment: None,
        threads: None,
        clock: Arc::new(ManualClock::new()),
    })
    .await
}

/// The file of a store that no process has open.
fn closed_store() -> (World, PathBuf) {
    let mut world = World::new();
    world.files.close();
    let path = world.files.path();
    (world, path)
}

/// The entries of a folder.
fn listing(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    found.sort();
    found
}

#[tokio::test]
async fn a_store_that_is_not_there_is_told_and_not_made() {
    let folder = scratch();
    for path in [folder.path().join("ostler.db"), folder.path().join("no/such/folder/ostler.db")] {
        let finding = only(findings_at(&path).await, "store-missing");
        says(&finding, &format!("There is no store at {}", path.display()), "--store");
    }
    assert_eq!(listing(folder.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_file_that_is_no_store_is_told_and_left() {
    let folder = scratch();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "not a database, but long enough to be looked at as one".repeat(100))
        .expect("written");
    let finding = only(findings_at(&path).await, "store-foreign");
    says(&finding, "is not an Ostler store", "--store");
    assert_eq!(listing(folder.path()), [path]);
    only(findings_at(folder.path()).await, "store-unusable");
}

#[tokio::test]
async fn a_damaged_store_is_told() {
    let (_world, path) = closed_store();
    let half = std::fs::metadata(&path).expect("it is there").len() / 2;
    File::options().write(true).open(&path).and_then(|file| file.set_len(half)).expect("it is cut");
    let finding = only(findings_at(&path).await, "store-damaged");
    says(&finding, "is truncated", "backup");
}

#[tokio::test]
async fn a_store_of_another_version_is_told_and_left() {
    let (_world, path) = closed_store();
    let newest = integrity::versions(&path).expect("it is a store").newest;
    for (version, code, advice) in
        [(newest + 1, "store-too-new", "newer version"), (newest - 1, "store-outdated", "ostler db migrate")]
    {
        let bytes = u32::try_from(version).expect("a small number").to_be_bytes();
        let file = File::options().write(true).open(&path).expect("it is there");
        file.write_all_at(&bytes, VERSION_OFFSET).expect("it is written");
        says(&only(findings_at(&path).await, code), "schema", advice);
        let read = std::fs::read(&path).expect("it is there");
        assert_eq!(read[VERSION_OFFSET as usize..][..4], bytes, "nothing was brought up to date");
    }
}

/// Time advances only for those who wait for it: the test does not take the ten seconds of a store that never answers.
#[tokio::test(start_paused = true)]
async fn a_store_that_another_process_locks_is_reported() {
    let world = World::new();
    let lock = world.files.folder().join("ostler.db.nodes/main.lock");
    let held = File::options().write(true).open(lock).expect("the lock is there");
    held.lock().expect("it is free");
    let finding = only(world.findings().await, "store-busy");
    says(&finding, "did not answer within 10s: another process holds it", "suspended or hanging process");
    drop(held);
}

#[tokio::test]
async fn a_store_that_is_marked_read_only_is_told() {
    let (_world, path) = closed_store();
    std::fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("its mode is set");
    let finding = only(findings_at(&path).await, "store-not-writable");
    says(&finding, &path.display().to_string(), "owner and mode");
}

#[tokio::test]
async fn a_store_that_is_open_to_others_is_told() {
    for (mode, words) in [(0o666, "may write"), (0o644, "may read")] {
        let (_world, path) = closed_store();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode is set");
        let finding = only(findings_at(&path).await, "store-open-to-others");
        says(&finding, words, &format!("chmod 600 {}", path.display()));
    }
    let (world, path) = closed_store();
    std::fs::set_permissions(world.files.folder(), Permissions::from_mode(0o777)).expect("its mode is set");
    says(&only(findings_at(&path).await, "folder-open-to-others"), "replace the store", "chmod o-w");
    std::fs::set_permissions(world.files.folder(), Permissions::from_mode(0o1777)).expect("its mode is set");
    assert_eq!(findings_at(&path).await, [], "as in /tmp, where users may only remove their own files");
}

// ---- disks, in a process with mounts of its own -------------------------------------------------------

#[test]
fn a_small_disk_a_full_one_and_one_that_is_read_only_are_told() {
    let folder = scratch();
    let mut twin = Twin::start_apart("doctor::tests::store::disks", &[(FOLDER, folder.path().as_os_str())]);
    for step in ["mounted", "small", "full", "read-only"] {
        twin.expect(step);
    }
    twin.succeed();
}

#[tokio::test]
#[ignore = "the other process of the test above"]
async fn disks() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let disk = Path::new(&folder);
    mount("tmpfs", disk, "tmpfs", MountFlags::empty(), Some(c"size=16m,mode=700"))
        .expect("this test needs to mount a small disk: as root, or where user namespaces are allowed");
    Voice::say("mounted");
    let path = disk.join("ostler.db");
    drop(Sqlite::open(&path, Arc::new(ManualClock::new()), Options::default()).expect("there is room"));
    let look = async || {
        let store = Some(StoreUrl::Sqlite(path.clone()));
        examine(Subject {
            store,
            config: None,
            containment: None,
            threads: None,
            clock: Arc::new(ManualClock::new()),
        })
        .await
    };

    says(&only(look().await, "disk-nearly-full"), "of 16 MiB are free", "ostler db prune");
    Voice::say("small");

    let ballast = File::create(disk.join("ballast")).expect("the ballast");
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, 12 << 20).expect("the ballast");
    says(&only(look().await, "disk-full"), "is full", "ostler db prune");
    Voice::say("full");

    drop(ballast);
    std::fs::remove_file(disk.join("ballast")).expect("the ballast goes");
    mount_remount(disk, MountFlags::RDONLY, c"").expect("it is mounted anew");
    let findings = look().await;
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["store-not-writable", "disk-nearly-full"], "{findings:#?}");
    says(&findings[0], "read-only", "mounted read-only");
    Voice::say("read-only");
}

// ---- what cannot be produced here ----------------------------------------------------------------------

fn facts(place: SiteFacts) -> DoctorFacts {
    let now = ManualClock::new().now();
    let site = Some(Site::File(place));
    DoctorFacts {
        now,
        site,
        look: StoreLook::Seen(Box::default()),
        config: None,
        containment: None,
        presence: None,
        threads: None,
        leftovers: Vec::new(),
    }
}

#[test]
fn a_file_system_without_safe_locks_is_told() {
    for number in [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546] {
        assert!(remote_name(number).is_some(), "{number:x}");
    }
    // A magic number that the kernel reports as a negative one.
    assert_eq!(remote_name(0xffff_ffff_ff53_4d42), Some("CIFS"));
    assert_eq!(remote_name(0xef53), None, "ext4");
    assert_eq!(remote_name(0x0102_1994), None, "tmpfs");
    let place = SiteFacts { folder: "/mnt/share".into(), remote: Some("NFS"), ..SiteFacts::default() };
    says(&only(findings(&facts(place.clone())), "network-file-system"), "/mnt/share", "local disk");
    let why = ostler_store::Error::invalid("/mnt/share is on a network file system");
    let refused = DoctorFacts { look: StoreLook::Refused(why), ..facts(place) };
    says(&only(findings(&refused), "network-file-system"), "no node can start here", "local disk");
}

#[test]
fn a_disk_without_room_for_files_is_full() {
    let room = DiskSpace { free_bytes: 1 << 40, total_bytes: 1 << 41, free_files: Some(0) };
    let place = SiteFacts { room: Some(room), ..SiteFacts::default() };
    says(&only(findings(&facts(place)), "disk-full"), "no free inodes", "Remove files");
    for free_files in [None, Some(1)] {
        let place = SiteFacts { room: Some(DiskSpace { free_files, ..room }), ..SiteFacts::default() };
        assert_eq!(findings(&facts(place)), []);
    }
}

#[test]
fn a_large_disk_may_have_a_small_share_left() {
    let tight = |free_bytes, total_bytes| {
        let room = DiskSpace { free_bytes, total_bytes, free_files: None };
        !findings(&facts(SiteFacts { room: Some(room), ..SiteFacts::default() })).is_empty()
    };
    assert!(tight(4 << 30, 1 << 40));
    assert!(!tight(6 << 30, 1 << 40));
    assert!(!tight(4 << 30, 8 << 30));
}

// ---- the config ---------------------------------------------------------------------------------------

fn no_env(_: &str) -> Option<String> {
    None
}

#[tokio::test]
async fn a_config_that_does_not_parse_is_told() {
    let mut world = World::new();
    let path = world.files.folder().join("ostler.toml");
    std::fs::write(&path, "shutdown_timeout = 5\nstroe = \"x\"").expect("it can be written");
    world.config = Some(config::read(&path, &no_env, POOL_KINDS, SecretValues::Read));
    let finding = only(world.findings().await, "config-broken");
    says(&finding, "missing unit", "ostler config --check");
    says(&finding, "did you mean store?", "ostler config --default");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told() {
    let mut world = World::new();
    let text = concat!(
        "[pool.a]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"true\"]\n",
        "[pool.b]\nexecutor = \"command\"\ncommand = [\"no-such-program-anywhere\"]\n",
        "[pool.c]\nexecutor = \"command\"\ncommand = [\"{{ payload.program }}\"]\n",
        "[pool.d]\nexecutor = \"command\"\ncommand = [\"/bin/sh\"]\n",
    );
    world.config = Some(
        config::parse(text, "ostler.toml", &no_env, POOL_KINDS, ostler_core::price::PriceTable::built_in())
            .map_err(ConfigError::from),
    );
    let finding = only(world.findings().await, "program-missing");
    says(&finding, "Pool \"b\" runs \"no-such-program-anywhere\"", "command -v no-such-program-anywhere");
}

#[tokio::test]
async fn a_pool_of_the_config_that_no_node_runs_is_reported() {
    let mut world = World::new();
    let node = world.node("anna", &["mail"]).await;
    world.pass(Duration::from_secs(30), &[node]).await;
    let pool = |name: &str| format!("[pool.{name}]\nexecutor = \"command\"\ncommand = [\"true\"]\n");
    let text = pool("mail") + &pool("films");
    world.config = Some(
        config::parse(&text, "ostler.toml", &no_env, POOL_KINDS, ostler_core::price::PriceTable::built_in())
            .map_err(ConfigError::from),
    );
    let finding = only(world.findings().await, "pool-not-up");
    says(&finding, "the pool \"films\"", "ostler up");
}

#[tokio::test]
async fn what_a_sandbox_leaves_open_is_told() {
    let told = async |sandbox: &str| {
        let mut world = World::new();
        let node = world.node("anna", &["shell"]).await;
        world.pass(Duration::from_secs(30), &[node]).await;
        let text =
            format!("[pool.shell]\nexecutor = \"command\"\ncommand = [\"true\"]\nsandbox = {sandbox}\n");
        world.config = Some(
            config::parse(
                &text,
                "ostler.toml",
                &no_env,
                POOL_KINDS,
                ostler_core::price::PriceTable::built_in(),
            )
            .map_err(ConfigError::from),
        );
        world.findings().await
    };
    let sockets = only(told("{ network = \"unix\" }").await, "sandbox-unix-sockets");
    says(&sockets, "any Unix socket of this machine", "leave the network closed");
    assert_eq!(sockets.severity, Severity::Warning);
    says(&only(told("{ chmod = true }").await, "sandbox-chmod"), "including the store's", "umask");
    assert_eq!(told("true").await, []);
}

#[test]
fn how_children_are_contained_is_told_and_a_wish_that_cannot_be_had_is_a_fault() {
    let folder = scratch();
    let told = |contained: Result<ContainedBy, String>| {
        let facts =
            DoctorFacts { containment: Some(contained), ..facts(site::look(&folder.path().join("a.db"))) };
        let found = findings(&facts).into_iter().find(|finding| finding.code.starts_with("containment"));
        let found = found.expect("there is a finding");
        (found.code, found.severity, found.sentence)
    };
    assert_eq!(told(Ok(ContainedBy::Cgroup)).1, Severity::Info);
    assert!(told(Ok(ContainedBy::Group)).2.contains("process groups"));
    let (code, severity, sentence) = told(Err("no control group can be made".to_owned()));
    assert_eq!((code, severity), ("containment-missing", Severity::Error));
    assert!(sentence.contains("no control group can be made"), "{sentence}");
}
