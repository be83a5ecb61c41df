-- The last thing that this database knows of: what was lost came after it.
select extract(epoch from greatest(
    (select max(updated_at) from sagas_saga), (select max(first_begun_at) from sagas_outbox)))::float8
