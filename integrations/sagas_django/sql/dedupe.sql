-- What the dedupe table knows about one saga's effects; responses are laid out and cut as in the timeline.
select d.key, d.state, d.created_at, d.expires_at, left(jsonb_pretty(d.response), %(payload)s) as payload,
    length(d.response::text) as size
from sagas_dedupe d
where d.saga_id = %(saga)s
order by d.created_at, d.key
limit %(limit)s
