//! A folder or a git worktree for each item of a map job.

use std::path::Path;

use serde_json::Value;

use crate::ostler::ran;
use crate::worktrees::Site;

#[test]
fn the_items_of_a_map_have_worktrees_or_folders_of_their_own() {
    let site = Site::new("");
    let map = |words: &[&str]| {
        let mut command = site.command(&[&["map", "-q", "--name", "items"], words].concat());
        ran(command.current_dir(site.folder().join("repo")))
    };
    let words =
        ["--worktree=main", "--once", "sh", "-c", "echo $1 >tracked; pwd", "sh", "{}", ":::", "a", "b"];
    let first = map(&words);
    assert_eq!(first.code, Some(0), "{first:?}");
    let results = site.done(&["job", "export", "items"]);
    for row in results.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let folder = row["folder"].as_str().expect("a folder");
        assert_eq!(row["output"].as_str().map(str::trim), Some(folder));
        let item = std::fs::read_to_string(Path::new(folder).join("tracked")).expect("a file");
        assert_eq!(row["item"], item.trim());
    }
    assert_eq!(site.sh("cat repo/tracked").out, "one\n");
    assert_eq!(site.registered(), 2);
    let again = map(&words);
    assert!(again.out.is_empty(), "it is the same job, and done: {again:?}");
    let other = map(&["--once", "sh", "-c", "echo $1 >tracked; pwd", "sh", "{}", ":::", "a", "b"]);
    assert_eq!(other.out.lines().count(), 2, "without worktrees it is another job: {other:?}");
    assert_eq!(site.sh("git -C repo checkout -q tracked").code, Some(0));

    let plain = map(&["--folders", "../out", "-k", "sh", "-c", "echo {} >file; pwd", ":::", "a", "b"]);
    let out = site.folder().join("out").canonicalize().expect("it is there");
    assert_eq!(plain.out.lines().filter(|line| Path::new(line).starts_with(&out)).count(), 2, "{plain:?}");
    assert!(plain.out.lines().all(|line| Path::new(line).join("file").exists()));

    site.done(&["job", "rm", "items"]);
    assert!(plain.out.lines().all(|line| Path::new(line).join("file").exists()), "folders hold results");
    for (words, sentence) in [
        (&["--worktree=no-such", "true", ":::", "a"][..], "--worktree: the repository"),
        (&["--worktree=-f", "true", ":::", "a"], "this is not the name of a branch"),
        (&["--worktree", "--pool", "shell", "--kind", "run", ":::", "a"], "cannot be used with --pool"),
        (&["--folders", "x", "--pool", "shell", "--kind", "run", ":::", "a"], "cannot be used with --pool"),
    ] {
        map(words).is_refused(2, sentence);
    }
    let outside = ran(&mut site.command(&["map", "--worktree", "true", ":::", "a"]));
    outside.is_refused(2, "is not a git repository");
}

#[test]
fn the_worktrees_of_a_removed_job_go_if_they_are_clean() {
    let site = Site::new("");
    let map = |words: &[&str]| {
        let mut command = site.command(&[&["map", "-q", "--name", "items", "--worktree"], words].concat());
        ran(command.current_dir(site.folder().join("repo")))
    };
    let made = map(&["sh", "-c", "test {} = a || touch new; pwd", ":::", "a", "b"]);
    assert_eq!((made.code, site.registered()), (Some(0), 2), "{made:?}");
    let removed = site.run(&["job", "rm", "items"]);
    assert!(removed.err.contains("removed 1 conversation or worktree of tasks that are gone"), "{removed:?}");
    assert_eq!(site.registered(), 1);
    assert!(site.done(&["doctor"]).contains("a file is not tracked: new"));
}
