-- The sagas of rows that are still held by this worker under the given token, as they stand now.
with wanted as materialized (
    select * from unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as w (id, token)
    where w.id between 1 and 9223372036854775807 -- always: the planner expects few, and uses the index
)
select o.id, o.token, s.status, s.seq, s.steps::text as steps, s.cancel_requested, s.parked_from, s.error,
    s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline
from wanted w
join sagas_outbox o on o.id = any(array[w.id]) and o.token = w.token and o.holder = %(holder)s
join sagas_saga s on s.id = any(array[o.saga_id])
