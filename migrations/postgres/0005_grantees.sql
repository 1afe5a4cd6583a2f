-- To whom a lock was granted, where those who ask prove who they are. Null where nobody asked for that.
ALTER TABLE fencepost.locks
    ADD COLUMN identity text CHECK (octet_length(identity) BETWEEN 1 AND 1024);

-- As enter_queue, for somebody who has proved who it is. The row gets the identity in the transaction
-- that makes it, so nobody sees it without.
CREATE FUNCTION fencepost.enter_queue_as(
    queue text, own_lease text, own_owner text, own_ttl_ms bigint, waiting_ms bigint, stays boolean,
    own_identity text,
    OUT issued bigint, OUT holds boolean, OUT ahead_ms bigint, OUT next_lease text,
    OUT first_token bigint, OUT first_owner text, OUT first_ms bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO issued, holds, ahead_ms, next_lease, first_token, first_owner, first_ms
        FROM fencepost.enter_queue(queue, own_lease, own_owner, own_ttl_ms, waiting_ms, stays);
    IF issued IS NOT NULL THEN
        UPDATE fencepost.locks SET identity = own_identity WHERE token = issued;
    END IF;
END
$$;
