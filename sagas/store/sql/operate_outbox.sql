select step, kind, direction, holder, due_at, queue, deliveries, failures, progress from sagas_outbox
where saga_id = %(saga)s order by id
