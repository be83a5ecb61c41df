-- Semantic locks: who holds what, and who waits for it, oldest first.
select l.subject, l.waiting, l.saga_id, s.name, s.key, s.status, l.step, l.at, s.id is null or s.finished_at is not null as ended
from sagas_lock l
left join sagas_saga s on s.id = l.saga_id
where %(saga)s::uuid is null or l.subject in (select m.subject from sagas_lock m where m.saga_id = %(saga)s::uuid)
order by l.subject, l.waiting, l.at
limit %(limit)s::int
