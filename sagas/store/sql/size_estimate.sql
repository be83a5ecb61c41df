-- How many sagas there are, as the planner knows it; nothing is counted.
select greatest(reltuples, 0)::bigint as sagas from pg_class where oid = 'sagas_saga'::regclass
