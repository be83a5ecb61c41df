-- The effect happened: keep what came back, the first answer of those that come. Where the compensation of its step
-- has begun meanwhile, the saga is told: what was undone, or is about to be, did happen.
with kept as (
    update sagas_dedupe
    set response = coalesce(response, %(response)s::text::jsonb), state = 'done'
    where key = %(key)s
    returning saga_id
)
insert into sagas_outbox (saga_id, kind, queue, payload)
select k.saga_id, 'late_answer', %(queue)s, jsonb_build_object('step', %(step)s::text)
from kept k
where exists (select from sagas_dedupe where key = %(step_key)s and state = 'closed')
