//! Symbolic links that a sandboxed child leaves behind are not followed with more rights than the child's.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ostler_core::{ErrorClass, EventBody, Failure, Outcome};
use ostler_exec::{AttemptResult, Control, Executor as _, Work, event_channel};
use ostler_process::sandbox::Sandbox;
use ostler_process::{Command, CommandPolicy, Folders, PolicyError};

use crate::bench::{failure, run, supervisor, work};
use crate::desk::{Desk, heard, output, policy as workers, task};
use crate::files::recorded;
use crate::sandbox::{Scene, as_unprivileged_user, python, text};

/// A scene with a folder that no child may reach.
fn scene() -> Scene {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.path("closed")).expect("a folder");
    std::fs::write(scene.path("closed/secret"), "secret").expect("a file");
    scene
}

/// The folder of the task in these tests.
fn folder(scene: &Scene) -> PathBuf {
    scene.path("tasks").join(work("1").task.to_string())
}

fn folders(scene: &Scene) -> Folders {
    Folders { each: Some(scene.path("tasks")), ..Folders::default() }
}

fn shell(scene: &Scene, script: &str) -> CommandPolicy {
    CommandPolicy {
        folders: folders(scene),
        files: vec!["*".to_owned()],
        ..scene.shell(scene.sandbox(), script)
    }
}

fn is_about_a_link(failure: &Failure) -> bool {
    failure.class == ErrorClass::Permanent && failure.message.contains("symbolic link")
}

#[tokio::test]
async fn a_worker_that_swaps_its_folder_for_a_link_has_nothing_recorded_by_it() {
    let scene = scene();
    let policy = ostler_process::ProcessPolicy {
        sandbox: Some(scene.sandbox()),
        folders: folders(&scene),
        ..python(workers("well"))
    };
    let desk = Desk::of(policy).await;
    let worker = desk.open().await;
    let how = format!("{{\"target\":{:?},\"file\":\"secret\"}}", scene.text("closed"));
    let (ended, notes) = desk.run(worker, task("swap", &how)).await;
    assert_eq!(ended.outcome, Outcome::Success);
    let received = heard(&notes);
    assert!(
        matches!(&received[..], [EventBody::Warning { text: message }] if message.contains("not recorded")),
        "{received:?}"
    );
    assert!(folder(&scene).join("secret").exists(), "the link is there");
    // The next attempt does not follow it either.
    let refused = failure(desk.run(worker, task("echo", "1")).await.0);
    assert!(is_about_a_link(&refused), "{refused:?}");
    desk.process.close(worker).await;
}

#[test]
fn an_unprivileged_worker_that_swaps_its_folder_for_a_link_has_nothing_recorded_by_it() {
    as_unprivileged_user("links::a_worker_that_swaps_its_folder_for_a_link_has_nothing_recorded_by_it");
}

#[tokio::test]
async fn a_command_is_not_led_by_a_link_in_the_place_of_its_folder() {
    let (supervisor, scene) = (supervisor().await, scene());
    std::fs::create_dir(scene.path("tasks")).expect("a folder");
    symlink(scene.path("closed"), folder(&scene)).expect("a link");
    let script = "cat secret; echo x > made";
    for policy in [shell(&scene, script), CommandPolicy { sandbox: None, ..shell(&scene, script) }] {
        let (ended, notes) = run(&supervisor, policy, work("1")).await;
        let refused = failure(ended);
        assert!(is_about_a_link(&refused), "{refused:?}");
        assert!(heard(&notes).is_empty() && !scene.path("closed/made").exists());
    }
}

#[tokio::test]
async fn a_link_that_is_made_while_a_command_runs_changes_nothing_for_it() {
    let (supervisor, scene) = (supervisor().await, scene());
    // A process with the right to do so replaces the folder by a link before the child writes anything.
    let policy = shell(&scene, "until test -e begin; do sleep 0.01; done; echo x > made; pwd -P");
    let command = Command::new(supervisor.clone(), policy).expect("the policy is right");
    let (sender, notes) = event_channel();
    let running = command.run(work("1"), Control::new(sender));
    let swap = async {
        crate::bench::until("it runs", || folder(&scene).is_dir()).await;
        std::fs::rename(folder(&scene), scene.path("tasks/moved")).expect("it is ours");
        symlink(scene.path("closed"), folder(&scene)).expect("a link");
        std::fs::write(scene.path("tasks/moved/begin"), "").expect("a file");
    };
    // The folder is opened before the child exists.
    let (ended, ()) = tokio::join!(running, swap);
    let (at, moved) = (output(ended), scene.path("tasks/moved").canonicalize().expect("it is there"));
    assert_eq!(at, format!("{moved:?}"));
    let files = recorded(&notes);
    assert_eq!(files, [("begin".to_owned(), 0), ("made".to_owned(), 2)]);
    assert!(!scene.path("closed/made").exists());
}

