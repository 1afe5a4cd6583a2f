-- Locks, and what is remembered of whoever grants them. As in migrations/postgres.

CREATE TABLE tokens (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    issued   INTEGER NOT NULL CHECK (issued >= 0)
) STRICT;
INSERT INTO tokens (only_row, issued) VALUES (1, 0);

CREATE TABLE locks (
    token      INTEGER PRIMARY KEY CHECK (token > 0),
    name       TEXT NOT NULL CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 1024),
    lease      TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL CHECK (length(CAST(owner AS BLOB)) <= 256),
    ttl_ms     INTEGER NOT NULL CHECK (ttl_ms > 0),
    expires_at INTEGER NOT NULL -- milliseconds since 1970
) STRICT;
CREATE INDEX locks_by_name ON locks (name, token);

CREATE TABLE authority (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    epoch    INTEGER NOT NULL CHECK (epoch BETWEEN 0 AND 32767),
    revision INTEGER NOT NULL CHECK (revision BETWEEN 0 AND 281474976710655),
    cluster  TEXT NOT NULL,
    term     INTEGER NOT NULL CHECK (term >= 0),
    moved_at INTEGER -- seconds since 1970
) STRICT;

CREATE TRIGGER tokens_never_fall BEFORE UPDATE ON tokens WHEN NEW.issued < OLD.issued
BEGIN
    SELECT RAISE(ABORT, 'fencepost: tokens never fall');
END;

CREATE TRIGGER tokens_stay BEFORE DELETE ON tokens
BEGIN
    SELECT RAISE(ABORT, 'fencepost: tokens never fall');
END;

CREATE TRIGGER epochs_never_fall BEFORE UPDATE ON authority
    WHEN NEW.epoch < OLD.epoch OR (NEW.epoch = OLD.epoch AND NEW.revision < OLD.revision)
BEGIN
    SELECT RAISE(ABORT, 'fencepost: an epoch never falls');
END;

CREATE TRIGGER the_authority_is_not_forgotten BEFORE DELETE ON authority
BEGIN
    SELECT RAISE(ABORT, 'fencepost: what is known of the authority is not forgotten');
END;
