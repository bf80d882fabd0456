//! Views for people and their tools: tasks, attempts, dead letters, queues, nodes, workers, jobs, schedules and accounts as tables
//! with readable columns, the same in both databases. Columns are only ever added, at the end.

use std::fmt::Write as _;

use ostler_core::{CancelReason, FailReason, Missed, Overlap, Wait, WorkerState};

use crate::phase::Phase;

/// The database that a view is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite,
    Postgres,
}

/// A view.
#[derive(Debug)]
pub struct View {
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    pub columns: Vec<ViewColumn>,
    /// What follows `FROM`.
    from: String,
}

#[derive(Debug)]
pub struct ViewColumn {
    pub name: &'static str,
    pub about: &'static str,
    sql: String,
}

/// The statements that create all views, or bring them up to date.
#[must_use]
pub fn create(database: Database) -> String {
    views(database).iter().map(|view| view.create(database)).collect()
}

/// All views.
#[must_use]
pub fn views(database: Database) -> Vec<View> {
    vec![
        tasks(database),
        attempts(database),
        dead_letters(database),
        queues(database),
        nodes(database),
        workers(database),
        jobs(database),
        schedules(database),
        accounts(database),
    ]
}

impl View {
    fn create(&self, database: Database) -> String {
        let Self { name, about, columns, from } = self;
        let mut text = String::new();
        let end = |at: usize| if at + 1 < columns.len() { "," } else { "" };
        // A text always takes what is formatted into it.
        let _ = match database {
            Database::Sqlite => {
                write!(text, "DROP VIEW IF EXISTS {name};\nCREATE VIEW {name} AS SELECT -- {about}\n")
            }
            Database::Postgres => writeln!(text, "CREATE OR REPLACE VIEW ostler.{name} AS SELECT"),
        };
        for (at, ViewColumn { name, about, sql }) in columns.iter().enumerate() {
            let _ = match database {
                Database::Sqlite => writeln!(text, "    {sql} AS {name}{} -- {about}", end(at)),
                Database::Postgres => writeln!(text, "    {sql} AS {name}{}", end(at)),
            };
        }
        let _ = writeln!(text, "FROM {from};");
        if database == Database::Sqlite {
            return text.replace("ostler.", "");
        }
        let _ = writeln!(text, "COMMENT ON VIEW ostler.{name} IS '{}';", about.replace('\'', "''"));
        for ViewColumn { name: column, about, .. } in columns {
            let about = about.replace('\'', "''");
            let _ = writeln!(text, "COMMENT ON COLUMN ostler.{name}.{column} IS '{about}';");
        }
        text
    }
}

impl Database {
    /// The text of an id.
    fn id(self, bytes: &str) -> String {
        match self {
            // Each character is five bits, which lie in two hexadecimal digits. A digit in front makes them 26 times five.
            Self::Sqlite => {
                let digit = |at: &str| {
                    format!(
                        "instr('0123456789ABCDEF', substr('0' || hex({bytes}), (5 * i + 2) / 4 + {at}, 1)) - 1"
                    )
                };
                format!(
                    "(WITH RECURSIVE c(i, s) AS (SELECT 0, '' UNION ALL SELECT i + 1, s || \
                     substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', 1 + ((({}) * 16 + {}) >> (3 - (5 * i + 2) % 4) & 31), 1) \
                     FROM c WHERE i < 26) SELECT s FROM c WHERE i = 26 AND {bytes} IS NOT NULL)",
                    digit("1"),
                    digit("2")
                )
            }
            Self::Postgres => format!("ostler.id_text({bytes})"),
        }
    }

    /// A time from its milliseconds.
    fn time(self, millis: &str) -> String {
        match self {
            Self::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f', {millis} / 1000.0, 'unixepoch')"),
            Self::Postgres => format!("to_timestamp({millis} / 1000.0)"),
        }
    }

    /// A text field of an object that a column holds as JSON.
    fn text_in(self, column: &str, field: &str) -> String {
        match self {
            Self::Sqlite => format!("json_extract({column}, '$.{field}')"),
            Self::Postgres => format!(r"(replace({column}, '\u0000', '\ufffd')::json ->> '{field}')"),
        }
    }

    /// A number field of an object that a column holds as JSON.
    fn number_in(self, column: &str, field: &str) -> String {
        match self {
            Self::Sqlite => self.text_in(column, field),
            Self::Postgres => format!("{}::bigint", self.text_in(column, field)),
        }
    }

