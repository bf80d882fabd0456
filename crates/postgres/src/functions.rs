//! SQL functions for people and other programs: `enqueue`, `cancel` and `retry` within their own transaction, ids as text,
//! and the right to read. They are created anew with each schema version.
//!
//! `enqueue`, `cancel` and `retry` only add a row to the inbox (`inbox.rs`); the next call on the store carries it out.

pub(crate) const FUNCTIONS: &str = r#"
CREATE OR REPLACE FUNCTION ostler.id_text(uid uuid) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substring(b.bits FROM 5 * at + 1 FOR 5)::bit(5)::integer + 1, 1), ''
        ORDER BY at)
    FROM (SELECT B'00' || ('x' || replace(id_text.uid::text, '-', ''))::bit(128) AS bits) b, generate_series(0, 25) AS at
$$;
COMMENT ON FUNCTION ostler.id_text(uuid) IS 'The text of an id, from its sixteen bytes';

CREATE OR REPLACE FUNCTION ostler.uid(id text) RETURNS uuid LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    bits bit varying := B'';
    hex text := '';
BEGIN
    IF upper(uid.id) !~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' THEN
        RAISE EXCEPTION 'id must have 26 letters and digits, such as 01JC8Z0Q4M9T7N3V5X1B2D6F8H' USING ERRCODE = '22023';
    END IF;
    FOR at IN 1..26 LOOP
        bits := bits || (strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(upper(uid.id), at, 1)) - 1)::bit(5);
    END LOOP;
    FOR at IN 0..3 LOOP
        hex := hex || lpad(to_hex(substring(bits FROM 3 + 32 * at FOR 32)::bit(32)::bigint), 8, '0');
    END LOOP;
    RETURN hex::uuid;
END
$$;
COMMENT ON FUNCTION ostler.uid(text) IS 'The sixteen bytes of an id, by which tasks are indexed';

