-- What is known here of some sagas that somebody outside has keys of. Awaited is one whose id follows from another's (of
-- version 8), while one is open that began at the time which both ids begin with: see `sagas.keys`.
select w.id, s.name, s.version, s.key, s.status, s.seq, s.steps::text as steps, s.cancel_requested, s.parked_from,
    s.error, s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline,
    array(select d.key from sagas_dedupe d where d.saga_id = w.id and d.state = 'done') as known,
    s.id is null and substr(w.id::text, 15, 1) = '8' and exists (
        select from sagas_saga o
        where o.finished_at is null
          and o.id between (left(w.id::text, 13) || '-0000-0000-000000000000')::uuid
                       and (left(w.id::text, 13) || '-ffff-ffff-ffffffffffff')::uuid) as awaited
from unnest(%(ids)s::uuid[]) as w (id)
left join sagas_saga s on s.id = w.id
order by w.id
