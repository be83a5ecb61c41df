-- Logs whose saga row is gone, oldest first.
select l.saga_id, l.data->'saga'->>'name', l.data->'saga'->>'key'
from sagas_log l
where l.seq = 0 and not exists (select from sagas_saga s where s.id = l.saga_id)
    and (%(ids)s::uuid[] is null or l.saga_id = any(%(ids)s::uuid[]))
order by l.saga_id
