-- Sagas and their work in the outbox, a batch at a time in order of id.
select s.id, s.name, s.version, s.key, s.status, s.seq, s.steps::text as steps, s.cancel_requested, s.parked_from,
    s.error, s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline, o.steps as row_steps, o.directions as row_directions
from sagas_saga s
left join lateral (
    select array_agg(o.step) as steps, array_agg(o.direction) as directions
    from sagas_outbox o where o.saga_id = s.id and o.kind = 'step'
) o on true
where s.id > %(after)s and (%(ids)s::uuid[] is null or s.id = any(%(ids)s::uuid[]))
order by s.id
limit %(limit)s
