-- The tables of the saga framework. Numbered files are the truth: migrations run them as they are, models
-- describe them. Expand first, contract in a later release.
-- The closed lists in the CHECK constraints mirror sagas.states and sagas.events; a test compares them.

create table sagas_saga (
    id uuid not null constraint sagas_saga_pkey primary key,
    name text not null,
    version integer not null,
    key text not null,
    run integer not null default 1,
    status text not null,
    seq integer not null,
    input_hash text not null,
    steps jsonb not null default '{}',
    cancel_requested boolean not null default false,
    parked_from text,
    parent uuid, -- the saga that started it
    parent_step text, -- and which of its steps
    subject_type text,
    subject_id text,
    deadline timestamptz,
    paused boolean not null default false,
    failing boolean not null default false, -- a step has failed, and others that run beside it come to their end
    definition text not null default '', -- fingerprint of the steps it was started with
    priority smallint not null default 0, -- added to that of its steps
    ordering_key text, -- in each queue one at a time of those that share it, in the order of their start
    headers jsonb not null default '{}',
    error text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    constraint sagas_saga_key unique (name, key, run),
    constraint sagas_saga_status check (status in (
        'running', 'compensating', 'settling', 'parked', 'completed', 'compensated', 'cancelled', 'aborted')),
    constraint sagas_saga_parked_from check (
        (parked_from is not null) = (status = 'parked')
        and (parked_from is null or parked_from in ('running', 'compensating', 'settling'))),
    constraint sagas_saga_finished check (
        (finished_at is not null) = (status in ('completed', 'compensated', 'cancelled', 'aborted'))),
    -- a time that no client can read, such as infinity, would stop whoever looks at a page of sagas
    constraint sagas_saga_times check (
        created_at >= '1970-01-01 00:00+00' and updated_at >= '1970-01-01 00:00+00'
        and deadline >= '1970-01-01 00:00+00' and finished_at >= '1970-01-01 00:00+00'
        and created_at < '9000-01-01 00:00+00' and updated_at < '9000-01-01 00:00+00'
        and deadline < '9000-01-01 00:00+00' and finished_at < '9000-01-01 00:00+00')
) with (fillfactor = 60); -- room for what a batch writes of the rows of one page, all of it in one transaction

create index sagas_saga_open on sagas_saga (id) where finished_at is null;
create index sagas_saga_parked on sagas_saga (id) where parked_from is not null;
create index sagas_saga_failed on sagas_saga (status, id) where finished_at is not null and status <> 'completed';
create index sagas_saga_children on sagas_saga (parent, parent_step) where parent is not null;
create index sagas_saga_children_open on sagas_saga (parent, parent_step)
    where parent is not null and finished_at is null;
create index sagas_saga_subject on sagas_saga (subject_type, subject_id) where subject_id is not null;

create table sagas_log (
    saga_id uuid not null,
    seq integer not null,
    kind text not null,
    step text,
    attempt integer not null default 0,
    token bigint,
    data jsonb not null default '{}',
    at timestamptz not null default clock_timestamp(),
    constraint sagas_log_pkey primary key (saga_id, seq),
    constraint sagas_log_seq check (seq >= 0),
    constraint sagas_log_kind check (kind in (
        'started', 'step_done', 'step_failed', 'step_undecided', 'step_not_done', 'step_unknown',
        'step_chosen', 'step_skipped', 'step_blocked', 'waiting', 'signalled',
        'children_started', 'children_recalled',
        'undo_done', 'undo_failed', 'undo_undecided', 'settle_done', 'settle_failed', 'settle_undecided',
        'late_answer', 'rebuilt', 'doubted', 'cancel_requested', 'retried', 'redone', 'resolved', 'paused', 'resumed', 'turning', 'compensating', 'settling', 'parked',
        'completed', 'compensated', 'cancelled', 'aborted'))
);

-- Insert-only: history cannot be changed, and only pruning may delete it. TRUNCATE stays, for Django's flush.
create function sagas_log_is_append_only() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and current_setting('sagas.pruning', true) = 'on' then
        return old;
    end if;
    raise exception 'sagas_log is append-only: % of saga % entry % refused', tg_op, old.saga_id, old.seq
        using hint = 'Old sagas are removed by pruning; history is never edited.';