#[tokio::test]
async fn a_folder_that_a_task_brings_is_led_by_links_only_where_no_child_can_have_made_them() {
    let (supervisor, scene) = (supervisor().await, scene());
    std::fs::create_dir_all(scene.path("open/deep")).expect("a folder");
    symlink(scene.path("open"), scene.path("alias")).expect("a link");
    symlink(scene.path("closed"), scene.path("open/deep/swapped")).expect("a link");
    let at = |name: &str| Work { folder: Some(scene.text(name)), ..work("1") };
    let free = CommandPolicy::new(["pwd", "-P"]);
    let real = |name: &str| format!("{:?}", scene.path(name).canonicalize().expect("it is there"));
    let runs = async |policy: &CommandPolicy, name: &str| run(&supervisor, policy.clone(), at(name)).await.0;

    // In a sandbox, only by its real path: the child may change the folder.
    let confined = CommandPolicy { sandbox: Some(scene.sandbox()), ..free.clone() };
    assert_eq!(output(runs(&confined, "open/deep").await), real("open/deep"));
    for name in ["alias/deep", "open/deep/swapped"] {
        let refused = failure(runs(&confined, name).await);
        assert!(is_about_a_link(&refused), "{refused:?}");
    }
    // Without a sandbox, links are followed, except those that sandboxed children may have made.
    assert_eq!(output(runs(&free, "open/deep/swapped").await), real("closed"));
    let folders = Folders { guarded: vec![scene.path("open")], ..Folders::default() };
    let beside = CommandPolicy { folders, ..free };
    assert_eq!(output(runs(&beside, "alias/deep").await), real("open/deep"));
    for name in ["open/deep/swapped", "alias/deep/swapped"] {
        let refused = failure(runs(&beside, name).await);
        assert!(is_about_a_link(&refused), "{refused:?}");
    }
    let missing = failure(runs(&beside, "no/such").await);
    assert!(
        missing.class == ErrorClass::Permanent && missing.message.contains("No such file"),
        "{missing:?}"
    );
}

#[tokio::test]
async fn what_a_sandbox_lists_is_not_bent_by_what_it_may_change() {
    let (supervisor, scene) = (supervisor().await, scene());
    std::fs::create_dir_all(scene.path("cache/fonts")).expect("a folder");
    std::fs::write(scene.path("cache/fonts/one"), "font").expect("a file");
    symlink(scene.path("cache"), scene.path("current")).expect("a link");
    let sandbox = Sandbox {
        // A link that the administrator made is followed.
        read: vec![scene.path("current/fonts")],
        write: vec![scene.path("cache")],
        ..scene.sandbox()
    };
    let policy = scene
        .shell(sandbox, "cat $1/current/fonts/one; rm -r $1/cache/fonts; ln -s ../closed $1/cache/fonts");
    let command = Command::new(supervisor.clone(), policy.clone()).expect("the policy is right");
    let once = async || -> AttemptResult {
        let (sender, _heard) = event_channel();
        command.run(scene.task(), Control::new(sender)).await
    };
    assert_eq!(output(once().await), "\"font\"");
    let refused = failure(once().await);
    assert!(is_about_a_link(&refused), "{refused:?}");
    let refused = Command::new(supervisor.clone(), policy).expect_err("it is bent");
    assert!(matches!(refused, PolicyError::Sandbox(_)) && refused.to_string().contains("link"), "{refused}");
}

#[tokio::test]
async fn the_folder_of_all_tasks_is_made_again_when_it_was_removed_and_not_when_it_was_replaced() {
    let (supervisor, scene) = (supervisor().await, scene());
    let policy = CommandPolicy { files: Vec::new(), ..shell(&scene, "echo here") };
    assert_eq!(text(&supervisor, policy.clone(), work("1")).await, "\"here\"");
    let command = Command::new(supervisor.clone(), policy).expect("the policy is right");
    let once = async || -> AttemptResult {
        let (sender, _heard) = event_channel();
        command.run(work("1"), Control::new(sender)).await
    };
    assert_eq!(output(once().await), "\"here\"");
    std::fs::remove_dir_all(scene.path("tasks")).expect("it is ours");
    assert_eq!(output(once().await), "\"here\"");
    std::fs::rename(scene.path("tasks"), scene.path("older")).expect("it is ours");
    symlink(scene.path("closed"), scene.path("tasks")).expect("a link");
    let refused = failure(once().await);
    assert!(refused.class == ErrorClass::Transient && refused.message.contains("replaced"), "{refused:?}");
    assert_eq!(std::fs::read_dir(scene.path("closed")).expect("a folder").count(), 1);
}
