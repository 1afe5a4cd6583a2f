-- What was refused, for those who ask afterwards. Bounded by age and by rows: the fenceposts drop the
-- oldest. Nothing is decided by it, and it may be emptied at any time.
CREATE TABLE fencepost.rejections (
    -- Which fencepost, by a number that it drew at its start, and its how manyth.
    fencepost    bigint NOT NULL,
    number       bigint NOT NULL,
    -- By the fencepost's clock.
    at           timestamptz NOT NULL,
    key          text COLLATE "C",
    scope        text COLLATE "C",
    reason       text NOT NULL,
    token        bigint,
    mark         bigint,
    seq          bigint,
    client       text,
    peer         text,
    trace        text,
    decided_by   text NOT NULL,
    overtaken_by text,
    PRIMARY KEY (fencepost, number)
);
CREATE INDEX rejections_by_time ON fencepost.rejections (at);
CREATE INDEX rejections_by_key ON fencepost.rejections (key, at);