    /// The bytes of a text in UTF-8.
    fn byte_length(self, text: &str) -> String {
        match self {
            Self::Sqlite => format!("length(CAST({text} AS BLOB))"),
            Self::Postgres => format!("octet_length({text})"),
        }
    }

    /// The cost of a list of usage, in dollars.
    fn cost_of(self, usage: &str) -> String {
        match self {
            Self::Sqlite => format!(
                "(SELECT sum(json_extract(value, '$.cost_nanos')) / 1000000000.0 FROM json_each({usage}))"
            ),
            Self::Postgres => format!(
                r"(SELECT sum((value ->> 'cost_nanos')::bigint) / 1000000000.0 FROM json_array_elements(replace({usage}, '\u0000', '\ufffd')::json))"
            ),
        }
    }

    /// Sixteen of the bytes that a column holds.
    fn bytes(self, column: &str, from: usize) -> String {
        match self {
            Self::Sqlite => format!("substr({column}, {from}, 16)"),
            Self::Postgres => format!("encode(substr({column}, {from}, 16), 'hex')::uuid"),
        }
    }

    /// The counts of all lanes, summed by queue.
    fn counts(self) -> String {
        let columns = "queued, claimed, running, completed, failed, cancelled";
        let sums: Vec<String> =
            columns.split(", ").map(|column| format!("CAST(sum({column}) AS bigint) AS {column}")).collect();
        let lanes = match self {
            Self::Sqlite => "ostler.lane".to_owned(),
            Self::Postgres => format!(
                "(SELECT queue, {columns} FROM ostler.lane UNION ALL SELECT l.queue, d.queued, d.claimed, d.running, d.completed, \
                 d.failed, d.cancelled FROM ostler.lane_delta d JOIN ostler.lane l ON l.id = d.lane) a"
            ),
        };
        format!("(SELECT queue, {} FROM {lanes} GROUP BY queue)", sums.join(", "))
    }
}

/// The word for the number in a column.
fn words<'a>(column: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = format!("CASE {column}");
    for (number, name) in names.into_iter().enumerate() {
        let _ = write!(text, " WHEN {number} THEN '{name}'");
    }
    text + " END"
}

fn column(name: &'static str, sql: impl Into<String>, about: &'static str) -> ViewColumn {
    ViewColumn { name, about, sql: sql.into() }
}

const TASK: &str = "ostler.task t JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = l.queue
    LEFT JOIN ostler.limits k ON k.id = t.limit_id LEFT JOIN ostler.session s ON s.id = t.session AND t.phase IN (3, 4)
    LEFT JOIN ostler.unique_key u ON u.task = t.id";

