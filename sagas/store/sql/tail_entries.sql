-- New entries of some logs, in the order in which they were written.
select l.saga_id, s.name, s.key, l.seq, l.at, l.kind, l.step, l.attempt, l.data::text as data
from unnest(%(ids)s::uuid[], %(after)s::int[]) as w (id, seq)
join sagas_log l on l.saga_id = w.id and l.seq > w.seq
join sagas_saga s on s.id = l.saga_id
order by l.at, l.saga_id, l.seq
limit 1000
