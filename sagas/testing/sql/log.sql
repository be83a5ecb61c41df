-- The log of one saga.
select l.seq, l.kind, l.step, l.attempt, l.data::text as data from sagas_log l where l.saga_id = %(id)s order by l.seq
