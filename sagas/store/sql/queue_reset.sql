-- What code declares holds again; where it declares nothing the queue has no limits. One row where there was a change.
with gone as (
    delete from sagas_queue q where q.name = %(name)s and q.declared is null returning q.name
), freed as (
    delete from sagas_slot s using gone g where s.queue = g.name
), back as (
    update sagas_queue q
    set concurrency = (q.declared->>'concurrency')::integer, rate = (q.declared->>'count')::integer,
        period = (q.declared->>'period')::float8, actor = '', reason = '', at = clock_timestamp(),
        spent = array[(select coalesce(sum(n), 0) from unnest(q.spent) n)::integer],
        spent_at = coalesce(floor(extract(epoch from clock_timestamp()) * 20 / (q.declared->>'period')::float8)::bigint, 0)
    where q.name = %(name)s and q.declared is not null and q.actor <> ''
    returning q.name
)
select true from (select name from gone union all select name from back) changed
