-- What has come since 0004 keeps to the same rights: whoever serves may only read the lock table.
ALTER FUNCTION fencepost.enter_queue_as(text, text, text, bigint, bigint, boolean, text)
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost FROM PUBLIC;
