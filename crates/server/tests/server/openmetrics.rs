//! Reads OpenMetrics text, and the older text format, with the parsers of the Prometheus project, `prometheus_client` for Python, which is strict about names, types,
//! units and order. Needs the package registry, once.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The version of the parser.
const PARSER: &str = "prometheus-client==0.26.0";
/// The modules of its two parsers.
const OPEN: &str = "prometheus_client.openmetrics.parser";
const PLAIN: &str = "prometheus_client.parser";
const READ: &str = "
import importlib, json, sys
text_string_to_metric_families = importlib.import_module(sys.argv[1]).text_string_to_metric_families
print(json.dumps([
    {'name': f.name, 'type': f.type, 'unit': f.unit, 'help': f.documentation,
     'samples': [{'name': s.name, 'labels': s.labels, 'value': s.value} for s in f.samples]}
    for f in text_string_to_metric_families(sys.stdin.read())]))
";

/// A Python that has the parser.
fn python() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openmetrics");
        let python = folder.join("bin/python");
        let works = || {
            Command::new(&python)
                .args(["-c", "import prometheus_client"])
                .status()
                .is_ok_and(|is| is.success())
        };
        if !works() {
            let run = |program: &Path, args: &[&str]| {
                let done = Command::new(program).args(args).output().expect("it can be run");
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            };
            let place = folder.to_str().expect("the path is text");
            run(Path::new("python3"), &["-m", "venv", "--clear", place]);
            run(&folder.join("bin/pip"), &["install", "--quiet", "--disable-pip-version-check", PARSER]);
        }
        python
    })
}

/// What a scrape has.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) families: Vec<Value>,
}

impl Scrape {
    /// Reads OpenMetrics text, or says what is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        Self::by(OPEN, text)
    }

    /// Reads the older text format.
    pub(crate) fn read_plain(text: &str) -> Result<Self, String> {
        Self::by(PLAIN, text)
    }

    fn by(parser: &str, text: &str) -> Result<Self, String> {
        let mut child = Command::new(python())
            .args(["-c", READ, parser])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it is read");
        let done = child.wait_with_output().expect("it ends");
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        Ok(Self { families: serde_json::from_slice(&done.stdout).expect("it prints JSON") })
    }

    fn samples(&self) -> impl Iterator<Item = &Value> {
        self.families.iter().flat_map(|family| family["samples"].as_array().expect("a list"))
    }

    /// All samples, as sorted lines.
    pub(crate) fn lines(&self) -> BTreeSet<String> {
        self.samples().map(Value::to_string).collect()
    }

    /// The names of all samples.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.samples().map(|sample| sample["name"].as_str().expect("a name")).collect()
    }

    pub(crate) fn series(&self) -> usize {
        self.samples().count()
    }

    /// The values of a label, in all samples.
    pub(crate) fn labels(&self, label: &str) -> BTreeSet<&str> {
        self.samples().filter_map(|sample| sample["labels"][label].as_str()).collect()
    }

    /// The sum of the samples with this name and these labels; `None`: there is none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let is_meant = |sample: &&Value| {
            sample["name"] == name && labels.iter().all(|(label, value)| sample["labels"][label] == *value)
        };
        let found = self.samples().filter(is_meant).map(|sample| sample["value"].as_f64().expect("a number"));
        found.reduce(|one, other| one + other)
    }
}
