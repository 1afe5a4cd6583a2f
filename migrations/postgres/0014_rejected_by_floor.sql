-- Whether the floor refused it: then no grant has overtaken it. Null in rows of an older version.
ALTER TABLE fencepost.rejections ADD COLUMN by_floor boolean;
