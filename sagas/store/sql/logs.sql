-- The whole logs of some sagas.
select l.saga_id, l.seq, l.kind, l.step, l.attempt, l.data::text
from sagas_log l where l.saga_id = any(%(ids)s::uuid[])
order by l.saga_id, l.seq
