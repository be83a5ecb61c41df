-- Everything of ours, unless a saga is not finished: its steps would never be undone.
do $sagas$
begin
    if exists (select from sagas_saga where finished_at is null) then
        raise exception 'sagas that are not finished would be lost: let them finish, or abort them'
            using hint = 'To drop the tables all the same: truncate sagas_saga, sagas_outbox.';
    end if;
end $sagas$;
drop table sagas_schema;
drop table sagas_pace;
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
