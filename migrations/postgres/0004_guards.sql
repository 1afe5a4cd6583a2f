-- Whoever serves needs no right to delete anything, and raw SQL finds one hole less.

-- The functions that change a queue do so with the rights of whoever owns the schema, so that a role
-- which serves need not be able to delete a row or to set the sequence. With a search path of their
-- own, since a caller could put an operator of its making in front of Postgres's.
ALTER FUNCTION fencepost.enter_queue(text, text, text, bigint, bigint, boolean)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION fencepost.look_at_queue(text, bigint, bigint)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION fencepost.leave_queue(text, text)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION fencepost.renew_lock(text, bigint)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION fencepost.release_lock(text, bigint)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION fencepost.adopt_tokens(bigint)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

-- Only rows that are long dead. Those in whose queues somebody is at work are left to them.
CREATE FUNCTION fencepost.sweep_locks() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM fencepost.locks WHERE token IN (
        SELECT token FROM fencepost.locks WHERE expires_at < clock_timestamp() - interval '1 minute'
        LIMIT 1000 FOR UPDATE SKIP LOCKED)
$$;

-- The oldest, and only those from before `before` where that is not null: how many have gone.
CREATE FUNCTION fencepost.drop_rejections(before timestamptz, most bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH dropped AS (
        DELETE FROM fencepost.rejections WHERE (fencepost, number) IN
            (SELECT fencepost, number FROM fencepost.rejections
             WHERE before IS NULL OR at < before ORDER BY at LIMIT most)
        RETURNING 1)
    SELECT count(*) FROM dropped
$$;

-- `migrations/roles.sql` says who may call them.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost FROM PUBLIC;

-- A version never falls either: an ETag that comes twice would let a lost update through.
DROP TRIGGER marks_never_fall ON fencepost.resources;
CREATE TRIGGER marks_never_fall BEFORE UPDATE ON fencepost.resources
    FOR EACH ROW WHEN (NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.seq < OLD.seq)
                       OR NEW.version < OLD.version OR NEW.key <> OLD.key)
    EXECUTE FUNCTION fencepost.refuse();

-- For those too who set session_replication_role, and for what a subscription applies.
ALTER TABLE fencepost.resources ENABLE ALWAYS TRIGGER marks_never_fall;
ALTER TABLE fencepost.resources ENABLE ALWAYS TRIGGER marks_are_not_forgotten;
ALTER TABLE fencepost.resources ENABLE ALWAYS TRIGGER marks_are_not_truncated;
ALTER TABLE fencepost.floor ENABLE ALWAYS TRIGGER floor_never_falls;
ALTER TABLE fencepost.floor ENABLE ALWAYS TRIGGER floor_stays;
ALTER TABLE fencepost.floor ENABLE ALWAYS TRIGGER floor_is_not_truncated;
ALTER TABLE fencepost.authority ENABLE ALWAYS TRIGGER epochs_never_fall;
ALTER TABLE fencepost.authority ENABLE ALWAYS TRIGGER the_authority_is_not_forgotten;
ALTER TABLE fencepost.authority ENABLE ALWAYS TRIGGER the_authority_is_not_truncated;
