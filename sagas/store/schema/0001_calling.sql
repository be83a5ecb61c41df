-- What callers do besides start(): each a function that takes one json.

-- get(): one saga by id, or by name and key (its latest run); null when there is none.
-- In two statements, each planned by itself: of one for both, each look would read the table whole.
create function sagas_get_v1(request json) returns json language plpgsql stable as $$
declare
    found_id uuid := request->>'id';
begin
    if found_id is null then
        select id into found_id from sagas_saga
            where name = request->>'name' and key = request->>'key' order by run desc limit 1;
    end if;
    return (select row_to_json(s) from (
        select id, name, version, key, run, status, seq, steps, error, cancel_requested, parked_from,
            created_at, updated_at, finished_at, deadline, paused, failing, extract(epoch from deadline)::float8 as deadline_epoch
        from sagas_saga where id = found_id) s);
end $$;

-- cancel(), retry, abort: callers only insert a row; a worker applies it. It is due before the saga's own work
-- that waits to be run, so that a saga cancelled while it stands in a long queue does not run first. `timer_at`
-- says when it was asked: however long the work has been due, the request is new. It goes to the queue of that work,
-- so that whoever can run the one can apply the other.
create function sagas_request_v1(request json) returns json language plpgsql as $$
declare
    asked_at constant timestamptz := coalesce((request->>'now')::timestamptz, clock_timestamp());
    existing record;
begin
    if request->>'id' is not null then
        select id, name, key, status into existing from sagas_saga where id = (request->>'id')::uuid;
    else
        select id, name, key, status into existing from sagas_saga
            where name = request->>'name' and key = request->>'key' order by run desc limit 1;
    end if;
    if not found then
        return null;
    end if;
    insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at, payload)
    values (existing.id, request->>'kind',
        coalesce((select o.queue from sagas_outbox o where o.saga_id = existing.id and o.kind = 'step' limit 1),
            request->>'queue'),
        least(asked_at,
            (select min(o.due_at) - interval '1 microsecond' from sagas_outbox o
                where o.saga_id = existing.id and o.kind = 'step')),
        asked_at, (request->'payload')::jsonb);
    return json_build_object('id', existing.id, 'status', existing.status);
end $$;

-- send(): a signal is a row like any request. It says which saga it is for by name and key, so that it finds the run
-- that is the latest when it is applied; one that comes before its saga waits for it, where the sender wants that.
create function sagas_send_v1(request json) returns json language plpgsql as $$
declare
    given constant jsonb := request; -- read once, as in start()
    sent_at constant timestamptz := coalesce((given->>'now')::timestamptz, clock_timestamp());
    target record;
    sagas_name text := given->>'name';
    sagas_key text := given->>'key';
begin
    if given->>'id' is not null then
        select id, name, key, status into target from sagas_saga where id = (given->>'id')::uuid;
    else
        select id, name, key, status into target from sagas_saga
            where name = sagas_name and key = sagas_key order by run desc limit 1;
    end if;
    if not found and given->>'id' is null then -- it has ended long ago, and was pruned: nobody waits for it
        select saga_id as id, status into target from sagas_tombstone
            where name = sagas_name and key = sagas_key order by run desc limit 1;
        if found then
            return json_build_object('id', target.id, 'status', target.status, 'duplicate', false);
        end if;
    end if;
    if not found and (given->>'id' is not null or not (given->>'keep')::boolean) then
        return null;
    end if;
    if found then
        sagas_name := target.name;
        sagas_key := target.key;
    end if;
    if given->>'dedupe_id' is not null then
        insert into sagas_signal (name, key, step, dedupe_id, saga_id, sent_at)
        values (sagas_name, sagas_key, given->>'step', given->>'dedupe_id', target.id, sent_at)
        on conflict do nothing;
        if not found then
            return json_build_object('id', target.id, 'status', target.status, 'duplicate', true);
        end if;
    end if;
    insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at, ordering_key, payload)
    values (target.id, 'signal',
        coalesce((select o.queue from sagas_outbox o where o.saga_id = target.id and o.kind = 'step' limit 1),
            given->>'queue'),
        least(sent_at,
            (select min(o.due_at) - interval '1 microsecond' from sagas_outbox o
                where o.saga_id = target.id and o.kind = 'step')),
        sent_at, sagas_name || ' ' || sagas_key,
        given->'payload' || case when given->>'id' is not null then '{}' -- it is for that run only
            else jsonb_build_object('name', sagas_name, 'key', sagas_key) end
            -- of one that comes before its saga, for whoever gives it up in the end
            || case when target.id is not null or given->>'dedupe_id' is null then '{}'
                else jsonb_build_object('dedupe_id', given->>'dedupe_id') end);
    return json_build_object('id', target.id, 'status', target.status, 'duplicate', false);
end $$;

-- publish(): messages are rows of the caller's transaction, in the order in which they are given.
create function sagas_publish_v1(request json) returns json language plpgsql as $$
declare
    given constant jsonb := request;
    published_at constant timestamptz := coalesce((given->>'now')::timestamptz, clock_timestamp());
    written integer;
begin
    insert into sagas_message (
        message_id, destination, ordering_key, due_at, payload, options, headers, created_at)
    select (m->>'id')::uuid, m->>'destination', m->>'key',
        coalesce((m->>'due_at')::timestamptz,
            published_at + make_interval(secs => coalesce((m->>'delay')::float8, 0))),
        m->'payload', nullif(m->'options', 'null'), nullif(m->'headers', 'null'), published_at
    from jsonb_array_elements(given->'messages') with ordinality as e (m, n)
    order by n;
    get diagnostics written = row_count;
    return json_build_object('written', written);
end $$;

-- The inbox: true for the first who takes a message for a handler. One that is being taken in another transaction is
-- waited for: it counts only if that commits.
create function sagas_take_v1(request json) returns json language plpgsql as $$
begin
    insert into sagas_inbox (message_id, handler, at)
    values (request->>'id', request->>'handler', coalesce((request->>'now')::timestamptz, clock_timestamp()))
    on conflict do nothing;
    return to_json(found);
end $$;
