-- What the tests of relay and workers look at.
create table relay_note (
    id bigint generated always as identity primary key,
    key text not null,
    what text not null,
    attempt integer not null,
    pid integer not null,
    backend integer not null,
    at timestamptz not null default clock_timestamp()
);

-- Every change of every outbox row, so that nothing that happened in between goes unseen.
create table relay_change (
    id bigint generated always as identity primary key,
    row_id bigint not null,
    saga_id uuid,
    step text,
    publishes integer not null,
    publishes_before integer not null,
    deliveries integer not null,
    deliveries_before integer not null,
    holder text not null,
    holder_before text not null,
    at timestamptz not null default clock_timestamp()
);

create function relay_note_change() returns trigger language plpgsql as $$
begin
    insert into relay_change (row_id, saga_id, step, publishes, publishes_before, deliveries, deliveries_before,
        holder, holder_before)
    values (new.id, new.saga_id, new.step, new.publishes, old.publishes, new.deliveries, old.deliveries,
        coalesce(new.holder, ''), coalesce(old.holder, ''));
    return null;
end $$;

create trigger relay_change after update on sagas_outbox for each row execute function relay_note_change();
