-- What was refused, for those who ask afterwards. As in migrations/postgres.
CREATE TABLE rejections (
    fencepost    INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    at           INTEGER NOT NULL, -- microseconds since 1970
    key          TEXT,
    scope        TEXT,
    reason       TEXT NOT NULL,
    token        INTEGER,
    mark         INTEGER,
    seq          INTEGER,
    client       TEXT,
    peer         TEXT,
    trace        TEXT,
    decided_by   TEXT NOT NULL,
    overtaken_by TEXT,
    PRIMARY KEY (fencepost, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX rejections_by_time ON rejections (at);
CREATE INDEX rejections_by_key ON rejections (key, at);
