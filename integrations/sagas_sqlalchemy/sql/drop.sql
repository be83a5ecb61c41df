-- Everything of ours, unless a saga is not finished, whose steps would never be undone, or a message is not sent.
do $sagas$
begin
    if exists (select from sagas_saga where finished_at is null) then
        raise exception 'sagas that are not finished would be lost: let them finish, or abort them'
            using hint = 'To drop the tables all the same: truncate sagas_saga, sagas_outbox.';
    end if;
    if exists (select from sagas_message where state <> 'sent') then
        raise exception 'messages that are not sent would be lost: let a relay send them, replay or drop dead ones'
            using hint = 'To drop the tables all the same: truncate sagas_message.';
    end if;
end $sagas$;
drop view if exists sagas_v_status;
drop view if exists sagas_v_steps;
drop view if exists sagas_v_failures;
drop view if exists sagas_v_attempts;
drop view if exists sagas_v_queues;
drop table sagas_schema;
drop table sagas_tombstone;
drop table sagas_archive;
drop table sagas_tally;
drop table sagas_lock;
drop table sagas_inbox;
drop table sagas_message;
drop table sagas_process;
drop table sagas_pace;
drop table sagas_slot;
drop table sagas_queue;
drop table sagas_schedule;
drop table sagas_pause;
drop table sagas_signal;
drop table sagas_dedupe;
drop table sagas_outbox;
drop table sagas_log;
drop table sagas_saga;
drop function if exists sagas_log_is_append_only;
drop function if exists sagas_start_v1;
drop function if exists sagas_get_v1;
drop function if exists sagas_request_v1;
drop function if exists sagas_send_v1;
drop function if exists sagas_children_v1;
drop function if exists sagas_lock_v1;
drop function if exists sagas_unlock_v1;
drop function if exists sagas_refused_v1;
drop function if exists sagas_room_v1;
drop function if exists sagas_full_v1;
drop function if exists sagas_behind_v1;
drop function if exists sagas_unspent_v1;
drop function if exists sagas_spent_v1;
drop function if exists sagas_publish_v1;
drop function if exists sagas_take_v1;
