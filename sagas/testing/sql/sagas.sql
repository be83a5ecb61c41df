-- Some sagas, in the order in which they were started.
select s.id, s.name, s.version, s.key from sagas_saga s where s.id = any(%(ids)s::uuid[]) order by s.created_at, s.id
