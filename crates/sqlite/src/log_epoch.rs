//! Log epoch: which write-ahead log (WAL) belongs to which file.
//!
//! SQLite checkpoints any log that lies next to a file into it, without knowing whose log it is. After a crash a log
//! stays behind. If a backup is then copied over the file, the pages of the log would overwrite those of the backup, and
//! both would be lost. So the first transaction of every log writes the next epoch, a number in the header of the file. A
//! log belongs to a file whose own epoch is the same, because the log was checkpointed at least in part, or the previous
//! one. A new store and every backup start with a random epoch.
//!
//! The epoch shares `user_version` with the schema version, because that is stored on the first page: a log that has an
//! epoch contains that whole page, so the epoch can be read whatever the rest of the file is.

use ostler_store::Error;
use rusqlite::Connection;

use crate::fault::fault;
use crate::open::number;

/// The bits of `user_version` that hold the schema version; the others, except the sign, hold the epoch.
const VERSION_BITS: u32 = 8;
const VERSIONS: i64 = 1 << VERSION_BITS;
const EPOCHS: i64 = 1 << (31 - VERSION_BITS);

/// The log epoch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(i64);

impl Epoch {
    /// The file was created by an older program, and no log has been started since.
    const NONE: Self = Self(0);
    /// The first epoch of such a file. The next one is random.
    const FIRST: Self = Self(1);
    const LEAST: i64 = 2;

    /// A random epoch.
    pub(crate) fn random(conn: &Connection) -> rusqlite::Result<Self> {
        let chance: i64 = conn.query_row("SELECT random() & 0x7fffffff", [], |row| row.get(0))?;
        Ok(Self(Self::LEAST + chance % (EPOCHS - Self::LEAST)))
    }

    /// The next epoch; `None`: it is random.
    const fn next(self) -> Option<Self> {
        match self {
            Self::NONE => Some(Self::FIRST),
            Self::FIRST => None,
            Self(last) if last + 1 == EPOCHS => Some(Self(Self::LEAST)),
            Self(epoch) => Some(Self(epoch + 1)),
        }
    }

    /// Whether a log of this epoch may belong to a file of the given epoch.
    fn follows(self, file: Self) -> bool {
        self == file || file.next().is_none_or(|next| next == self)
    }
}

/// The header of a file, read with or without its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The schema version.
    pub(crate) version: i64,
    pub(crate) epoch: Epoch,
    /// SQLite's own schema change counter. It only grows.
    schema: i64,
}

impl Header {
    pub(crate) fn read(conn: &Connection) -> Result<Self, Error> {
        let user_version = number(conn, "user_version")?;
        let schema = number(conn, "schema_version")?;
        if user_version < 0 {
            // Never written by Ostler: treat it as an unknown version.
            return Ok(Self { version: VERSIONS, epoch: Epoch::NONE, schema });
        }
        Ok(Self { version: user_version % VERSIONS, epoch: Epoch(user_version / VERSIONS), schema })
    }

    /// Whether the header of the file and that of the file with its log are consistent. A copy by `VACUUM INTO` has the
    /// epoch of its original, but one more schema change.
    pub(crate) fn goes_with(self, with_log: Self) -> bool {
        with_log.epoch.follows(self.epoch) && self.schema <= with_log.schema
    }
}

/// Writes the schema version and the epoch.
pub(crate) fn write(conn: &Connection, version: i64, epoch: Epoch) -> rusqlite::Result<()> {
    conn.pragma_update(None, "user_version", epoch.0 * VERSIONS + version)
}

/// Whether all of the log is checkpointed, so that the next transaction may start a new log. Called before that
/// transaction.
pub(crate) fn is_folded(conn: &Connection) -> rusqlite::Result<bool> {
    let mut statement = conn.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let (frames, folded): (i64, i64) = statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))?;
    // Without a log both are negative.
    Ok(frames >= 0 && frames == folded)
}

/// Writes the next epoch, within the first transaction of a log.
pub(crate) fn advance(conn: &Connection) -> Result<(), rusqlite::Error> {
    let user_version: i64 = conn.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    let epoch = match Epoch(user_version / VERSIONS).next() {
        Some(next) => next,
        None => Epoch::random(conn)?,
    };
    write(conn, user_version % VERSIONS, epoch)
}

/// Gives the file a random epoch, so that no existing log matches it.
pub(crate) fn renew(conn: &Connection) -> Result<(), Error> {
    let Header { version, .. } = Header::read(conn)?;
    Epoch::random(conn).and_then(|epoch| write(conn, version, epoch)).map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_belongs_to_its_own_epoch_and_to_the_one_before() {
        for (file, log, belongs) in [
            (5, 5, true),
            (5, 6, true),
            (5, 7, false),
            (6, 5, false),
            (EPOCHS - 1, Epoch::LEAST, true),
            // A file of an older program, and its first log.
            (0, 0, true),
            (0, 1, true),
            (0, 2, false),
            (1, 1, true),
            (1, 4_711, true),
            (4_711, 1, false),
            (4_711, 0, false),
        ] {
            assert_eq!(Epoch(log).follows(Epoch(file)), belongs, "a log of {log} beside a file of {file}");
        }
    }

    #[test]
    fn every_epoch_fits_into_the_header_beside_every_version() {
        let conn = Connection::open_in_memory().unwrap();
        for (version, epoch) in [(1, 0), (VERSIONS - 1, EPOCHS - 1), (2, Epoch::LEAST)] {
            write(&conn, version, Epoch(epoch)).unwrap();
            let header = Header::read(&conn).unwrap();
            assert_eq!((header.version, header.epoch), (version, Epoch(epoch)));
        }
        for _ in 0..100 {
            let Epoch(chance) = Epoch::random(&conn).unwrap();
            assert!((Epoch::LEAST..EPOCHS).contains(&chance), "{chance}");
        }
    }

    #[test]
    fn epochs_go_on_without_end_and_never_back_to_those_of_older_programs() {
        let conn = Connection::open_in_memory().unwrap();
        write(&conn, 2, Epoch(EPOCHS - 2)).unwrap();
        let mut seen = Vec::new();
        for _ in 0..3 {
            advance(&conn).unwrap();
            let header = Header::read(&conn).unwrap();
            assert_eq!(header.version, 2);
            seen.push(header.epoch.0);
        }
        assert_eq!(seen, [EPOCHS - 1, Epoch::LEAST, Epoch::LEAST + 1]);
    }
}
