-- What is stored as input and results of a saga, but for what is large.
select l.seq, l.data::text as data from sagas_log l
where l.saga_id = %(saga)s and l.seq = any(%(seqs)s::int[]) and pg_column_size(l.data) <= %(large)s::int
