-- Record decisions that say nothing of what only few do: record.sql without all that a batch of plain steps pays for
-- and does not need. Each decision is about a step whose saga stands in no line and has no parent; none of them fails,
-- turns back, cancels, pauses, parks, waits or wakes, adds a row, or starts, ends or frees something. The rules are the
-- same.
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
with given as materialized ( -- each column is a JSON array: the cheapest to send, and to take apart
    select g.id::bigint, token::bigint, saga_id::uuid, seq::int, new_seq::int, status, steps, finished::bool,
        keep::bool, step, direction, queue, delay::float8, go_on::bool
    from rows from (
        json_array_elements_text(%(ids)s::json), json_array_elements_text(%(tokens)s::json),
        json_array_elements_text(%(saga_ids)s::json), json_array_elements_text(%(seqs)s::json),
        json_array_elements_text(%(new_seqs)s::json), json_array_elements_text(%(statuses)s::json),
        jsonb_array_elements(%(steps)s::jsonb), json_array_elements_text(%(finished)s::json),
        json_array_elements_text(%(keeps)s::json), json_array_elements_text(%(row_steps)s::json),
        json_array_elements_text(%(directions)s::json), json_array_elements_text(%(queues)s::json),
        json_array_elements_text(%(delays)s::json), json_array_elements_text(%(goes_on)s::json)
    ) as g (id, token, saga_id, seq, new_seq, status, steps, finished, keep, step, direction, queue, delay, go_on)
    where g.id::bigint between 1 and 9223372036854775807 -- always: it lets the planner expect few, and use the indexes
), ok as materialized (
    select g.*, coalesce(%(now)s::timestamptz, clock_timestamp()) as now,
        g.go_on and not exists (select from sagas_pause) and not exists (
            select from sagas_outbox r
            where r.saga_id = any(array[g.saga_id]) and r.kind not in ('step', 'signal', 'children'))
          and not (s.run > 1 and exists ( -- or of the run that this one has gone on from
            select from (
                select f.id from sagas_saga f where f.name = s.name and f.key = s.key and f.run = s.run - 1 limit 1
            ) former join sagas_outbox r on r.saga_id = any(array[former.id])
            where r.kind in ('cancel', 'pause', 'resume')))
          and not ( -- whoever has limits is asked each time
            (select exists (select from sagas_queue)) and exists (select from sagas_queue q where q.name = g.queue))
            as goes_on,
        s.priority
    from given g
    join sagas_outbox o on o.id = any(array[g.id]) and o.token = g.token and o.holder = %(holder)s
    join sagas_saga s on s.id = g.saga_id and s.seq = g.seq
    order by g.id
    for update of o, s skip locked
), saga as (
    update sagas_saga s
    set status = ok.status, seq = ok.new_seq, steps = ok.steps, cancel_requested = false, parked_from = null,
        error = '', paused = false, failing = false, updated_at = ok.now,
        finished_at = case when ok.finished then ok.now end
    from ok where s.id = ok.saga_id and ok.new_seq <> ok.seq
), log as (
    insert into sagas_log (saga_id, seq, kind, step, attempt, token, data, at)
    select ok.saga_id, l.seq::int, l.kind, l.step, l.attempt::int, ok.token, l.data, ok.now
    from ok join rows from (
        json_array_elements_text(%(log_ids)s::json), json_array_elements_text(%(log_seqs)s::json),
        json_array_elements_text(%(log_kinds)s::json), json_array_elements_text(%(log_steps)s::json),
        json_array_elements_text(%(log_attempts)s::json), jsonb_array_elements(%(log_data)s::jsonb)
    ) as l (id, seq, kind, step, attempt, data) on l.id::bigint = ok.id
), kept as (
    update sagas_outbox o
    set step = ok.step, direction = ok.direction, queue = ok.queue, failures = 0, priority = ok.priority,
        token = o.token + 1, publishes = 0,
        progress = case when o.step = ok.step and o.direction = ok.direction then o.progress end,
        holder = case when ok.goes_on then %(holder)s end,
        deliveries = case when ok.goes_on then 1 else 0 end,
        first_begun_at = case when ok.goes_on then ok.now end,
        due_at = case when not ok.goes_on then ok.now + make_interval(secs => ok.delay)
            when not %(renews)s::bool and o.due_at > ok.now + make_interval(secs => %(lease)s::float8 * 0.8)
                then o.due_at
            else ok.now + make_interval(secs => %(lease)s::float8) end -- unchanged where it can be: no index is touched
    from ok where o.id = any(array[ok.id]) and ok.keep
), dropped as (
    delete from sagas_outbox o using ok where o.id = any(array[ok.id]) and not ok.keep
)
select id, goes_on from ok
