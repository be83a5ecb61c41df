-- Who holds a subject; its saga does not change before the transaction is over.
select l.subject, l.waiting, l.saga_id, s.name, s.key, s.status, l.step, l.at, s.id is null or s.finished_at is not null
from (select * from sagas_lock where subject = %(subject)s::text and not waiting) l
left join lateral (select * from sagas_saga where id = l.saga_id for share) s on true
