//! Schema and migrations. A change is a new entry in [`MIGRATIONS`]; a released entry is never edited, and entries only
//! add: nodes of this version and of the previous one may share a schema.
//!
//! In every statement of this crate the schema is called `ostler`; the configured name replaces it before the statement
//! is sent.

/// One migration per schema version; the first one is for an empty schema.
pub(crate) const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11];

/// The schema version that this program reads and writes.
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

/// The oldest schema version whose programs can still use the data that this one writes.
pub(crate) const SINCE: i32 = 1;

// `phase` is the state, with the readiness of queued tasks folded in, so that each partial index holds exactly the rows
// it is for: `ready` only claimable tasks, `due` only tasks that wait for a time, `keyed` only tasks that count towards
// the limit of their key. See `row.rs` for the numbers. A `why` of 7 is a wait for other tasks, which no time ends.
// Values that few tasks need are packed into one column: `trouble` (crashes, node deaths, suspicion, and by its sign
// whether the task was ever waited for), `extras` (policy, folder, deadline), `failure`. `late_at` is the earlier of a
// task's two time limits.
// A closed limit key (`shut_until`) has parked tasks that wait for its gate, or parks every new one; `gate` is the state
// of the gate. A key without tasks whose gate still has state is in `unused_key` until it has none.
// An `edge` is a task that waits for another; `freed` has the finished ones whose waiting tasks were not all processed,
// and the progress.
// The counts of a lane are those of its row and of all its rows in `lane_delta`: each transaction adds a row there, so
// that none waits for another; they are folded from time to time.
// Tasks enqueued by a foreign transaction are in `inbox` until they are taken in; for those that `waits` there was no
// room.
// The `heart_` columns of a session identify the server process of its heartbeat connection, unless a pooler hides it:
// the pid, and the start times of the process and of the server.
// A successful attempt whose start and finish are one write has no row in `attempt`: it is the task's last, and all of it
// except the worker and session (`ran`) is in the task's row anyway.
const V1: &str = "
CREATE TABLE ostler.queue(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE \"C\" NOT NULL UNIQUE,
    paused text, max_queued bigint, key_cap bigint, overrides text, kinds text, tell text, rules text,
    clock bigint, gate text
) WITH (fillfactor = 50);

CREATE TABLE ostler.lane(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue bigint NOT NULL, kind text COLLATE \"C\" NOT NULL,
    queued bigint NOT NULL DEFAULT 0, claimed bigint NOT NULL DEFAULT 0, running bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0, failed bigint NOT NULL DEFAULT 0, cancelled bigint NOT NULL DEFAULT 0,
    pruned_completed bigint NOT NULL DEFAULT 0, pruned_failed bigint NOT NULL DEFAULT 0,
    pruned_cancelled bigint NOT NULL DEFAULT 0,
    high_water bigint NOT NULL DEFAULT 0, recent bigint[] NOT NULL DEFAULT '{}',
    UNIQUE(queue, kind)
) WITH (fillfactor = 50);

