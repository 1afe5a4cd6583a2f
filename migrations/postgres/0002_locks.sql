-- Locks, and what is remembered of whoever grants them.

-- The tokens of the lock table, rising over all locks. Where another authority has been in use, it
-- is moved above everything that one has issued.
CREATE SEQUENCE fencepost.tokens AS bigint;

-- The lock table, for those without etcd. One row for each holder and each waiter; of the live rows
-- of one name, the one with the lowest token holds the lock.
CREATE TABLE fencepost.locks (
    token      bigint PRIMARY KEY CHECK (token > 0),
    name       text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 1024),
    -- The row's own name, chosen by whoever asks.
    lease      text NOT NULL UNIQUE,
    owner      text NOT NULL CHECK (octet_length(owner) <= 256),
    ttl_ms     bigint NOT NULL CHECK (ttl_ms > 0),
    -- By the database's clock. Only when a lock passes on depends on it, never a verdict.
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX locks_by_name ON fencepost.locks (name, token);

-- Every change of a queue is one of the functions below. Each begins by taking the queue until its
-- transaction ends, and what it reads afterwards it reads anew (a function under READ COMMITTED takes
-- a snapshot for each statement). So it sees what the last one has committed, and a token that is
-- drawn later is also inserted later.

-- Tells those who watch a lock, if there are any. Whoever watches has a shared lock on the name's
-- bucket; if the exclusive one can be had, nobody does, and whoever comes to watch waits for us.
CREATE FUNCTION fencepost.tell(queue text, happened text, its_token bigint, its_owner text, its_ttl_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(1718511987, 1 + (hashtext(queue) & 63)) THEN
        PERFORM pg_notify('fencepost_events', json_build_object(
            'name', queue, 'happened', happened, 'token', its_token, 'owner', its_owner,
            'ttl_ms', its_ttl_ms)::text);
    END IF;
END
$$;

-- Takes the queue, and removes its dead rows.
CREATE FUNCTION fencepost.take_queue(queue text, OUT moment timestamptz, OUT changed boolean)
LANGUAGE plpgsql AS $$
DECLARE
    dead_holder bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(queue, 7420));
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

