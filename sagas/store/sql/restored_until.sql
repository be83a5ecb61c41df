-- The last moment that this database knows of: what was lost came after it. Callers may have written here since it went
-- back in time: then it is what they say, or else the last commit that came from the other server, as long as this one
-- has not been started anew since.
select extract(epoch from least(
    greatest((select max(updated_at) from sagas_saga), (select max(first_begun_at) from sagas_outbox)),
    coalesce(%(since)s::timestamptz, pg_last_xact_replay_timestamp())))::float8
