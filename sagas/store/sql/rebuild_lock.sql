-- Outbox before saga, like every other writer.
with held as materialized (select id from sagas_outbox where saga_id = %(id)s order by id for update)
select s.id from (select count(*) from held) h cross join sagas_saga s where s.id = %(id)s for update of s
