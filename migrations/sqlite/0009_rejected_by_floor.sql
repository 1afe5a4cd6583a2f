-- Whether the floor refused it. As in migrations/postgres.
ALTER TABLE rejections ADD COLUMN by_floor INTEGER;
