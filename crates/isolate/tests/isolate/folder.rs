//! The folder of functions: kinds, imports, and files that change.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ostler_isolate::{
    Bridge, Engine, FunctionEnd, FunctionFault, FunctionFolder, FunctionLimits, FunctionSource, Isolate,
    Reuse,
};
use tempfile::TempDir;

use crate::desk::{Desk, Output, call, worker};
use crate::engines::tested;

on_each_engine!(
    a_kind_is_a_file_and_imports_its_neighbours,
    modules_import_each_other_in_a_circle,
    imports_stay_in_the_folder,
    a_changed_file_is_seen_by_the_next_call,
    each_call_comes_from_one_version,
    a_file_that_is_always_being_replaced_is_served,
    files_that_change_while_they_are_read_are_read_again,
);

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> (TempDir, FunctionFolder) {
    let dir = tempfile::tempdir().expect("a folder can be made");
    for (name, text) in files {
        let path = dir.path().join("functions").join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }
    let opened = FunctionFolder::open(dir.path().join("functions")).expect("it can be opened");
    (dir, opened)
}

fn run(source: &FunctionSource) -> Output {
    worker(FunctionLimits::default(), Reuse::Fresh).run(source, call("null", &Rc::new(Desk::default())))
}

fn engine() -> Box<dyn Engine> {
    tested().engine()
}

/// Replaces a file as an editor or a deployment does.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("a file can be written");
    fs::rename(new, path).expect("a file can be renamed");
}

