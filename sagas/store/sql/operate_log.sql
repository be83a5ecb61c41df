select seq, at, kind, step, attempt, data from sagas_log where saga_id = %(saga)s order by seq
