-- An effect is about to be tried: remember that before it is. Nothing is written once the compensation of its
-- step has begun. Answers what was known before about the effect: nothing where another attempt writes its line at
-- the same time, which this statement waits for and cannot read yet (neither fresh nor known).
with barrier as materialized (
    select exists (select from sagas_dedupe where key = %(step_key)s and state = 'closed') as closed
), mine as (
    insert into sagas_dedupe (key, saga_id, state, token, fingerprint)
    select %(key)s, %(saga_id)s, 'started', %(token)s, %(fingerprint)s from barrier where not closed
    on conflict (key) do nothing
    returning key
)
select b.closed, (select count(*) from mine) > 0 as fresh, d.key is not null as known, d.fingerprint, d.response::text
from barrier b left join sagas_dedupe d on d.key = %(key)s
