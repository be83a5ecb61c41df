-- One log entry whose payload was too large to be loaded by begin.
select data::text from sagas_log where saga_id = %(saga_id)s and seq = %(seq)s
