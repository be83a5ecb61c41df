-- Semantic locks: a subject that a saga holds from one of its steps to its end, see sagas.locks.

-- Semantic locks: which saga holds a subject until its end, and which ones wait for it.
create table sagas_lock (
    subject text not null,
    saga_id uuid not null,
    step text not null,
    waiting boolean not null default false,
    at timestamptz not null default clock_timestamp(), -- since when it holds it, or waits
    constraint sagas_lock_pkey primary key (subject, saga_id)
);

create unique index sagas_lock_holder on sagas_lock (subject) where not waiting;
create index sagas_lock_saga on sagas_lock (saga_id);

-- Semantic locks, for a worker that is about to begin a step: all subjects for its saga, or none. What the saga has, or
-- one that it is a child of, is no obstacle. `fenced`: only while the outbox row is held under this token and the
-- saga has not ended; whoever records its end locks the saga row too, and so sees what is written here, or is seen.
-- Nobody is waited for: who holds the advisory lock of a subject is about to take it, in a transaction that may last.
create function sagas_lock_v1(request json) returns json language plpgsql as $$
declare
    given constant jsonb := request;
    mine constant uuid := (given->>'saga_id')::uuid;
    wanted constant text[] := array(select distinct w from jsonb_array_elements_text(given->'subjects') w order by w);
    family uuid[];
    each text;
    holder record;
begin
    if (given->>'fenced')::boolean then
        perform from sagas_outbox o join sagas_saga s on s.id = o.saga_id
            where o.id = (given->>'id')::bigint and o.token = (given->>'token')::bigint and s.finished_at is null
            for share of o, s;
        if not found then
            return json_build_object('ours', false);
        end if;
    end if;
    with recursive up as (
        select s.id, s.parent from sagas_saga s where s.id = mine
        union all
        select s.id, s.parent from sagas_saga s join up on s.id = up.parent
    ) select array_agg(id) into family from up;
    foreach each in array wanted loop
        if not pg_try_advisory_xact_lock(hashtextextended('sagas_lock ' || each, 0)) then
            return json_build_object('ours', true, 'blocked', json_build_object('subject', each));
        end if;
        select l.saga_id, l.step, l.at, s.name, s.key into holder
            from sagas_lock l left join sagas_saga s on s.id = l.saga_id
            where l.subject = each and not l.waiting and l.saga_id <> all (family);
        if found then
            return json_build_object('ours', true, 'blocked', json_build_object(
                'subject', each, 'saga_id', holder.saga_id, 'step', holder.step, 'name', holder.name, 'key', holder.key,
                'since', extract(epoch from holder.at)));
        end if;
    end loop;
    delete from sagas_lock where saga_id = mine and waiting and step = given->>'step';
    insert into sagas_lock (subject, saga_id, step, at)
    select w, mine, given->>'step', coalesce((given->>'now')::timestamptz, clock_timestamp())
        from unnest(wanted) w
        where not exists (select from sagas_lock l where l.subject = w and not l.waiting)
    on conflict (subject, saga_id) do update set waiting = false, step = excluded.step, at = excluded.at;
    return json_build_object('ours', true);
end $$;

-- A saga ends: what it holds is free. Returns the outbox rows that the caller has to make due: of those that wait for it
-- the one that has waited longest, unless it is due anyway. They are locked, not written: the caller may be about to
-- write them itself, and no statement may write what a function that it calls has written. The rows of `but` the caller
-- writes or removes otherwise. `rows 1`: else the planner expects a thousand, and reads the outbox whole for them.
create function sagas_unlock_v1(ended uuid, ended_at timestamptz, but bigint[]) returns setof bigint rows 1
language plpgsql as $$
declare
    freed text[];
    each text;
begin
    with gone as (delete from sagas_lock where saga_id = ended returning subject, waiting)
    select array_agg(subject) into freed from gone where not waiting;
    foreach each in array coalesce(freed, '{}') loop
        return query select first.id from (
            select r.id, r.due_at from sagas_lock w
            join sagas_outbox r on r.saga_id = w.saga_id and r.kind = 'step' and r.step = w.step and r.direction = 'do'
            where w.subject = each and w.waiting and r.holder is null and r.id <> all (but)
            order by w.at limit 1
            for update of r skip locked) first
        where first.due_at > ended_at;
    end loop;
end $$;
