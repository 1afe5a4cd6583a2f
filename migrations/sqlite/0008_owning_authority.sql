-- Which authority this store belongs to. As in migrations/postgres.
CREATE TABLE owning_authority (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    kind      TEXT NOT NULL CHECK (length(CAST(kind AS BLOB)) BETWEEN 1 AND 32),
    identity  TEXT,
    namespace TEXT,
    instance  TEXT,
    since     INTEGER NOT NULL DEFAULT (unixepoch()) -- seconds since 1970
) STRICT;

INSERT INTO owning_authority (only_row, kind, identity)
SELECT 1, 'etcd', cluster FROM authority
WHERE (SELECT issued FROM tokens) = 0 AND NOT EXISTS (SELECT 1 FROM locks);

INSERT INTO owning_authority (only_row, kind, identity, namespace)
SELECT 1, 'store', '', ''
WHERE ((SELECT issued FROM tokens) > 0 OR EXISTS (SELECT 1 FROM locks))
  AND NOT EXISTS (SELECT 1 FROM authority);

CREATE TRIGGER the_owner_is_not_forgotten BEFORE DELETE ON owning_authority
BEGIN
    SELECT RAISE(ABORT, 'fencepost: the authority that a store belongs to is not forgotten');
END;

-- Where none is recorded, as with a version that does not know the record, the one that is in use claims it.
CREATE TRIGGER only_the_owner_draws BEFORE UPDATE ON tokens
BEGIN
    INSERT INTO owning_authority (only_row, kind, identity, namespace)
    SELECT 1, 'store', '', '' WHERE NOT EXISTS (SELECT 1 FROM owning_authority);
    SELECT RAISE(ABORT, 'fencepost: the store belongs to another authority')
    WHERE (SELECT kind FROM owning_authority) <> 'store';
END;

CREATE TRIGGER only_the_owner_is_remembered BEFORE INSERT ON authority
BEGIN
    INSERT INTO owning_authority (only_row, kind, identity)
    SELECT 1, 'etcd', NEW.cluster WHERE NOT EXISTS (SELECT 1 FROM owning_authority);
    UPDATE owning_authority SET identity = NEW.cluster WHERE kind = 'etcd' AND identity IS NULL;
    SELECT RAISE(ABORT, 'fencepost: the store belongs to another authority')
    WHERE (SELECT kind <> 'etcd' OR identity <> NEW.cluster FROM owning_authority);
END;

CREATE TRIGGER only_the_owner_is_noted BEFORE UPDATE ON authority
BEGIN
    INSERT INTO owning_authority (only_row, kind, identity)
    SELECT 1, 'etcd', NEW.cluster WHERE NOT EXISTS (SELECT 1 FROM owning_authority);
    UPDATE owning_authority SET identity = NEW.cluster WHERE kind = 'etcd' AND identity IS NULL;
    SELECT RAISE(ABORT, 'fencepost: the store belongs to another authority')
    WHERE (SELECT kind <> 'etcd' OR identity <> NEW.cluster FROM owning_authority);
END;
