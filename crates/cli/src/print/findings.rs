//! What the doctor finds, for people.

use std::fmt::Write as _;

use ostler_wire::system::{FindingView, Severity};

use super::table::Paint;
use super::{Looks, visible};

pub(crate) fn findings(findings: &[FindingView], looks: Looks) -> String {
    if findings.is_empty() {
        return format!("{}\n", Paint::Good.on("no problems found", looks));
    }
    let mut text = String::new();
    for finding in findings {
        let word = paint(finding.severity).on(&format!("{:<7}", finding.severity.name()), looks);
        let _ = writeln!(text, "{word}  {}", visible(&finding.sentence));
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "         {}", visible(&finding.advice));
        }
    }
    text
}

pub(super) const fn paint(severity: Severity) -> Paint {
    match severity {
        Severity::Error => Paint::Bad,
        Severity::Warning => Paint::Lively,
        Severity::Info => Paint::Faint,
    }
}