end $$;

create trigger sagas_log_append_only before update or delete on sagas_log
    for each row execute function sagas_log_is_append_only();

-- Small and hot: one row for each thing that must be delivered or run, no earlier than due_at.
create table sagas_outbox (
    id bigint generated by default as identity constraint sagas_outbox_pkey primary key,
    saga_id uuid,
    kind text not null,
    step text,
    direction text,
    holder text,
    queue text not null,
    priority smallint not null default 0,
    lane integer not null default 0, -- of a step by its saga's name, so that each name has its turn; 0: requests
    ordering_key text,
    place bigint, -- in the line of its ordering key
    due_at timestamptz not null default clock_timestamp(),
    timer_at timestamptz,
    token bigint not null default 0,
    publishes integer not null default 0,
    deliveries integer not null default 0,
    failures integer not null default 0,
    first_begun_at timestamptz,
    payload jsonb,
    progress jsonb, -- of the attempt at work, for the next one
    headers jsonb,
    constraint sagas_outbox_kind check (kind in (
        'step', 'cancel', 'retry', 'abort', 'redo', 'mark_done', 'mark_not_done', 'skip', 'mark_undone',
        'pause', 'resume', 'signal', 'late_answer', 'children', 'undo_completed')),
    constraint sagas_outbox_direction check (
        (direction is null) = (kind <> 'step') and (direction is null or direction in ('do', 'undo', 'settle'))),
    constraint sagas_outbox_counts check ( -- far below where one more would not fit: that would stop a whole batch
        token >= 0 and publishes >= 0 and deliveries >= 0 and failures >= 0
        and token < 4000000000000000000 and publishes < 1000000000 and deliveries < 1000000000
        and failures < 1000000000),
    -- a time that no client can read, such as infinity, would stop whoever looks for due rows
    constraint sagas_outbox_due check (due_at >= '1970-01-01 00:00+00' and due_at < '9000-01-01 00:00+00')
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 2000
);

create index sagas_outbox_due on sagas_outbox (queue, priority, lane, due_at);
create index sagas_outbox_line on sagas_outbox (queue, ordering_key, place, id)
    where kind = 'step' and ordering_key is not null;
create index sagas_outbox_saga on sagas_outbox (saga_id);
create index sagas_outbox_signals on sagas_outbox (ordering_key) where kind = 'signal';

create table sagas_dedupe (
    key text not null constraint sagas_dedupe_pkey primary key,
    saga_id uuid,
    state text not null,
    token bigint,
    fingerprint text,
    response jsonb,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    constraint sagas_dedupe_state check (state in ('started', 'done', 'closed'))
);

create index sagas_dedupe_saga on sagas_dedupe (saga_id);

-- Signals that named themselves, so that the same webhook delivered twice counts once.
create table sagas_signal (
    name text not null,
    key text not null,
    step text not null,
    dedupe_id text not null,
    saga_id uuid, -- null: it came before its saga
    sent_at timestamptz not null default clock_timestamp(),
    constraint sagas_signal_pkey primary key (name, key, step, dedupe_id)
);

-- What is held up for now: all work of a queue, or all sagas of a name, or of one version of it.
create table sagas_pause (
    kind text not null,
    name text not null,
    version integer not null default 0, -- 0: every version
    actor text not null default '',
    reason text not null default '',
    at timestamptz not null default clock_timestamp(),
    constraint sagas_pause_pkey primary key (kind, name, version),
    constraint sagas_pause_kind check (kind in ('queue', 'definition'))
);

create table sagas_pace (
    name text not null,
    step text not null,
    direction text not null,
    mean double precision not null, -- seconds a body takes
    updated_at timestamptz not null default clock_timestamp(),
    constraint sagas_pace_pkey primary key (name, step, direction)
);

