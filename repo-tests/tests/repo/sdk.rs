//! The worker SDKs and the examples: runs their own tests with the real python3 and node, installs them, and checks that
//! copies of the same text agree.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_tests::{root, text};

/// An empty folder for one test, in Cargo's build folder, so that nothing is left in the repository.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an old folder of this test can be removed");
    }
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// Runs a program in a folder, and returns its output.
fn run(folder: &Path, program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
    let program = program.as_ref();
    let shown = program.to_string_lossy();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env_remove("OSTLER_FD")
        .env_remove("NODE_TEST_CONTEXT")
        // Leave no cache files beside the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", if folder.ends_with("sdk/python") { "." } else { "" })
        .output()
        .unwrap_or_else(|error| panic!("this test needs {shown}, which ./test installs on Debian: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
    assert!(
        output.status.success(),
        "{shown} {}: {}\n{stdout}\n{stderr}",
        arguments.join(" "),
        output.status
    );
    stdout + &stderr
}

fn read(path: &str) -> String {
    text(Path::new(path)).unwrap_or_else(|| panic!("{path} is not text"))
}

/// The one line of the file with this prefix, without the prefix.
fn line<'a>(page: &'a str, begins: &str) -> &'a str {
    page.lines()
        .find_map(|line| line.trim().strip_prefix(begins))
        .unwrap_or_else(|| panic!("no line begins with {begins}"))
}

#[test]
fn the_python_sdk_and_the_examples_pass_their_tests() {
    let said = run(&root().join("sdk/python"), "python3", &["-m", "unittest", "discover", "-s", "tests"]);
    assert!(said.trim_end().ends_with("OK"), "not all of them ran:\n{said}");
}

#[test]
fn the_javascript_sdk_passes_its_tests() {
    let files = ["--test", "test/alone.test.mjs", "test/worker.test.mjs"];
    let said = run(&root().join("sdk/js"), "node", &files);
    assert!(said.contains("skipped 0") && said.contains("fail 0"), "not all of them ran:\n{said}");
}

/// Needs the package registry, for the packaging tool.
#[test]
fn the_python_sdk_can_be_installed_with_its_types() {
    let folder = folder("install-python");
    run(&folder, "python3", &["-m", "venv", "."]);
    let source = root().join("sdk/python");
    let source = source.to_str().expect("the path is text");
    run(&folder, folder.join("bin/pip"), &["install", "--quiet", "--disable-pip-version-check", source]);
    let look = "import ostler, pathlib; print(ostler.__version__, pathlib.Path(ostler.__file__).with_name('py.typed').exists())";
    assert_eq!(run(&folder, folder.join("bin/python"), &["-c", look]), "0.1.0 True\n");
}

#[test]
fn the_javascript_sdk_can_be_installed_with_its_types() {
    let source = root().join("sdk/js");
    let source = source.to_str().expect("the path is text");
    // As a link, npm's default for a folder, and as the package that would be published.
    for (name, how) in [("install-js-link", "--install-links=false"), ("install-js-pack", "--install-links")]
    {
        let folder = folder(name);
        fs::write(folder.join("package.json"), "{}").expect("a file can be written");
        let cache = folder.join("cache");
        let cache = format!("--cache={}", cache.display());
        run(&folder, "npm", &["install", "--offline", "--no-audit", "--no-fund", &cache, how, source]);
        fs::write(
            folder.join("look.mjs"),
            "import { worker } from 'ostler'; import { Client } from 'ostler/client'; console.log(typeof worker.run, typeof Client);",
        )
        .expect("a file can be written");
        assert_eq!(run(&folder, "node", &["look.mjs"]), "function function\n");
        assert_eq!(run(&folder, "node", &["-p", "typeof require('ostler').worker.run"]), "function\n");
        for file in [
            "index.d.ts",
            "client.d.ts",
            "testing.d.ts",
            "testing.js",
            "README.md",
            "LICENSE-MIT",
            "LICENSE-APACHE",
        ] {
            assert!(
                folder.join("node_modules/ostler").join(file).exists(),
                "{how}: {file} is not in the package"
            );
        }
    }
}

/// The type checkers of both languages, at fixed versions. They are installed once in a build folder, from the package registry.
fn type_checkers() -> PathBuf {
    const TOOLS: [&str; 2] = ["pyright@1.1.414", "typescript@7.0.2"];
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).join(TOOLS.join("-"));
    let programs = installed.join("node_modules/.bin");
    if !installed.join("done").exists() {
        let folder = folder(&TOOLS.join("-"));
        fs::write(folder.join("package.json"), "{}").expect("a file can be written");
        run(&folder, "npm", &[&["install", "--no-audit", "--no-fund"][..], &TOOLS].concat());
        fs::write(folder.join("done"), "").expect("a file can be written");
    }
    programs
}

#[test]
fn the_types_of_the_sdks_and_of_programs_that_use_them_are_right() {
    let programs = type_checkers();
    let said = run(&root().join("sdk/python"), programs.join("pyright"), &["--project", "."]);
    assert!(said.contains("0 errors, 0 warnings"), "{said}");
    run(&root().join("sdk/js"), programs.join("tsc"), &["--project", "test"]);
}

#[test]
fn the_version_is_that_of_the_program() {
    let version = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(line(&read("sdk/python/ostler/__init__.py"), "__version__ = "), version);
    assert_eq!(line(&read("sdk/js/index.js"), "const VERSION = "), format!("{version};"));
    assert_eq!(line(&read("sdk/js/package.json"), "\"version\": "), format!("{version},"));
}

#[test]
fn the_pages_show_the_examples_as_they_are() {
    for (page, example, language) in [
        ("docs/guide/write-an-sdk.md", "examples/worker.sh", "bash"),
        ("sdk/python/README.md", "examples/worker.py", "python"),
        ("sdk/js/README.md", "examples/worker.mjs", "js"),
    ] {
        let shown = format!("```{language}\n{}\n```", read(example).trim());
        assert!(read(page).contains(&shown), "{page} and {example} differ");
    }
}

/// The code verbatim, and separately the config and the command from its docstring.
#[test]
fn the_readme_shows_the_python_worker_as_it_is() {
    let (readme, example) = (read("README.md"), read("examples/worker.py"));
    let (about, code) = example.split_once("\n\"\"\"\n").expect("the example begins with what it is for");
    let (_, about) = about.split_once("In ostler.toml:").expect("it tells of its config");
    let (config, command) = about.split_once("Then:").expect("and of a command");
    let config: Vec<&str> = config.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for shown in [
        format!("```python\n{}\n```", code.trim()),
        format!("```toml\n{}\n```", config.join("\n")),
        format!("\n{}\n", command.trim()),
    ] {
        assert!(readme.contains(&shown), "README.md does not show what examples/worker.py has:\n{shown}");
    }
}

#[test]
fn each_package_has_the_licences() {
    for sdk in ["sdk/python", "sdk/js"] {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert_eq!(read(&format!("{sdk}/{licence}")), read(licence), "{sdk}/{licence}");
        }
    }
}
