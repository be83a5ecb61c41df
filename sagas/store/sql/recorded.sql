-- After a lost acknowledgement: which decisions are in the log, each under the token it was written with. Rows
-- count their tokens each for itself, so an entry of another row (a cancel that came first) may have the same seq
-- and token: the last entry has to be the one that was sent.
select w.id from unnest(
    %(ids)b::bigint[], %(tokens)b::bigint[], %(saga_ids)b::uuid[], %(new_seqs)b::int[], %(kinds)b::text[],
    %(steps)b::text[]
) as w (id, token, saga_id, new_seq, kind, step)
join sagas_log l on l.saga_id = w.saga_id and l.seq = w.new_seq and l.token = w.token
where l.kind = w.kind and l.step is not distinct from w.step
