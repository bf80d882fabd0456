//! Schema and migrations. A change is a new entry in [`MIGRATIONS`]; a released entry is never edited.

/// Marks a file as an Ostler store ("OSTL").
pub(crate) const APPLICATION_ID: i32 = 0x4f53_544c;

/// One migration per schema version; the first one is for an empty file.
pub(crate) const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9, V10];

/// The schema version that this program reads and writes. It shares `user_version` with the log epoch (`log_epoch.rs`).
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

// `phase` is the state, with the readiness of queued tasks folded in, so that each partial index holds exactly the rows
// it is for: `ready` only claimable tasks, `due` only tasks that wait for a time, `keyed` only tasks that count towards
// the limit of their key. See `row.rs` for the numbers. A `why` of 7 is a wait for other tasks, which no time ends.
// Every column of a task is read and rewritten by each of the two updates in its life, so columns that few tasks need are
// packed into one: `trouble` (crashes, node deaths, suspicion), `extras` (policy, folder, deadline), `failure`. `late_at`
// is the earlier of a task's two time limits; it is `not_after`, unless there is a deadline, which has both limits in
// `extras`.
// A closed limit key (`shut_until`) has parked tasks that wait for its gate, or parks every new one; `gate` is the state
// of the gate. The indexes on it hold only such keys. A key without tasks whose gate still has state is in `unused_key`
// until it has none.
// An `edge` is a task that waits for another; `freed` has the finished ones whose waiting tasks were not all processed,
// and the progress. Whether a task was ever waited for is the sign of its `trouble`.
// The numbers of outbox entries are never reused, though the rows are deleted (`AUTOINCREMENT`): acknowledgements name them.
// A successful attempt whose start and finish are one write has no row in `attempt`: it is the task's last, and all of it
// except the worker and session (`ran`) is in the task's row anyway.
const V1: &str = "
CREATE TABLE queue(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    paused TEXT, max_queued INTEGER, key_cap INTEGER, overrides TEXT, kinds TEXT, tell TEXT, rules TEXT,
    clock INTEGER, gate TEXT
) STRICT;

CREATE TABLE lane(
    id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, kind TEXT NOT NULL,
    queued INTEGER NOT NULL DEFAULT 0, claimed INTEGER NOT NULL DEFAULT 0, running INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0,
    pruned_completed INTEGER NOT NULL DEFAULT 0, pruned_failed INTEGER NOT NULL DEFAULT 0,
    pruned_cancelled INTEGER NOT NULL DEFAULT 0,
    high_water INTEGER NOT NULL DEFAULT 0, recent BLOB NOT NULL DEFAULT x'',
    UNIQUE(queue, kind)
) STRICT;

CREATE TABLE task(
    id INTEGER PRIMARY KEY, uid BLOB NOT NULL,
    lane INTEGER NOT NULL, phase INTEGER NOT NULL, why INTEGER NOT NULL,
    rank INTEGER NOT NULL, priority INTEGER NOT NULL, run_at INTEGER NOT NULL,
    token INTEGER NOT NULL, session INTEGER,
    runs INTEGER NOT NULL, failures INTEGER NOT NULL, trouble INTEGER NOT NULL,
    created_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER, cancel_at INTEGER, late_at INTEGER,
    limit_id INTEGER, ran BLOB, extras TEXT, failure TEXT,
    payload TEXT NOT NULL, output TEXT
) STRICT;
CREATE UNIQUE INDEX task_uid ON task(uid);
CREATE INDEX ready ON task(lane, rank, id) WHERE phase = 0;
CREATE INDEX due ON task(run_at, id) WHERE phase = 1 AND why <> 7;
CREATE INDEX keyed ON task(limit_id, phase, rank, id) WHERE limit_id IS NOT NULL AND phase IN (0, 2);
CREATE INDEX late ON task(late_at, id) WHERE late_at IS NOT NULL AND phase < 3;
CREATE INDEX leased ON task(session, id) WHERE phase IN (3, 4);
CREATE INDEX ended ON task(phase, finished_at, id) WHERE phase > 4;

