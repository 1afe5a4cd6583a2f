-- The guard of the marks looks at a row after it was written, no longer before.
--
-- It refuses the same as ever: the whole statement is undone. It now sees what is really written, whatever
-- other triggers have made of it. And to show a row to a guard before the write, Postgres had to lock it
-- and to put that into its log, for every write: an eighth of all that a write puts there.
DROP TRIGGER marks_never_fall ON fencepost.resources;
CREATE TRIGGER marks_never_fall AFTER UPDATE ON fencepost.resources
    FOR EACH ROW WHEN (NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.seq < OLD.seq)
                       OR NEW.version < OLD.version OR NEW.key <> OLD.key)
    EXECUTE FUNCTION fencepost.refuse();
ALTER TABLE fencepost.resources ENABLE ALWAYS TRIGGER marks_never_fall;
