-- Takes an idempotency key for a caller's request; no row when it was taken before. Whoever holds the key in a
-- transaction that has not ended is waited for.
insert into sagas_dedupe (key, saga_id, state)
select r->>'key', (r->>'saga_id')::uuid, 'done' from (select %s::json) as given(r)
on conflict (key) do nothing
returning key
