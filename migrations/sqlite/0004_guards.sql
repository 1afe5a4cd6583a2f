-- Raw SQL finds a few holes less. As in migrations/postgres.

-- A version never falls either: an ETag that comes twice would let a lost update through.
DROP TRIGGER marks_never_fall;
CREATE TRIGGER marks_never_fall BEFORE UPDATE ON resources
    WHEN NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.seq < OLD.seq)
         OR NEW.version < OLD.version OR NEW.key <> OLD.key
BEGIN
    SELECT RAISE(ABORT, 'fencepost: a mark never falls');
END;

DROP TRIGGER marks_are_not_replaced;
CREATE TRIGGER marks_are_not_replaced BEFORE INSERT ON resources
    WHEN EXISTS (SELECT 1 FROM resources AS r WHERE r.key = NEW.key
                 AND (r.token > NEW.token OR (r.token = NEW.token AND r.seq > NEW.seq)
                      OR r.version > NEW.version))
BEGIN
    SELECT RAISE(ABORT, 'fencepost: a mark never falls');
END;

-- INSERT OR REPLACE deletes the old row without asking the triggers on DELETE.
CREATE TRIGGER tokens_are_not_replaced BEFORE INSERT ON tokens
    WHEN EXISTS (SELECT 1 FROM tokens AS t WHERE t.issued > NEW.issued)
BEGIN
    SELECT RAISE(ABORT, 'fencepost: tokens never fall');
END;

CREATE TRIGGER the_authority_is_not_replaced BEFORE INSERT ON authority
    WHEN EXISTS (SELECT 1 FROM authority AS a
                 WHERE a.epoch > NEW.epoch OR (a.epoch = NEW.epoch AND a.revision > NEW.revision))
BEGIN
    SELECT RAISE(ABORT, 'fencepost: an epoch never falls');
END;
