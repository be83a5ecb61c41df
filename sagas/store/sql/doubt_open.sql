-- Sagas that have not ended, a batch at a time; or those named.
select s.id, s.name, s.version, s.key, s.status, s.seq, s.steps::text as steps, s.cancel_requested, s.parked_from,
    s.error, s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline
from sagas_saga s
where s.finished_at is null and s.id > %(after)s and (%(ids)s::uuid[] is null or s.id = any(%(ids)s::uuid[]))
order by s.id
limit %(limit)s
