-- What is due next: one row, of all sagas or of some. Rows that were looked at in vain are left out, and those that
-- are set aside until they are due. A signal may be there before its saga is.
select o.id, o.token, o.saga_id, s.name, s.version, o.step, o.direction,
    extract(epoch from o.due_at)::float8 as due_at,
    extract(epoch from o.due_at - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8 as due_in
from sagas_outbox o left join sagas_saga s on s.id = o.saga_id
where (%(only)s::uuid[] is null or o.saga_id in ( -- with those that they started
        with recursive kin as (
            select unnest(%(only)s::uuid[]) as id
            union select s.id from sagas_saga s join kin on s.parent = kin.id)
        select id from kin) or o.saga_id is null)
    and (o.saga_id is not null or o.kind = 'signal')
    and o.id <> all(%(without)s::bigint[])
    and (o.id <> all(%(aside)s::bigint[]) or o.due_at <= coalesce(%(now)s::timestamptz, clock_timestamp()))
order by o.due_at, o.id
limit 1
