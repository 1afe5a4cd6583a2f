-- Which versions of Fencepost may serve on this schema: those that know at least this migration. A migration that only adds
-- leaves it as it is. One that takes away what an older version still uses raises it, and is shipped no earlier than one version
-- after the last that used it, so that the version before can serve for the length of a rollout.
CREATE TABLE fencepost.compatibility (
    id     smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    oldest bigint NOT NULL
);

INSERT INTO fencepost.compatibility (oldest) VALUES (9);