-- Wakes the one who is first now: rows before it have gone.
CREATE FUNCTION fencepost.wake_first(queue text, except_for text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    first_lease text;
BEGIN
    SELECT lease INTO first_lease FROM fencepost.locks WHERE name = queue ORDER BY token LIMIT 1;
    IF first_lease IS NULL OR first_lease = except_for THEN
        RETURN NULL;
    END IF;
    PERFORM pg_notify('fencepost_turns', first_lease);
    RETURN first_lease;
END
$$;

-- What is left of a lease.
CREATE FUNCTION fencepost.ms_between(moment timestamptz, ends_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT ceil(extract(epoch FROM ends_at - moment) * 1000)::bigint';

CREATE FUNCTION fencepost.enter_queue(
    queue text, own_lease text, own_owner text, own_ttl_ms bigint, waiting_ms bigint, stays boolean,
    OUT issued bigint, OUT holds boolean, OUT ahead_ms bigint, OUT next_lease text,
    OUT first_token bigint, OUT first_owner text, OUT first_ms bigint
) LANGUAGE plpgsql AS $$
DECLARE
    taken record;
BEGIN
    SELECT * INTO taken FROM fencepost.take_queue(queue);
    SELECT token, owner, fencepost.ms_between(taken.moment, expires_at)
        INTO first_token, first_owner, first_ms
        FROM fencepost.locks WHERE name = queue ORDER BY token LIMIT 1;
    holds := first_token IS NULL;
    IF holds OR stays THEN
        -- Shared by all who draw; whoever moves the sequence on has it alone.
        PERFORM pg_advisory_xact_lock_shared(1718511987, 0);
        issued := nextval('fencepost.tokens');
        SELECT fencepost.ms_between(taken.moment, expires_at) INTO ahead_ms
            FROM fencepost.locks WHERE name = queue ORDER BY token DESC LIMIT 1;
        INSERT INTO fencepost.locks (token, name, lease, owner, ttl_ms, expires_at)
        VALUES (issued, queue, own_lease, own_owner, own_ttl_ms, taken.moment
                + CASE WHEN holds THEN own_ttl_ms ELSE waiting_ms END * interval '1 ms');
        IF holds THEN
            PERFORM fencepost.tell(queue, 'granted', issued, own_owner, own_ttl_ms);
        END IF;
    END IF;
    IF taken.changed THEN
        next_lease := fencepost.wake_first(queue, own_lease);
    END IF;
END
$$;

-- For somebody who waits: renews the lease, and says whether it holds the lock now.
CREATE FUNCTION fencepost.look_at_queue(
    queue text, own_token bigint, longest_waiting_ms bigint,
    OUT own_ttl_ms bigint, OUT holds boolean, OUT ahead_ms bigint, OUT next_lease text
) LANGUAGE plpgsql AS $$
DECLARE
    taken record;
    own_owner text;
    own_lease text;
BEGIN
    SELECT * INTO taken FROM fencepost.take_queue(queue);
    SELECT fencepost.ms_between(taken.moment, expires_at) INTO ahead_ms
        FROM fencepost.locks WHERE name = queue AND token < own_token ORDER BY token DESC LIMIT 1;
    holds := ahead_ms IS NULL;
    UPDATE fencepost.locks SET expires_at = taken.moment + interval '1 ms'
            * CASE WHEN holds THEN ttl_ms ELSE least(ttl_ms, longest_waiting_ms) END
        WHERE name = queue AND token = own_token
        RETURNING ttl_ms, owner, lease INTO own_ttl_ms, own_owner, own_lease;
    IF FOUND AND holds THEN
        PERFORM fencepost.tell(queue, 'granted', own_token, own_owner, own_ttl_ms);
    END IF;
    IF taken.changed THEN
        next_lease := fencepost.wake_first(queue, own_lease);
    END IF;
END
$$;

-- For whoever does not want to wait any longer, wherever in the queue it stands.
CREATE FUNCTION fencepost.leave_queue(
    queue text, own_lease text,
    OUT first_token bigint, OUT first_owner text, OUT first_ms bigint, OUT next_lease text
) LANGUAGE plpgsql AS $$
DECLARE
    taken record;
    own_token bigint;
BEGIN
    SELECT * INTO taken FROM fencepost.take_queue(queue);
    DELETE FROM fencepost.locks WHERE name = queue AND lease = own_lease
        RETURNING token INTO own_token;
    SELECT token, owner, fencepost.ms_between(taken.moment, expires_at)
        INTO first_token, first_owner, first_ms
        FROM fencepost.locks WHERE name = queue ORDER BY token LIMIT 1;
    IF own_token < coalesce(first_token, 9223372036854775807) THEN
        PERFORM fencepost.tell(queue, 'released', own_token, NULL, NULL);
        taken.changed := true;
    END IF;
    IF taken.changed THEN
        next_lease := fencepost.wake_first(queue);
    END IF;
END
$$;

-- Never resurrects: only the first of the living is renewed.
CREATE FUNCTION fencepost.renew_lock(
    queue text, own_token bigint, OUT own_ttl_ms bigint, OUT next_lease text
) LANGUAGE plpgsql AS $$
DECLARE
    taken record;
BEGIN
    SELECT * INTO taken FROM fencepost.take_queue(queue);
    UPDATE fencepost.locks SET expires_at = taken.moment + ttl_ms * interval '1 ms'
        WHERE name = queue AND token = own_token
          AND token = (SELECT min(token) FROM fencepost.locks WHERE name = queue)
        RETURNING ttl_ms INTO own_ttl_ms;
    IF taken.changed THEN
        next_lease := fencepost.wake_first(queue);
    END IF;
END
$$;

-- Never frees a successor: only the first of the living is removed.
CREATE FUNCTION fencepost.release_lock(
    queue text, own_token bigint, OUT released boolean, OUT next_lease text
) LANGUAGE plpgsql AS $$
DECLARE
    taken record;
BEGIN
    SELECT * INTO taken FROM fencepost.take_queue(queue);
    DELETE FROM fencepost.locks WHERE name = queue AND token = own_token
        AND token = (SELECT min(token) FROM fencepost.locks WHERE name = queue);
    released := FOUND;
    IF released THEN
        PERFORM fencepost.tell(queue, 'released', own_token, NULL, NULL);
    END IF;
    IF released OR taken.changed THEN
        next_lease := fencepost.wake_first(queue);
    END IF;
END
$$;

-- Moves the sequence above what was issued elsewhere: by an etcd that was the authority before, or,
-- where there never was one and the sequence is new, by whoever made the tokens of the marks that are
-- there. Nobody issues tokens from 2^62 on. `known` was issued here, even if a failover has forgotten.
CREATE FUNCTION fencepost.adopt_tokens(known bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    issued bigint;
    due    bigint;
BEGIN
    FOR attempt IN 1..2 LOOP
        SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO issued FROM fencepost.tokens;
        SELECT greatest(
            known,
            (SELECT token FROM fencepost.floor),
            (SELECT (epoch::bigint << 48) + revision FROM fencepost.authority),
            CASE WHEN issued = 0 AND NOT EXISTS (SELECT FROM fencepost.authority) THEN
                (SELECT max(token) FROM fencepost.resources WHERE token < 4611686018427387904)
            END) INTO due;
        EXIT WHEN due <= issued;
        IF attempt = 1 THEN
            -- Look again while nobody draws: the sequence must not be set back behind somebody.
            PERFORM pg_advisory_xact_lock(1718511987, 0);
        ELSE
            PERFORM setval('fencepost.tokens', due);
        END IF;
    END LOOP;
END
$$;

-- What has been seen of an etcd. If it ever shows less, it has lost its memory, and the epoch moves
-- on, so that tokens still rise: a token is epoch << 48 | revision.
CREATE TABLE fencepost.authority (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch    integer NOT NULL CHECK (epoch BETWEEN 0 AND 32767),
    revision bigint NOT NULL CHECK (revision BETWEEN 0 AND 281474976710655),
    cluster  text NOT NULL,
    term     bigint NOT NULL CHECK (term >= 0),
    moved_at timestamptz
);

CREATE TRIGGER epochs_never_fall BEFORE UPDATE ON fencepost.authority
    FOR EACH ROW WHEN (NEW.epoch < OLD.epoch OR (NEW.epoch = OLD.epoch AND NEW.revision < OLD.revision))
    EXECUTE FUNCTION fencepost.refuse();

CREATE TRIGGER the_authority_is_not_forgotten BEFORE DELETE ON fencepost.authority
    FOR EACH ROW EXECUTE FUNCTION fencepost.refuse();

CREATE TRIGGER the_authority_is_not_truncated BEFORE TRUNCATE ON fencepost.authority
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse();
