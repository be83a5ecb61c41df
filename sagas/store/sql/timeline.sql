-- The newest entries of one saga log before a given one. Payloads are laid out and cut here, so that neither a long
-- log nor a large result makes a page that cannot be opened.
select l.seq, l.at, l.kind, l.step, l.attempt, l.token,
    case when jsonb_typeof(l.data) = 'object' then l.data - array['result', 'saga'] else '{}' end::text as facts,
    left(jsonb_pretty(p.shown), %(payload)s) as payload,
    length(p.shown::text) as size,
    (select p.at from sagas_log p where p.saga_id = l.saga_id and p.seq = l.seq - 1) as previous_at
from sagas_log l
cross join lateral (select coalesce(l.data->'result', l.data #> '{saga,input}') as stored) s
cross join lateral ( -- of an envelope only what may be shown
    select case when jsonb_typeof(s.stored) = 'object' and s.stored->'$sealed' is not null
        then coalesce(s.stored->'shown', case when s.stored->>'$sealed' = '' then s.stored->'data' end,
            to_jsonb('(sealed by ' || (s.stored->>'$sealed') || ')')) else s.stored end as shown
) p
where l.saga_id = %(saga)s and l.seq < %(before)s
order by l.seq desc
limit %(limit)s
