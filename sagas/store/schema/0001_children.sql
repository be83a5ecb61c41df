-- Children: sagas that others start, see sagas.family.

-- What a saga does about the children of one of its steps; called by the statement that records why. A child is started
-- unless it is there: then only if it has ended as one of `again`, as the next run of its key. It is asked to turn back
-- like any saga, by a row that a worker applies. A look is a row for the parent itself. The id of a child follows from
-- what it is, so that it is the same, and acts under the same keys, where a database that went back in time starts it once
-- more: the time that its parent's id begins with, version 8, the number of the run, and a hash.
create function sagas_children_v1(request jsonb) returns integer language plpgsql as $$
declare
    kind constant text := request->>'do';
    parent_id constant uuid := request->>'parent';
    branch constant text := request->>'branch';
    asked_at constant timestamptz := request->>'now';
    ends_at constant timestamptz := asked_at + make_interval(secs => (request->>'deadline')::float8);
    began constant text := left(translate(request->>'parent', '-', ''), 12);
    changed integer := 0;
begin
    if kind = 'start' then
        with given as materialized (
            select (began || '8' || lpad(to_hex(least(n.run, 4095)), 3, '0') || '8' || left(encode(sha256(convert_to(
                    concat_ws(' ', request->>'name', c.key, n.run), 'UTF8')), 'hex'), 15))::uuid as id,
                c.key, c.input_hash, c.saga, n.run
            from jsonb_to_recordset(request->'children') as c (key text, input_hash text, saga jsonb)
            left join lateral (
                select s.run, s.status from sagas_saga s
                where (request->>'anew')::boolean and s.name = request->>'name' and s.key = c.key
                order by s.run desc limit 1) p on true
            cross join lateral (select coalesce(p.run, 0) + 1 as run) n
            where p.run is null or p.status = any (array(select jsonb_array_elements_text(request->'again')))
        ), born as (
            insert into sagas_saga (
                id, name, version, key, run, status, seq, input_hash, parent, parent_step, headers, definition, deadline,
                created_at, updated_at)
            select g.id, request->>'name', (request->>'version')::integer, g.key, g.run, request->>'status',
                (request->>'seq')::integer, g.input_hash, parent_id, branch, request->'headers', request->>'definition',
                ends_at, asked_at, asked_at
            from given g
        ), logged as (
            insert into sagas_log (saga_id, seq, kind, data, at)
            select g.id, 0, 'started', jsonb_build_object('saga', g.saga || jsonb_build_object('run', g.run))
                || case when ends_at is null then '{}' else jsonb_build_object('deadline', extract(epoch from ends_at)) end,
                asked_at
            from given g
        ), due as (
            insert into sagas_outbox (saga_id, kind, step, direction, queue, priority, lane, due_at)
            select g.id, 'step', r->>'step', r->>'direction', r->>'queue', coalesce((r->>'priority')::smallint, 0),
                hashtext(request->>'name'), asked_at
            from given g cross join jsonb_array_elements(request->'rows') r
        )
        select count(*) into changed from given;
    elsif kind = 'look' then
        insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at, payload)
        values (parent_id, 'children', request->>'queue', asked_at, asked_at, jsonb_build_object('step', request->>'step'));
    else
        insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at, payload)
        select c.id, case kind when 'cancel' then 'cancel' else 'undo_completed' end,
            coalesce((select o.queue from sagas_outbox o where o.saga_id = c.id and o.kind = 'step' limit 1),
                request->>'queue'),
            least(asked_at, (select min(o.due_at) - interval '1 microsecond' from sagas_outbox o
                where o.saga_id = c.id and o.kind = 'step')),
            asked_at, jsonb_build_object('actor', 'saga ' || parent_id, 'reason', request->>'reason')
        from sagas_saga c
        where c.parent = parent_id and c.parent_step = branch
          and case kind when 'cancel' then c.finished_at is null
              else c.status = any (array(select jsonb_array_elements_text(request->'ended_as'))) end;
    end if;
    return changed;
end $$;
