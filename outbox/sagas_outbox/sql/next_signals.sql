-- Make the next signal of each line due: the one before it, which it waited for, has just been applied.
update sagas_outbox o
set due_at = coalesce(%(now)s::timestamptz, clock_timestamp())
from (
    select n.id from unnest(%(lines)s::text[]) as w (line), lateral (
        select r.id, r.due_at, r.holder from sagas_outbox r
        where r.kind = 'signal' and r.ordering_key = w.line
        order by coalesce(r.payload->'carried', '0') desc, r.id limit 1
    ) n
    where n.holder is null and n.due_at > coalesce(%(now)s::timestamptz, clock_timestamp())
    order by n.id
) as next
where o.id = next.id and o.holder is null
