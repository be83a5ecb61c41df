-- All work that is left, of all sagas or of some.
select o.saga_id, o.kind, o.step, o.direction, o.holder,
    extract(epoch from o.due_at - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8 as due_in
from sagas_outbox o
where (%(only)s::uuid[] is null or o.saga_id in ( -- with those that they started
        with recursive kin as (
            select unnest(%(only)s::uuid[]) as id
            union select s.id from sagas_saga s join kin on s.parent = kin.id)
        select id from kin)) and o.saga_id is not null
order by o.due_at, o.id
