-- Queues with limits, and the line of an ordering key: what is asked where steps are claimed and begun.

-- Queues with limits; a queue that has none has no row here. What code declares holds until an operator changes it.
create table sagas_queue (
    name text not null constraint sagas_queue_pkey primary key,
    concurrency integer, -- steps at work at the same time
    rate integer, -- steps begun in any period
    period double precision, -- seconds
    spent integer[] not null default '{}', -- begun lately, by twentieths of a period, the newest first
    spent_at bigint not null default 0, -- the number of the newest twentieth
    declared jsonb, -- what code says; null: nothing
    actor text not null default '', -- the operator whose change holds; empty: what code says holds
    reason text not null default '',
    at timestamptz not null default clock_timestamp(),
    constraint sagas_queue_limits check (concurrency >= 1 and rate >= 1 and period > 0
        and (rate is null) = (period is null))
);

-- Who has a place in a queue with limits: what is published for it, or begun. A line counts for as long as its outbox
-- row has this token and, where it is only published, is not due again.
create table sagas_slot (
    outbox_id bigint not null constraint sagas_slot_pkey primary key,
    queue text not null,
    token bigint not null,
    begun boolean not null default false,
    cell bigint -- of `spent`, which it was counted in
);

create index sagas_slot_queue on sagas_slot (queue);

-- Queues with limits, whoever begins: the line of the queue is locked first, then what is at work is counted, each
-- statement of these functions with a snapshot of its own, so that what another transaction has begun meanwhile is seen.

-- What was begun lately, by twentieths of a period, as it is in twentieth `cell`: 21 numbers, the newest first.
create function sagas_spent_v1(spent integer[], spent_at bigint, cell bigint) returns integer[]
language sql immutable as $$
    select array(select coalesce(case when cell - spent_at between 0 and 20
        then spent[(i - (cell - spent_at))::integer] end, 0) from generate_series(1, 21) i order by i)
$$;

-- Queues in which nothing more may begin just now, though a relay and workers are there: all their places are taken by
-- work whose claim holds, or what a period allows has been begun or is about to be.
create function sagas_full_v1(at timestamptz) returns setof text language sql stable as $$
    select q.name from sagas_queue q cross join lateral (
        select count(*) as places, count(*) filter (where not s.begun) as published
        from sagas_slot s join sagas_outbox o on o.id = s.outbox_id and o.token = s.token
        where s.queue = q.name and o.holder is not null and o.due_at > at
    ) taken cross join lateral (
        select coalesce(sum(n), 0) as lately, coalesce(sum(n) filter (where nth <= 2), 0) as just_now
        from unnest(sagas_spent_v1(q.spent, q.spent_at, greatest(
            q.spent_at, floor(extract(epoch from at) * 20 / q.period)::bigint))) with ordinality as u (n, nth)
    ) begun
    where taken.places >= q.concurrency
       or q.rate is not null -- which leaves room for a moment, now and then
          and (begun.lately + taken.published >= q.rate or begun.just_now > 0)
$$;

-- How many more rows may be published, or begun, of these queues. A worker whose lease ended has lost its place where
-- `fence` says so: the token of its row goes up, so that it notices. One that is in the middle of a local step, whose
-- row is locked, has not.
create function sagas_room_v1(queues text[], fence boolean, at timestamptz)
returns table (limited text, room integer) language plpgsql as $$
declare
    q sagas_queue;
    taken integer;
    cell bigint;
    lately bigint;
begin
    for q in select l.* from sagas_queue l where l.name = any(queues) order by l.name for update loop
        if fence then
            update sagas_outbox o set token = o.token + 1
            from (
                select d.id from sagas_slot s join sagas_outbox d on d.id = s.outbox_id and d.token = s.token
                where s.queue = q.name and s.begun and d.due_at <= at
                order by d.id
                for update of d skip locked
            ) gone
            where o.id = gone.id;
        end if;
        delete from sagas_slot s where s.queue = q.name and not exists (
            select from sagas_outbox o
            where o.id = s.outbox_id and o.token = s.token and o.holder is not null and (s.begun or o.due_at > at));
        select count(*) into taken from sagas_slot s where s.queue = q.name;
        limited := q.name;
        room := q.concurrency - taken;
        if q.rate is not null then
            cell := greatest(floor(extract(epoch from at) * 20 / q.period)::bigint, least(q.spent_at,
                floor(extract(epoch from at) * 20 / q.period)::bigint + 21));
            select sum(n) into lately from unnest(sagas_spent_v1(q.spent, q.spent_at, cell)) n;
            select q.rate - lately - count(*) into lately from sagas_slot s where s.queue = q.name and not s.begun;
            room := least(room, lately);
        end if;
        room := case when room < 0 then 0 else room end; -- a limit that was lowered while more than that is at work
        return next;
    end loop;
end $$;

-- Which of these rows, just locked by the caller in order to begin them, may not be begun: those of a queue that is
-- full, and those that are not first in the line of their ordering key. They are given back, and due again: at once, or
-- when it may be their turn.
create function sagas_refused_v1(ids bigint[], at timestamptz) returns setof bigint language plpgsql as $$
declare
    q sagas_queue;
    o record;
    room bigint;
    lately bigint;
    turned_away bigint[];
    full_up bigint[] := '{}';
    now_cell bigint;
