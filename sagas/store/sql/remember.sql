-- An answer that came too late to be recorded is kept in the dedupe table; on a closed effect the response
-- is added and the state stays.
insert into sagas_dedupe (key, saga_id, state, token, response)
values (%(key)s, %(saga_id)s, 'done', %(token)s, %(response)s::text::jsonb)
on conflict (key) do update
set response = coalesce(sagas_dedupe.response, excluded.response),
    state = case when sagas_dedupe.state = 'closed' then sagas_dedupe.state else excluded.state end
