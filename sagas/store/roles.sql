-- Roles of least privilege. Run it as the owner of the tables, with `search_path` at their schema, after each
-- migration: `manage.py sagas roles | psql -1 -v ON_ERROR_STOP=1 "$OWNER_URL"`. Running it again changes nothing that it gave, and
-- takes back what it did not give. Whoever runs it may create roles, or somebody else has created these.
--
-- The roles cannot log in. Grant them to the users that your processes connect as, such as
-- `grant sagas_worker to shop_worker`; what these users may do with your own tables is up to you.
--
--   sagas_application  starts sagas, sends signals, asks for a cancel, publishes and takes messages
--   sagas_worker       runs steps; steps may do what the application may
--   sagas_relay        publishes what is due: the outbox and messages, no log and no saga
--   sagas_operator     looks at everything, and asks for everything that operators ask for
--   sagas_repairer     `sagas rebuild`, `restored` and `reconcile --apply`
--   sagas_pruner       `sagas prune` and `archive`, and the only one who deletes history
--   sagas_reader       the views for analysts
--
-- Nobody here may change the log, empty a table, or drop one. The owner of the tables and superusers still can.

do $roles$
declare
    wanted text;
begin
    foreach wanted in array array['sagas_application', 'sagas_worker', 'sagas_relay', 'sagas_operator',
            'sagas_repairer', 'sagas_pruner', 'sagas_reader'] loop
        begin
            if to_regrole(wanted) is null then
                execute format('create role %I nologin', wanted);
            end if;
        exception when duplicate_object then null; -- somebody else has just made it
        end;
    end loop;
end $roles$;

-- Functions that callers use run as the owner of the tables, so that callers need no right to write any of them: what
-- they can write is what the function writes. It finds its tables in their schema only, whatever the caller has made.
do $schema$
declare
    home constant text := (
        select c.relnamespace::regnamespace::text from pg_class c where c.oid = to_regclass('sagas_saga'));
    each record;
begin
    if home is null then
        raise exception 'the tables of sagas are not here: set search_path to their schema';
    end if;
    if exists (select from pg_namespace n, aclexplode(n.nspacl) a
            where n.oid = home::regnamespace and a.grantee = 0 and a.privilege_type = 'CREATE') then
        raise exception 'everybody may create objects in schema %, also ones that pass for others', home
            using hint = format('Say `revoke create on schema %s from public` first.', home);
    end if;
    execute format('grant usage on schema %s to sagas_application, sagas_worker, sagas_relay, sagas_operator, '
        'sagas_repairer, sagas_pruner, sagas_reader', home);
    for each in
        select p.oid::regprocedure as signature, p.proname from pg_proc p
        where p.pronamespace = home::regnamespace and p.proname like 'sagas\_%'
    loop
        execute format('revoke execute on function %s from public', each.signature);
        if each.proname in ('sagas_start_v1', 'sagas_request_v1', 'sagas_send_v1', 'sagas_publish_v1', 'sagas_take_v1')
        then
            execute format('alter function %s security definer', each.signature);
            execute format('alter function %s set search_path to %s, pg_temp', each.signature, home);
        end if;
    end loop;
end $schema$;

revoke all on sagas_saga, sagas_log, sagas_outbox, sagas_dedupe, sagas_signal, sagas_pause, sagas_pace, sagas_message,
    sagas_inbox, sagas_schedule, sagas_process, sagas_schema, sagas_tombstone, sagas_archive, sagas_tally, sagas_lock,
    sagas_queue, sagas_slot, sagas_v_status, sagas_v_steps, sagas_v_failures, sagas_v_attempts, sagas_v_queues
    from public, sagas_application, sagas_worker, sagas_relay, sagas_operator, sagas_repairer, sagas_pruner,
    sagas_reader;

revoke all on sequence sagas_outbox_id_seq, sagas_message_id_seq from public, sagas_application, sagas_worker,
    sagas_relay, sagas_operator, sagas_repairer, sagas_pruner, sagas_reader;

-- Application: looks at sagas, for get(), and at inputs, for a start() whose key is there already.
grant execute on function sagas_start_v1(json), sagas_get_v1(json), sagas_request_v1(json), sagas_send_v1(json),
    sagas_publish_v1(json), sagas_take_v1(json) to sagas_application;
grant select on sagas_saga, sagas_log, sagas_schema to sagas_application;

-- Worker: adds to the log, and moves what stands beside it. Schedules and processes are those of embedded workers.
grant sagas_application to sagas_worker;
grant execute on function sagas_children_v1(jsonb), sagas_lock_v1(json), sagas_unlock_v1(uuid, timestamptz, bigint[]),
    sagas_spent_v1(integer[], bigint, bigint), sagas_room_v1(text[], boolean, timestamptz),
    sagas_refused_v1(bigint[], timestamptz), sagas_behind_v1(bigint[], timestamptz, boolean),
    sagas_unspent_v1(bigint[]) to sagas_worker;
