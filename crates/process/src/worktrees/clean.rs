//! Whether a worktree can be removed without losing work: nothing uncommitted, no commit that only it reaches, no process in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::git::{Git, GitError};
use super::is_folder;

/// How long git may take for the state of a worktree.
const MAX_LOOK: Duration = Duration::from_secs(60);
/// Entries of the history of HEAD that are looked at.
const MAX_HISTORY: &str = "--max-count=1000";
/// Operations of git that may have stopped half-way, by the files that they leave.
const OPERATIONS: [(&str, &str); 6] = [
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisection"),
];

/// Why a worktree must stay; `None`: it is clean. `admin` is where its repository keeps what it knows of it.
pub(super) fn work_in(path: &Path, admin: &Path) -> Option<String> {
    if let Ok(why) = std::fs::read_to_string(admin.join("locked")) {
        let why = why.trim();
        return Some(if why.is_empty() { "it is locked".to_owned() } else { format!("it is locked: {why}") });
    }
    let stopped = OPERATIONS.iter().find(|(file, _)| admin.join(file).exists());
    if let Some((_, operation)) = stopped {
        return Some(format!("{operation} in it is not finished"));
    }
    if is_folder(&admin.join("modules")) {
        return Some("it has submodules".to_owned());
    }
    let git = Git::of_worktree(admin, path).within(MAX_LOOK);
    let found = changes(&git).transpose().or_else(|| commits(&git).transpose());
    let found = found.or_else(|| stashes(&git).transpose()).transpose();
    match found {
        Ok(Some(work)) => Some(work),
        Ok(None) => user_of(path),
        Err(error) => Some(format!("its state is not known: {error}")),
    }
}

/// Changes that are not committed, and files that are neither tracked nor ignored.
fn changes(git: &Git) -> Result<Option<String>, GitError> {
    let words = ["status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=none"];
    let answer = git.run(&words)?;
    let mut changed = answer.split('\0').filter(|line| line.len() > 3);
    let Some(first) = changed.next() else { return Ok(None) };
    let (code, name) = first.split_at(3);
    let more = match changed.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let what = if code.starts_with("??") { "a file is not tracked" } else { "a change is not committed" };
    Ok(Some(format!("{what}: {name}{more}")))
}

/// Commits that no branch, tag or remote-tracking branch reaches: HEAD, and those that were left by a checkout or a reset.
fn commits(git: &Git) -> Result<Option<String>, GitError> {
    let mut tips = vec![git.commit("HEAD")?];
    let history = git.run(&["log", "--walk-reflogs", MAX_HISTORY, "--format=%H %gs", "HEAD"])?;
    let entries: Vec<(&str, &str)> = history.lines().filter_map(|line| line.split_once(' ')).collect();
    // What an amendment or a rebase replaced is not missed; what HEAD simply moved away from may be.
    let left = |what: &str| what.starts_with("checkout: ") || what.starts_with("reset: ");
    tips.extend(entries.windows(2).filter(|pair| left(pair[0].1)).map(|pair| pair[1].0.to_owned()));
    tips.sort_unstable();
    tips.dedup();
    let fixed = ["rev-list", "--max-count=1"].into_iter().chain(tips.iter().map(String::as_str));
    let words: Vec<&str> = fixed.chain(["--not", "--branches", "--tags", "--remotes"]).collect();
    let found = git.run(&words)?;
    let found = found.trim();
    Ok((!found.is_empty())
        .then(|| format!("commit {} is on no branch, tag or remote", found.get(..12).unwrap_or(found))))
}

/// Stashes that were made on a detached HEAD, at a commit that HEAD was at here. All worktrees of a repository share their stashes, so
/// nothing says more about where one was made.
fn stashes(git: &Git) -> Result<Option<String>, GitError> {
    let known = git.run(&["for-each-ref", "--count=1", "refs/stash"])?;
    if known.trim().is_empty() {
        return Ok(None);
    }
    let history = git.run(&["log", "--walk-reflogs", MAX_HISTORY, "--format=%H", "HEAD"])?;
    let stashes = git.run(&["log", "--walk-reflogs", MAX_HISTORY, "--format=%P %gs", "refs/stash"])?;
    let here = stashes.lines().find(|line| {
        let base = line.split(' ').next().unwrap_or_default();
        line.contains("(no branch)") && history.lines().any(|commit| commit == base)
    });
    Ok(here.map(|_| "a stash was made at a commit that it was at".to_owned()))
}

/// A process whose working directory, or an open file, is in the folder. Processes of other users cannot be looked at.
fn user_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let is_in = |link: &Path| std::fs::read_link(link).is_ok_and(|target| target.starts_with(&path));
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = processes.filter(|entry| entry.file_name().to_str().is_some_and(is_number));
    for process in pids.map(|entry| entry.path()) {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
        let mut files = files.map(|entry| entry.path());
        if is_in(&process.join("cwd")) || files.any(|file| is_in(&file)) {
            let pid = process.file_name().map(PathBuf::from).unwrap_or_default();
            return Some(format!("process {} is in it, or has a file of it open", pid.display()));
        }
    }
    None
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}
