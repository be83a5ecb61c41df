-- Numbers that a table hands out, and the highest one that it has. `known`: whether this role may look.
select t.name, t.highest, s.known, case when s.known then pg_sequence_last_value(s.id) end as last, s.id::text as sequence
from (
    select 'sagas_outbox' as name, (select max(id) from sagas_outbox) as highest
    union all
    select 'sagas_message', (select max(id) from sagas_message)
) t
cross join lateral (
    select q.id, has_sequence_privilege(q.id::oid, 'usage') or has_sequence_privilege(q.id::oid, 'select') as known
    from (select pg_get_serial_sequence(t.name, 'id')::regclass as id) q
) s