begin
    perform from sagas_queue l
        where l.name in (select b.queue from sagas_outbox b where b.id = any(ids)) order by l.name for update;
    perform pg_advisory_xact_lock(lines.line) from (
        select distinct hashtextextended(b.queue || ' ' || b.ordering_key, 1) as line from sagas_outbox b
        where b.id = any(ids) and b.kind = 'step' and b.ordering_key is not null order by 1) lines;
    select coalesce(array_agg(b.row_id), '{}') into turned_away from sagas_behind_v1(ids, at, true) b;
    for q in select l.* from sagas_queue l
            where l.name in (select b.queue from sagas_outbox b where b.id = any(ids)) order by l.name loop
        lately := null; -- what a rate leaves; without one nothing is counted
        now_cell := null;
        delete from sagas_slot s where s.queue = q.name and not exists (
            select from sagas_outbox b
            where b.id = s.outbox_id and b.token = s.token and b.holder is not null and (s.begun or b.due_at > at));
        select q.concurrency - count(*) into room from sagas_slot s where s.queue = q.name;
        if q.rate is not null then
            now_cell := floor(extract(epoch from at) * 20 / q.period)::bigint;
            now_cell := greatest(now_cell, least(q.spent_at, now_cell + 21)); -- the clock was set back
            q.spent := sagas_spent_v1(q.spent, q.spent_at, now_cell);
            select q.rate - sum(n) into lately from unnest(q.spent) n;
        end if;
        for o in
            select b.id, b.token, s.outbox_id is not null as has_place
            from unnest(ids) with ordinality w (id, nth) join sagas_outbox b on b.id = w.id
            left join sagas_slot s on s.outbox_id = b.id and s.queue = b.queue
            where b.queue = q.name and b.kind = 'step' and b.id <> all(turned_away)
            order by s.outbox_id is null, w.nth
        loop
            if (not o.has_place and room <= 0) or lately <= 0 then
                full_up := full_up || o.id;
                continue;
            end if;
            insert into sagas_slot (outbox_id, queue, token, begun, cell)
            values (o.id, q.name, o.token + 1, true, now_cell)
            on conflict (outbox_id) do update
            set queue = excluded.queue, token = excluded.token, begun = true, cell = excluded.cell;
            room := room - case when o.has_place then 0 else 1 end;
            lately := lately - 1;
            q.spent[1] := q.spent[1] + 1;
        end loop;
        if q.rate is not null then
            update sagas_queue l set spent = q.spent, spent_at = now_cell where l.name = q.name;
        end if;
    end loop;
    update sagas_outbox b
    set holder = null, publishes = 0, due_at = at + case when b.id = any(turned_away) then interval '5 s' else '0 s' end
    where b.id = any(turned_away || full_up);
    return query select unnest(turned_away || full_up);
end $$;

-- Which of these rows are not first in the line of their ordering key: a row of a saga that was started before is, or
-- another that is at work. Each with the seconds until it is looked at again: whoever leaves the line makes the next
-- one due. Where `fence` says so, one whose worker's lease ended is not at work any more, and notices.
create function sagas_behind_v1(ids bigint[], at timestamptz, fence boolean)
returns table (row_id bigint, seconds double precision) language plpgsql as $$
declare
    b record;
    ahead integer;
    other record;
begin
    for b in select o.id, o.queue, o.ordering_key, o.place from sagas_outbox o
            where o.id = any(ids) and o.kind = 'step' and o.ordering_key is not null order by o.place, o.id loop
        select count(*) into ahead from (
            select from sagas_outbox o
            where o.queue = b.queue and o.ordering_key = b.ordering_key and o.kind = 'step'
              and (o.place, o.id) < (b.place, b.id)
            limit 2) nearest;
        if ahead = 0 then
            for other in select o.id from sagas_outbox o
                    where o.queue = b.queue and o.ordering_key = b.ordering_key and o.kind = 'step'
                      and o.id <> b.id and o.holder like 'worker:%' loop
                if fence then
                    update sagas_outbox o set token = o.token + 1, holder = null
                    from (select d.id from sagas_outbox d where d.id = other.id and d.due_at <= at
                        for update skip locked) gone
                    where o.id = gone.id;
                    continue when found;
                end if;
                continue when not fence and exists (
                    select from sagas_outbox d where d.id = other.id and d.due_at <= at);
                ahead := 1;
                exit;
            end loop;
        end if;
        if ahead > 0 then
            row_id := b.id;
            seconds := case when ahead = 1 then 5 else 60 end;
            return next;
        end if;
    end loop;
end $$;

-- Rows that were begun and are given back before anything ran: they have not been begun after all.
create function sagas_unspent_v1(ids bigint[]) returns integer language plpgsql as $$
declare
    gone record;
    given integer := 0;
begin
    for gone in
        with slots as (delete from sagas_slot s where s.outbox_id = any(ids) returning s.queue, s.cell)
        select s.queue, s.cell, count(*)::integer as rows from slots s group by s.queue, s.cell order by s.queue, s.cell
    loop
        given := given + gone.rows;
        update sagas_queue q
        set spent[(q.spent_at - gone.cell + 1)::integer] =
            greatest(q.spent[(q.spent_at - gone.cell + 1)::integer] - gone.rows, 0)
        where q.name = gone.queue and q.rate is not null and q.spent_at - gone.cell between 0 and 20;
    end loop;
    return given;
end $$;
