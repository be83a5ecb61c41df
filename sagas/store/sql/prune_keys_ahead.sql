-- How many keys prune_keys.sql would forget.
select count(*)
from sagas_tombstone k
cross join (select coalesce(%(now)s::timestamptz, statement_timestamp())
    - make_interval(secs => %(age)s::float8) as before) old
where k.finished_at < old.before and (%(name)s::text is null or k.name = %(name)s::text)
  and not exists (select from sagas_saga s where s.name = k.name and s.key = k.key)
  and not exists (
    select from sagas_tombstone t
    where t.name = k.name and t.key = k.key and t.run > k.run and t.finished_at >= old.before)
