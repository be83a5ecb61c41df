-- Semantic locks that a saga holds, or waits for, that has ended or is gone.
select l.subject, l.saga_id, coalesce(s.name, '?'), coalesce(s.key, '?'), s.id is null
from sagas_lock l
left join sagas_saga s on s.id = l.saga_id
where (s.id is null or s.finished_at is not null) and (%(ids)s::uuid[] is null or l.saga_id = any(%(ids)s::uuid[]))
order by l.subject
