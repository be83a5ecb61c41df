-- How far an attempt has come, for the one that takes over from it.
update sagas_outbox o set progress = %(progress)s::text::jsonb
where o.id = %(id)s and o.token = %(token)s and o.holder = %(holder)s
