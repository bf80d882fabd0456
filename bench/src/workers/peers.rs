//! Peers of the workers: installed by name into their own folder, kept there for the next run, and run as programs that print their
//! results.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Figures, programs};
use crate::Error;

/// The packages to install.
const PYTHON_PACKAGE: &str = "loky";
const JS_PACKAGE: &str = "piscina";

/// The installed peers.
#[derive(Default)]
pub(super) struct Peers {
    /// A Python with the peers installed.
    python: Option<PathBuf>,
    /// A folder with the npm packages.
    js: Option<PathBuf>,
}

impl Peers {
    /// Installs missing peers. Prints and leaves out those that cannot be installed.
    pub(super) fn set_up(under: &Path) -> Self {
        let folder = under.join("bench-peers");
        let left_out = |what: &str, error: Error| eprintln!("bench: {what} is left out: {error}");
        let python = python(&folder).map_err(|error| left_out(PYTHON_PACKAGE, error)).ok();
        let js = npm_package(&folder, JS_PACKAGE).map_err(|error| left_out(JS_PACKAGE, error)).ok();
        Self { python, js }
    }

    /// Measures a pool of Python processes.
    pub(super) fn python(&self, name: &str, calls: u32, workers: u32) -> Result<Option<Figures>, Error> {
        let Some(python) = &self.python else { return Ok(None) };
        let mut command = Command::new(python);
        command.arg(programs().join("pools.py")).arg(name);
        figures(command, calls, workers).map(Some)
    }

    /// Measures a pool of Node.js threads.
    pub(super) fn piscina(&self, calls: u32, workers: u32) -> Result<Option<Figures>, Error> {
        let Some(js) = &self.js else { return Ok(None) };
        let mut command = Command::new("node");
        command.arg(programs().join("piscina.mjs")).arg(js);
        figures(command, calls, workers).map(Some)
    }
}

fn python(folder: &Path) -> Result<PathBuf, Error> {
    let home = folder.join("python");
    let python = home.join("bin/python");
    if !python.exists() {
        carry_out(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    }
    if carry_out(Command::new(&python).args(["-c", "import loky"])).is_err() {
        carry_out(Command::new(&python).args(["-m", "pip", "install", "--quiet", PYTHON_PACKAGE]))?;
    }
    Ok(python)
}

/// The folder that has a package of npm, which is installed if it is missing.
pub(crate) fn npm_package(folder: &Path, name: &str) -> Result<PathBuf, Error> {
    let home = std::path::absolute(folder.join("js"))?;
    if !home.join("node_modules").join(name).exists() {
        std::fs::create_dir_all(&home)?;
        let manifest = home.join("package.json");
        if !manifest.exists() {
            std::fs::write(manifest, "{\"private\":true}\n")?;
        }
        carry_out(Command::new("npm").args(["install", "--silent", "--no-audit", name]).current_dir(&home))?;
    }
    Ok(home)
}

fn figures(mut command: Command, calls: u32, workers: u32) -> Result<Figures, Error> {
    let said = carry_out(command.arg(calls.to_string()).arg(workers.to_string()))?;
    let said: Value = serde_json::from_str(&said)?;
    let number = |name: &str| said[name].as_f64().ok_or_else(|| format!("it did not say {name}"));
    Ok(Figures {
        version: said["version"].as_str().map(ToOwned::to_owned),
        p50_us: Some(number("p50_us")?),
        per_second: number("per_second")?,
    })
}

/// The output of a command.
pub(crate) fn carry_out(command: &mut Command) -> Result<String, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        return Err(format!("{name} failed: {}", why.trim()).into());
    }
    Ok(String::from_utf8(done.stdout)?)
}
