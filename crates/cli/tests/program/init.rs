//! `ostler init`.

use crate::ostler::{Place, Running};

#[test]
fn the_starter_is_valid_runs_a_task_and_is_never_overwritten() {
    let place = Place::new();
    let written = place.done(["init"]);
    assert!(written.starts_with("ostler.toml written"), "{written}");
    let text = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("it is there");
    assert!(text.lines().count() <= 15, "{text}");
    assert_eq!(place.done(["config", "--check"]).lines().next(), Some("ostler.toml: OK (pools: shell)"));
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let submitted =
        place.done(["submit", "shell", "run", "--payload", r#"{"script":"echo works"}"#, "--wait"]);
    assert_eq!(submitted, "\"works\"\n");
    place.refused(["init"], 2, "is there already and was not changed");
    assert_eq!(std::fs::read_to_string(place.folder().join("ostler.toml")).ok(), Some(text));
}
