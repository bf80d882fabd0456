//! `ostler doctor`: reports problems, each with advice.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use ostler_exec::ThreadEnvironment;
use ostler_process::supervisor::{Contained, Containment};
use ostler_store::SystemClock;
use ostler_wire::system::Severity;

use super::{Console, config};
use crate::config::{Config, ConfigError, StoreUrl};
use crate::doctor::{Subject, examine};
use crate::exit::{Code, refused};
use crate::print;
use crate::up::start_supervisor;

pub(super) async fn run(console: &Console, file: Option<PathBuf>) -> anyhow::Result<Code> {
    // An invalid config is a finding, and must not prevent others.
    let found = if file.is_none() { console.config_file() } else { None };
    let config = file.or_else(|| found.clone()).map(|path| config::read(&path));
    let mut store = store(console, config.as_ref())?;
    if let (Some(found), Some(store)) = (&found, &mut store) {
        config::enter_folder(found, store)?;
    }
    // Only a node has children, and only a config makes a node.
    let containment = match &config {
        Some(Ok(config)) => Some(contained(config.containment).await),
        Some(Err(_)) | None => None,
    };
    let threads = Some(ThreadEnvironment::here());
    let findings =
        examine(Subject { store, config, containment, threads, clock: Arc::new(SystemClock) }).await;
    console.out.answer(&findings, |looks| print::findings(&findings, looks))?;
    let bad = findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if bad { Code::WorkFailed } else { Code::Done })
}

/// The store to examine. If only the config could name it and the config is invalid, there is none: the default store would be
/// the wrong one.
fn store(
    console: &Console,
    config: Option<&Result<Config, ConfigError>>,
) -> anyhow::Result<Option<StoreUrl>> {
    let unnamed = Cell::new(false);
    let place = console.place_by(|| match config {
        Some(Ok(config)) => Ok(Some(config.clone())),
        Some(Err(error)) => {
            unnamed.set(true);
            Err(refused(Code::BadInput, error.to_string()))
        }
        None => Ok(None),
    });
    if unnamed.get() { Ok(None) } else { Ok(Some(place?.url().clone())) }
}

/// How children would be contained: starts a supervisor, asks it, and stops it.
async fn contained(containment: Containment) -> Result<Contained, String> {
    let supervisor = start_supervisor(containment).await.map_err(|error| error.to_string())?;
    let contained = supervisor.containment();
    supervisor.stop().await;
    Ok(contained)
}
