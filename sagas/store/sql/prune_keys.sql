-- Forget the keys of sagas that ended long ago, in the order of the primary key, whatever the plan.
-- Says which was the last of them, for the next batch to begin behind it: what is dead, or stays, is not read again.
-- A key stays while a run of it is there, or one whose own key is to be kept: start() would begin with run 1 beside it.
-- "offset 0": looked at for each key by an index, however many are to be forgotten.
with gone as (
    delete from sagas_tombstone where ctid = any(array(
        select k.ctid from sagas_tombstone k
        cross join (select coalesce(%(now)s::timestamptz, statement_timestamp())
            - make_interval(secs => %(age)s::float8) as before) old
        where (k.name, k.key, k.run) > (%(after_name)s::text, %(after_key)s::text, %(after_run)s::integer)
          and k.finished_at < old.before
          and (%(name)s::text is null or k.name = %(name)s::text
               and (k.key, k.run) > (%(after_key)s::text, %(after_run)s::integer)) -- where an index scan of a name begins
          and not exists (select from sagas_saga s where s.name = k.name and s.key = k.key offset 0)
          and not exists (
            select from sagas_tombstone t
            where t.name = k.name and t.key = k.key and t.run > k.run and t.finished_at >= old.before offset 0)
        order by k.name, k.key, k.run
        limit %(limit)s
        for update of k skip locked))
    returning name, key, run
)
select count(*) over (), name, key, run from gone order by name desc, key desc, run desc limit 1
