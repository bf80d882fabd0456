//! A git worktree for each task: made, found again, and removed after its task if it is clean.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::ostler::{Place, Ran, Running, ran};
use crate::workers::until;

/// A git command of a script that makes commits.
const GIT: &str = "git -c user.name=a -c user.email=a@example.org";

/// A place with a repository "repo", whose user has the place as home folder.
pub(crate) struct Site(pub(crate) Place);

impl Site {
    /// With a pool "shell" that runs the payload as a script, with these lines.
    pub(crate) fn new(lines: &str) -> Self {
        let site = Self(Place::new());
        site.make_repository();
        site.configure(lines);
        site
    }

    fn configure(&self, lines: &str) {
        let config = format!(
            "[lease]\nttl = \"5s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.shell]\nexecutor = \"command\"\n\
             command = [\"sh\", \"-c\", \"{{{{ payload }}}}\"]\nretry = {{ base = \"10ms\" }}\n{lines}\n"
        );
        self.0.write("ostler.toml", config);
    }

    fn make_repository(&self) {
        let script = format!(
            "git init -q -b main repo && cd repo && echo one >tracked && echo ignored >.gitignore && git add . \
             && {GIT} commit -q -m first"
        );
        assert!(self.sh(&script).code == Some(0));
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// Runs a script in the place.
    pub(crate) fn sh(&self, script: &str) -> Ran {
        let mut command = Command::new("sh");
        ran(command.args(["-c", script]).current_dir(self.folder()).env("HOME", self.folder()))
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.0.command(words);
        command.env("HOME", self.folder());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        ran(&mut self.command(words))
    }

    pub(crate) fn done(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        self.run(&[words, &["--json"]].concat()).json()
    }

    fn up(&self) -> Running {
        let node = Running::start(self.command(&["up"]));
        assert!(node.line().contains("ready"));
        node
    }

    /// Submits a script, and waits for its end in this state. Returns its id.
    fn ran(&self, script: &str, state: &str) -> String {
        let payload = Value::from(script).to_string();
        let id = self.done(&["submit", "shell", "run", "--payload", &payload]).trim().to_owned();
        until(state, || (self.json(&["show", &id])["state"] == state).then_some(()));
        id
    }

    /// The worktree of a task.
    fn worktree(&self, id: &str) -> PathBuf {
        self.folder().join(".local/state/ostler/worktrees/shell").join(id)
    }

    /// Removes all finished tasks.
    fn prune(&self) -> Ran {
        let ran = self.run(&["db", "prune", "--completed-older", "1ms", "--failed-older", "1ms"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }

    /// The worktrees that the repository knows, besides its own.
    pub(crate) fn registered(&self) -> usize {
        self.sh("git -C repo worktree list").out.lines().count() - 1
    }
}

#[test]
fn a_task_works_in_a_worktree_of_its_own_and_its_next_attempt_finds_it() {
    let site = Site::new("worktrees = \"repo\"");
    let _node = site.up();
    let script = "if [ -e mine ]; then cat mine; else git rev-parse --abbrev-ref HEAD >mine; exit 1; fi";
    let id = site.ran(script, "completed");
    assert_eq!(site.json(&["show", &id])["output"], "HEAD", "it is detached");
    let path = site.worktree(&id);
    assert!(path.join("tracked").exists() && path.join("mine").exists());
    assert!(!site.folder().join("repo/mine").exists());
    let log = site.done(&["logs", &id]);
    assert!(log.contains(&format!("works in the new worktree {}", path.display())), "{log}");
    let other = site.ran("pwd", "completed");
    assert_eq!(site.json(&["show", &other])["output"], site.worktree(&other).display().to_string());
    // What a task was submitted with wins.
    let payload = Value::from("pwd").to_string();
    let here = site.folder().canonicalize().expect("it is there").display().to_string();
    let output = site.done(&["submit", "shell", "run", "--payload", &payload, "--folder", &here, "--wait"]);
    assert_eq!(output.trim(), Value::from(here).to_string());
}

#[test]
fn worktrees_stand_in_folders_and_begin_at_the_base() {
    let site = Site::new("folders = \"work\"\nworktrees = { repository = \"repo\", base = \"old\" }");
    assert_eq!(
        site.sh(&format!("cd repo && git tag old && {GIT} commit -q --allow-empty -m second")).code,
        Some(0)
    );
    let _node = site.up();
    let id = site.ran("git log -1 --format=%s; pwd", "completed");
    let path = site.folder().join("work/shell").join(&id);
    assert_eq!(site.json(&["show", &id])["output"], format!("first\n{}", path.display()));
}

#[test]
fn a_repository_or_a_base_that_is_not_there_is_found_before_and_stops_the_queue() {
    for (lines, sentence) in [
        ("worktrees = \"nowhere\"", "is not a git repository"),
        ("worktrees = { repository = \"repo\", base = \"no-such\" }", "has no commit \"no-such\""),
    ] {
        let site = Site::new(lines);
        std::fs::create_dir(site.folder().join("nowhere")).expect("a folder");
        let checked = site.run(&["config", "--check"]);
        assert!(
            checked.err.contains("pool.shell.worktrees: ") && checked.err.contains(sentence),
            "{checked:?}"
        );
        let _node = site.up();
        site.done(&["submit", "shell", "run", "--payload", "\"true\""]);
        until(sentence, || {
            let found = site.json(&["doctor"]);
            let paused = |finding: &Value| {
                finding["code"] == "queue-paused"
                    && finding["sentence"].as_str().is_some_and(|text| text.contains(sentence))
            };
            found.as_array().is_some_and(|all| all.iter().any(paused)).then_some(())
        });
        let found = site.json(&["doctor"]);
        let known = |finding: &Value| finding["code"] == "worktree-repository";
        assert!(found.as_array().is_some_and(|all| all.iter().any(known)), "{found}");
    }
}

#[test]
fn what_contradicts_worktrees_is_a_fault_of_the_config() {
    let place = Place::new();
    for (lines, sentence) in [
        ("worktrees = 3", "pool.shell.worktrees is 3, but must be the path of a git repository, or a table"),
        ("worktrees = \"\"", "pool.shell.worktrees is empty"),
        ("worktrees = { base = \"main\" }", "pool.shell.worktrees.repository is missing"),
        (
            "worktrees = { repository = \".\", base = \"-f\" }",
            "pool.shell.worktrees.base is not the name of a branch",
        ),
        ("worktrees = { repository = \".\", bse = \"x\" }", "did you mean base?"),
        ("folder = \".\"\nworktrees = \".\"", "pool.shell.worktrees cannot be used with \"folder\""),
        ("sandbox = true\nworktrees = \".\"", "pool.shell.worktrees cannot be used with \"sandbox\""),
        (
            "worktrees = \".\"",
            "has no folder for the worktrees: set \"folders\", or one of XDG_STATE_HOME and HOME",
        ),
    ] {
        let config = format!("[pool.shell]\nexecutor = \"command\"\ncommand = [\"true\"]\n{lines}\n");
        place.write("ostler.toml", config);
        place.refused(["config", "--check"], 2, sentence);
    }
}

/// Puts a program `git` before the real one, which does this for `git worktree add` the first time. `$path` is the worktree.
fn stand_in(site: &Site, deed: &str) -> String {
    let real = site.sh("command -v git").out.trim().to_owned();
    let folder = site.folder().join("bin");
    std::fs::create_dir(&folder).expect("a folder");
    let script = format!(
        "#!/bin/sh\nrepo=\"{repo}\"\ncase \"$*\" in *'worktree add'*)\nif mkdir \"$0.once\" 2>/dev/null; then\n\
         for path; do case $path in */worktrees/*) break;; esac; done\n{deed}\nfi;;\nesac\nexec {real} \"$@\"\n",
        repo = site.folder().join("repo").display(),
    );
    site.0.write("bin/git", script);
    assert_eq!(site.sh("chmod +x bin/git").code, Some(0));
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// A node whose git fails once in this way while it makes a worktree. The next attempt succeeds, and nothing is left of the first.
fn survives(deed: &str, words: &str) {
    let site = Site::new("worktrees = \"repo\"");
    let path = stand_in(&site, deed);
    let mut command = site.command(&["up"]);
    command.env("PATH", path);
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    let id = site.ran("cat tracked", "completed");
    let shown = site.json(&["show", &id]);
    assert_eq!((&shown["output"], &shown["runs"]), (&"one".into(), &2.into()), "{shown}");
    let error = shown["attempts"][0]["error"]["message"].as_str().expect("a message").to_owned();
    assert!(error.contains(words), "{error}");
    assert_eq!(site.registered(), 1);
    assert!(!site.worktree(&id).join("half").exists());
    assert_eq!(site.sh("ls repo/.git/worktrees").out.trim(), id);
}

#[test]
fn a_git_that_is_killed_half_way_leaves_nothing_that_stops_the_next_try() {
    let deed = "mkdir -p \"$repo/.git/worktrees/${path##*/}\" \"$path\"; echo initializing >\"$repo/.git/worktrees/${path##*/}/locked\"; \
                echo x >\"$path/half\"; kill -9 $$";
    survives(deed, "cannot be made: \"git worktree add\" failed: it was killed by signal 9");
}

#[test]
fn a_disk_that_is_full_while_a_worktree_is_made_is_told_and_leaves_nothing() {
    let deed = "git -C \"$repo\" worktree add -q --detach \"$path\" HEAD; echo x >\"$path/half\"; \
                echo 'fatal: unable to write: No space left on device' >&2; exit 128";
    survives(deed, "No space left on device");
}

/// A process in a folder. It is killed on drop.
struct Sleeper(Child);

impl Sleeper {
    fn in_folder(folder: &Path) -> Self {
        let mut command = Command::new("sleep");
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.arg("600").current_dir(folder).spawn().expect("it starts"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_clean_worktree_goes_with_its_task_and_one_with_work_stays_and_is_listed() {
    let site = Site::new("worktrees = \"repo\"");
    let node = site.up();
    let clean = [
        site.ran("true", "completed"),
        site.ran("exit 1", "failed"),
        site.ran("echo x >ignored", "completed"),
        site.ran(&format!("git switch -qc kept && echo x >new && git add new && {GIT} commit -qm kept"), "completed"),
        site.ran(&format!("{GIT} commit -q --allow-empty -m a && {GIT} commit -q --amend --allow-empty -m b && git tag t"), "completed"),
    ];
    let sleeper = site.ran("true", "completed");
    let with_work = [
        (site.ran("echo x >new", "completed"), "a file is not tracked: new"),
        (site.ran("echo x >>tracked", "completed"), "a change is not committed: tracked"),
        (site.ran("git rm -q tracked", "completed"), "a change is not committed: tracked"),
        (
            site.ran(&format!("{GIT} commit -q --allow-empty -m x"), "completed"),
            "is on no branch, tag or remote",
        ),
        (
            site.ran(
                &format!("{GIT} commit -q --allow-empty -m x && git checkout -q --detach main"),
                "completed",
            ),
            "is on no branch, tag or remote",
        ),
        (site.ran("git worktree lock --reason 'hands off' .", "completed"), "it is locked: hands off"),
        (sleeper.clone(), "is in it, or has a file of it open"),
    ];
    let sleep = Sleeper::in_folder(&site.worktree(&sleeper));
    let pruned = site.prune();
    assert!(
        pruned.err.contains("removed 5 conversations and worktrees of tasks that are gone"),
        "{pruned:?}"
    );
    for id in &clean {
        assert!(!site.worktree(id).exists(), "{id}");
    }
    assert_eq!(site.registered(), with_work.len());
    assert_eq!(site.sh("git -C repo log -1 --format=%s kept").out.trim(), "kept", "its branch stays");
    let found = site.json(&["doctor"]);
    for (id, why) in &with_work {
        let path = site.worktree(id).display().to_string();
        let one = found.as_array().expect("a list").iter().find(|finding| {
            finding["code"] == "leftover-kept"
                && finding["sentence"].as_str().is_some_and(|text| text.starts_with(&path))
        });
        let one = one.unwrap_or_else(|| panic!("{path} is not in {found}"));
        assert!(one["sentence"].as_str().is_some_and(|text| text.contains(why)), "{one}");
        let advice = one["advice"].as_str().expect("an advice");
        assert!(advice.contains(&format!("git -C {path} status")), "{advice}");
        assert!(advice.contains(&format!("git worktree remove --force {path}")), "{advice}");
    }
    drop(sleep);
    // What was committed by hand is clean now. A node that starts removes it.
    let saved = site.worktree(&with_work[0].0);
    let script = format!("cd {} && git add . && {GIT} commit -qm saved && git tag saved", saved.display());
    assert_eq!(site.sh(&script).code, Some(0));
    drop(node);
    let _node = site.up();
    until("they are removed", || (site.registered() == with_work.len() - 2).then_some(()));
    assert!(!saved.exists() && !site.worktree(&sleeper).exists());
}

#[test]
fn a_stash_keeps_the_worktree() {
    let site = Site::new("worktrees = \"repo\"");
    let _node = site.up();
    let id = site.ran(&format!("echo x >>tracked && {GIT} stash -q"), "completed");
    site.prune();
    assert!(site.worktree(&id).exists());
    let found = site.done(&["doctor"]);
    assert!(found.contains("a stash was made at a commit that it was at"), "{found}");
    assert_eq!(site.sh("git -C repo stash drop -q").code, Some(0));
    site.prune();
    assert!(!site.worktree(&id).exists());
}

#[test]
fn what_an_agent_writes_into_its_worktree_leads_git_nowhere_else() {
    let site = Site::new("worktrees = \"repo\"");
    let _node = site.up();
    let ran = site.folder().join("ran");
    // A repository whose config runs a program whenever git looks at it.
    let script = format!(
        "git init -q .evil && git --git-dir=.evil/.git config core.fsmonitor 'touch {}' && echo gitdir: .evil/.git >.git",
        ran.display()
    );
    let id = site.ran(&script, "completed");
    site.prune();
    site.done(&["doctor"]);
    assert!(!ran.exists());
    assert!(site.worktree(&id).exists(), "what is in it is not tracked");
}

#[test]
fn worktrees_of_another_store_are_left_alone() {
    let site = Site::new("worktrees = \"repo\"");
    let other = Site(Place::new());
    other.configure(&format!("worktrees = \"{}\"", site.folder().join("repo").display()));
    let mut up = other.0.command(["up"]);
    up.env("HOME", site.folder());
    let others = Running::start(up);
    assert!(others.line().contains("ready"));
    let theirs = other.ran("true", "completed");
    let _node = site.up();
    let ours = site.ran("true", "completed");
    site.prune();
    assert!(!site.worktree(&ours).exists());
    assert!(site.worktree(&theirs).exists(), "only its own store knows whether its task is gone");
    let found = site.done(&["doctor"]);
    assert!(!found.contains(&theirs), "{found}");
}
