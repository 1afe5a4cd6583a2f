-- Who was refused, as they have proved it, where that is asked for.
ALTER TABLE fencepost.rejections ADD COLUMN identity text;