fn tasks(d: Database) -> View {
    let waits = words("t.why", Wait::ALL.map(Wait::name));
    let failed = words("t.why", FailReason::ALL.map(FailReason::name));
    let cancelled = words("t.why", CancelReason::ALL.map(CancelReason::name));
    let deadline = d.number_in("t.extras", "deadline_ms");
    let not_after = d.number_in("t.extras", "not_after_ms");
    let columns = vec![
        column("id", d.id("t.uid"), "The id that all tools show"),
        column("queue", "q.name", "The queue"),
        column("kind", "l.kind", "The kind of work"),
        column(
            "state",
            words("t.phase", Phase::ALL.map(|phase| phase.state().name())),
            "queued, claimed, running, completed, failed or cancelled",
        ),
        column(
            "waits_for",
            format!("CASE WHEN t.phase < 3 THEN {waits} END"),
            "What a queued task waits for",
        ),
        column(
            "reason",
            format!("CASE t.phase WHEN 6 THEN {failed} WHEN 7 THEN {cancelled} END"),
            "Why a failed task is not retried, or why a task was cancelled",
        ),
        column("priority", "t.priority", "From -100 to 100; each point is a head start of a minute"),
        column("payload", "t.payload", "The input, as JSON text"),
        column(
            "output",
            "t.output",
            "The result of a completed task, as JSON text; NULL if it is longer than 64 KiB, which `ostler show` prints",
        ),
        column("key", "u.key", "The unique key"),
        column("limit_key", "k.key", "Tasks with the same limit key share limits"),
        column(
            "cost",
            format!("coalesce({}, 1)", d.number_in("t.extras", "cost")),
            "How much of the rates it uses",
        ),
        column(
            "run_at",
            format!("CASE WHEN t.phase < 3 THEN {} END", d.time("t.run_at")),
            "The earliest time to run",
        ),
        column(
            "not_after",
            d.time(&format!("(CASE WHEN {deadline} IS NULL THEN t.late_at ELSE {not_after} END)")),
            "It is cancelled instead of being started after this time",
        ),
        column("deadline", d.time(&deadline), "No attempt starts after this time"),
        column("created_at", d.time("t.created_at"), "When it was enqueued"),
        column("started_at", d.time("t.started_at"), "When its current or last attempt started"),
        column("finished_at", d.time("t.finished_at"), "When it completed, failed or was cancelled"),
        column(
            "cancel_requested_at",
            d.time("t.cancel_at"),
            "When a cancellation was requested while a node held it",
        ),
        column("runs", "t.runs", "Attempts started"),
        column("failures", "t.failures", "Attempts that failed"),
        column("crashes", "(t.trouble >> 1) & 1048575", "Worker crashes while running it"),
        column("node_deaths", "(t.trouble >> 21) & 1048575", "Deaths of nodes that held it"),
        column("error_class", d.text_in("t.failure", "class"), "The class of the last failure"),
        column("error", d.text_in("t.failure", "message"), "The message of the last failure"),
        column("first_failure_at", d.time(&d.number_in("t.failure", "first_at_ms")), "When it first failed"),
        column("last_failure_at", d.time(&d.number_in("t.failure", "last_at_ms")), "When it last failed"),
        column("folder", d.text_in("t.extras", "folder"), "The working folder"),
        column("node", d.id("s.uid"), "The node that holds it"),
        column("node_name", "s.name", "The name of that node"),
        column("token", "t.token", "The fencing token of the current or last lease"),
        column("lease_expires_at", d.time("s.expires_at"), "When the lease ends unless the node renews it"),
        column("uid", "t.uid", "The id in sixteen bytes; indexed"),
        column(
            "output_bytes",
            format!(
                "coalesce((SELECT size FROM ostler.chunk WHERE task = t.id AND owner = 0 AND part = 0), {})",
                d.byte_length("t.output")
            ),
            "The size of the result, however long it is",
        ),
    ];
    View { name: "tasks", about: "One row for each task", columns, from: TASK.to_owned() }
}

/// The columns about a failure that a column holds as JSON.
fn failure(d: Database, of: &str) -> [ViewColumn; 5] {
    [
        column("error_class", d.text_in(of, "class"), "The error class"),
        column("error", d.text_in(of, "message"), "One sentence"),
        column("error_details", d.text_in(of, "details"), "A stack trace, or the end of stderr"),
        column("failed_step", d.text_in(of, "step"), "The step that failed"),
        column("hint", d.text_in(of, "hint"), "What might help"),
    ]
}

fn attempts(d: Database) -> View {
    let mut columns = vec![
        column("task", d.id("t.uid"), "The id of the task"),
        column("queue", "q.name", "The queue of the task"),
        column("kind", "l.kind", "The kind of the task"),
        column("number", "a.number", "Counted from 1"),
        column(
            "state",
            "CASE WHEN a.ending IS NULL THEN 'running' WHEN a.ending = 'success' THEN 'completed' \
             WHEN a.ending IN ('cancelled', 'handed_back', 'node_died') THEN a.ending ELSE 'failed' END",
            "running, completed, failed, cancelled, handed_back or node_died",
        ),
        column("worker", d.id("a.worker"), "The worker that ran it"),
        column("node", d.id("a.session"), "The node of that worker"),
        column("token", "a.token", "The fencing token of its lease"),
        column("started_at", d.time("a.started_at"), "When it started"),
        column("finished_at", d.time("a.finished_at"), "When it ended"),
        column("duration_ms", "a.finished_at - a.started_at", "How long it took"),
    ];
    columns.extend(failure(d, "a.failure"));
    columns.push(column(
        "exit_code",
        d.number_in("a.failure", "exit_code"),
        "The exit code of a command that failed",
    ));
    columns.extend([
        column("session_id", "c.session", "The conversation with a model"),
        column("usage", "c.usage", "The tokens that it used, by model, as JSON text"),
        column("cost_usd", d.cost_of("c.usage"), "What that cost, in dollars; NULL if it is not known"),
    ]);
    let from = format!(
        "(SELECT task, number, token, session, worker, started_at, finished_at, ending, failure FROM ostler.attempt
    UNION ALL SELECT id, runs, token, {}, {}, started_at, finished_at, 'success', NULL FROM ostler.task WHERE ran IS NOT NULL) a
    JOIN ostler.task t ON t.id = a.task JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = l.queue
    LEFT JOIN ostler.conversation c ON c.task = a.task AND c.token = a.token",
        d.bytes("ran", 17),
        d.bytes("ran", 1)
    );
    View { name: "attempts", about: "One row for each attempt of each task", columns, from }
}