CREATE TABLE ostler.lane_delta(
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, lane bigint NOT NULL,
    queued bigint NOT NULL, claimed bigint NOT NULL, running bigint NOT NULL,
    completed bigint NOT NULL, failed bigint NOT NULL, cancelled bigint NOT NULL,
    pruned_completed bigint NOT NULL, pruned_failed bigint NOT NULL, pruned_cancelled bigint NOT NULL,
    recent bigint[] NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE ostler.task(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid uuid NOT NULL,
    queue bigint NOT NULL, lane bigint NOT NULL,
    rank bigint NOT NULL, run_at bigint NOT NULL, token bigint NOT NULL, trouble bigint NOT NULL, created_at bigint NOT NULL,
    session bigint, limit_id bigint, started_at bigint, finished_at bigint, cancel_at bigint, late_at bigint,
    runs integer NOT NULL, failures integer NOT NULL,
    phase smallint NOT NULL, why smallint NOT NULL, priority smallint NOT NULL,
    ran bytea, extras text, failure text,
    payload text NOT NULL, output text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX task_uid ON ostler.task(uid);
CREATE INDEX task_ready ON ostler.task(lane, rank, id) WHERE phase = 0;
CREATE INDEX task_due ON ostler.task(run_at, id) WHERE phase = 1 AND why <> 7;
CREATE INDEX task_keyed ON ostler.task(limit_id, phase, rank, id) WHERE limit_id IS NOT NULL AND phase IN (0, 2);
CREATE INDEX task_late ON ostler.task(late_at, id) WHERE late_at IS NOT NULL AND phase < 3;
CREATE INDEX task_leased ON ostler.task(session, id) WHERE phase IN (3, 4);
CREATE INDEX task_ended ON ostler.task(phase, finished_at, id) WHERE phase > 4;

CREATE TABLE ostler.unique_key(
    queue bigint NOT NULL, key text COLLATE \"C\" NOT NULL, task bigint NOT NULL, until bigint, PRIMARY KEY(queue, key)
);
CREATE INDEX unique_key_task ON ostler.unique_key(task);

CREATE TABLE ostler.limits(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue bigint NOT NULL, key text COLLATE \"C\" NOT NULL,
    used bigint NOT NULL DEFAULT 0, tasks bigint NOT NULL DEFAULT 0, last bigint,
    gate text, shut_why smallint, shut_until bigint,
    UNIQUE(queue, key)
) WITH (fillfactor = 70);
CREATE INDEX limits_shut ON ostler.limits(queue, shut_until, key) WHERE shut_until IS NOT NULL;
CREATE INDEX limits_due ON ostler.limits(shut_until, key) WHERE shut_until IS NOT NULL;
CREATE TABLE ostler.unused_key(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, limit_id bigint NOT NULL UNIQUE
);

CREATE TABLE ostler.edge(
    task bigint NOT NULL, after bigint NOT NULL, on_failed smallint NOT NULL, PRIMARY KEY(task, after)
);
CREATE INDEX edge_after ON ostler.edge(after, task);
CREATE TABLE ostler.freed(task bigint PRIMARY KEY, reached bigint NOT NULL);

CREATE TABLE ostler.attempt(
    task bigint NOT NULL, number integer NOT NULL, token bigint NOT NULL,
    session uuid NOT NULL, worker uuid NOT NULL,
    started_at bigint NOT NULL, finished_at bigint, ending text, failure text,
    PRIMARY KEY(task, number)
);
CREATE TABLE ostler.step(
    task bigint NOT NULL, name text COLLATE \"C\" NOT NULL, place integer NOT NULL, value text NOT NULL,
    saved_at bigint NOT NULL, token bigint NOT NULL,
    PRIMARY KEY(task, name)
);
CREATE TABLE ostler.event(
    task bigint NOT NULL, number bigint NOT NULL, at bigint NOT NULL, token bigint NOT NULL,
    kind smallint NOT NULL, data text NOT NULL,
    PRIMARY KEY(task, number)
);

CREATE TABLE ostler.telling(
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue bigint NOT NULL, lane bigint NOT NULL, task bigint NOT NULL, session bigint,
    attempt integer NOT NULL, what smallint NOT NULL, at bigint NOT NULL, failure text, run_at bigint
);
CREATE INDEX telling_untold ON ostler.telling(queue, what, number) WHERE session IS NULL;
CREATE INDEX telling_taken ON ostler.telling(session) WHERE session IS NOT NULL;
CREATE INDEX telling_task ON ostler.telling(task);

CREATE TABLE ostler.schedule(
    name text COLLATE \"C\" PRIMARY KEY, spec text NOT NULL, overlap smallint NOT NULL, missed smallint NOT NULL,
    queue text NOT NULL, kind text NOT NULL, payload text NOT NULL, priority smallint NOT NULL, overrides text,
    activity smallint NOT NULL, next_at bigint, last_at bigint, last_task uuid
);
CREATE TABLE ostler.job(
    id uuid PRIMARY KEY, name text NOT NULL, queue text COLLATE \"C\" NOT NULL, fingerprint text COLLATE \"C\" NOT NULL,
    spec text NOT NULL, items bigint NOT NULL, made_at bigint NOT NULL, cancelled_at bigint
);
CREATE INDEX job_fingerprint ON ostler.job(fingerprint, id);
CREATE INDEX job_made ON ostler.job(made_at, id);

CREATE TABLE ostler.session(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid uuid NOT NULL UNIQUE, name text NOT NULL, pid bigint NOT NULL,
    version text NOT NULL, ttl_ms bigint NOT NULL, settings text NOT NULL,
    joined_at bigint NOT NULL, expires_at bigint NOT NULL, renewals bigint NOT NULL DEFAULT 0,
    ended_at bigint, swept boolean NOT NULL DEFAULT false,
    heart_pid integer, heart_since bigint, heart_server bigint
) WITH (fillfactor = 50);
CREATE INDEX session_open ON ostler.session(id) WHERE ended_at IS NULL;
CREATE INDEX session_unswept ON ostler.session(id) WHERE ended_at IS NOT NULL AND NOT swept;

CREATE TABLE ostler.orders(
    session bigint NOT NULL, number bigint NOT NULL, said text NOT NULL, answer text, PRIMARY KEY(session, number)
);
CREATE TABLE ostler.worker(
    session bigint NOT NULL, place integer NOT NULL, id uuid NOT NULL, pool text NOT NULL, pid bigint,
    state smallint NOT NULL, memory_bytes bigint, started_at bigint NOT NULL,
    done bigint NOT NULL, failed bigint NOT NULL, task uuid, task_started_at bigint, last_seen bigint NOT NULL,
    PRIMARY KEY(session, place)
) WITH (fillfactor = 50);

CREATE TABLE ostler.inbox(
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, waits boolean NOT NULL DEFAULT false,
    queue text NOT NULL, task text NOT NULL
);
CREATE INDEX inbox_new ON ostler.inbox(seq) WHERE NOT waits;
CREATE INDEX inbox_waits ON ostler.inbox(seq) WHERE waits;

CREATE FUNCTION ostler.new_id() RETURNS text LANGUAGE sql VOLATILE AS $$
    WITH made AS (
        SELECT B'00' || ('x' || lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
            || left(md5(gen_random_uuid()::text || gen_random_uuid()::text), 20))::bit(128) AS bits
    )
    SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substring(bits FROM 5 * at + 1 FOR 5)::bit(5)::integer + 1, 1), ''
        ORDER BY at)
    FROM made, generate_series(0, 25) AS at
