-- What the dedupe table knows about one saga's effects; responses are laid out and cut as in the timeline.
select d.key, d.state, d.created_at, d.expires_at, left(jsonb_pretty(p.shown), %(payload)s) as payload,
    length(p.shown::text) as size
from sagas_dedupe d
cross join lateral ( -- of an envelope only what may be shown
    select case when jsonb_typeof(d.response) = 'object' and d.response->'$sealed' is not null
        then coalesce(d.response->'shown', case when d.response->>'$sealed' = '' then d.response->'data' end,
            to_jsonb('(sealed by ' || (d.response->>'$sealed') || ')')) else d.response end as shown
) p
where d.saga_id = %(saga)s
order by d.created_at, d.key
limit %(limit)s
