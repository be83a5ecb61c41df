-- A batch of the archive, to be written elsewhere, oldest first.
select saga_id, json_build_object('id', saga_id, 'name', name, 'key', key, 'status', status,
    'finished_at', finished_at, 'archived_at', archived_at, 'saga', data->'saga', 'log', data->'log',
    'dedupe', data->'dedupe')::text as line
from sagas_archive
where %(after)s::uuid is null or saga_id > %(after)s::uuid
order by saga_id
limit %(limit)s