CREATE TABLE unique_key(
    queue INTEGER NOT NULL, key TEXT NOT NULL, task INTEGER NOT NULL, until INTEGER, PRIMARY KEY(queue, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX unique_key_task ON unique_key(task);

CREATE TABLE limits(
    id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, key TEXT NOT NULL,
    used INTEGER NOT NULL DEFAULT 0, tasks INTEGER NOT NULL DEFAULT 0, last INTEGER,
    gate TEXT, shut_why INTEGER, shut_until INTEGER,
    UNIQUE(queue, key)
) STRICT;
CREATE INDEX shut ON limits(queue, shut_until, key) WHERE shut_until IS NOT NULL;
CREATE INDEX shut_due ON limits(shut_until, key) WHERE shut_until IS NOT NULL;
CREATE TABLE unused_key(id INTEGER PRIMARY KEY, limit_id INTEGER NOT NULL UNIQUE) STRICT;

CREATE TABLE edge(
    task INTEGER NOT NULL, after INTEGER NOT NULL, on_failed INTEGER NOT NULL, PRIMARY KEY(task, after)
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_after ON edge(after, task, on_failed);

CREATE TABLE freed(
    task INTEGER PRIMARY KEY, reached INTEGER NOT NULL
) STRICT;

CREATE TABLE attempt(
    task INTEGER NOT NULL, number INTEGER NOT NULL, token INTEGER NOT NULL,
    session BLOB NOT NULL, worker BLOB NOT NULL,
    started_at INTEGER NOT NULL, finished_at INTEGER, ending TEXT, failure TEXT,
    PRIMARY KEY(task, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE step(
    task INTEGER NOT NULL, name TEXT NOT NULL, place INTEGER NOT NULL, value TEXT NOT NULL,
    saved_at INTEGER NOT NULL, token INTEGER NOT NULL,
    PRIMARY KEY(task, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE event(
    task INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, token INTEGER NOT NULL,
    kind INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY(task, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE telling(
    number INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, lane INTEGER NOT NULL, task INTEGER NOT NULL, session INTEGER,
    attempt INTEGER NOT NULL, what INTEGER NOT NULL, at INTEGER NOT NULL, failure TEXT, run_at INTEGER
) STRICT;
CREATE INDEX untold ON telling(queue, what, number) WHERE session IS NULL;
CREATE INDEX taken ON telling(session) WHERE session IS NOT NULL;
CREATE INDEX telling_task ON telling(task);

CREATE TABLE schedule(
    name TEXT PRIMARY KEY, spec TEXT NOT NULL, overlap INTEGER NOT NULL, missed INTEGER NOT NULL,
    queue TEXT NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL, priority INTEGER NOT NULL, overrides TEXT,
    activity INTEGER NOT NULL, next_at INTEGER, last_at INTEGER, last_task BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE job(
    id BLOB PRIMARY KEY, name TEXT NOT NULL, queue TEXT NOT NULL, fingerprint TEXT NOT NULL, spec TEXT NOT NULL,
    items INTEGER NOT NULL, made_at INTEGER NOT NULL, cancelled_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX job_fingerprint ON job(fingerprint, id);
CREATE INDEX job_made ON job(made_at, id);

CREATE TABLE session(
    id INTEGER PRIMARY KEY, uid BLOB NOT NULL UNIQUE, name TEXT NOT NULL, pid INTEGER NOT NULL,
    version TEXT NOT NULL, ttl_ms INTEGER NOT NULL, settings TEXT NOT NULL,
    joined_at INTEGER NOT NULL, ended_at INTEGER, swept INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE orders(
    session INTEGER NOT NULL, number INTEGER NOT NULL, said TEXT NOT NULL, answer TEXT, PRIMARY KEY(session, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE worker(
    session INTEGER NOT NULL, place INTEGER NOT NULL, id BLOB NOT NULL, pool TEXT NOT NULL, pid INTEGER,
    state INTEGER NOT NULL, memory_bytes INTEGER, started_at INTEGER NOT NULL,
    done INTEGER NOT NULL, failed INTEGER NOT NULL, task BLOB, task_started_at INTEGER, last_seen INTEGER NOT NULL,
    PRIMARY KEY(session, place)
) STRICT, WITHOUT ROWID;
";

// The record of a move to another place: its target and its stage. It has one row, from the first move on.
const V2: &str = "
CREATE TABLE departure(
    one INTEGER PRIMARY KEY CHECK(one = 1), uid BLOB NOT NULL, round INTEGER NOT NULL,
    stage INTEGER NOT NULL, target TEXT NOT NULL
) STRICT;
";

// Totals of a lane, which only rise: started attempts, failed attempts whose task was queued again, and replays by the
// final state of the task. `high_water` is the largest length of the lane's queue; the lanes of a queue share it, each as
// of when it last grew.
const V3: &str = "
ALTER TABLE lane ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN retried INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN replayed_failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN replayed_cancelled INTEGER NOT NULL DEFAULT 0;
";

// Dead letters by queue and kind. A success writes nothing here. `expires_at` is when the leases of a session end unless it
// renews, as of its last report: liveness is decided by files (`liveness.rs`), this column is for readers of the tables.
const V4: &str = "
CREATE INDEX dead ON task(lane, phase, finished_at, id) WHERE phase IN (6, 7);
ALTER TABLE session ADD COLUMN expires_at INTEGER;
";

// Typed events: `data` says what the event has beside its text. A text that is too long for a row is in `chunk`, compressed
// and in parts; so is a long output (owner 0). `lossless` holds the events that a reader looks for among log lines.
// `conversation` is what an attempt asked of a model, and what that cost. Each subscriber of a queue has its own entries in
// the outbox; `taken` counts how often one was taken.
const V5: &str = "
ALTER TABLE event ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE event ADD COLUMN text TEXT;
CREATE INDEX lossless ON event(task, number, kind) WHERE kind <> 0 AND kind <> 3;
CREATE TABLE chunk(
    task INTEGER NOT NULL, owner INTEGER NOT NULL, part INTEGER NOT NULL, size INTEGER NOT NULL, bytes BLOB NOT NULL,
    PRIMARY KEY(task, owner, part)
) STRICT, WITHOUT ROWID;
ALTER TABLE telling RENAME TO outbox;
ALTER TABLE outbox ADD COLUMN subscriber TEXT NOT NULL DEFAULT '';
UPDATE outbox SET subscriber = CASE what WHEN 0 THEN 'on_completed' WHEN 1 THEN 'on_failed' ELSE 'on_retry' END;
ALTER TABLE outbox ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;
DROP INDEX untold;
DROP INDEX telling_task;
CREATE INDEX untaken ON outbox(queue, subscriber, number) WHERE session IS NULL;
CREATE INDEX outbox_task ON outbox(task);
CREATE TABLE conversation(
    task INTEGER NOT NULL, token INTEGER NOT NULL, session TEXT, prompt INTEGER, usage TEXT NOT NULL,
    PRIMARY KEY(task, token)
) STRICT, WITHOUT ROWID;
";

// The newest workers that are gone, with their last counts. `host` is null for nodes of earlier versions.
const V6: &str = "
ALTER TABLE session ADD COLUMN host TEXT;
CREATE TABLE gone_worker(
    number INTEGER PRIMARY KEY AUTOINCREMENT, session BLOB NOT NULL, node TEXT NOT NULL, id BLOB NOT NULL, pool TEXT NOT NULL,
    pid INTEGER, state INTEGER NOT NULL, memory_bytes INTEGER, started_at INTEGER NOT NULL,
    done INTEGER NOT NULL, failed INTEGER NOT NULL, how INTEGER NOT NULL, gone_at INTEGER NOT NULL
) STRICT;
";

// Circuit breakers around calls that handlers make. A closed one that has counted nothing has no row.
const V7: &str = "
CREATE TABLE call_breaker(name TEXT PRIMARY KEY, state TEXT NOT NULL, changed_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

// Names of workers; a node reports its workers again in a moment. Accounts: limits that the queues that name one share; an account without
// state has no row.
// Money, in billionths of a dollar. `spending` has what queues with a budget have spent, and how much of it is reserved for attempts in
// flight; each of these has a `reservation` for each budget that it is charged to. `spent` outlives tasks and queues.
const V8: &str = "
ALTER TABLE worker ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE gone_worker ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE queue ADD COLUMN account TEXT;
CREATE INDEX account_queue ON queue(account) WHERE account IS NOT NULL;
CREATE TABLE account(
    name TEXT PRIMARY KEY, cap INTEGER, held_until INTEGER, held_why TEXT, window_milli INTEGER, lowered_at INTEGER,
    allowance TEXT, used_permille INTEGER, resets_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE spending(
    queue TEXT PRIMARY KEY, spent INTEGER NOT NULL, reserved INTEGER NOT NULL, in_flight INTEGER NOT NULL,
    day INTEGER NOT NULL, spent_today INTEGER NOT NULL, recent TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE reservation(
    task INTEGER NOT NULL, token INTEGER NOT NULL, charged TEXT NOT NULL, queue TEXT NOT NULL,
    rest INTEGER NOT NULL, spent INTEGER NOT NULL, PRIMARY KEY(task, token, charged)
) STRICT, WITHOUT ROWID;
CREATE TABLE spent(
    day INTEGER NOT NULL, queue TEXT NOT NULL, pool TEXT NOT NULL, account TEXT NOT NULL, model TEXT NOT NULL,
    runs INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost INTEGER NOT NULL, estimated INTEGER NOT NULL,
    PRIMARY KEY(day, queue, pool, account, model)
) STRICT, WITHOUT ROWID;
";

// The pool that serves a queue, in a column: its leased tasks count for the queue of the pool, too.
const V9: &str = "
ALTER TABLE queue ADD COLUMN pool TEXT;
UPDATE queue SET pool = json_extract(rules, '$.pool') WHERE json_valid(rules);
CREATE INDEX pool_queue ON queue(pool) WHERE pool IS NOT NULL;
";

// Only the views have new columns; they are created again after each migration.
const V10: &str = "";
