-- The sagas of rows that are still held by this worker under the given token, as they stand now.
select o.id, o.token, s.status, s.seq, s.steps::text as steps, s.cancel_requested, s.parked_from, s.error,
    s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline
from sagas_outbox o
join unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as w (id, token)
    on w.id = o.id and w.token = o.token and o.holder = %(holder)s
join sagas_saga s on s.id = o.saga_id
