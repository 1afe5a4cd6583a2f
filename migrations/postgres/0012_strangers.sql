-- What a role without rights on this schema can do to it, where it shares a database: nothing but make it slower. And what a
-- managed Postgres may keep to itself.

-- Queues were taken by advisory locks, which every role of a database can hold. Now each is taken by locking one of these rows,
-- to which only the functions below have access. The row is chosen by the hash of the lock's name. To lock a row makes no new
-- version of it. The last row, 1024, belongs to no queue.
CREATE TABLE fencepost.lock_buckets (
    bucket integer PRIMARY KEY
);
INSERT INTO fencepost.lock_buckets (bucket) SELECT generate_series(0, 1024);
REVOKE ALL ON fencepost.lock_buckets FROM PUBLIC;

-- Adding the column waits for every transaction that has already changed a queue. A transaction that has taken a queue by the
-- functions of before, and has not changed it yet, goes on with them: its row would lack a bucket, so it fails, and the client
-- asks again. Thus nobody enters a queue under the old kind of lock once there is a new one.
ALTER TABLE fencepost.locks ADD COLUMN bucket integer NOT NULL DEFAULT 0;
ALTER TABLE fencepost.locks ALTER COLUMN bucket DROP DEFAULT;

CREATE FUNCTION fencepost.bucket_of(queue text) RETURNS integer
LANGUAGE sql IMMUTABLE AS 'SELECT (hashtextextended(queue, 7420) & 1023)::integer';