$$;

CREATE FUNCTION ostler.enqueue(
    queue text, kind text, payload jsonb DEFAULT '{}', priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL,
    unique_key text DEFAULT NULL, limit_key text DEFAULT NULL, not_after timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL,
    id text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    given text := upper(coalesce(enqueue.id, ostler.new_id()));
    body text := coalesce(enqueue.payload, 'null')::text;
    quiet boolean;
BEGIN
    IF coalesce(octet_length(enqueue.queue), 0) NOT BETWEEN 1 AND 128 OR enqueue.queue ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'queue must be a name of 1 to 128 bytes, without control characters' USING ERRCODE = '22023';
    END IF;
    IF coalesce(octet_length(enqueue.kind), 0) NOT BETWEEN 1 AND 128 OR enqueue.kind ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'kind must be a name of 1 to 128 bytes, without control characters' USING ERRCODE = '22023';
    END IF;
    IF octet_length(body) > 1048576 THEN
        RAISE EXCEPTION 'payload has % bytes, and at most 1048576 are taken', octet_length(body) USING ERRCODE = '22023';
    END IF;
    IF coalesce(enqueue.priority, 0) NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION 'priority is %, and must be from -100 to 100', enqueue.priority USING ERRCODE = '22023';
    END IF;
    IF octet_length(enqueue.unique_key) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'unique_key must have 1 to 512 bytes' USING ERRCODE = '22023';
    END IF;
    IF octet_length(enqueue.limit_key) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'limit_key must have 1 to 512 bytes' USING ERRCODE = '22023';
    END IF;
    IF given !~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' THEN
        RAISE EXCEPTION 'id must have 26 letters and digits, such as 01JC8Z0Q4M9T7N3V5X1B2D6F8H' USING ERRCODE = '22023';
    END IF;
    -- Whoever finds something there has been told of it.
    quiet := EXISTS(SELECT 1 FROM ostler.inbox i WHERE NOT i.waits);
    INSERT INTO ostler.inbox(queue, task) VALUES(enqueue.queue, jsonb_strip_nulls(jsonb_build_object(
        'id', given, 'queue', enqueue.queue, 'kind', enqueue.kind, 'payload', body, 'priority', coalesce(enqueue.priority, 0),
        'run_at_ms', floor(extract(epoch FROM enqueue.run_at) * 1000)::bigint,
        'unique_key', enqueue.unique_key, 'limit_key', enqueue.limit_key,
        'not_after_ms', floor(extract(epoch FROM enqueue.not_after) * 1000)::bigint,
        'deadline_ms', floor(extract(epoch FROM enqueue.deadline) * 1000)::bigint))::text);
    IF NOT quiet THEN
        PERFORM pg_notify('ostler ' || n.nspname, 'sql ready') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = 'ostler.inbox'::regclass;
    END IF;
    RETURN given;
END
$$;
";

// A session that has `departed` is shutting down on purpose: when it is found dead, its tasks are handed back.
const V2: &str = "ALTER TABLE ostler.session ADD COLUMN departed boolean NOT NULL DEFAULT false;";

// Each writing transaction changes the row of its slot, which proves its commit (see `commit_mark.rs`). A transaction
// that has written nothing has nothing to prove.
const V3: &str = "
CREATE TABLE ostler.commit_mark(slot bigint PRIMARY KEY, mark bigint NOT NULL, at bigint NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

CREATE FUNCTION ostler.mark_commit(own bigint, before bigint, after bigint, now_ms bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        RETURN false;
    END IF;
    IF before = 0 THEN
        INSERT INTO ostler.commit_mark(slot, mark, at) VALUES(own, after, now_ms);
    ELSE
        UPDATE ostler.commit_mark SET mark = after, at = now_ms WHERE slot = own AND mark = before;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this transaction was given up, or its commit mark was removed' USING ERRCODE = 'OSMRK';
        END IF;
    END IF;
    RETURN true;
END
$$;
";

// Totals of a lane, which only rise: started attempts, failed attempts whose task was queued again, and replays by the
// final state of the task. (A node of the previous version, which folds without knowing them, loses the unfolded part of
// these, and of nothing else.) `high_water` is the largest length of the lane's queue; the lanes of a queue share it,
// each as of its last fold.
const V4: &str = "
ALTER TABLE ostler.lane ADD COLUMN attempts bigint NOT NULL DEFAULT 0, ADD COLUMN retried bigint NOT NULL DEFAULT 0,
    ADD COLUMN replayed_failed bigint NOT NULL DEFAULT 0, ADD COLUMN replayed_cancelled bigint NOT NULL DEFAULT 0;
ALTER TABLE ostler.lane_delta ADD COLUMN attempts bigint NOT NULL DEFAULT 0, ADD COLUMN retried bigint NOT NULL DEFAULT 0,
    ADD COLUMN replayed_failed bigint NOT NULL DEFAULT 0, ADD COLUMN replayed_cancelled bigint NOT NULL DEFAULT 0;
";

// Dead letters by queue and kind; a success writes nothing there. The function `enqueue` of `functions.rs` has more
// parameters than the one that it replaces.
const V5: &str = "
CREATE INDEX task_dead ON ostler.task(lane, phase, finished_at, id) WHERE phase IN (6, 7);
DROP FUNCTION ostler.enqueue(text, text, jsonb, integer, timestamptz, text, text, timestamptz, timestamptz, text);
";

// Typed events: `data` says what the event has beside its text. A text that is too long for a row is in `chunk`, compressed
// and in parts; so is a long output (owner 0). `event_lossless` holds the events that a reader looks for among log lines.
// `conversation` is what an attempt asked of a model, and what that cost. Each subscriber of a queue has its own entries in
// the outbox; `taken` counts how often one was taken.
const V6: &str = "
ALTER TABLE ostler.event ADD COLUMN version smallint NOT NULL DEFAULT 0, ADD COLUMN text text;
CREATE INDEX event_lossless ON ostler.event(task, number, kind) WHERE kind <> 0 AND kind <> 3;
CREATE TABLE ostler.chunk(
    task bigint NOT NULL, owner bigint NOT NULL, part integer NOT NULL, size bigint NOT NULL, bytes bytea NOT NULL,
    PRIMARY KEY(task, owner, part)
);
ALTER TABLE ostler.chunk ALTER COLUMN bytes SET STORAGE EXTERNAL;
ALTER TABLE ostler.telling RENAME TO outbox;
ALTER TABLE ostler.outbox ADD COLUMN subscriber text COLLATE \"C\" NOT NULL DEFAULT '',
    ADD COLUMN taken integer NOT NULL DEFAULT 0;
UPDATE ostler.outbox SET subscriber = CASE what WHEN 0 THEN 'on_completed' WHEN 1 THEN 'on_failed' ELSE 'on_retry' END;
DROP INDEX ostler.telling_untold;
ALTER INDEX ostler.telling_taken RENAME TO outbox_taken;
ALTER INDEX ostler.telling_task RENAME TO outbox_task;
CREATE INDEX outbox_untaken ON ostler.outbox(queue, subscriber, number) WHERE session IS NULL;
CREATE TABLE ostler.conversation(
    task bigint NOT NULL, token bigint NOT NULL, session text, prompt bigint, usage text NOT NULL,
    PRIMARY KEY(task, token)
);
";

// The newest workers that are gone, with their last counts. `host` is null for nodes of earlier versions. The function
// `enqueue` of `functions.rs` has one more parameter than the one that it replaces.
const V7: &str = "
ALTER TABLE ostler.session ADD COLUMN host text;
CREATE TABLE ostler.gone_worker(
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session uuid NOT NULL, node text NOT NULL, id uuid NOT NULL,
    pool text NOT NULL, pid bigint, state smallint NOT NULL, memory_bytes bigint, started_at bigint NOT NULL,
    done bigint NOT NULL, failed bigint NOT NULL, how smallint NOT NULL, gone_at bigint NOT NULL
);
DROP FUNCTION IF EXISTS ostler.enqueue(text, text, json, integer, timestamptz, text, text, timestamptz, timestamptz, text, interval, text,
    text[], text, integer, interval, text, integer);
";

// Circuit breakers around calls that handlers make. A closed one that has counted nothing has no row.
const V8: &str = "
CREATE TABLE ostler.call_breaker(name text PRIMARY KEY, state text NOT NULL, changed_at bigint NOT NULL);
";

// Names of workers; a node reports its workers again in a moment. Accounts: limits that the queues that name one share; an account without
// state has no row.
// Money, in billionths of a dollar. `spending` has what queues with a budget have spent, and how much of it is reserved for attempts in
// flight; each of these has a `reservation` for each budget that it is charged to. `spent` outlives tasks and queues.
const V9: &str = "
ALTER TABLE ostler.worker ADD COLUMN name text NOT NULL DEFAULT '';
ALTER TABLE ostler.gone_worker ADD COLUMN name text NOT NULL DEFAULT '';
ALTER TABLE ostler.queue ADD COLUMN account text COLLATE \"C\";
CREATE INDEX queue_account ON ostler.queue(account) WHERE account IS NOT NULL;
CREATE TABLE ostler.account(
    name text COLLATE \"C\" PRIMARY KEY, cap bigint, held_until bigint, held_why text, window_milli bigint, lowered_at bigint,
    allowance text, used_permille bigint, resets_at bigint
);
CREATE TABLE ostler.spending(
    queue text COLLATE \"C\" PRIMARY KEY, spent bigint NOT NULL, reserved bigint NOT NULL, in_flight bigint NOT NULL,
    day bigint NOT NULL, spent_today bigint NOT NULL, recent text NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE ostler.reservation(
    task bigint NOT NULL, token bigint NOT NULL, charged text COLLATE \"C\" NOT NULL, queue text COLLATE \"C\" NOT NULL,
    rest bigint NOT NULL, spent bigint NOT NULL, PRIMARY KEY(task, token, charged)
);
CREATE TABLE ostler.spent(
    day bigint NOT NULL, queue text COLLATE \"C\" NOT NULL, pool text COLLATE \"C\" NOT NULL, account text COLLATE \"C\" NOT NULL,
    model text COLLATE \"C\" NOT NULL,
    runs bigint NOT NULL, input bigint NOT NULL, output bigint NOT NULL, cache_read bigint NOT NULL, cache_write bigint NOT NULL,
    reasoning bigint NOT NULL, cost bigint NOT NULL, estimated bigint NOT NULL,
    PRIMARY KEY(day, queue, pool, account, model)
) WITH (fillfactor = 50);
";

// The pool that serves a queue, in a column: its leased tasks count for the queue of the pool, too.
const V10: &str = "
ALTER TABLE ostler.queue ADD COLUMN pool text COLLATE \"C\";
UPDATE ostler.queue SET pool = rules::json->>'pool' WHERE rules IS NOT NULL;
CREATE INDEX queue_pool ON ostler.queue(pool) WHERE pool IS NOT NULL;
";

// Only the views have new columns; they are created again after each migration.
const V11: &str = "";

/// Empties all tables. The numbers of outbox entries restart.
#[cfg(feature = "conformance")]
pub(crate) const CLEAR: &str = "
DELETE FROM ostler.queue; DELETE FROM ostler.lane; DELETE FROM ostler.lane_delta; DELETE FROM ostler.task;
DELETE FROM ostler.unique_key; DELETE FROM ostler.limits; DELETE FROM ostler.unused_key;
DELETE FROM ostler.edge; DELETE FROM ostler.freed;
DELETE FROM ostler.attempt; DELETE FROM ostler.step; DELETE FROM ostler.event; DELETE FROM ostler.chunk; DELETE FROM ostler.conversation; DELETE FROM ostler.outbox;
DELETE FROM ostler.inbox; DELETE FROM ostler.schedule; DELETE FROM ostler.job;
DELETE FROM ostler.session; DELETE FROM ostler.orders; DELETE FROM ostler.worker; DELETE FROM ostler.gone_worker;
DELETE FROM ostler.call_breaker; DELETE FROM ostler.account; DELETE FROM ostler.spending; DELETE FROM ostler.reservation;
DELETE FROM ostler.spent;
SELECT setval(pg_get_serial_sequence('ostler.outbox', 'number'), 1, false);
";
