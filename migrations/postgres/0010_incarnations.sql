-- Which incarnation of the database this is, told apart from every other copy of it.
--
-- Cluster and timeline are not enough. Two standbys of one primary may both be promoted to timeline 2, and a
-- dump that is restored into another database of the same cluster has the cluster and the timeline of its
-- original. So a row keeps the cluster, the timeline, the database's own number and a random part. Wherever
-- the first three do not fit the server that the row is found on, the next connection writes a new row there.
CREATE TABLE fencepost.incarnation (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name     text NOT NULL,
    since    timestamptz NOT NULL DEFAULT now()
);

-- The database that was written to last, beside its server. NULL in a row that an older version has written.
ALTER TABLE fencepost.lineage ADD COLUMN database oid;

CREATE FUNCTION fencepost.database_here() RETURNS oid LANGUAGE sql STABLE AS
    'SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()';

-- What this server is, what was recorded as the one that was written to last, and whether that is this one.
-- A standby is nothing yet. The caller compares `incarnation` as a whole.
CREATE FUNCTION fencepost.identify(OUT incarnation text, OUT recorded text, OUT entered boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    server text;
    number oid;
    prefix text;
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN;
    END IF;
    server := fencepost.lineage_here();
    number := fencepost.database_here();
    prefix := server || '/' || number || '/';
    SELECT i.name INTO incarnation FROM fencepost.incarnation AS i;
    IF incarnation IS NULL OR NOT starts_with(incarnation, prefix) THEN
        -- Of several connections that find this, the first writes the row, and the others read it.
        INSERT INTO fencepost.incarnation AS i (name) VALUES (prefix || gen_random_uuid())
        ON CONFLICT (only_row) DO UPDATE SET name = excluded.name, since = now()
        WHERE NOT starts_with(i.name, prefix);
        SELECT i.name INTO incarnation FROM fencepost.incarnation AS i;
    END IF;
    -- A row of an older version, on the server that it names: it lacks the database's number, no more.
    IF EXISTS (SELECT FROM fencepost.lineage AS l WHERE l.name = server AND l.database IS NULL) THEN
        UPDATE fencepost.lineage AS l SET database = number WHERE l.name = server AND l.database IS NULL;
    END IF;
    SELECT l.name || coalesce('/' || l.database, ''), l.name = server AND l.database = number
    INTO recorded, entered FROM fencepost.lineage AS l;
END
$$;

-- Behind a pooler each transaction may reach another server.
CREATE FUNCTION fencepost.expect_incarnation(expected text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pg_is_in_recovery()
       AND starts_with(expected, fencepost.lineage_here() || '/' || fencepost.database_here() || '/')
       AND EXISTS (SELECT FROM fencepost.incarnation AS i WHERE i.name = expected) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'fencepost: another server has taken over' USING ERRCODE = 'connection_failure';
END
$$;

-- As before, and: another database counts as another server, and the leap has a random part of 48 bits.
-- Two heirs of one ancestor know the same, so a leap that follows from what they know would make them issue
-- the same tokens. Tokens stay below 2^62.
CREATE OR REPLACE FUNCTION fencepost.take_over(at_least bigint, leap bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here            text := fencepost.lineage_here();
    number          oid := fencepost.database_here();
    is_new          boolean;
    raised          bigint := at_least;
    beyond          CONSTANT bigint := 4611686018427387904;
    chance          CONSTANT bigint :=
        ('x' || left(replace(gen_random_uuid()::text, '-', ''), 12))::bit(48)::bigint;
BEGIN
    -- One at a time.
    PERFORM FROM fencepost.floor FOR UPDATE;
    SELECT l.name <> here OR l.database <> number INTO is_new FROM fencepost.lineage AS l;
    IF leap > 0 AND is_new THEN
        -- While nobody draws: the sequence must not be set back behind somebody.
        PERFORM pg_advisory_xact_lock(1718511987, 0);
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
    INSERT INTO fencepost.lineage AS l (name, database) VALUES (here, number)
    ON CONFLICT (only_row) DO UPDATE SET name = here, database = number, since = now()
    WHERE l.name <> here OR l.database IS DISTINCT FROM number;
    RETURN raised;
END
$$;

REVOKE ALL ON fencepost.incarnation FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION fencepost.database_here(), fencepost.identify(), fencepost.expect_incarnation(text)
    FROM PUBLIC;