-- Plain messages: what callers publish and relays send. In a table of their own, so that what waits here, has died or is
-- kept costs the steps of sagas nothing.
create table sagas_message (
    id bigint generated by default as identity constraint sagas_message_pkey primary key,
    message_id uuid not null, -- what its receivers know it by
    destination text not null,
    ordering_key text,
    state text not null default 'waiting',
    holder text,
    due_at timestamptz not null default clock_timestamp(),
    token bigint not null default 0,
    failures integer not null default 0,
    payload jsonb not null,
    options jsonb,
    headers jsonb,
    error text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz, -- sent, or dead, since
    constraint sagas_message_state check (state in ('waiting', 'sent', 'dead')),
    constraint sagas_message_finished check ((finished_at is null) = (state = 'waiting')),
    constraint sagas_message_counts check (
        token >= 0 and failures >= 0 and token < 4000000000000000000 and failures < 1000000000),
    constraint sagas_message_due_at check (due_at >= '1970-01-01 00:00+00' and due_at < '9000-01-01 00:00+00')
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 2000
);

create index sagas_message_due on sagas_message (destination, due_at, id) where state = 'waiting';
create index sagas_message_key on sagas_message (ordering_key, id) where ordering_key is not null and state <> 'sent';
create index sagas_message_done on sagas_message (state, finished_at) where state <> 'waiting';

-- Which messages which handler has taken: a line is written in the transaction of the handler's own writes.
create table sagas_inbox (
    message_id text not null,
    handler text not null,
    at timestamptz not null default clock_timestamp(),
    constraint sagas_inbox_pkey primary key (message_id, handler)
);

create index sagas_inbox_at on sagas_inbox (at);

-- Schedules, as the code that declares them has put them here. Relays and embedded workers start what is due.
create table sagas_schedule (
    name text not null constraint sagas_schedule_pkey primary key,
    saga text not null,
    version integer not null,
    timing text not null,
    timezone text not null,
    catch_up text not null,
    overlap text not null,
    fingerprint text not null, -- of the declaration
    revision bigint not null default 0, -- raised by every change, and compared by whoever starts sagas
    next_at timestamptz not null, -- ticks from here on are still to come
    look_at timestamptz not null, -- when it is to be looked at; later while a tick waits
    last_at timestamptz, -- the last tick that was settled
    last_key text, -- of the saga started last, by a tick or by hand
    last_started_at timestamptz,
    note text not null default '', -- why a tick started nothing
    paused boolean not null default false,
    actor text not null default '', -- who paused it, and why
    reason text not null default '',
    declared_at timestamptz not null default clock_timestamp(),
    constraint sagas_schedule_catch_up check (catch_up in ('none', 'last', 'all')),
    constraint sagas_schedule_overlap check (overlap in ('allow', 'skip', 'queue', 'cancel')),
    constraint sagas_schedule_next check (next_at >= '1970-01-01 00:00+00' and next_at < '9000-01-01 00:00+00')
);

-- The relays and workers that are there, for people to see. Nothing is decided from it.
create table sagas_process (
    holder text not null constraint sagas_process_pkey primary key, -- as in sagas_outbox
    host text not null,
    pid integer not null,
    queues text not null default '', -- those it serves, with commas between; nothing: all
    version text not null default '',
    started_at timestamptz not null default clock_timestamp(),
    seen_at timestamptz not null default clock_timestamp()
);

create table sagas_schema (
    version integer not null constraint sagas_schema_pkey primary key,
    applied_at timestamptz not null default clock_timestamp()
);

-- start(): one round trip on the caller's connection, also when the key exists. The caller's decision
-- comes in as one json text; a later shape gets a new function, so that old callers keep working.
create function sagas_start_v1(request json) returns json language plpgsql as $$
declare
    given constant jsonb := request; -- read once: of json each look reads the whole text, input and all
    wanted constant text := given->>'key';
    sagas_name constant text := given->>'name';
    started_at constant timestamptz := coalesce((given->>'now')::timestamptz, clock_timestamp());
    -- in seconds from now, or as a moment; in whole microseconds, which is what a timestamp keeps
    ends_at constant timestamptz := coalesce(
        (given->>'deadline_at')::timestamptz, started_at + make_interval(secs => (given->>'deadline')::float8));
    existing record;
    next_run integer := 1;
