-- Remove what a story left behind that committed.
with gone as (
    delete from sagas_saga where id <> all(%(without)s::uuid[]) returning id
), rows as (
    delete from sagas_outbox o using gone where o.saga_id = gone.id
), marks as (
    delete from sagas_dedupe d using gone where d.saga_id = gone.id
)
delete from sagas_log l using gone where l.saga_id = gone.id
