-- Which authority this store belongs to. Two authorities on one store would grant one lock twice.
--
-- `identity` is the cluster as the authority itself names it, `namespace` is the part of it that holds the locks (in etcd: the key
-- prefix). NULL means: not known yet. Both are empty for the lock table (`store`) and where tokens come from elsewhere (`none`).
-- `instance` is a random number that Fencepost itself leaves in an authority: two clusters may name themselves alike.
CREATE TABLE fencepost.owning_authority (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    kind      text NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 32),
    identity  text,
    namespace text,
    instance  text,
    since     timestamptz NOT NULL DEFAULT now()
);

CREATE TRIGGER the_owner_is_not_forgotten BEFORE DELETE ON fencepost.owning_authority
    FOR EACH ROW EXECUTE FUNCTION fencepost.refuse();
CREATE TRIGGER the_owner_is_not_truncated BEFORE TRUNCATE ON fencepost.owning_authority
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse();
ALTER TABLE fencepost.owning_authority ENABLE ALWAYS TRIGGER the_owner_is_not_forgotten;
ALTER TABLE fencepost.owning_authority ENABLE ALWAYS TRIGGER the_owner_is_not_truncated;

-- A store that has served before: it is recorded where only one authority can have been in use. Otherwise the first to serve
-- claims it.
INSERT INTO fencepost.owning_authority (kind, identity)
SELECT 'etcd', a.cluster FROM fencepost.authority AS a
WHERE NOT (SELECT t.is_called FROM fencepost.tokens AS t) AND NOT EXISTS (SELECT FROM fencepost.locks);

INSERT INTO fencepost.owning_authority (kind, identity, namespace)
SELECT 'store', '', ''
WHERE ((SELECT t.is_called FROM fencepost.tokens AS t) OR EXISTS (SELECT FROM fencepost.locks))
  AND NOT EXISTS (SELECT FROM fencepost.authority);

-- Records the authority if none is recorded, and adds what was not known of the same one. Returns what stands: the caller
-- compares. Of two that claim at once, one wins.
CREATE FUNCTION fencepost.claim_authority(own_kind text, own_identity text, own_namespace text)
RETURNS fencepost.owning_authority
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stands fencepost.owning_authority;
BEGIN
    SELECT o.* INTO stands FROM fencepost.owning_authority AS o;
    IF FOUND AND (stands.identity IS NOT NULL OR own_identity IS NULL)
             AND (stands.namespace IS NOT NULL OR own_namespace IS NULL) THEN
        RETURN stands;
    END IF;
    -- In this order, as when revisions are noted.
    PERFORM FROM fencepost.authority FOR UPDATE;
    INSERT INTO fencepost.owning_authority AS o (kind, identity, namespace)
    VALUES (own_kind, own_identity, own_namespace)
    ON CONFLICT (only_row) DO UPDATE
        SET identity = coalesce(o.identity, excluded.identity),
            namespace = coalesce(o.namespace, excluded.namespace)
        WHERE o.kind = excluded.kind
          AND coalesce(o.identity = excluded.identity, true)
          AND coalesce(o.namespace = excluded.namespace, true);
    SELECT o.* INTO stands FROM fencepost.owning_authority AS o;
    IF stands.kind NOT IN ('store', 'none') AND stands.identity IS NOT NULL THEN
        -- Another cluster was in use here before any was recorded. Its revisions say nothing about those of this one.
        UPDATE fencepost.authority AS a
        SET epoch = a.epoch + 1, revision = 0, cluster = stands.identity, term = 0, moved_at = now()
        WHERE a.cluster <> stands.identity;
    END IF;
    RETURN stands;
END
$$;

