//! The store on a server: whether it could be looked into.

use ostler_store::{Error, ErrorKind};

use super::super::facts::StoreLook;
use super::{Finding, about, error, info, warning};

pub(super) fn finding(address: &str, look: &StoreLook) -> Option<Finding> {
    match look {
        StoreLook::Absent => Some(warning(
            "store-missing",
            format!("There is no store at {address}"),
            "Is it the right database and schema? A store is made when a node starts or a task is submitted",
        )),
        StoreLook::Refused(why) => Some(refused(why)),
        StoreLook::Silent(waited) => Some(error(
            "store-unavailable",
            format!("The server of {address} did not answer within {}", about(*waited)),
            "Look whether the server is up and can be reached from here, and whether a firewall drops what is sent to it",
        )),
        StoreLook::Outdated { found, newest } => Some(warning(
            "store-outdated",
            format!(
                "{address} was made by an older version (schema {found}, this one has {newest}), and was not looked into"
            ),
            "Bring it up to date: ostler db migrate",
        )),
        StoreLook::Unnamed | StoreLook::Seen(_) => None,
    }
}

fn refused(why: &Error) -> Finding {
    let sentence = why.to_string();
    match why.kind() {
        ErrorKind::ReadOnly => error(
            "store-not-writable",
            sentence,
            "Name the primary, and a user who may make and write the tables of the schema",
        ),
        ErrorKind::Invalid => {
            error("store-unusable", sentence, "Check the user, the password and the database of the URL")
        }
        ErrorKind::Full => error("disk-full", sentence, "Make room on the disk of the server"),
        ErrorKind::Busy => error(
            "store-busy",
            sentence,
            "Look in pg_stat_activity for a transaction that has been open for long, and end it",
        ),
        ErrorKind::Foreign => error(
            "store-foreign",
            sentence,
            "Name another database, or another schema: ?schema=NAME at the end of the URL",
        ),
        ErrorKind::TooNew => {
            error("store-too-new", sentence, "Use the newer program that made it; a store never goes back")
        }
        ErrorKind::Damaged | ErrorKind::BadRow | ErrorKind::Replaced => error(
            "store-damaged",
            sentence,
            "Stop the nodes, and restore the last backup of the database. ostler db check tells more",
        ),
        ErrorKind::Unavailable => error(
            "store-unavailable",
            sentence,
            "Check that the server is up, and that the host and the port of the URL are right",
        ),
        ErrorKind::Moving | ErrorKind::Moved => error(
            "store-moving",
            sentence,
            "Wait until the move has ended, run ostler db move again if it was stopped, or give it up with --abandon",
        ),
        ErrorKind::Closed | ErrorKind::Internal => {
            info("doctor-failed", sentence, "This is a defect of Ostler: please report it with this sentence")
        }
    }
}
