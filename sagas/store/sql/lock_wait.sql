-- A step waits for a subject that another saga holds. The saga row is locked, so that none is left of a saga that ends.
insert into sagas_lock (subject, saga_id, step, waiting, at)
select %(subject)s::text, s.id, %(step)s::text, true, coalesce(%(now)s::timestamptz, clock_timestamp())
from (select id from sagas_saga where id = %(saga_id)s::uuid and finished_at is null for share) s
on conflict (subject, saga_id) do nothing
