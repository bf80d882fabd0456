//! `ostler up --watch`: workers are restarted when their files change.

use std::path::Path;

use crate::ostler::{Place, Running};

/// A worker whose handler returns this.
fn worker(place: &Place, returned: &str) {
    let text = format!(
        "from ostler import worker\n\n@worker.task('k')\ndef k(payload, ctx):\n    return {returned}\n\nworker.run()\n"
    );
    place.write("tasks.py", text);
}

#[test]
fn workers_run_the_new_code_after_a_file_of_theirs_has_changed() {
    let place = Place::new();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python").canonicalize().expect("the SDK");
    let config = format!(
        "[pool.docs]\nexecutor = \"process\"\ncommand = [\"python3\", \"tasks.py\"]\nmin_workers = 1\nmax_workers = 1\n\
         env = {{ PYTHONPATH = \"{}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\n",
        sdk.display()
    );
    place.write("ostler.toml", config);
    worker(&place, "'old'");
    let node = Running::start(place.command(["up", "--watch"]));
    assert!(node.line().contains("ready"));
    let run = || place.done(["submit", "docs", "k", "--wait"]);
    assert_eq!(run(), "\"old\"\n");
    worker(&place, "'much newer'");
    let said = node.says("has changed: restarting workers");
    assert!(said.contains("tasks.py"), "{said}");
    crate::workers::until("the new code", || (run() == "\"much newer\"\n").then_some(()));
}
