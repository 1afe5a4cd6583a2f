-- Two roles: one owns the schema and migrates it, another serves. Run this once in the database that
-- Fencepost is to use, as a superuser, before the first `fencepost migrate`.
--
--     fencepost roles | psql -d app     # prints this, and makes the roles; give each a password, or a certificate
--     fencepost migrate                 # as fencepost_owner
--
-- `fencepost migrate` runs it again by itself, as the owner: then it gives fencepost_serve its rights,
-- and takes away all others. With roles of other names, change them here and run it after every migration.
--
-- The role that serves can delete nothing, truncate nothing, and change no table, so it cannot forget
-- a mark, whatever happens to it. Dead rows of the lock table and old rejections go by functions that
-- belong to the owner and do nothing else. The tests run under these roles.

DO $$
BEGIN
    -- Otherwise a role that may create functions in `public` could have them run as the role that runs this script.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    -- Two sessions that run this script at once may both create them.
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencepost_owner') THEN
            CREATE ROLE fencepost_owner LOGIN;
        END IF;
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencepost_serve') THEN
            CREATE ROLE fencepost_serve LOGIN;
        END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        RAISE EXCEPTION 'another session is creating the roles; run this script again';
    END;
    -- The owner makes the schema by itself.
    IF NOT has_database_privilege('fencepost_owner', current_database(), 'CREATE') THEN
        EXECUTE format('GRANT CREATE ON DATABASE %I TO fencepost_owner', current_database());
    END IF;
    IF to_regclass('fencepost.compatibility') IS NULL THEN
        RAISE NOTICE 'the roles are there; run `fencepost migrate` as fencepost_owner, which gives rights too';
        RETURN;
    END IF;

    -- Two sessions that run this script at once take turns. (Not by an advisory lock: every role of the database can hold one.)
    LOCK TABLE fencepost.compatibility IN SHARE ROW EXCLUSIVE MODE;
    REVOKE ALL ON SCHEMA fencepost FROM PUBLIC, fencepost_serve;
    REVOKE ALL ON ALL TABLES IN SCHEMA fencepost FROM PUBLIC, fencepost_serve;
    REVOKE ALL ON ALL SEQUENCES IN SCHEMA fencepost FROM PUBLIC, fencepost_serve;
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fencepost FROM PUBLIC, fencepost_serve;

    GRANT USAGE ON SCHEMA fencepost TO fencepost_serve;
    GRANT SELECT ON fencepost._sqlx_migrations, fencepost.migrations, fencepost.compatibility, fencepost.floor, fencepost.locks,
        fencepost.owning_authority TO fencepost_serve;
    GRANT SELECT, INSERT, UPDATE ON fencepost.resources, fencepost.authority TO fencepost_serve;
    GRANT SELECT, INSERT ON fencepost.rejections TO fencepost_serve;
    GRANT SELECT ON SEQUENCE fencepost.tokens TO fencepost_serve;
    GRANT EXECUTE ON FUNCTION
        fencepost.enter_queue, fencepost.enter_queue_as, fencepost.look_at_queue,
        fencepost.leave_queue, fencepost.renew_lock, fencepost.release_lock, fencepost.adopt_tokens,
        fencepost.ms_between, fencepost.sweep_locks, fencepost.drop_rejections,
        fencepost.lineage_here, fencepost.read_lineage, fencepost.expect_lineage, fencepost.take_over,
        fencepost.identify, fencepost.expect_incarnation, fencepost.server_here, fencepost.commit_after_standbys,
        fencepost.claim_authority, fencepost.claim_instance, fencepost.move_authority
        TO fencepost_serve;
END
$$;
