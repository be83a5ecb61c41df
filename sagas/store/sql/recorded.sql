-- After a lost acknowledgement: which decisions are in the log, each under the token it was written with.
select w.id from unnest(%(ids)b::bigint[], %(tokens)b::bigint[], %(saga_ids)b::uuid[], %(new_seqs)b::int[])
    as w (id, token, saga_id, new_seq)
join sagas_log l on l.saga_id = w.saga_id and l.seq = w.new_seq and l.token = w.token
