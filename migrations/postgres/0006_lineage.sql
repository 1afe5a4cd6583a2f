-- Which server wrote last. A standby that was promoted, and a backup that was restored, go on under another
-- name, and may lack the last commits of the one before: the last marks among them.
CREATE TABLE fencepost.lineage (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name     text NOT NULL,
    since    timestamptz NOT NULL DEFAULT now()
);

-- The cluster, and its timeline as it is written now. (pg_control_checkpoint would tell an old one until
-- the first checkpoint after a promotion.) Where a service keeps both to itself there is nothing to notice.
CREATE FUNCTION fencepost.lineage_here() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system()) || '/'
        || left(pg_walfile_name(pg_current_wal_lsn()), 8);
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    RETURN 'unknown';
END
$$;

-- These two run as their owner, so that a role which only serves needs no right to the floor.

CREATE FUNCTION fencepost.read_lineage(OUT here text, OUT recorded text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    here := fencepost.lineage_here();
    SELECT name INTO recorded FROM fencepost.lineage;
END
$$;

-- Enters the server that this is, after raising the floor to `at_least`. If it is a new one, and tokens are
-- issued here and may have been lost, they leap: further than any replication can lag.
CREATE FUNCTION fencepost.take_over(at_least bigint, leap bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here     text := fencepost.lineage_here();
    recorded text;
    raised   bigint := at_least;
BEGIN
    -- One at a time.
    PERFORM FROM fencepost.floor FOR UPDATE;
    SELECT name INTO recorded FROM fencepost.lineage;
    IF leap > 0 AND recorded <> here THEN
        -- While nobody draws: the sequence must not be set back behind somebody.
        PERFORM pg_advisory_xact_lock(1718511987, 0);
        SELECT greatest(at_least, CASE WHEN is_called THEN last_value ELSE 0 END) + leap
        INTO raised FROM fencepost.tokens;
        PERFORM setval('fencepost.tokens', raised);
    END IF;
    UPDATE fencepost.floor SET token = greatest(token, raised) RETURNING token INTO raised;
    INSERT INTO fencepost.lineage (name) VALUES (here)
    ON CONFLICT (only_row) DO UPDATE SET name = here, since = now() WHERE lineage.name <> here;
    RETURN raised;
END
$$;

-- Behind a pooler each transaction may reach another server.
CREATE FUNCTION fencepost.expect_lineage(expected text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF fencepost.lineage_here() <> expected THEN
        RAISE EXCEPTION 'fencepost: another server has taken over' USING ERRCODE = 'connection_failure';
    END IF;
END
$$;
