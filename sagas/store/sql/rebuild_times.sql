-- When each entry of a saga's log was written.
select extract(epoch from at)::float8 from sagas_log where saga_id = %(id)s order by seq
