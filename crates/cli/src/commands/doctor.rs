//! `ostler doctor`: what is wrong, in sentences, and what helps.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use ostler_process::keeper::{Contained, Containment};
use ostler_store::SystemClock;
use ostler_wire::system::FindingView;

use super::{Console, config, up};
use crate::doctor::{Severity, Subject, examine};
use crate::exit::Code;
use crate::print::visible;

pub(super) async fn run(console: &Console, file: Option<PathBuf>) -> anyhow::Result<Code> {
    // A config that cannot be read is something to be found, and not in the way of finding more.
    let config = file.or_else(config::here).map(|path| config::read(&path));
    let place = console.place_by(|| Ok(config.as_ref().and_then(|read| read.as_ref().ok()).cloned()))?;
    let store = place.url().clone();
    // Only a node has children, and only a config makes a node.
    let containment = match &config {
        Some(Ok(config)) => Some(contained(config.containment).await),
        Some(Err(_)) | None => None,
    };
    let examination = examine(Subject { store, config, containment, clock: Arc::new(SystemClock) }).await;
    let findings: Vec<FindingView> = examination
        .findings
        .iter()
        .map(|finding| FindingView {
            code: finding.code,
            severity: finding.severity.name(),
            sentence: finding.sentence.clone(),
            advice: finding.advice.clone(),
        })
        .collect();
    console.out.answer(&findings, |_| text(&findings))?;
    let bad = examination.findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if bad { Code::WorkFailed } else { Code::Done })
}

/// How children would be contained: a keeper is started, asked, and ended.
async fn contained(containment: Containment) -> Result<Contained, String> {
    let keeper = up::start_keeper(containment).await.map_err(|error| error.to_string())?;
    let contained = keeper.containment();
    keeper.stop().await;
    Ok(contained)
}

fn text(findings: &[FindingView]) -> String {
    if findings.is_empty() {
        return "all is well\n".to_owned();
    }
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{:<7}  {}", finding.severity, visible(&finding.sentence));
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "         {}", visible(&finding.advice));
        }
    }
    text
}
