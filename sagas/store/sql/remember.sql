-- An answer that came too late to be recorded is kept in the dedupe table. Where the compensation of its step
-- has begun, the response is added, the state stays, and the saga is told: what was undone did happen. An answer
-- that cannot be stored is null.
with kept as (
    insert into sagas_dedupe (key, saga_id, state, token, response)
    values (%(key)s, %(saga_id)s, case when %(response)s::text is null then 'started' else 'done' end, %(token)s,
        %(response)s::text::jsonb)
    on conflict (key) do update
    set response = coalesce(sagas_dedupe.response, excluded.response),
        state = case when sagas_dedupe.state = 'closed' or excluded.response is null then sagas_dedupe.state
                     else excluded.state end
    returning state, saga_id
)
insert into sagas_outbox (saga_id, kind, queue, payload)
select saga_id, 'late_answer', %(queue)s, jsonb_build_object('step', %(step)s::text) from kept where state = 'closed'
