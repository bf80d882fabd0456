//! One statement text for both databases.
//!
//! Statements are written for PostgreSQL: `$1` for parameters, `ostler.` before tables. `/*by NAME*/` after a table names the index that
//! SQLite must use; to PostgreSQL it is a comment. SQLite has no row locks, and needs none.

/// The statement as SQLite reads it.
#[must_use]
pub fn for_sqlite(sql: &str) -> String {
    let mut text = sql
        .replace("ostler.", "")
        .replace('$', "?")
        .replace(" FOR UPDATE", "")
        .replace(" FOR NO KEY UPDATE OF t SKIP LOCKED", "")
        .replace("FOR NO KEY UPDATE SKIP LOCKED", "")
        .replace(" FOR NO KEY UPDATE", "");
    while let Some(start) = text.find("/*by ")
        && let Some(length) = text[start..].find("*/")
    {
        let index = text[start + "/*by ".len()..start + length].trim().to_owned();
        text.replace_range(start..start + length + 2, &format!("INDEXED BY {index}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::for_sqlite;

    #[test]
    fn parameters_tables_and_indexes_are_written_for_sqlite() {
        assert_eq!(
            for_sqlite("SELECT t.id FROM ostler.task t /*by keyed*/ WHERE limit_id = $1 AND phase = $2"),
            "SELECT t.id FROM task t INDEXED BY keyed WHERE limit_id = ?1 AND phase = ?2"
        );
    }
}
