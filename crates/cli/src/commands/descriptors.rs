//! Whether a node may open as many files as its workers need.

use ostler_process::descriptors::{needed, raise};

use crate::exit::{Code, refused, say};

/// Raises the limit of open files as far as it goes. A node that could not start one child does not come up; one that cannot have
/// all its workers is told so, and works with fewer.
pub(crate) fn make_room(workers: usize) -> anyhow::Result<()> {
    let (may, needs) = (raise(), needed(workers));
    let sentence = format!(
        "a node with {workers} workers needs {needs} descriptors, and this one may have {may}: raise the limit (ulimit -n, LimitNOFILE)"
    );
    if may < needed(1) {
        return Err(refused(Code::BadInput, sentence));
    }
    if may < needs {
        say(&format!("{sentence}; it hands back what it cannot start"));
    }
    Ok(())
}
