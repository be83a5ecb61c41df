insert into sagas_log (saga_id, seq, kind, step, attempt, data)
values (%(saga_id)s, %(seq)s, %(kind)s, %(step)s, %(attempt)s, %(data)s::text::jsonb)
