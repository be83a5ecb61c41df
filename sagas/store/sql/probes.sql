-- Large payloads that are sealed: who sealed each, and what tells whether the key at hand opens it.
select p.saga_id, p.seq, p.payload->>'$sealed', p.payload->>'probe'
from (
    select l.saga_id, l.seq, coalesce(l.data->'result', l.data #> '{saga,input}') as payload
    from unnest(%(saga_ids)b::uuid[], %(seqs)b::int[]) as w (saga_id, seq)
    join sagas_log l on l.saga_id = w.saga_id and l.seq = w.seq
) p
where p.payload->>'probe' is not null and p.payload->>'$sealed' is not null
