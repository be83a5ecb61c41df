-- The sagas of one name that this connection sees, those of its open transaction among them, and their inputs.
select coalesce(json_agg(json_build_object(
    'id', s.id, 'version', s.version, 'key', s.key, 'input', l.data->'saga'->'input') order by s.created_at, s.id), '[]')::text
from sagas_saga s join sagas_log l on l.saga_id = s.id and l.seq = 0
where s.name = %s