grant select, insert on sagas_log to sagas_worker;
grant select, insert, update on sagas_saga, sagas_dedupe, sagas_pace, sagas_tally, sagas_schedule to sagas_worker;
grant select, insert, update, delete on sagas_outbox, sagas_lock, sagas_queue, sagas_slot, sagas_process
    to sagas_worker;
grant select on sagas_pause to sagas_worker;
grant select, delete on sagas_signal to sagas_worker; -- of signals that are given up
grant update (at) on sagas_pause to sagas_worker; -- which locking a row needs, and no more than that

-- Relay: who holds a row, and until when. Where it looks after schedules it needs sagas_application as well.
grant execute on function sagas_spent_v1(integer[], bigint, bigint), sagas_room_v1(text[], boolean, timestamptz),
    sagas_behind_v1(bigint[], timestamptz, boolean) to sagas_relay;
grant select (id, saga_id, kind, step, direction, holder, queue, priority, lane, ordering_key, place, due_at, timer_at,
    token, publishes, deliveries, failures, first_begun_at) on sagas_outbox to sagas_relay; -- not what signals say
grant select (id, name, key, headers) on sagas_saga to sagas_relay; -- by whose names work takes turns, and traces
grant select on sagas_pause, sagas_schema to sagas_relay;
grant update (holder, token, due_at, publishes) on sagas_outbox to sagas_relay;
grant select, insert, update on sagas_pace, sagas_schedule to sagas_relay;
grant select, insert, update, delete on sagas_process, sagas_slot to sagas_relay;
grant select, update on sagas_queue to sagas_relay;
grant select, update, delete on sagas_message to sagas_relay;
grant select, delete on sagas_inbox to sagas_relay;
grant update (at) on sagas_inbox to sagas_relay; -- which locking a row in order to delete it needs

-- Operator, in the admin and on the command line: requests, pauses, limits, schedules, dead messages, stale locks.
grant sagas_application to sagas_operator;
grant execute on function sagas_spent_v1(integer[], bigint, bigint), sagas_full_v1(timestamptz),
    sagas_unlock_v1(uuid, timestamptz, bigint[]) to sagas_operator;
grant select on sagas_outbox, sagas_dedupe, sagas_signal, sagas_pause, sagas_pace, sagas_message, sagas_inbox,
    sagas_schedule, sagas_process, sagas_tombstone, sagas_archive, sagas_tally, sagas_lock, sagas_queue, sagas_slot,
    sagas_v_status, sagas_v_steps, sagas_v_failures, sagas_v_attempts, sagas_v_queues to sagas_operator;
grant select on sequence sagas_outbox_id_seq, sagas_message_id_seq to sagas_operator; -- `doctor` compares them
grant insert on sagas_dedupe to sagas_operator; -- a form that is sent twice counts once
grant update (due_at) on sagas_outbox to sagas_operator; -- what was paused is due
grant update (updated_at) on sagas_saga to sagas_operator; -- which locking a row needs, and no more than that
grant insert, update, delete on sagas_pause, sagas_queue, sagas_slot to sagas_operator;
grant insert, update, delete on sagas_schedule to sagas_operator;
grant update, delete on sagas_message, sagas_lock to sagas_operator;

-- Repairer: rows made again from logs, or given new ids after the database has gone back in time; the log says so.
grant select, insert on sagas_log to sagas_repairer;
grant select, insert, update on sagas_saga, sagas_dedupe to sagas_repairer;
grant select, insert, update, delete on sagas_outbox to sagas_repairer;
grant select, update on sagas_message to sagas_repairer;
grant select on sagas_lock, sagas_schema, sagas_tally, sagas_tombstone to sagas_repairer;
grant select (saga_id, name, key) on sagas_archive to sagas_repairer;
grant usage, update on sequence sagas_outbox_id_seq, sagas_message_id_seq to sagas_repairer;
grant execute on function sagas_get_v1(json), sagas_request_v1(json) to sagas_repairer;

-- Pruner: what ended long ago goes to the archive. `update` of one column is what locking a row needs.
grant select, delete on sagas_saga, sagas_log, sagas_dedupe, sagas_signal, sagas_outbox to sagas_pruner;
grant select, insert, delete on sagas_archive, sagas_tombstone to sagas_pruner;
grant select on sagas_lock, sagas_schema to sagas_pruner;
grant update (updated_at) on sagas_saga to sagas_pruner;
grant update (due_at) on sagas_outbox to sagas_pruner;
grant update (finished_at) on sagas_tombstone to sagas_pruner;

grant select on sagas_v_status, sagas_v_steps, sagas_v_failures, sagas_v_attempts, sagas_v_queues to sagas_reader;
