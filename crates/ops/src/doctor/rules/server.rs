//! Rules about a store on a server: whether it could be examined.

use ostler_store::{Error, ErrorKind};

use super::{Finding, about};
use crate::doctor::facts::StoreLook;

pub(super) fn finding(address: &str, look: &StoreLook) -> Option<Finding> {
    match look {
        StoreLook::Absent => Some(Finding::warning(
            "store-missing",
            format!("There is no store at {address}"),
            "Is it the right database and schema? A store is created when a node starts or a task is submitted",
        )),
        StoreLook::Refused(why) => Some(refused(why)),
        StoreLook::Silent(waited) => Some(Finding::error(
            "store-unavailable",
            format!("The server of {address} did not answer within {}", about(*waited)),
            "Check that the server is up and reachable from here, and that no firewall drops the traffic",
        )),
        StoreLook::Outdated { found, newest } => Some(Finding::warning(
            "store-outdated",
            format!(
                "{address} was created by an older version (schema {found}, this version has {newest}), and was not examined"
            ),
            "Migrate it: ostler db migrate",
        )),
        StoreLook::Unnamed | StoreLook::Seen(_) => None,
    }
}

fn refused(why: &Error) -> Finding {
    let sentence = why.to_string();
    match why.kind() {
        ErrorKind::ReadOnly => Finding::error(
            "store-not-writable",
            sentence,
            "Use the primary, and a user who may create and write the tables of the schema",
        ),
        ErrorKind::Invalid => Finding::error(
            "store-unusable",
            sentence,
            "Check the user, the password and the database of the URL",
        ),
        ErrorKind::Full => Finding::error("disk-full", sentence, "Free some space on the disk of the server"),
        ErrorKind::Busy => Finding::error(
            "store-busy",
            sentence,
            "Look in pg_stat_activity for a long-running transaction, and end it",
        ),
        ErrorKind::Foreign => Finding::error(
            "store-foreign",
            sentence,
            "Use another database, or another schema: ?schema=NAME at the end of the URL",
        ),
        ErrorKind::TooNew => Finding::error(
            "store-too-new",
            sentence,
            "Use the newer version that created it; a store cannot be downgraded",
        ),
        ErrorKind::Damaged | ErrorKind::BadRow | ErrorKind::Replaced => Finding::error(
            "store-damaged",
            sentence,
            "Stop the nodes, and restore the last backup of the database. For details: ostler db check",
        ),
        ErrorKind::Unavailable => Finding::error(
            "store-unavailable",
            sentence,
            "Check that the server is up, and that the host and the port of the URL are right",
        ),
        ErrorKind::Moving | ErrorKind::Moved => Finding::error(
            "store-moving",
            sentence,
            "Wait until the move has finished; if it was interrupted, run ostler db move again, or abandon it with --abandon",
        ),
        ErrorKind::Closed | ErrorKind::Internal => Finding::info(
            "doctor-failed",
            sentence,
            "This is a bug in Ostler: please report it with this message",
        ),
    }
}