CREATE OR REPLACE FUNCTION ostler.add_to_inbox(queue text, entry text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Nodes have had a hint of an entry that is there already.
    quiet boolean := EXISTS(SELECT 1 FROM ostler.inbox i WHERE NOT i.waits);
BEGIN
    INSERT INTO ostler.inbox(queue, task) VALUES(add_to_inbox.queue, add_to_inbox.entry);
    IF NOT quiet THEN
        PERFORM pg_notify('ostler ' || n.nspname, 'sql ready') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = 'ostler.inbox'::regclass;
    END IF;
END
$$;
COMMENT ON FUNCTION ostler.add_to_inbox(text, text) IS 'Internal: use enqueue, cancel or retry';

CREATE OR REPLACE FUNCTION ostler.enqueue(
    queue text, kind text, payload json DEFAULT '{}', priority integer DEFAULT 0, run_at timestamptz DEFAULT NULL,
    unique_key text DEFAULT NULL, limit_key text DEFAULT NULL, not_after timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL,
    id text DEFAULT NULL, key_for interval DEFAULT NULL, if_taken text DEFAULT 'keep', after text[] DEFAULT '{}',
    if_failed text DEFAULT 'cancel', attempts integer DEFAULT NULL, timeout interval DEFAULT NULL, folder text DEFAULT NULL,
    cost integer DEFAULT NULL, key_until text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    given text := upper(coalesce(enqueue.id, ostler.new_id()));
    body text := coalesce(enqueue.payload, 'null')::text;
    awaited text;
BEGIN
    IF coalesce(octet_length(enqueue.queue), 0) NOT BETWEEN 1 AND 128 OR enqueue.queue ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'queue must be a name of 1 to 128 bytes, without control characters' USING ERRCODE = '22023';
    END IF;
    IF coalesce(octet_length(enqueue.kind), 0) NOT BETWEEN 1 AND 128 OR enqueue.kind ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'kind must be a name of 1 to 128 bytes, without control characters' USING ERRCODE = '22023';
    END IF;
    IF octet_length(body) > 1048576 THEN
        RAISE EXCEPTION 'payload has % bytes, but at most 1048576 are allowed', octet_length(body) USING ERRCODE = '22023';
    END IF;
    IF coalesce(enqueue.priority, 0) NOT BETWEEN -100 AND 100 THEN
        RAISE EXCEPTION 'priority is %, but must be from -100 to 100', enqueue.priority USING ERRCODE = '22023';
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
    IF coalesce(enqueue.if_taken, 'keep') NOT IN ('keep', 'replace', 'reject') THEN
        RAISE EXCEPTION 'if_taken is %, but must be keep, replace or reject', enqueue.if_taken USING ERRCODE = '22023';
    END IF;
    IF coalesce(enqueue.if_failed, 'cancel') NOT IN ('cancel', 'run', 'wait') THEN
        RAISE EXCEPTION 'if_failed is %, but must be cancel, run or wait', enqueue.if_failed USING ERRCODE = '22023';
    END IF;
    IF enqueue.if_taken = 'replace' AND cardinality(enqueue.after) > 0 THEN
        RAISE EXCEPTION 'if_taken cannot be replace for a task that waits for others' USING ERRCODE = '22023';
    END IF;
    IF enqueue.key_for <= interval '0' OR enqueue.timeout <= interval '0' THEN
        RAISE EXCEPTION 'key_for and timeout must be longer than zero' USING ERRCODE = '22023';
    END IF;
    IF enqueue.key_until NOT IN ('end', 'removed') THEN
        RAISE EXCEPTION 'key_until is %, but must be end or removed', enqueue.key_until USING ERRCODE = '22023';
    END IF;
    IF enqueue.key_until IS NOT NULL AND enqueue.key_for IS NOT NULL THEN
        RAISE EXCEPTION 'key_until and key_for exclude each other' USING ERRCODE = '22023';
    END IF;
    IF enqueue.attempts NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'attempts is %, but must be from 1 to 1000000', enqueue.attempts USING ERRCODE = '22023';
    END IF;
    IF enqueue.cost NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'cost is %, but must be from 1 to 1000000', enqueue.cost USING ERRCODE = '22023';
    END IF;
    IF octet_length(enqueue.folder) > 4096 THEN
        RAISE EXCEPTION 'folder must have at most 4096 bytes' USING ERRCODE = '22023';
    END IF;
    IF cardinality(enqueue.after) > 1000 THEN
        RAISE EXCEPTION 'after names % tasks, but at most 1000 are allowed', cardinality(enqueue.after) USING ERRCODE = '22023';
    END IF;
    FOREACH awaited IN ARRAY coalesce(enqueue.after, '{}') LOOP
        IF upper(awaited) = given OR NOT (EXISTS(SELECT 1 FROM ostler.task t WHERE t.uid = ostler.uid(awaited))
            OR EXISTS(SELECT 1 FROM ostler.inbox i WHERE i.task::json ->> 'id' = upper(awaited))) THEN
            RAISE EXCEPTION 'after names the task %, which does not exist', awaited USING ERRCODE = '22023';
        END IF;
    END LOOP;
    PERFORM ostler.add_to_inbox(enqueue.queue, json_strip_nulls(json_build_object(
        'id', given, 'queue', enqueue.queue, 'kind', enqueue.kind, 'payload', body, 'priority', coalesce(enqueue.priority, 0),
        'run_at_ms', floor(extract(epoch FROM enqueue.run_at) * 1000)::bigint,
        'unique_key', enqueue.unique_key, 'hold_ms', floor(extract(epoch FROM enqueue.key_for) * 1000)::bigint,
        'key_until', enqueue.key_until,
        'on_conflict', CASE WHEN enqueue.unique_key IS NOT NULL THEN enqueue.if_taken END,
        'limit_key', enqueue.limit_key,
        'after', (SELECT json_agg(upper(n.named)) FROM unnest(enqueue.after) AS n(named)), 'on_failed', enqueue.if_failed,
        'overrides', json_build_object('attempts', enqueue.attempts,
            'timeout_ms', floor(extract(epoch FROM enqueue.timeout) * 1000)::bigint),
        'not_after_ms', floor(extract(epoch FROM enqueue.not_after) * 1000)::bigint,
        'deadline_ms', floor(extract(epoch FROM enqueue.deadline) * 1000)::bigint,
        'folder', enqueue.folder, 'cost', enqueue.cost))::text);
    RETURN given;
END
$$;
COMMENT ON FUNCTION ostler.enqueue(text, text, json, integer, timestamptz, text, text, timestamptz, timestamptz, text, interval, text,
    text[], text, integer, interval, text, integer, text) IS 'Enqueues a task when this transaction commits. Returns its id';

CREATE OR REPLACE FUNCTION ostler.request(what text, id text, phases integer[]) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    own text;
BEGIN
    SELECT q.name INTO own FROM ostler.task t JOIN ostler.queue q ON q.id = t.queue
    WHERE t.uid = ostler.uid(request.id) AND t.phase = ANY(request.phases);
    IF own IS NULL AND 0 = ANY(request.phases) THEN
        SELECT i.queue INTO own FROM ostler.inbox i WHERE i.task::json ->> 'id' = upper(request.id) LIMIT 1;
    END IF;
    IF own IS NULL THEN
        RETURN false;
    END IF;
    PERFORM ostler.add_to_inbox(own, json_build_object('request', request.what, 'task', upper(request.id))::text);
    RETURN true;
END
$$;
COMMENT ON FUNCTION ostler.request(text, text, integer[]) IS 'Internal: use cancel or retry';

CREATE OR REPLACE FUNCTION ostler.cancel(id text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT ostler.request('cancel', cancel.id, '{0, 1, 2, 3, 4}')
$$;
COMMENT ON FUNCTION ostler.cancel(text) IS
    'Requests the cancellation of a task when this transaction commits. False: there is no such task, or it has ended';

CREATE OR REPLACE FUNCTION ostler.retry(id text) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT ostler.request('retry', retry.id, '{6, 7}')
$$;
COMMENT ON FUNCTION ostler.retry(text) IS
    'Runs a failed or cancelled task again when this transaction commits. False: there is no such task in one of these states';

CREATE OR REPLACE FUNCTION ostler.grant_read(role name) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    own name := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = 'ostler.tasks'::regclass);
    found name;
BEGIN
    IF NOT EXISTS(SELECT 1 FROM pg_roles r WHERE r.rolname = grant_read.role) THEN
        EXECUTE format('CREATE ROLE %I', grant_read.role);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', own, grant_read.role);
    FOR found IN SELECT v.viewname FROM pg_views v WHERE v.schemaname = own LOOP
        EXECUTE format('GRANT SELECT ON %I.%I TO %I', own, found, grant_read.role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION ostler.grant_read(name) IS 'Lets a role read the views, and nothing else; creates the role if there is none';

DO $$
DECLARE
    own name := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = 'ostler.task'::regclass);
    found name;
BEGIN
    FOR found IN SELECT t.tablename FROM pg_tables t WHERE t.schemaname = own LOOP
        EXECUTE format('COMMENT ON TABLE %I.%I IS %L', own, found,
            'Internal, and different in other versions: read the views, and write by enqueue, cancel and retry');
    END LOOP;
END
$$;
"#;
