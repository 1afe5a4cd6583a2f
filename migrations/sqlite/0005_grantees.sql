-- To whom a lock was granted. As in migrations/postgres.
ALTER TABLE locks
    ADD COLUMN identity TEXT CHECK (length(CAST(identity AS BLOB)) BETWEEN 1 AND 1024);
