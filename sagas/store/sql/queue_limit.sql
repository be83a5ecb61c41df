-- What an operator wants to hold. A period that changes: what was begun lately counts as begun now.
with written as (
    insert into sagas_queue as q (name, concurrency, rate, period, actor, reason)
    values (%(name)s, %(concurrency)s, %(rate)s, %(period)s, %(actor)s, %(reason)s)
    on conflict (name) do update
    set concurrency = excluded.concurrency, rate = excluded.rate, period = excluded.period, actor = excluded.actor,
        reason = excluded.reason, at = clock_timestamp(),
        spent = case when q.period <> excluded.period
            then array[(select coalesce(sum(n), 0) from unnest(q.spent) n)::integer] else q.spent end,
        spent_at = case when q.period <> excluded.period
            then floor(extract(epoch from clock_timestamp()) * 20 / excluded.period)::bigint else q.spent_at end
    returning q.name, q.xmax = 0 as is_new
)
insert into sagas_slot (outbox_id, queue, token, begun) -- what is at work counts
select o.id, o.queue, o.token, true from sagas_outbox o
where o.queue in (select w.name from written w where w.is_new) and o.kind = 'step' and o.holder like 'worker:%%'
on conflict (outbox_id) do nothing
