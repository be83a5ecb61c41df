select current_setting('search_path') as path, string_agg(quote_ident(place.nspname), ', ' order by place.nspname) as there
from pg_class found
join pg_namespace place on place.oid = found.relnamespace
where found.relname = 'sagas_schema' and found.relkind in ('r', 'p')
