-- The fenced store. Everything lives in a schema of its own, so that it can share a database with
-- the application it guards.

CREATE TABLE fencepost.resources (
    -- "C" compares bytes: the same order in every database, and the order in which rows are locked.
    key          text COLLATE "C" PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 1024),
    -- The mark: the highest (token, seq) that this key has seen. It never falls.
    token        bigint NOT NULL DEFAULT 0 CHECK (token >= 0),
    seq          bigint NOT NULL DEFAULT 0 CHECK (seq >= 0),
    version      bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
    -- Whether the last put found no value, and the fingerprint of the last write that had a seq:
    -- together they let a replay be recognised and answered as it was the first time.
    created      boolean NOT NULL DEFAULT false,
    digest       bytea,
    -- Both null where the key is absent: deleted, or claimed and never written.
    value        bytea,
    content_type text,
    -- Only `fencepost compact` looks at this. No verdict depends on a clock.
    touched_at   timestamptz NOT NULL DEFAULT now(),
    CHECK ((value IS NULL) = (content_type IS NULL))
) WITH (fillfactor = 85);

-- One mark under all keys: a token below it is stale everywhere.
CREATE TABLE fencepost.floor (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    token    bigint NOT NULL CHECK (token >= 0)
);
INSERT INTO fencepost.floor (token) VALUES (0);

-- The last line of defence: not even hand-written SQL may lower a mark.

CREATE FUNCTION fencepost.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'fencepost: % on % would lower a mark', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation',
              HINT = 'Marks never fall. Delete a resource through fencepost; collect old marks with `fencepost compact`.';
END
$$;

CREATE TRIGGER marks_never_fall BEFORE UPDATE ON fencepost.resources
    FOR EACH ROW WHEN (NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.seq < OLD.seq)
                       OR NEW.key <> OLD.key)
    EXECUTE FUNCTION fencepost.refuse();

CREATE TRIGGER floor_never_falls BEFORE UPDATE ON fencepost.floor
    FOR EACH ROW WHEN (NEW.token < OLD.token)
    EXECUTE FUNCTION fencepost.refuse();

CREATE FUNCTION fencepost.refuse_unless_below_floor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.value IS NULL AND OLD.token < (SELECT token FROM fencepost.floor) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'fencepost: deleting the row of a key would forget its mark'
        USING ERRCODE = 'integrity_constraint_violation',
              HINT = 'Delete a resource through fencepost; collect old marks with `fencepost compact`.';
END
$$;

CREATE TRIGGER marks_are_not_forgotten BEFORE DELETE ON fencepost.resources
    FOR EACH ROW EXECUTE FUNCTION fencepost.refuse_unless_below_floor();

CREATE TRIGGER floor_stays BEFORE DELETE ON fencepost.floor
    FOR EACH ROW EXECUTE FUNCTION fencepost.refuse();

CREATE TRIGGER marks_are_not_truncated BEFORE TRUNCATE ON fencepost.resources
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse();

CREATE TRIGGER floor_is_not_truncated BEFORE TRUNCATE ON fencepost.floor
    FOR EACH STATEMENT EXECUTE FUNCTION fencepost.refuse();
