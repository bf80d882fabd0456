//! The limit of open file descriptors of a node.

use ostler_process::descriptors::{needed, raise};

use crate::exit::{Code, refused, warn};

/// Raises the limit of open files as far as allowed. A node that could not start a single child is refused; one that cannot have
/// all its workers gets a warning, and runs fewer.
pub(crate) fn make_room(workers: usize) -> anyhow::Result<()> {
    let (may, needs) = (raise(), needed(workers));
    let sentence = format!(
        "a node with {workers} workers needs {needs} file descriptors, but the limit is {may}: raise it (ulimit -n, LimitNOFILE)"
    );
    if may < needed(1) {
        return Err(refused(Code::BadInput, sentence));
    }
    if may < needs {
        warn(&format!("{sentence}; tasks that cannot be started are returned to the queue"));
    }
    Ok(())
}
