-- The effect happened: keep what came back. What is closed stays closed.
update sagas_dedupe
set response = %(response)s::text::jsonb, state = case when state = 'closed' then state else 'done' end
where key = %(key)s
