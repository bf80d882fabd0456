//! The first contact with agents: what the demo says of them, and what `ostler map --agent` says where none can work.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::ostler::{Place, Ran, ran};

/// A folder that is the whole PATH, with links to these programs of the system.
fn path_with(place: &Place, programs: &[&str]) -> PathBuf {
    let bin = place.folder().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    for program in programs {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found =
            std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.exists());
        std::os::unix::fs::symlink(found.expect("the system has it"), bin.join(program)).expect("a link");
    }
    bin
}

/// Puts an agent on that path.
fn install(place: &Place, name: &str, script: &str) {
    let file = path_with(place, &[]).join(name);
    std::fs::write(&file, script).expect("a script");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// Runs the program where only these are on the PATH, and the home folder is empty.
fn run(place: &Place, words: &[&str]) -> Ran {
    let mut command = place.command(words);
    command.env("PATH", place.folder().join("bin")).env("HOME", place.folder().join("home"));
    ran(&mut command)
}

fn refused(place: &Place, words: &[&str], sentence: &str) {
    let ran = run(place, words);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    assert_eq!(ran.err.trim_end(), format!("ostler: {sentence}"));
    assert!(!place.store().exists(), "a refusal makes no store");
}

#[test]
fn the_demo_ends_with_what_to_install_where_no_agent_is() {
    let place = Place::new();
    path_with(&place, &["sh", "sleep"]);
    let ran = run(&place, &["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let last: Vec<&str> = ran.out.lines().rev().take(2).collect();
    assert_eq!(
        last,
        [
            "  ostler map --agent claude --pilot --prompt 'Summarize {{ file }} in one sentence.' --files '*.md'",
            "No agent is on the PATH. Install Claude Code (the package @anthropic-ai/claude-code) or Codex (the package \
             @openai/codex), log in, and let it read your files:",
        ]
    );
}

#[test]
fn the_demo_ends_with_a_line_for_the_agent_that_is_here() {
    let place = Place::new();
    path_with(&place, &["sh", "sleep"]);
    install(&place, "codex", "#!/bin/sh\n");
    let ran = run(&place, &["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("codex is here.") && ran.out.contains("\n  ostler map --agent codex "),
        "{ran:?}"
    );
}

#[test]
fn an_agent_that_is_missing_misspelled_or_not_logged_in_is_refused_before_anything_is_stored() {
    let place = Place::new();
    path_with(&place, &[]);
    let words = |agent| ["map", "--agent", agent, "--prompt", "Explain", ":::", "x"];
    refused(
        &place,
        &words("claude"),
        "--agent claude: `claude` is not installed, or not on the PATH: install Claude Code (the package \
         @anthropic-ai/claude-code); see docs/guide/agents.md",
    );
    refused(&place, &words("clod"), "--agent clod: no such agent; did you mean \"claude\"?");
    refused(
        &place,
        &words("parrot"),
        "--agent parrot: no such agent; there are claude, codex, codex-exec, gemini, opencode",
    );
    refused(
        &place,
        &words("command"),
        "--agent command: a program of your own needs a pool in ostler.toml, and --pool; see docs/guide/agents.md",
    );
    install(&place, "claude", "#!/bin/sh\necho '2.1.325 (Claude Code)'\n");
    refused(
        &place,
        &words("claude"),
        "--agent claude: `claude` has no login: run it and log in, or set ANTHROPIC_API_KEY (there is no \
         ~/.claude/.credentials.json); see docs/guide/agents.md",
    );
}
