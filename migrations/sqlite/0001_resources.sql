-- The fenced store, embedded. The columns mean what they mean in migrations/postgres.

CREATE TABLE resources (
    key          TEXT PRIMARY KEY NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 1024),
    token        INTEGER NOT NULL DEFAULT 0 CHECK (token >= 0),
    seq          INTEGER NOT NULL DEFAULT 0 CHECK (seq >= 0),
    version      INTEGER NOT NULL DEFAULT 0 CHECK (version >= 0),
    created      INTEGER NOT NULL DEFAULT 0,
    digest       BLOB,
    value        BLOB,
    content_type TEXT,
    touched_at   INTEGER NOT NULL, -- seconds since 1970
    CHECK ((value IS NULL) = (content_type IS NULL))
) STRICT;

CREATE TABLE floor (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    token    INTEGER NOT NULL CHECK (token >= 0)
) STRICT;
INSERT INTO floor (only_row, token) VALUES (1, 0);

CREATE TRIGGER marks_never_fall BEFORE UPDATE ON resources
    WHEN NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.seq < OLD.seq) OR NEW.key <> OLD.key
BEGIN
    SELECT RAISE(ABORT, 'fencepost: a mark never falls');
END;

-- INSERT OR REPLACE deletes the old row without asking the triggers on DELETE.
CREATE TRIGGER marks_are_not_replaced BEFORE INSERT ON resources
    WHEN EXISTS (SELECT 1 FROM resources AS r WHERE r.key = NEW.key
                 AND (r.token > NEW.token OR (r.token = NEW.token AND r.seq > NEW.seq)))
BEGIN
    SELECT RAISE(ABORT, 'fencepost: a mark never falls');
END;

CREATE TRIGGER floor_is_not_replaced BEFORE INSERT ON floor
    WHEN EXISTS (SELECT 1 FROM floor AS f WHERE f.token > NEW.token)
BEGIN
    SELECT RAISE(ABORT, 'fencepost: the floor never falls');
END;

CREATE TRIGGER floor_never_falls BEFORE UPDATE ON floor WHEN NEW.token < OLD.token
BEGIN
    SELECT RAISE(ABORT, 'fencepost: the floor never falls');
END;

CREATE TRIGGER marks_are_not_forgotten BEFORE DELETE ON resources
    WHEN OLD.value IS NOT NULL OR OLD.token >= (SELECT token FROM floor)
BEGIN
    SELECT RAISE(ABORT, 'fencepost: deleting the row of a key would forget its mark');
END;

CREATE TRIGGER floor_stays BEFORE DELETE ON floor
BEGIN
    SELECT RAISE(ABORT, 'fencepost: the floor stays');
END;
