-- Who was refused, as they have proved it. As in migrations/postgres.
ALTER TABLE rejections ADD COLUMN identity TEXT;