begin
    loop
        insert into sagas_saga (
            id, name, version, key, run, status, seq, input_hash, steps,
            subject_type, subject_id, headers, definition, priority, ordering_key, deadline, created_at, updated_at)
        values (
            (given->>'id')::uuid, sagas_name, (given->>'version')::integer, wanted, next_run,
            given->>'status', (given->>'seq')::integer, given->>'input_hash', (given->>'steps')::jsonb,
            given->>'subject_type', given->>'subject_id', (given->>'headers')::jsonb,
            coalesce(given->>'definition', ''), coalesce((given->>'priority')::smallint, 0), given->>'ordering_key',
            ends_at, started_at, started_at)
        on conflict on constraint sagas_saga_key do nothing;
        if found then
            -- a key that is the saga's own id was never another's; any other may be that of a saga that was pruned
            if wanted = given->>'id' or not exists (
                    select from sagas_tombstone where name = sagas_name and key = wanted and run >= next_run) then
                exit;
            end if;
            delete from sagas_saga where id = (given->>'id')::uuid;
        end if;
        select * into existing from (
            select id, version, run, status, input_hash from sagas_saga where name = sagas_name and key = wanted
            union all
            select saga_id, version, run, status, input_hash from sagas_tombstone where name = sagas_name and key = wanted
        ) latest order by run desc limit 1;
        if not found or existing.status <> all (
            array(select jsonb_array_elements_text(given->'run_again_after'))) then
            return json_build_object('created', false, 'id', existing.id, 'version', existing.version,
                'run', existing.run, 'status', existing.status, 'input_hash', existing.input_hash);
        end if;
        next_run := existing.run + 1;
    end loop;
    insert into sagas_log (saga_id, seq, kind, data, at)
    values ((given->>'id')::uuid, 0, 'started', jsonb_build_object(
        'saga', given->'saga' || jsonb_build_object('run', next_run))
        || case when ends_at is null then '{}' else jsonb_build_object('deadline', extract(epoch from ends_at)) end,
        started_at);
    insert into sagas_outbox (saga_id, kind, step, direction, queue, priority, lane, ordering_key, place, due_at)
    select (given->>'id')::uuid, 'step', r->>'step', r->>'direction', r->>'queue',
            coalesce((given->>'priority')::smallint, 0) + coalesce((r->>'priority')::smallint, 0),
            hashtext(sagas_name), given->>'ordering_key',
            case when given->>'ordering_key' is not null then extract(epoch from started_at) * 1000000 end, started_at
        from jsonb_array_elements(given->'rows') r;
    -- signals that came before: made due, unless somebody looks at them just now, and then does so again soon
    if exists (select from sagas_outbox where kind = 'signal' and ordering_key = sagas_name || ' ' || wanted) then
        update sagas_outbox set due_at = started_at where id in (
            select id from sagas_outbox
            where saga_id is null and kind = 'signal' and holder is null
              and ordering_key = sagas_name || ' ' || wanted
            for update skip locked);
    end if;
    -- signals that the saga before this one kept and did not need
    if given->'carry' is not null then
        insert into sagas_outbox (saga_id, kind, queue, due_at, timer_at, ordering_key, payload)
        select (given->>'id')::uuid, 'signal', given->'rows'->0->>'queue', started_at, started_at,
            sagas_name || ' ' || wanted,
            jsonb_build_object('name', sagas_name, 'key', wanted, 'carried', next_run, 'step', l.step, 'value', l.data->'result',
                'actor', coalesce(l.data->>'actor', ''), 'reason', coalesce(l.data->>'reason', ''))
        from jsonb_array_elements_text(given->'carry') c
        join sagas_log l on l.saga_id = (given->>'continues')::uuid and l.seq = c::integer
        order by l.seq;
    end if;
    return json_build_object('created', true, 'id', given->>'id', 'run', next_run);
end $$;

insert into sagas_schema (version) values (1);
