//! From a subfolder, the config of the project is found, and its paths are those of its own folder.

use std::process::Command;

use crate::ostler::{Place, Ran, Running, Terminal, ran};

const CONFIG: &str = "store = \"sqlite:jobs.db\"\n[pool.shell]\nexecutor = \"command\"\ncommand = [\"./tool\", \"{{ payload }}\"]\n";

/// A project with a config, and a program that a pool names by a relative path.
fn project() -> Place {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    place.write("ostler.toml", CONFIG);
    let tool = place.write("tool", "#!/bin/sh\necho \"tool says $1\"\n");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    std::fs::create_dir_all(place.folder().join("src/deep")).expect("folders");
    place
}

/// The program in a folder of the project, without a variable that names a store.
fn below(place: &Place, folder: &str, words: &[&str]) -> Command {
    let mut command = place.bare();
    command.args(words).current_dir(place.folder().join(folder)).env("HOME", place.folder());
    command
}

fn run(place: &Place, words: &[&str]) -> Ran {
    ran(&mut below(place, "src/deep", words))
}

#[test]
fn a_node_and_its_users_in_subfolders_share_the_store_of_the_project() {
    let place = project();
    let node = Running::start(below(&place, "src/deep", &["up"]));
    node.line();
    let here = ran(&mut below(&place, "", &["submit", "shell", "run", "--payload", "\"here\"", "--wait"]));
    assert_eq!((here.code, here.out.as_str()), (Some(0), "\"tool says here\"\n"), "{here:?}");
    let deep = run(&place, &["submit", "shell", "run", "--payload", "\"deep\"", "--wait"]);
    assert_eq!((deep.code, deep.out.as_str()), (Some(0), "\"tool says deep\"\n"), "{deep:?}");
    assert!(place.folder().join("jobs.db").exists() && !place.folder().join("src/deep/jobs.db").exists());
    let checked = run(&place, &["config", "--check"]);
    let file = place.folder().join("ostler.toml");
    assert_eq!(checked.out, format!("{}: OK (pools: shell)\n", file.display()), "{checked:?}");
    let status: serde_json::Value = run(&place, &["status", "--json"]).json();
    assert_eq!(status["config"], file.display().to_string());
    assert_eq!(status["store"], place.folder().join("jobs.db").display().to_string());
    let found = run(&place, &["doctor"]);
    assert!(found.code == Some(0) && !found.out.contains("program"), "{found:?}");
    drop(node);
}

#[test]
fn the_config_above_is_named_once_on_a_terminal_and_not_elsewhere() {
    let place = project();
    let using = format!("ostler: using {}", place.folder().join("ostler.toml").display());
    let piped = run(&place, &["submit", "shell", "run"]);
    assert!(!piped.err.contains("using"), "{piped:?}");
    for (folder, times) in [("src/deep", 1), ("", 0)] {
        let terminal = Terminal::open();
        let mut command = below(&place, folder, &["submit", "shell", "run"]);
        let mut child = command.stdout(terminal.end()).stderr(terminal.end()).spawn().expect("it starts");
        drop(command);
        let shown = terminal.screen();
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{shown}");
        assert_eq!(shown.matches(&using).count(), times, "{folder}: {shown}");
    }
}

#[test]
fn a_store_that_is_named_is_relative_to_the_folder_of_the_caller() {
    let place = project();
    let node = Running::start(below(&place, "src", &["up", "--store", "sqlite:other.db"]));
    node.line();
    assert!(place.folder().join("src/other.db").exists() && !place.folder().join("other.db").exists());
    drop(node);
}

#[test]
fn the_search_ends_at_the_home_folder() {
    let place = project();
    let words = ["up"];
    let mut command = below(&place, "src/deep", &words);
    command.env("HOME", place.folder().join("src"));
    ran(&mut command).is_refused(2, "no ostler.toml here or in a folder above");
}
