-- Record decisions, all of each or nothing of it: written where the outbox row's token and the saga's seq
-- are still those the decision was made from. Both rows are locked together, ordered by outbox id, and what
-- another transaction holds is left out. A worker goes on with the next step only where no request (such as a
-- cancel) of the saga is waiting. Never two decisions of one saga in one call.
with given as materialized (
    select * from unnest(
        %(ids)b::bigint[], %(tokens)b::bigint[], %(saga_ids)b::uuid[], %(seqs)b::int[], %(new_seqs)b::int[],
        %(statuses)b::text[], %(steps)b::text[], %(cancels)b::bool[], %(parked_froms)b::text[], %(errors)b::text[],
        %(finished)b::bool[], %(keeps)b::bool[], %(row_steps)b::text[], %(directions)b::text[], %(queues)b::text[],
        %(delays)b::float8[], %(failures)b::int[], %(first_begun)b::float8[], %(goes_on)b::bool[], %(wakes)b::bool[],
        %(pauseds)b::bool[], %(failings)b::bool[], %(spares)b::bool[]
    ) as g (id, token, saga_id, seq, new_seq, status, steps, cancel, parked_from, error, finished, keep, step,
            direction, queue, delay, failures, first_begun, go_on, wake, paused, failing, spare)
), taken as materialized (
    select g.*, g.keep and not (g.spare and exists (
            select from sagas_outbox r
            where r.saga_id = g.saga_id and r.id <> g.id and r.step = g.step and r.direction = g.direction)) as kept,
        coalesce(%(now)s::timestamptz, clock_timestamp()) as now,
        g.go_on and not exists (select from sagas_pause) and not exists (
            select from sagas_outbox r where r.saga_id = g.saga_id and r.kind not in ('step', 'signal')) as goes_on
    from given g
    join sagas_outbox o on o.id = g.id and o.token = g.token
    join sagas_saga s on s.id = g.saga_id and s.seq = g.seq
    order by g.id
    for update of o, s skip locked
), others as materialized ( -- the saga's other rows, each as it is now, and whether it is of no use any more
    select o.id, taken.now, o.holder, o.kind = 'step' and (taken.finished or exists (
            select from unnest(%(surplus_ids)b::bigint[], %(surplus_steps)b::text[], %(surplus_directions)b::text[])
                as w (id, step, direction)
            where w.id = taken.id and w.step = o.step and w.direction = o.direction)) as over
    from taken join sagas_outbox o on o.saga_id = taken.saga_id
    where taken.wake and o.id <> taken.id
    order by o.id
    for update of o skip locked
), ok as materialized (
    select taken.* from taken
    where not taken.wake or not exists ( -- a row that nobody holds and somebody locks cannot be woken: later
        select from sagas_outbox o
        where o.saga_id = taken.saga_id and o.id <> taken.id and o.holder is null
          and o.id not in (select others.id from others))
), saga as (
    update sagas_saga s
    set status = ok.status, seq = ok.new_seq, steps = ok.steps::jsonb, cancel_requested = ok.cancel,
        parked_from = ok.parked_from, error = ok.error, paused = ok.paused, failing = ok.failing, updated_at = ok.now,
        finished_at = case when ok.finished then ok.now end
    from ok where s.id = ok.saga_id and ok.new_seq <> ok.seq
), log as (
    insert into sagas_log (saga_id, seq, kind, step, attempt, token, data, at)
    select ok.saga_id, l.seq, l.kind, l.step, l.attempt, ok.token, l.data::jsonb, ok.now
    from ok join unnest(
        %(log_ids)b::bigint[], %(log_seqs)b::int[], %(log_kinds)b::text[], %(log_steps)b::text[],
        %(log_attempts)b::int[], %(log_data)b::text[]
    ) as l (id, seq, kind, step, attempt, data) on l.id = ok.id
), kept as (
    update sagas_outbox o
    set step = ok.step, direction = ok.direction, queue = ok.queue, failures = ok.failures,
        token = o.token + 1, publishes = 0,
        progress = case when o.step = ok.step and o.direction = ok.direction then o.progress end,
        holder = case when ok.goes_on then %(holder)s end,
        deliveries = case when ok.goes_on then 1 else 0 end,
        first_begun_at = case when ok.first_begun is not null then to_timestamp(ok.first_begun)
                              when ok.goes_on then ok.now end,
        due_at = ok.now + make_interval(secs => case when ok.goes_on then %(lease)s::float8 else ok.delay end)
    from ok where o.id = ok.id and ok.kept
), dropped as (
    delete from sagas_outbox o using ok where o.id = ok.id and not ok.kept
), added as (
    insert into sagas_outbox (saga_id, kind, step, direction, queue, due_at, failures, first_begun_at)
    select ok.saga_id, 'step', r.step, r.direction, r.queue, ok.now + make_interval(secs => r.delay), r.failures,
        to_timestamp(r.first_begun)
    from ok join unnest(
        %(new_ids)b::bigint[], %(new_steps)b::text[], %(new_directions)b::text[], %(new_queues)b::text[],
        %(new_delays)b::float8[], %(new_failures)b::int[], %(new_first_begun)b::float8[]
    ) as r (id, step, direction, queue, delay, failures, first_begun) on r.id = ok.id
), woken as (
    update sagas_outbox o set due_at = others.now from others join ok on true
    where o.id = others.id and o.saga_id = ok.saga_id and others.holder is null and not others.over
      and o.due_at > others.now
), cleared as (
    delete from sagas_outbox o using others, ok
    where o.id = others.id and o.saga_id = ok.saga_id and others.holder is null and others.over
), continued as materialized (
    select sagas_start_v1(n.request::json) from ok join unnest(%(next_ids)b::bigint[], %(nexts)b::text[])
        as n (id, request) on n.id = ok.id
), marked as (
    insert into sagas_dedupe (key, saga_id, state, token)
    select m.key, ok.saga_id, m.state, ok.token
    from ok join unnest(%(mark_ids)b::bigint[], %(mark_keys)b::text[], %(mark_states)b::text[])
        as m (id, key, state) on m.id = ok.id
    on conflict (key) do update set state = excluded.state
    where excluded.state = 'closed'
)
select id, goes_on, (select count(*) from continued) from ok
