-- Which versions of Fencepost may serve on this schema: those that know at least this migration. A migration that only adds
-- leaves it as it is. One that takes away what an older version still uses raises it.
CREATE TABLE compatibility (
    id     INTEGER PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    oldest INTEGER NOT NULL
) STRICT;

INSERT INTO compatibility (oldest) VALUES (6);