fn a_kind_is_a_file_and_imports_its_neighbours() {
    let (_dir, mut folder) = folder(&[
        (
            "resize.js",
            "import { half } from './lib/half.mjs'; import sizes from './sizes.json' with { type: 'json' }; \
                       export default () => [half(sizes.big), Object.keys(sizes), typeof sizes.x]",
        ),
        ("lib/half.mjs", "import two from '../two.js'; export const half = (n) => n / two"),
        ("two.js", "export default 2"),
        ("sizes.json", r#"{"big":10,"__proto__":{"x":1}}"#),
        (".hidden.js", ""),
        ("notes.txt", ""),
    ]);
    assert_eq!(folder.kinds().expect("it can be read"), ["resize", "two"]);
    let source = folder.function("resize", &*engine()).expect("it can be read");
    assert_eq!(run(&source), Ok(Some(r#"[5,["big","__proto__"],"undefined"]"#.to_owned())));
    for kind in ["none", "", "../resize", "lib/half", "/etc/passwd", ".hidden"] {
        assert_eq!(folder.function(kind, &*engine()).unwrap_err(), FunctionFault::Missing(kind.to_owned()));
    }
}

fn modules_import_each_other_in_a_circle() {
    let (_dir, mut folder) = folder(&[
        ("a.js", "import { b } from './b.js'; export const a = 1; export default () => b()"),
        ("b.js", "import { a } from './a.js'; export const b = () => a + 1"),
    ]);
    let source = folder.function("a", &*engine()).expect("it can be read");
    assert_eq!(run(&source), Ok(Some("2".to_owned())));
}

fn imports_stay_in_the_folder() {
    let (dir, mut folder) = folder(&[
        ("up.js", "import x from '../secret.json'; export default () => x"),
        ("link.js", "import x from './out.json'; export default () => x"),
        ("linked_folder.js", "import x from './away/secret.json'; export default () => x"),
        ("inside.js", "import x from './in.json'; export default () => x"),
        ("url.js", "import x from 'https://example.org/x.js'; export default x"),
        ("gone.js", "import './none.js'; export default 1"),
        ("here.json", "7"),
        ("broken.js", "import './bad.json'; export default 1"),
        ("bad.json", "{"),
        ("syntax.js", "import './syntax_lib.js'; export default 1"),
        ("syntax_lib.js", "export const = 1"),
    ]);
    fs::write(dir.path().join("secret.json"), "1").expect("a file can be written");
    let functions = dir.path().join("functions");
    symlink("../secret.json", functions.join("out.json")).expect("a link can be made");
    symlink("..", functions.join("away")).expect("a link can be made");
    symlink("here.json", functions.join("in.json")).expect("a link can be made");
    symlink(functions.join("../secret.json"), functions.join("entry.js")).expect("a link can be made");
    for (kind, words) in [
        ("up", "leads out"),
        ("link", "out.json"),
        ("linked_folder", "away/secret.json"),
        ("url", "begin with ./"),
        ("gone", "none.js"),
        ("broken", "bad.json is not JSON"),
        ("syntax", "syntax_lib.js:1"),
        ("entry", "entry.js"),
    ] {
        match folder.function(kind, &*engine()) {
            Err(FunctionFault::Module(message)) => assert!(message.contains(words), "{kind}: {message}"),
            other => panic!("{kind}: {other:?}"),
        }
    }
    let source = folder.function("inside", &*engine()).expect("the link stays inside");
    assert_eq!(run(&source), Ok(Some("7".to_owned())));
}

fn a_changed_file_is_seen_by_the_next_call() {
    let (dir, mut folder) =
        folder(&[("f.js", "import n from './n.js'; export default () => n"), ("n.js", "export default 1")]);
    let functions = dir.path().join("functions");
    let first = folder.function("f", &*engine()).expect("it can be read");
    let again = folder.function("f", &*engine()).expect("it can be read");
    assert_eq!(first.hash(), again.hash());
    replace(&functions.join("n.js"), "export default 2");
    let changed = folder.function("f", &*engine()).expect("it can be read");
    assert_eq!((run(&first), run(&changed)), (Ok(Some("1".to_owned())), Ok(Some("2".to_owned()))));
    // Written in place, with the same size, and within the resolution of timestamps.
    for n in 3..9 {
        fs::write(functions.join("n.js"), format!("export default {n}")).expect("a file can be written");
        let changed = folder.function("f", &*engine()).expect("it can be read");
        assert_eq!(run(&changed), Ok(Some(n.to_string())));
    }
    replace(&functions.join("n.js"), "export default (");
    assert!(
        matches!(folder.function("f", &*engine()), Err(FunctionFault::Module(_))),
        "an old version is not served"
    );
    fs::remove_file(functions.join("f.js")).expect("a file can be removed");
    assert_eq!(folder.function("f", &*engine()).unwrap_err(), FunctionFault::Missing("f".to_owned()));
}

fn each_call_comes_from_one_version() {
    let version = |n: usize| {
        format!("const v = {n}; {} export default () => v === {n} ? v : -1", "/* x */".repeat(500))
    };
    let (dir, mut folder) = folder(&[("f.js", &version(0))]);
    let path = dir.path().join("functions/f.js");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=50 {
                replace(&path, &version(n));
                thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        let mut last = 0;
        loop {
            let ended = done.load(Ordering::Acquire);
            let source = folder.function("f", &*engine()).expect("every version is whole");
            let output = run(&source).expect("it returns").expect("a number");
            let seen: usize = output.parse().expect("never a mixture of two versions");
            assert!(seen >= last, "an older version after a newer one");
            last = seen;
            if ended {
                break;
            }
        }
        assert_eq!(last, 50, "the last version is seen");
    });
}

/// An engine during whose every reading of a function its only file is replaced.
struct Deployer(std::path::PathBuf);

impl Engine for Deployer {
    fn imports(&self, name: &str, source: &str) -> Result<Vec<String>, String> {
        replace(&self.0, source);
        engine().imports(name, source)
    }

    fn isolate(&self, bridge: Rc<Bridge>) -> Result<Box<dyn Isolate>, FunctionEnd> {
        engine().isolate(bridge)
    }
}

fn a_file_that_is_always_being_replaced_is_served() {
    let (dir, mut folder) = folder(&[("f.js", "export default () => 'whole'")]);
    let deployer = Deployer(dir.path().join("functions/f.js"));
    let source = folder.function("f", &deployer).expect("each version is whole");
    assert_eq!(run(&source), Ok(Some(r#""whole""#.to_owned())));
}

/// An engine that changes the files of a function while it is read, once.
struct Meddler {
    functions: std::path::PathBuf,
    done: std::cell::Cell<bool>,
}

impl Engine for Meddler {
    fn imports(&self, name: &str, source: &str) -> Result<Vec<String>, String> {
        if name == "f.js" && !self.done.replace(true) {
            replace(&self.functions.join("f.js"), "import n from './n.js'; export default () => ['new', n]");
            replace(&self.functions.join("n.js"), "export default 'new'");
        }
        engine().imports(name, source)
    }

    fn isolate(&self, bridge: Rc<Bridge>) -> Result<Box<dyn Isolate>, FunctionEnd> {
        engine().isolate(bridge)
    }
}

fn files_that_change_while_they_are_read_are_read_again() {
    let (dir, mut folder) = folder(&[
        ("f.js", "import n from './n.js'; export default () => ['old', n]"),
        ("n.js", "export default 'old'"),
    ]);
    let meddler = Meddler { functions: dir.path().join("functions"), done: false.into() };
    let source = folder.function("f", &meddler).expect("it can be read");
    assert_eq!(run(&source), Ok(Some(r#"["new","new"]"#.to_owned())), "not a mixture");
}