-- Records the number that was left in the authority, in place of the one before, if there was one: then the authority has lost what it
-- knew, and the epoch moves on. Returns what stands: the caller compares. Of two that replace the same number, one wins.
CREATE FUNCTION fencepost.claim_instance(former text, shown text, shown_revision bigint, shown_term bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM fencepost.authority FOR UPDATE;
    UPDATE fencepost.owning_authority AS o SET instance = shown WHERE o.instance IS NOT DISTINCT FROM former;
    IF FOUND AND former IS NOT NULL THEN
        UPDATE fencepost.authority AS a
        SET epoch = a.epoch + 1, revision = shown_revision, term = shown_term, moved_at = now();
    END IF;
    RETURN (SELECT o.instance FROM fencepost.owning_authority AS o);
END
$$;

-- Fails unless the store belongs to that authority. Where none is recorded, as with a version that does not know the
-- record, the one that is in use claims it.
CREATE FUNCTION fencepost.expect_authority(expected text, its_identity text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stands fencepost.owning_authority;
BEGIN
    SELECT o.* INTO stands FROM fencepost.owning_authority AS o;
    IF NOT FOUND OR (stands.kind = expected AND stands.identity IS NULL) THEN
        stands := fencepost.claim_authority(
            expected, its_identity, CASE WHEN expected IN ('store', 'none') THEN '' END);
    END IF;
    IF stands.kind <> expected OR stands.identity <> its_identity THEN
        RAISE EXCEPTION 'the store belongs to the authority %', stands.kind || coalesce(
            ' cluster ' || nullif(stands.identity, ''), '') USING ERRCODE = 'FP001';
    END IF;
END
$$;

-- What is remembered of an authority's revisions is written only for the one that the store belongs to. The trigger fires once the
-- row is locked, and reads the record afterwards: a store that was moved meanwhile is noticed.
CREATE FUNCTION fencepost.check_remembered() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM fencepost.expect_authority('etcd', NEW.cluster);
    RETURN NEW;
END
$$;

CREATE TRIGGER only_the_owner_is_remembered BEFORE INSERT OR UPDATE ON fencepost.authority
    FOR EACH ROW EXECUTE FUNCTION fencepost.check_remembered();
ALTER TABLE fencepost.authority ENABLE ALWAYS TRIGGER only_the_owner_is_remembered;

-- As before, and: tokens are drawn only while the store belongs to the lock table. `move_authority` waits until nobody draws, so
-- a token is drawn either before the move, and is below the new floor, or not at all.
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
        PERFORM fencepost.expect_authority('store', '');
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

-- As before, and: only for a store that belongs to the lock table.
CREATE OR REPLACE FUNCTION fencepost.adopt_tokens(known bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    issued bigint;
    due    bigint;
BEGIN
    PERFORM fencepost.expect_authority('store', '');
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
            PERFORM fencepost.expect_authority('store', '');
        ELSE
            PERFORM setval('fencepost.tokens', due);
        END IF;
    END LOOP;
END
$$;

-- Moves the store to another authority. The floor rises above every token that was issued so far, so that every holder must
-- acquire its lock again, and the tokens of the new authority start at the floor. Returns the floor. `to_revision` and `to_term` are
-- what the new authority shows now, where it counts by itself. `highest_mark` is the highest one below 2^62: the caller looks at all
-- marks before it locks the table.
CREATE FUNCTION fencepost.move_authority(
    to_kind text, to_identity text, to_namespace text, to_instance text, to_revision bigint, to_term bigint, highest_mark bigint
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    beyond     CONSTANT bigint := 4611686018427387904;
    revisions  CONSTANT bigint := 281474976710655;
    stood      bigint;
    highest    bigint;
    raised     bigint;
    due        bigint;
    last_epoch bigint;
BEGIN
    -- No claim that has not seen the new floor commits after this: every writing statement takes its table lock before
    -- its snapshot.
    LOCK TABLE fencepost.resources IN SHARE ROW EXCLUSIVE MODE;
    SELECT f.token INTO stood FROM fencepost.floor AS f FOR UPDATE;
    -- While nobody draws.
    LOCK TABLE fencepost.locks IN SHARE ROW EXCLUSIVE MODE;
    -- In this order, as when revisions are noted.
    SELECT a.epoch INTO last_epoch FROM fencepost.authority AS a FOR UPDATE;
    PERFORM FROM fencepost.owning_authority FOR UPDATE;
    SELECT greatest(highest_mark, stood,
        (SELECT t.last_value FROM fencepost.tokens AS t WHERE t.is_called),
        (SELECT (a.epoch::bigint << 48) + a.revision FROM fencepost.authority AS a)) INTO highest;
    IF highest >= beyond - 1 AND to_kind <> 'none' THEN
        RAISE EXCEPTION 'the store does not move to %: it has seen the token % or has its floor there, and an authority issues only tokens below 2^62',
            to_kind, highest USING ERRCODE = 'sequence_generator_limit_exceeded';
    END IF;
    raised := least(highest, 9223372036854775806) + 1;
    UPDATE fencepost.floor SET token = raised;
    INSERT INTO fencepost.owning_authority (kind, identity, namespace, instance)
    VALUES (to_kind, to_identity, to_namespace, to_instance)
    ON CONFLICT (only_row) DO UPDATE
        SET kind = excluded.kind, identity = excluded.identity, namespace = excluded.namespace,
            instance = excluded.instance, since = now();
    -- Their holders have lost them, and those who wait ask again.
    DELETE FROM fencepost.locks;
    IF to_kind = 'store' THEN
        PERFORM setval('fencepost.tokens', raised);
    ELSIF to_kind <> 'none' THEN
        -- The lowest epoch in which all tokens to come are above the floor. A later one than before in any case: what was noted
        -- in the last epoch by a fencepost that has not noticed the move must not be taken for this authority's.
        due := greatest((raised >> 48) + CASE WHEN to_revision < (raised & revisions) THEN 1 ELSE 0 END,
                        coalesce(last_epoch + 1, 0));
        INSERT INTO fencepost.authority (epoch, revision, cluster, term, moved_at)
        VALUES (due, to_revision, to_identity, to_term, now())
        ON CONFLICT (only_row) DO UPDATE SET epoch = excluded.epoch, revision = excluded.revision,
            cluster = excluded.cluster, term = excluded.term, moved_at = excluded.moved_at;
    END IF;
    RETURN raised;
END
$$;

REVOKE ALL ON fencepost.owning_authority FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION fencepost.claim_authority(text, text, text), fencepost.claim_instance(text, text, bigint, bigint), fencepost.expect_authority(text, text),
    fencepost.check_remembered(), fencepost.move_authority(text, text, text, text, bigint, bigint, bigint) FROM PUBLIC;
