-- What code declares of queues. Where an operator has changed something, only what to go back to is written.
-- A period that changes: what was begun lately counts as begun now, so that no more begin than the new one allows.
with given as materialized (
    select g.name, g.concurrency, g.rate, g.period, g.declared::jsonb as declared
    from unnest(%(names)s::text[], %(concurrencies)s::int[], %(rates)s::int[], %(periods)s::float8[], %(declared)s::text[])
        as g (name, concurrency, rate, period, declared)
), dropped as (
    delete from sagas_queue q where q.actor = '' and q.name not in (select g.name from given g)
    returning q.name
), forgotten as (
    update sagas_queue q set declared = null
    where q.actor <> '' and q.declared is not null and q.name not in (select g.name from given g)
), freed as (
    delete from sagas_slot s using dropped d where s.queue = d.name
), written as (
    insert into sagas_queue as q (name, concurrency, rate, period, declared)
    select g.name, g.concurrency, g.rate, g.period, g.declared from given g order by g.name
    on conflict (name) do update
    set declared = excluded.declared,
        concurrency = case when q.actor = '' then excluded.concurrency else q.concurrency end,
        rate = case when q.actor = '' then excluded.rate else q.rate end,
        period = case when q.actor = '' then excluded.period else q.period end,
        spent = case when q.actor = '' and q.period <> excluded.period
            then array[(select coalesce(sum(n), 0) from unnest(q.spent) n)::integer] else q.spent end,
        spent_at = case when q.actor = '' and q.period <> excluded.period
            then floor(extract(epoch from clock_timestamp()) * 20 / excluded.period)::bigint else q.spent_at end,
        at = case when q.actor = '' then clock_timestamp() else q.at end
    where q.declared is distinct from excluded.declared
    returning q.name, q.xmax = 0 as is_new
)
insert into sagas_slot (outbox_id, queue, token, begun) -- what is at work counts
select o.id, o.queue, o.token, true from sagas_outbox o
where o.queue in (select w.name from written w where w.is_new) and o.kind = 'step' and o.holder like 'worker:%%'
on conflict (outbox_id) do nothing