fn dead_letters(d: Database) -> View {
    let mut columns = vec![
        column("id", d.id("t.uid"), "The id of the task"),
        column("queue", "q.name", "The queue"),
        column("kind", "l.kind", "The kind of work"),
        column("payload", "t.payload", "The input, as JSON text"),
        column("key", "u.key", "The unique key"),
        column("reason", words("t.why", FailReason::ALL.map(FailReason::name)), "Why it is not retried"),
        column("failures", "t.failures", "Attempts that failed"),
        column("first_failure_at", d.time(&d.number_in("t.failure", "first_at_ms")), "When it first failed"),
        column("last_failure_at", d.time(&d.number_in("t.failure", "last_at_ms")), "When it last failed"),
        column("created_at", d.time("t.created_at"), "When it was enqueued"),
        column("finished_at", d.time("t.finished_at"), "When it was given up"),
    ];
    columns.extend(failure(d, "t.failure"));
    let from = "ostler.task t JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = l.queue
    LEFT JOIN ostler.unique_key u ON u.task = t.id WHERE t.phase = 6"
        .to_owned();
    View { name: "dead_letters", about: "One row for each task that has failed for good", columns, from }
}

/// The columns with the counts of a queue.
fn counts() -> [ViewColumn; 6] {
    [
        column("queued", "coalesce(c.queued, 0)", "Tasks that wait"),
        column("claimed", "coalesce(c.claimed, 0)", "Tasks that a node has claimed"),
        column("running", "coalesce(c.running, 0)", "Tasks that run"),
        column("completed", "coalesce(c.completed, 0)", "Tasks that have completed, ever"),
        column("failed", "coalesce(c.failed, 0)", "Tasks that have failed, ever, and were not replayed"),
        column(
            "cancelled",
            "coalesce(c.cancelled, 0)",
            "Tasks that were cancelled, ever, and were not replayed",
        ),
    ]
}

fn queues(d: Database) -> View {
    let mut columns = vec![
        column("name", "q.name", "The name of the queue"),
        column("paused", "q.paused", "Why it is paused; null: it is not"),
        column("queue_limit", "q.max_queued", "How many tasks may wait; null: no limit"),
    ];
    columns.extend(counts());
    columns.push(column("account", "q.account", "The account whose limits it shares; null: none"));
    let from = format!("ostler.queue q LEFT JOIN {} c ON c.queue = q.id", d.counts());
    View { name: "queues", about: "One row for each queue", columns, from }
}

fn nodes(d: Database) -> View {
    let columns = vec![
        column("id", d.id("s.uid"), "The id of the node, new at each start"),
        column("name", "s.name", "The name of the node"),
        column("host", "s.host", "The host name of its machine"),
        column("pid", "s.pid", "The id of its process"),
        column("version", "s.version", "The version of the program"),
        column("joined_at", d.time("s.joined_at"), "When it started"),
        column("lease_expires_at", d.time("s.expires_at"), "When its leases end unless it renews them"),
        column(
            "leases",
            "(SELECT count(*) FROM ostler.task t WHERE t.session = s.id AND t.phase IN (3, 4))",
            "Tasks that it holds",
        ),
    ];
    let from = "ostler.session s WHERE s.ended_at IS NULL".to_owned();
    View { name: "nodes", about: "One row for each node that has not shut down", columns, from }
}

fn workers(d: Database) -> View {
    let columns = vec![
        column("id", d.id("w.id"), "The id of the worker"),
        column("queue", "w.pool", "The queue that it serves"),
        column("node", d.id("s.uid"), "The id of its node"),
        column("node_name", "s.name", "The name of its node"),
        column("pid", "w.pid", "The id of its process, if it has one of its own"),
        column(
            "state",
            words("w.state", WorkerState::ALL.map(WorkerState::name)),
            "starting, idle, busy, draining, killed or unresponsive",
        ),
        column("memory_bytes", "w.memory_bytes", "The memory of its process"),
        column("started_at", d.time("w.started_at"), "When it started"),
        column("done", "w.done", "Attempts that succeeded"),
        column("failed", "w.failed", "Attempts that failed"),
        column("task", d.id("w.task"), "The task that it runs"),
        column("task_started_at", d.time("w.task_started_at"), "When that attempt started"),
        column("last_seen_at", d.time("w.last_seen"), "When the node last reported it"),
        column("name", "w.name", "The name of the worker, unique in its node"),
    ];
    let from = "ostler.worker w JOIN ostler.session s ON s.id = w.session".to_owned();
    View { name: "workers", about: "One row for each worker of each node, as last reported", columns, from }
}

