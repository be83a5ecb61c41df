delete from sagas_outbox where saga_id = %(id)s and kind = 'step'
