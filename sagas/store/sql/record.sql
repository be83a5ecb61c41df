-- Record decisions, all of each or nothing of it: written where the outbox row's token and the saga's seq
-- are still those the decision was made from. Both rows are locked together, ordered by outbox id, and what
-- another transaction holds is left out. A worker goes on with the next step only where no request (such as a
-- cancel) of the saga is waiting. Never two decisions of one saga in one call.
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
with given as materialized ( -- each column is a JSON array: the cheapest to send, and to take apart
    select g.id::bigint, token::bigint, saga_id::uuid, seq::int, new_seq::int, status, steps, finished::bool,
        keep::bool, step, direction, queue, delay::float8, go_on::bool, coalesce(cancel, false) as cancel, parked_from,
        coalesce(error, '') as error, coalesce(paused, false) as paused, coalesce(failing, false) as failing,
        coalesce(failures, 0) as failures, first_begun, coalesce(wake, false) as wake, coalesce(spare, false) as spare,
        coalesce(priority, 0) as priority
    from rows from (
        json_array_elements_text(%(ids)s::json), json_array_elements_text(%(tokens)s::json),
        json_array_elements_text(%(saga_ids)s::json), json_array_elements_text(%(seqs)s::json),
        json_array_elements_text(%(new_seqs)s::json), json_array_elements_text(%(statuses)s::json),
        jsonb_array_elements(%(steps)s::jsonb), json_array_elements_text(%(finished)s::json),
        json_array_elements_text(%(keeps)s::json), json_array_elements_text(%(row_steps)s::json),
        json_array_elements_text(%(directions)s::json), json_array_elements_text(%(queues)s::json),
        json_array_elements_text(%(delays)s::json), json_array_elements_text(%(goes_on)s::json)
    ) as g (id, token, saga_id, seq, new_seq, status, steps, finished, keep, step, direction, queue, delay, go_on)
    left join json_to_recordset(%(unusual)s::json) as u ( -- what few decisions say
        id bigint, cancel bool, parked_from text, error text, paused bool, failing bool, failures int,
        first_begun float8, wake bool, spare bool, priority int) on u.id = g.id::bigint
    where g.id::bigint between 1 and 9223372036854775807 -- always: it lets the planner expect few, and use the indexes
), taken as materialized (
    select g.*, g.keep and not (g.spare and exists (
            select from sagas_outbox r
            where r.saga_id = g.saga_id and r.id <> g.id and r.step = g.step and r.direction = g.direction)) as kept,
        coalesce(%(now)s::timestamptz, clock_timestamp()) as now,
        g.go_on and not exists (select from sagas_pause) and not exists (
            select from sagas_outbox r
            where r.saga_id = any(array[g.saga_id]) and r.kind not in ('step', 'signal', 'children'))
          and not (s.run > 1 and exists ( -- or of the run that this one has gone on from
            select from (
                select f.id from sagas_saga f where f.name = s.name and f.key = s.key and f.run = s.run - 1 limit 1
            ) former join sagas_outbox r on r.saga_id = any(array[former.id])
            where r.kind in ('cancel', 'pause', 'resume')))
          and (o.ordering_key is null or o.queue = g.queue) and not ( -- whoever has limits is asked each time
            (select exists (select from sagas_queue)) and exists (select from sagas_queue q where q.name = g.queue))
            as goes_on,
        s.priority as saga_priority, o.queue as was_in, case when o.kind = 'step' then o.ordering_key end as line,
        s.parent, s.parent_step, s.paused as was_paused
    from given g
    join sagas_outbox o on o.id = any(array[g.id]) and o.token = g.token and o.holder = %(holder)s
    join sagas_saga s on s.id = g.saga_id and s.seq = g.seq
    order by g.id
    for update of o, s skip locked
), others as materialized ( -- the saga's other rows, each as it is now, and whether it is of no use any more
    select o.id, o.saga_id, taken.now, o.holder, o.kind = 'step' and (taken.finished or exists (
            select from rows from (
                json_array_elements_text(%(surplus_ids)s::json), json_array_elements_text(%(surplus_steps)s::json),
                json_array_elements_text(%(surplus_directions)s::json)
            ) as w (id, step, direction)
            where w.id::bigint = taken.id and w.step = o.step and w.direction = o.direction)) as over
    from taken join sagas_outbox o on o.saga_id = any(array[taken.saga_id])
    where taken.wake and o.id <> taken.id
    order by o.id + 0 -- sorted: an index read in this order would be read whole
    for update of o skip locked
), ok as materialized (
    select taken.* from taken
    where not taken.wake or not exists ( -- a row that nobody holds and somebody locks cannot be woken: later
        select from sagas_outbox o
        where o.saga_id = taken.saga_id and o.id <> taken.id and o.holder is null
          and o.id not in (select others.id from others))
), saga as (
    update sagas_saga s
    set status = ok.status, seq = ok.new_seq, steps = ok.steps, cancel_requested = ok.cancel,
        parked_from = ok.parked_from, error = ok.error, paused = ok.paused, failing = ok.failing, updated_at = ok.now,
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
    set step = ok.step, direction = ok.direction, queue = ok.queue, failures = ok.failures,
        priority = ok.saga_priority + ok.priority,
        token = o.token + 1, publishes = 0,
        progress = case when o.step = ok.step and o.direction = ok.direction then o.progress end,
        holder = case when ok.goes_on then %(holder)s end,
        deliveries = case when ok.goes_on then 1 else 0 end,
        first_begun_at = case when ok.first_begun is not null then to_timestamp(ok.first_begun)
                              when ok.goes_on then ok.now end,
        due_at = case when not ok.goes_on then ok.now + make_interval(secs => ok.delay)
            when not %(renews)s::bool and o.due_at > ok.now + make_interval(secs => %(lease)s::float8 * 0.8)
                then o.due_at
            else ok.now + make_interval(secs => %(lease)s::float8) end -- unchanged where it can be: no index is touched
    from ok where o.id = any(array[ok.id]) and ok.kept
), dropped as (
    delete from sagas_outbox o using ok where o.id = any(array[ok.id]) and not ok.kept
), added as (
    insert into sagas_outbox (saga_id, kind, step, direction, queue, priority, lane, ordering_key, place, due_at, failures,
        first_begun_at)
    select ok.saga_id, 'step', r.step, r.direction, r.queue, s.priority + r.priority::int, hashtext(s.name), s.ordering_key,
        case when s.ordering_key is not null then extract(epoch from s.created_at) * 1000000 end,
        ok.now + make_interval(secs => r.delay::float8), r.failures::int, to_timestamp(r.first_begun::float8)
    from ok join rows from (
        json_array_elements_text(%(new_ids)s::json), json_array_elements_text(%(new_steps)s::json),
        json_array_elements_text(%(new_directions)s::json), json_array_elements_text(%(new_queues)s::json),
        json_array_elements_text(%(new_delays)s::json), json_array_elements_text(%(new_failures)s::json),
        json_array_elements_text(%(new_first_begun)s::json), json_array_elements_text(%(new_priorities)s::json)
    ) as r (id, step, direction, queue, delay, failures, first_begun, priority) on r.id::bigint = ok.id
    join sagas_saga s on s.id = ok.saga_id
), freed as materialized ( -- rows that wait for what a saga gives up with its end
    select sagas_unlock_v1(ok.saga_id, ok.now, array(
            select given.id from given union all select others.id from others where others.over)) as id, ok.now
    from ok join json_array_elements_text(%(freeing)s::json) as f (id) on f.id::bigint = ok.id
), woken as ( -- all in one update: a row may be due for more than one reason
    update sagas_outbox o set due_at = due.now
    from (
        select others.id, others.now, false as free from others join ok on ok.saga_id = others.saga_id
        where others.holder is null and not others.over
        union all
        select n.id, ok.now, false -- whoever leaves the line of an ordering key makes the next one due
        from ok cross join lateral (
            select r.id from sagas_outbox r
            where r.queue = ok.was_in and r.ordering_key = ok.line and r.kind = 'step' and r.id <> ok.id
              and r.id not in (select others.id from others)
            order by r.place, r.id
            limit 1
        ) n
        where ok.line is not null and (not ok.kept or ok.queue <> ok.was_in)
        union all
        select freed.id, freed.now, true from freed -- as it is now, which this statement may not see
    ) due
    where o.id = any(array[due.id]) and (due.free or o.holder is null and o.due_at > due.now)
), cleared as (
    delete from sagas_outbox o using others, ok
    where o.id = any(array[others.id]) and o.saga_id = any(array[ok.saga_id]) and others.holder is null and others.over
), continued as materialized (
    select case when n.request->>'do' is null then (sagas_start_v1(n.request) is null)::int
        else sagas_children_v1(n.request::jsonb || jsonb_build_object('now', ok.now)) end
    from ok join rows from (json_array_elements_text(%(next_ids)s::json), json_array_elements(%(nexts)s::json))
        as n (id, request) on n.id::bigint = ok.id
), still_paused as ( -- what goes on from a paused saga is paused as well, unless that is just being changed
    insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at, payload)
    select (n.request->>'id')::uuid, 'pause', n.request->'rows'->0->>'queue', ok.now - interval '1 microsecond', ok.now,
        jsonb_build_object('inherited', true,
            'reason', 'saga ' || ok.saga_id || ', which goes on as this one, was paused')
    from ok join rows from (json_array_elements_text(%(next_ids)s::json), json_array_elements(%(nexts)s::json))
        as n (id, request) on n.id::bigint = ok.id
    where ok.was_paused and n.request->>'do' is null
      and not exists (
        select from sagas_outbox r where r.saga_id = any(array[ok.saga_id]) and r.kind in ('pause', 'resume'))
), ended as materialized ( -- children that came to their end: their parents are told, by one row for many
    select e.*, exists (
        -- one that nobody has begun will find this end too: while it is locked here, it cannot be begun
        select from (
            select from sagas_outbox r
            where r.saga_id = e.parent and r.kind = 'children' and r.payload->>'step' = e.step
              and (r.holder is null or r.holder like 'relay:%%')
            limit 1 for share skip locked) unbegun
        ) as known, ( -- the more are open, the less one end matters
        select count(*) from (
            select from sagas_saga c
            where c.parent = e.parent and c.parent_step = e.branch and c.finished_at is null
              and c.id not in (select given.saga_id from given)
            limit 400) siblings
        ) as open
    from (
        select ok.parent, ok.parent_step as branch, split_part(ok.parent_step, '~', 1) as step, min(o.queue) as queue,
            max(ok.now) as now
        from ok join sagas_outbox o on o.id = any(array[ok.id])
        where ok.finished and ok.parent is not null and ok.new_seq <> ok.seq
        group by 1, 2) e
    where exists (select from sagas_saga p where p.id = e.parent and p.finished_at is null)
), told as (
    insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at, payload)
    select e.parent, 'children', coalesce((
            select o.queue from sagas_outbox o where o.saga_id = e.parent and o.kind = 'step' limit 1), e.queue),
        e.now + e.open * interval '300 microseconds', e.now, jsonb_build_object('step', e.step)
    from ended e where not e.known
), marked as (
    insert into sagas_dedupe (key, saga_id, state, token)
    select m.key, ok.saga_id, m.state, ok.token
    from ok join rows from (
        json_array_elements_text(%(mark_ids)s::json), json_array_elements_text(%(mark_keys)s::json),
        json_array_elements_text(%(mark_states)s::json)
    ) as m (id, key, state) on m.id::bigint = ok.id
    on conflict (key) do update set state = excluded.state
    where excluded.state = 'closed'
)
select id, goes_on, (select count(*) from continued), (select count(*) from freed) from ok