fn jobs(d: Database) -> View {
    let mut columns = vec![
        column("id", d.id("j.id"), "The id of the job"),
        column("name", "j.name", "The name of the job"),
        column("queue", "j.queue", "The queue of its tasks"),
        column("items", "j.items", "How many items it has"),
        column("created_at", d.time("j.made_at"), "When it was begun"),
        column("cancelled_at", d.time("j.cancelled_at"), "When it was cancelled"),
        column("paused", "q.paused", "Why it is paused; null: it is not"),
    ];
    columns.extend(counts());
    let from = format!(
        "ostler.job j LEFT JOIN ostler.queue q ON q.name = j.queue LEFT JOIN {} c ON c.queue = q.id",
        d.counts()
    );
    View { name: "jobs", about: "One row for each job", columns, from }
}

fn schedules(d: Database) -> View {
    let columns = vec![
        column("name", "c.name", "The name of the schedule"),
        column("spec", "c.spec", "When it runs"),
        column("queue", "c.queue", "The queue of its tasks"),
        column("kind", "c.kind", "The kind of its tasks"),
        column("payload", "c.payload", "The input of its tasks, as JSON text"),
        column("priority", "c.priority", "The priority of its tasks"),
        column(
            "overlap",
            words("c.overlap", Overlap::ALL.map(Overlap::name)),
            "If the previous run has not finished",
        ),
        column("missed", words("c.missed", Missed::ALL.map(Missed::name)), "What happens to missed runs"),
        column("state", words("c.activity", ["active", "paused"]), "active or paused"),
        column("next_run_at", d.time("c.next_at"), "The next time"),
        column("last_run_at", d.time("c.last_at"), "The last time"),
        column("last_task", d.id("c.last_task"), "The task of the last run"),
    ];
    View {
        name: "schedules",
        about: "One row for each schedule",
        columns,
        from: "ostler.schedule c".to_owned(),
    }
}

fn accounts(d: Database) -> View {
    let hold = format!("CASE WHEN a.held_until < {} THEN {} END", i64::MAX, d.time("a.held_until"));
    let columns = vec![
        column("name", "a.name", "The name of the account"),
        column("concurrency", "a.cap", "How many tasks may run at once, as set; null: no limit"),
        column(
            "window_milli",
            "a.window_milli",
            "How many may run since the provider throttled, in thousandths",
        ),
        column("held_until", hold, "Nothing starts before this time; null: no hold, or until it is released"),
        column("held_why", "a.held_why", "Why nothing starts; null: no hold"),
        column("allowance", "a.allowance", "The allowance that an attempt last reported about"),
        column("used_permille", "a.used_permille", "How much of it was used, in thousandths"),
        column("resets_at", d.time("a.resets_at"), "When that allowance resets"),
    ];
    View {
        name: "accounts",
        about: "One row for each account that has a limit, a hold or a report",
        columns,
        from: "ostler.account a".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_databases_have_the_same_views_and_columns() {
        let names = |database: Database| -> Vec<(&str, Vec<&str>)> {
            let of = |view: View| (view.name, view.columns.iter().map(|column| column.name).collect());
            views(database).into_iter().map(of).collect()
        };
        assert_eq!(names(Database::Sqlite), names(Database::Postgres));
    }

    /// The views as the guide lists them.
    fn listed() -> String {
        let mut text = String::new();
        for View { name, about, columns, .. } in views(Database::Postgres) {
            text += &format!("### `{name}`\n\n{about}.\n\n| column | |\n|---|---|\n");
            for ViewColumn { name, about, .. } in columns {
                text += &format!("| `{name}` | {about} |\n");
            }
            text += "\n";
        }
        text
    }

    #[test]
    fn the_guide_lists_every_column() {
        let guide = include_str!("../../../docs/guide/sql.md");
        assert!(guide.contains(&listed()), "docs/guide/sql.md should have:\n{}", listed());
    }
}
