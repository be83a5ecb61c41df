-- An effect is about to be tried: remember that before it is. Nothing is written once the compensation of its
-- step has begun. Answers what was known before about the effect.
with barrier as materialized (
    select exists (select from sagas_dedupe where key = %(step_key)s and state = 'closed') as closed
), mine as (
    insert into sagas_dedupe (key, saga_id, state, token, fingerprint)
    select %(key)s, %(saga_id)s, 'started', %(token)s, %(fingerprint)s from barrier where not closed
    on conflict (key) do nothing
    returning key
)
select b.closed, (select count(*) from mine) > 0 as fresh, d.state, d.fingerprint, d.response::text
from barrier b left join sagas_dedupe d on d.key = %(key)s
