-- What went wrong last with work that sagas are at: of each the newest log entry that tells of an error.
select w.saga_id, w.step, w.direction, e.at, e.attempt, e.error->>'type' as type, e.error->>'message' as message,
    coalesce(e.error->>'traceback', '') as traceback
from unnest(%(sagas)s::uuid[], %(steps)s::text[], %(directions)s::text[]) as w (saga_id, step, direction)
cross join lateral (
    select l.at, l.attempt, l.data->'error' as error
    from sagas_log l
    where l.saga_id = w.saga_id and l.kind = any(%(kinds)s::text[]) and l.step = w.step
      and l.data->>'direction' = w.direction and l.data->'error' is not null
    order by l.seq desc
    limit 1
) e
