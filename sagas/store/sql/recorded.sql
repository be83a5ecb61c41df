-- After a lost acknowledgement: which decisions are in the log, each under the token it was written with. Rows
-- count their tokens each for itself, so an entry of another row (a cancel that came first) may have the same seq
-- and token: the last entry has to be the one that was sent. Also whether the row is kept by this worker for the
-- next step, and nobody has taken it over since.
select w.id, coalesce(o.holder = %(holder)s and o.token = w.token + 1, false) as goes_on
from unnest(
    %(ids)b::bigint[], %(tokens)b::bigint[], %(saga_ids)b::uuid[], %(new_seqs)b::int[], %(kinds)b::text[],
    %(steps)b::text[]
) as w (id, token, saga_id, new_seq, kind, step)
join sagas_log l on l.saga_id = w.saga_id and l.seq = w.new_seq and l.token = w.token
left join sagas_outbox o on o.id = w.id
where l.kind = w.kind and l.step is not distinct from w.step
