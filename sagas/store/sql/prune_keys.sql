-- Forget the keys of sagas that ended long ago: from then on a key that comes again starts a new saga.
delete from sagas_tombstone k using (
    select name, key, run from sagas_tombstone
    where finished_at < coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => %(age)s::float8)
    limit %(limit)s
    for update skip locked
) old
where (k.name, k.key, k.run) = (old.name, old.key, old.run)
returning k.saga_id
