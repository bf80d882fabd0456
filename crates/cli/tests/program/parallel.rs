//! `ostler map` as users of GNU parallel know it: several sources of items, tags, shells, results, and signals.

use std::path::Path;
use std::process::Command;

use ostler_testkit::ProcessSignal;

use crate::map::times;
use crate::ostler::{Place, Running};
use crate::up::appears;

#[test]
fn a_closed_terminal_is_an_interrupt_unless_it_is_to_be_survived() {
    let place = Place::new();
    let script =
        "echo $$ > pid; echo > begun-{}; until test -e go-{}; do sleep 0.1; done; echo done > end-{}";
    let running = Running::start(place.command(["map", script, ":::", "a"]));
    appears(&place.folder().join("begun-a"));
    running.signal(ProcessSignal::HUP);
    assert_eq!(running.end().0, Some(130));
    assert!(!place.folder().join("end-a").exists());
    let pid = times(&place.folder().join("pid"))[0].clone();
    assert!(!Path::new("/proc").join(&pid).join("exe").exists(), "{pid} is still there");

    let ostler = place.command(["map", script, ":::", "b"]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(ostler.get_program()).args(ostler.get_args());
    command.envs(ostler.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(ostler.get_current_dir().expect("a folder"));
    let running = Running::start(command);
    appears(&place.folder().join("begun-b"));
    running.signal(ProcessSignal::HUP);
    place.write("go-b", "");
    assert_eq!(running.end().0, Some(0));
}
