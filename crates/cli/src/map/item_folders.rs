//! A folder or a git worktree for each item of a map job.

use std::path::{Path, PathBuf};

use ostler_config::StoreMark;
use ostler_ops::jobs::{ItemFolders, ItemWorktrees, JobSpec};
use ostler_process::{Folders, Worktrees, children, usual_worktrees};
use serde_json::{Map as JsonMap, Value, json};

use crate::args::Map;
use crate::exit::{Code, refused};

/// The folder of worktrees of commands, beside those of pools: no pool has this name.
const COMMANDS: &str = ".commands";

/// The folders that the options ask for; `folder` is the current one.
pub(crate) fn asked_for(map: &Map, folder: &str) -> anyhow::Result<Option<ItemFolders>> {
    if map.worktree.is_none() && map.folders.is_none() {
        return Ok(None);
    }
    if map.pool.is_some() {
        let sentence = "--worktree and --folders cannot be used with --pool, which has its own settings: \"worktrees\" and \
            \"folders\" in ostler.toml";
        return Err(refused(Code::BadInput, sentence));
    }
    let worktrees = map.worktree.as_deref().map(|base| {
        // Git would take it for an option.
        if base.is_empty() || base.starts_with('-') {
            let sentence = format!("--worktree={base}: this is not the name of a branch, tag or commit");
            return Err(refused(Code::BadInput, sentence));
        }
        Ok(ItemWorktrees { repository: folder.to_owned(), base: base.to_owned() })
    });
    let worktrees = worktrees.transpose()?;
    let parent = match &map.folders {
        Some(folders) => std::path::absolute(folders)?,
        None => usual_worktrees().ok_or_else(|| {
            let sentence = "there is no folder for the worktrees: add --folders DIR, or set one of XDG_STATE_HOME and HOME";
            refused(Code::BadInput, sentence)
        })?,
    };
    let parent = match (&map.agent, &map.folders) {
        (Some(agent), _) => parent.join(children::subfolder(agent)),
        (None, Some(_)) => parent,
        (None, None) => parent.join(COMMANDS),
    };
    Ok(Some(ItemFolders { parent: text(parent)?, worktrees }))
}

fn text(path: PathBuf) -> anyhow::Result<String> {
    path.into_os_string()
        .into_string()
        .map_err(|path| refused(Code::BadInput, format!("the path {} is not UTF-8 text", path.display())))
}

/// Refuses worktrees that cannot be made: without a repository, its base, or git.
pub(crate) fn check(folders: &ItemFolders) -> anyhow::Result<()> {
    match worktrees(folders).and_then(|worktrees| worktrees.fault()) {
        Some(why) => Err(refused(Code::BadInput, format!("--worktree: {why}"))),
        None => Ok(()),
    }
}

/// The keys that the section of a pool has for them.
pub(crate) fn keys(folders: &ItemFolders) -> JsonMap<String, Value> {
    // A pool has a folder of its own in "folders".
    let all = Path::new(&folders.parent).parent().unwrap_or(Path::new("/"));
    let mut keys = JsonMap::from_iter([("folders".to_owned(), json!(all))]);
    if let Some(ItemWorktrees { repository, base }) = &folders.worktrees {
        keys.insert("worktrees".to_owned(), json!({"repository": repository, "base": base}));
    }
    keys
}

/// Where the commands of a job run, unless all of them run in the folder of the job.
pub(crate) fn of_commands(spec: &JobSpec, mark: StoreMark) -> Folders {
    match &spec.item_folders {
        None => Folders::default(),
        Some(folders) => Folders {
            each: Some(PathBuf::from(&folders.parent)),
            worktrees: worktrees(folders),
            mark: Some(mark),
            ..Folders::default()
        },
    }
}

fn worktrees(folders: &ItemFolders) -> Option<Worktrees> {
    let ItemWorktrees { repository, base } = folders.worktrees.clone()?;
    Some(Worktrees { repository: repository.into(), base: Some(base) })
}
