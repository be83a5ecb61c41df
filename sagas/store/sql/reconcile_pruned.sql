-- Which of some sagas that are not here were pruned. Keys are not found by the id of their saga: all are read, once.
select saga_id, name, key from sagas_tombstone where saga_id = any(%(ids)s::uuid[])
union all
select saga_id, name, key from sagas_archive where saga_id = any(%(ids)s::uuid[])