-- Notifies, unless the server's queue of notifications is half full: another role can fill it, and then a commit that notifies
-- fails. What is not told is found by looking.
CREATE FUNCTION fencepost.notify_unless_crowded(channel text, payload text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify(channel, payload);
    END IF;
END
$$;

-- As before, by way of that. The advisory lock only saves a notification where nobody watches: another role that holds it
-- causes one more. What is told is a reason to look at the lock, never a fact: any role can notify.
CREATE OR REPLACE FUNCTION fencepost.tell(queue text, happened text, its_token bigint, its_owner text, its_ttl_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(1718511987, 1 + (hashtext(queue) & 63)) THEN
        PERFORM fencepost.notify_unless_crowded('fencepost_events', json_build_object(
            'name', queue, 'happened', happened, 'token', its_token, 'owner', its_owner,
            'ttl_ms', its_ttl_ms)::text);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION fencepost.wake_first(queue text, except_for text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    first_lease text;
BEGIN
    SELECT lease INTO first_lease FROM fencepost.locks WHERE name = queue ORDER BY token LIMIT 1;
    IF first_lease IS NULL OR first_lease = except_for THEN
        RETURN NULL;
    END IF;
    PERFORM fencepost.notify_unless_crowded('fencepost_turns', first_lease);
    RETURN first_lease;
END
$$;

-- Takes the queue, and removes its dead rows. Every transaction that changes a queue has thereby a lock on the table `locks`
-- that conflicts with SHARE ROW EXCLUSIVE, also where no row is changed: see adopt_tokens.
CREATE OR REPLACE FUNCTION fencepost.take_queue(queue text, OUT moment timestamptz, OUT changed boolean)
LANGUAGE plpgsql AS $$
DECLARE
    dead_holder bigint;
BEGIN
    PERFORM FROM fencepost.lock_buckets WHERE bucket = fencepost.bucket_of(queue) FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'fencepost: the table lock_buckets lacks a row'
            USING HINT = 'As the owner of the schema: '
                'INSERT INTO fencepost.lock_buckets SELECT generate_series(0, 1024) ON CONFLICT DO NOTHING';
    END IF;
    moment := clock_timestamp();
    -- No lease can end later than a whole one from now, unless the clock has jumped back. The dead
    -- would live on for as long as it jumped.
    UPDATE fencepost.locks SET expires_at = moment + ttl_ms * interval '1 ms'
    WHERE name = queue AND expires_at > moment + ttl_ms * interval '1 ms';
    SELECT l.token INTO dead_holder
    FROM (SELECT token, expires_at FROM fencepost.locks WHERE name = queue ORDER BY token LIMIT 1) AS l
    WHERE l.expires_at <= moment;
    DELETE FROM fencepost.locks WHERE name = queue AND expires_at <= moment;
    changed := FOUND;
    IF dead_holder IS NOT NULL THEN
        PERFORM fencepost.tell(queue, 'expired', dead_holder, NULL, NULL);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION fencepost.enter_queue(
    queue text, own_lease text, own_owner text, own_ttl_ms bigint, waiting_ms bigint, stays boolean,
    OUT issued bigint, OUT holds boolean, OUT ahead_ms bigint, OUT next_lease text,
    OUT first_token bigint, OUT first_owner text, OUT first_ms bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken record;
BEGIN
    IF NOT stays THEN
        -- A lock that is held at this moment is not taken, and nothing is changed: to take the queue would cost a commit.
        SELECT l.token, l.owner, fencepost.ms_between(l.moment, l.expires_at)
            INTO first_token, first_owner, first_ms
            FROM (SELECT token, owner, expires_at, ttl_ms, clock_timestamp() AS moment
                  FROM fencepost.locks WHERE name = queue ORDER BY token LIMIT 1) AS l
            WHERE l.expires_at > l.moment AND l.expires_at <= l.moment + l.ttl_ms * interval '1 ms';
        IF FOUND THEN
            holds := false;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO taken FROM fencepost.take_queue(queue);
    SELECT token, owner, fencepost.ms_between(taken.moment, expires_at)
        INTO first_token, first_owner, first_ms
        FROM fencepost.locks WHERE name = queue ORDER BY token LIMIT 1;
    holds := first_token IS NULL;
    IF holds OR stays THEN
        issued := nextval('fencepost.tokens');
        SELECT fencepost.ms_between(taken.moment, expires_at) INTO ahead_ms
            FROM fencepost.locks WHERE name = queue ORDER BY token DESC LIMIT 1;
        INSERT INTO fencepost.locks (token, name, lease, owner, ttl_ms, expires_at, bucket)
        VALUES (issued, queue, own_lease, own_owner, own_ttl_ms, taken.moment
                + CASE WHEN holds THEN own_ttl_ms ELSE waiting_ms END * interval '1 ms',
                fencepost.bucket_of(queue));
        IF holds THEN
            PERFORM fencepost.tell(queue, 'granted', issued, own_owner, own_ttl_ms);
        END IF;
    END IF;
    IF taken.changed THEN
        next_lease := fencepost.wake_first(queue, own_lease);
    END IF;
END
$$;

-- As before, but nobody is kept from drawing by an advisory lock: whoever draws has taken a queue, and so has a lock on the
-- table `locks` that conflicts with this one.
CREATE OR REPLACE FUNCTION fencepost.adopt_tokens(known bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    issued bigint;
    due    bigint;
BEGIN
    FOR attempt IN 1..2 LOOP
        SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO issued FROM fencepost.tokens;
        SELECT greatest(
            known,
            (SELECT token FROM fencepost.floor WHERE token < 4611686018427387904),
            (SELECT (epoch::bigint << 48) + revision FROM fencepost.authority),
            CASE WHEN issued = 0 AND NOT EXISTS (SELECT FROM fencepost.authority) THEN
                (SELECT max(token) FROM fencepost.resources WHERE token < 4611686018427387904)
            END) INTO due;
        EXIT WHEN due <= issued;
        IF attempt = 1 THEN
            -- Look again while nobody draws: the sequence must not be set back behind somebody.
            LOCK TABLE fencepost.locks IN SHARE ROW EXCLUSIVE MODE;
        ELSE
            PERFORM setval('fencepost.tokens', due);
        END IF;
    END LOOP;
END
$$;

-- Which server this is, as far as it tells: its cluster, and its timeline as it is written now. A managed service may deny
-- either: Aurora, for one, raises an error while `wal_level` is below `logical`. What it does not tell is NULL. A shortage of
-- memory or a broken disk is no such answer, and stays an error.
CREATE FUNCTION fencepost.server_here(OUT system text, OUT timeline text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    BEGIN
        SELECT c.system_identifier INTO system FROM pg_control_system() AS c;
    EXCEPTION
        WHEN insufficient_resources OR system_error OR operator_intervention THEN RAISE;
        WHEN OTHERS THEN system := NULL;
    END;
    BEGIN
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION
        WHEN insufficient_resources OR system_error OR operator_intervention THEN RAISE;
        WHEN OTHERS THEN timeline := NULL;
    END;
END
$$;

-- The same answer as ever, for the version before, which compares it: both, or the word `unknown`.
CREATE OR REPLACE FUNCTION fencepost.lineage_here() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT coalesce(s.system || '/' || s.timeline, 'unknown') FROM fencepost.server_here() AS s);
END
$$;

CREATE FUNCTION fencepost.standby_here() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN pg_is_in_recovery();
EXCEPTION
    WHEN insufficient_resources OR system_error OR operator_intervention THEN RAISE;
    WHEN OTHERS THEN RETURN current_setting('in_hot_standby')::boolean;
END
$$;

-- Whether a server that was recorded may be this one. What is not told is not compared: a server that begins to tell its
-- timeline is not another one for that. One that tells nothing at all, where something was recorded, is.
CREATE FUNCTION fencepost.may_be_here(recorded_system text, recorded_timeline text, here_system text, here_timeline text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(recorded_system = here_system, true) AND coalesce(recorded_timeline = here_timeline, true)
       AND (here_system IS NOT NULL OR here_timeline IS NOT NULL
            OR (recorded_system IS NULL AND recorded_timeline IS NULL))
$$;

-- What was told once is kept.
ALTER TABLE fencepost.incarnation ADD COLUMN system text, ADD COLUMN timeline text, ADD COLUMN database oid;
ALTER TABLE fencepost.lineage ADD COLUMN system text, ADD COLUMN timeline text;

UPDATE fencepost.incarnation SET
    system = CASE WHEN name LIKE '%/%/%/%' THEN split_part(name, '/', 1) END,
    timeline = CASE WHEN name LIKE '%/%/%/%' THEN split_part(name, '/', 2) END,
    database = split_part(name, '/', -2)::oid;
UPDATE fencepost.lineage SET
    system = CASE WHEN name LIKE '%/%' THEN split_part(name, '/', 1) END,
    timeline = CASE WHEN name LIKE '%/%' THEN split_part(name, '/', 2) END;

CREATE OR REPLACE FUNCTION fencepost.identify(OUT incarnation text, OUT recorded text, OUT entered boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here   record;
    number oid;
BEGIN
    IF fencepost.standby_here() THEN
        RETURN;
    END IF;
    SELECT * INTO here FROM fencepost.server_here();
    number := fencepost.database_here();
    SELECT i.name INTO incarnation FROM fencepost.incarnation AS i
    WHERE i.database = number AND fencepost.may_be_here(i.system, i.timeline, here.system, here.timeline);
    IF incarnation IS NULL THEN
        -- Of several connections that find this, the first writes the row, and the others read it.
        INSERT INTO fencepost.incarnation AS i (name, system, timeline, database)
        VALUES (coalesce(here.system, 'unknown') || '/' || coalesce(here.timeline, 'unknown') || '/'
                || number || '/' || gen_random_uuid(), here.system, here.timeline, number)
        ON CONFLICT (only_row) DO UPDATE SET name = excluded.name, system = excluded.system,
            timeline = excluded.timeline, database = excluded.database, since = now()
        WHERE i.database IS DISTINCT FROM number
           OR NOT fencepost.may_be_here(i.system, i.timeline, here.system, here.timeline);
        SELECT i.name INTO incarnation FROM fencepost.incarnation AS i;
    ELSIF EXISTS (SELECT FROM fencepost.incarnation AS i
                  WHERE (i.system IS NULL AND here.system IS NOT NULL)
                     OR (i.timeline IS NULL AND here.timeline IS NOT NULL)) THEN
        UPDATE fencepost.incarnation AS i
        SET system = coalesce(i.system, here.system), timeline = coalesce(i.timeline, here.timeline)
        WHERE i.name = incarnation;
    END IF;
    -- A row that lacks something which is known by now, on the server that it names: it lacks that, no more.
    IF EXISTS (SELECT FROM fencepost.lineage AS l
               WHERE l.database IS NULL OR (l.system IS NULL AND here.system IS NOT NULL)
                  OR (l.timeline IS NULL AND here.timeline IS NOT NULL)) THEN
        UPDATE fencepost.lineage AS l
        SET name = fencepost.lineage_here(), database = number,
            system = coalesce(l.system, here.system), timeline = coalesce(l.timeline, here.timeline)
        WHERE coalesce(l.database, number) = number
          AND fencepost.may_be_here(l.system, l.timeline, here.system, here.timeline);
    END IF;
    SELECT l.name || coalesce('/' || l.database, ''),
           l.database = number AND fencepost.may_be_here(l.system, l.timeline, here.system, here.timeline)
    INTO recorded, entered FROM fencepost.lineage AS l;
END
$$;

CREATE OR REPLACE FUNCTION fencepost.expect_incarnation(expected text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT fencepost.standby_here() AND EXISTS (
        SELECT FROM fencepost.incarnation AS i, fencepost.server_here() AS here
        WHERE i.name = expected AND i.database = fencepost.database_here()
          AND fencepost.may_be_here(i.system, i.timeline, here.system, here.timeline)) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'fencepost: another server has taken over' USING ERRCODE = 'connection_failure';
END
$$;

-- As before, and: what is not told is not compared; and no advisory lock.
CREATE OR REPLACE FUNCTION fencepost.take_over(at_least bigint, leap bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here            record;
    number          oid := fencepost.database_here();
    is_new          boolean;
    raised          bigint := at_least;
    beyond          CONSTANT bigint := 4611686018427387904;
    chance          CONSTANT bigint :=
        ('x' || left(replace(gen_random_uuid()::text, '-', ''), 12))::bit(48)::bigint;
BEGIN
    SELECT s.system, s.timeline, coalesce(s.system || '/' || s.timeline, 'unknown') AS name
    INTO here FROM fencepost.server_here() AS s;
    -- One at a time.
    PERFORM FROM fencepost.floor FOR UPDATE;
    SELECT coalesce(l.database <> number, false) OR NOT fencepost.may_be_here(l.system, l.timeline, here.system, here.timeline)
    INTO is_new FROM fencepost.lineage AS l;
    IF leap > 0 AND is_new THEN
        -- While nobody draws: the sequence must not be set back behind somebody.
        LOCK TABLE fencepost.locks IN SHARE ROW EXCLUSIVE MODE;
        SELECT greatest(at_least, CASE WHEN t.is_called THEN t.last_value ELSE 0 END,
                        (SELECT f.token FROM fencepost.floor AS f WHERE f.token < beyond))
        INTO raised FROM fencepost.tokens AS t;
        IF raised >= beyond - leap - chance THEN
            RAISE EXCEPTION 'fencepost: no token below 2^62 is left after %', raised
                USING ERRCODE = 'sequence_generator_limit_exceeded';
        END IF;
        raised := raised + leap + chance;
        PERFORM setval('fencepost.tokens', raised);
    END IF;
    UPDATE fencepost.floor SET token = greatest(token, raised) RETURNING token INTO raised;
    INSERT INTO fencepost.lineage AS l (name, database, system, timeline)
    VALUES (here.name, number, here.system, here.timeline)
    ON CONFLICT (only_row) DO UPDATE SET name = here.name, database = number,
        system = CASE WHEN is_new THEN here.system ELSE coalesce(here.system, l.system) END,
        timeline = CASE WHEN is_new THEN here.timeline ELSE coalesce(here.timeline, l.timeline) END,
        since = CASE WHEN is_new THEN now() ELSE l.since END
    WHERE is_new OR l.name <> here.name OR l.database IS DISTINCT FROM number;
    RETURN raised;
END
$$;

-- Where commits wait for a standby, makes sure that this one does: everything that was committed before, by whomever, is then
-- on the standby too. The message is empty, and nobody reads it. Where a service denies it, a row that is locked does as well.
CREATE FUNCTION fencepost.commit_after_standbys() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_standby_names') = '' THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM pg_logical_emit_message(true, 'fencepost', '');
    EXCEPTION
        WHEN insufficient_resources OR system_error OR operator_intervention THEN RAISE;
        WHEN OTHERS THEN
            PERFORM FROM fencepost.lock_buckets WHERE bucket = 1024 FOR KEY SHARE;
    END;
END
$$;

REVOKE EXECUTE ON FUNCTION fencepost.bucket_of(text), fencepost.notify_unless_crowded(text, text),
    fencepost.server_here(), fencepost.standby_here(),
    fencepost.may_be_here(text, text, text, text), fencepost.commit_after_standbys()
    FROM PUBLIC;
