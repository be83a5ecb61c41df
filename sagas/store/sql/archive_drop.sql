delete from sagas_archive where saga_id = any(%(ids)s::uuid[])
