-- How many sagas are in the archive, as the planner knows it; nothing is counted.
select greatest(reltuples, 0)::float8 as sagas from pg_class where oid = 'sagas_archive'::regclass
