-- What is known here of some sagas that somebody outside has keys of.
select w.id, s.name, s.version, s.key, s.status, s.seq, s.steps::text as steps, s.cancel_requested, s.parked_from,
    s.error, s.paused, s.failing, extract(epoch from s.deadline)::float8 as deadline,
    coalesce(t.name, a.name) as pruned_name, coalesce(t.key, a.key) as pruned_key,
    array(select d.key from sagas_dedupe d where d.saga_id = w.id and d.state = 'done') as known
from unnest(%(ids)s::uuid[]) as w (id)
left join sagas_saga s on s.id = w.id
left join lateral (select name, key from sagas_tombstone t where t.saga_id = w.id and s.id is null limit 1) t on true
left join sagas_archive a on a.saga_id = w.id and s.id is null
order by w.id
