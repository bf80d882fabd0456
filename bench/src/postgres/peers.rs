//! Peers: other queues on the same server, in the same minutes. Each is installed by name, in a version known to work, and driven by our
//! script in the fastest way that its documentation describes. A peer enqueues and then drains; only the drain is measured.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::server::{NAME, said};
use super::{BATCH, Parts, side};
use crate::load::Tally;
use crate::report::{PeerRow, Report};
use crate::{Bench, Error};

/// One peer: its package, and its setup.
struct Peer {
    name: &'static str,
    version: &'static str,
    how: &'static str,
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "graphile-worker",
        version: "0.18.0",
        how: "local queue of 500, 24 jobs at once, batched completion",
    },
    Peer { name: "pg-boss", version: "12.35.0", how: "fetch and complete of 500, two at once" },
];

/// The runtime of their scripts; a package too, since the installed one may be too old for them.
const RUNTIME: &str = "node@22";

/// An installed peer, with the folder of its script.
pub(super) struct Installed {
    peer: &'static Peer,
    folder: PathBuf,
}

/// Installs missing peers. Without them everything else is still measured.
pub(super) fn install(bench: &Bench) -> Result<Vec<Installed>, Error> {
    let mut installed = Vec::new();
    for peer in &PEERS {
        if !bench.wants(&format!("peer: {}", peer.name)) {
            continue;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(peer.name);
        let manifest = folder.join("node_modules").join(peer.name).join("package.json");
        let there: Option<Value> =
            std::fs::read(manifest).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if there.is_none_or(|there| there["version"] != peer.version) {
            eprintln!("bench:   installing {} {}", peer.name, peer.version);
            let what = [RUNTIME.to_owned(), format!("{}@{}", peer.name, peer.version)];
            let how = ["install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--prefix"];
            said(Command::new("npm").args(how).arg(&folder).args(what).current_dir(&folder))?;
        }
        installed.push(Installed { peer, folder });
    }
    Ok(installed)
}

/// Drains the same number of jobs with each peer, the store and the ceiling, in turns.
pub(super) fn run(parts: &Parts<'_>, peers: &[Installed], report: &mut Report) -> Result<(), Error> {
    if peers.is_empty() {
        return Ok(());
    }
    let jobs = parts.bench.scale.jobs;
    let mut rows: Vec<PeerRow> =
        peers.iter().map(|peer| PeerRow::new(peer.peer.name.into(), peer.peer.how)).collect();
    let mut ours = PeerRow::new("the store".into(), "batches of 500, two at once");
    let mut ceiling = PeerRow::new("the ceiling".into(), "bare statements, batches of 500, two at once");
    for _ in 0..parts.bench.scale.rounds {
        for (installed, row) in peers.iter().zip(&mut rows) {
            let drained = drain(parts, installed, jobs)?;
            row.name = format!("{} {}", installed.peer.name, drained.version);
            row.rates.push(drained.rate);
        }
        let (did, could) = both(parts, jobs)?;
        ours.rates.push(did.rate());
        ceiling.rates.push(could.rate());
    }
    report.peers.extend([ceiling, ours]);
    report.peers.extend(rows);
    Ok(())
}

/// Drains all jobs with the store and the ceiling.
fn both(parts: &Parts<'_>, jobs: usize) -> Result<(Tally, Tally), Error> {
    let mut sides = parts.fresh()?;
    parts.bench.runtime.block_on(async {
        side::fill_ready(&sides.ours, jobs).await?;
        let ours = side::drain(&sides.ours, BATCH, Duration::MAX).await?;
        sides.bare.fill_ready(jobs).await?;
        let bare = sides.bare.drain(BATCH, Duration::MAX).await?;
        Ok((ours, bare))
    })
}

/// The final output of a script.
struct Drained {
    version: String,
    rate: f64,
}

fn drain(parts: &Parts<'_>, installed: &Installed, jobs: usize) -> Result<Drained, Error> {
    let folder = &installed.folder;
    let mut command = Command::new(folder.join("node_modules/node/bin/node"));
    command.arg(folder.join("drain.mjs")).arg(parts.server.folder()).args([NAME, NAME, &jobs.to_string()]);
    let answer = said(&mut command)?;
    let answer: Value = serde_json::from_str(answer.trim()).map_err(|error| format!("{error}: {answer}"))?;
    match (answer["version"].as_str(), answer["rate"].as_f64()) {
        (Some(version), Some(rate)) => Ok(Drained { version: version.into(), rate }),
        _ => Err(format!("{} said {answer}", installed.peer.name).into()),
    }
}
