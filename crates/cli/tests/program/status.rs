//! `ostler status`: one screen.

use crate::ostler::{Place, Running, ran};
use crate::workers::until;

const CONFIG: &str = "store = \"sqlite:jobs.db\"\nname = \"vm\"\n[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\n";

fn status(place: &Place) -> crate::ostler::Ran {
    ran(place.bare().arg("status"))
}

#[test]
fn one_screen_has_the_store_and_the_config_in_use_nodes_queues_running_work_and_what_is_wrong() {
    let place = Place::new();
    place.write("ostler.toml", CONFIG);
    let store = place.folder().join("jobs.db");
    let before = status(&place);
    assert_eq!(before.code, Some(3), "{before:?}");
    assert!(before.out.contains(&format!("store     {} (by the config)\n", store.display())), "{before:?}");
    assert!(!store.exists(), "it only looks");

    let mut command = place.bare();
    command.arg("up");
    let node = Running::start(command);
    node.line();
    let script = format!("until test -e {}; do sleep 0.05; done", place.folder().join("end").display());
    let payload = serde_json::json!(script).to_string();
    let submitted = ran(place.bare().args(["submit", "shell", "wait", "--payload", &payload]));
    let up = until("it runs", || {
        let up = status(&place);
        (up.out.contains("running") && up.code == Some(0)).then_some(up.out)
    });
    let config = place.folder().join("ostler.toml");
    for words in [
        &format!("ostler    {}\n", env!("CARGO_PKG_VERSION")),
        &format!("store     {} (by the config)\n", store.display()),
        &format!("config    {}\n", config.display()),
        "nodes     vm, process ",
        "QUEUE  QUEUED  RUNNING",
        submitted.out.trim(),
        "until test -e",
    ] {
        assert!(up.contains(words), "{words}: {up}");
    }
    let problem = ran(place.bare().args(["submit", "shel", "run"]));
    assert_eq!(problem.code, Some(0));
    let wrong = status(&place);
    assert!(wrong.out.contains("error  No running node serves queue \"shel\""), "{wrong:?}");
    place.write("end", "");
    drop(node);
}

#[test]
fn as_json_it_says_what_named_the_store() {
    let place = Place::new();
    place.done(["submit", "shell", "run"]);
    let status = place.json(["status"]);
    let fields: Vec<&String> = status.as_object().expect("an object").keys().collect();
    assert_eq!(
        fields,
        ["config", "nodes", "problems", "queues", "running", "store", "store_from", "version"]
    );
    assert_eq!((&status["store_from"], &status["config"]), (&"environment".into(), &serde_json::Value::Null));
    assert_eq!(status["problems"][0]["code"], "no-node");
    assert_eq!(status["queues"][0]["tasks"]["queued"], 1);
}
