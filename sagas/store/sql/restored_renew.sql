-- New ids for every outbox row and every message that is not sent, after the database has gone back in time: ids that
-- were given out since then, and lost, may still be in messages of the broker and in the hands of workers. Where ids go
-- on from is the time in microseconds: nobody uses up a million of them in a second, so whatever history a message or a
-- worker is from, its ids are lower. The order is kept. What was claimed is nobody's, and due; so is what was begun when
-- its lease ends, not before: somebody may be at work on it.
with start as materialized (
    select greatest(
        floor(extract(epoch from clock_timestamp()) * 1000000)::bigint,
        coalesce((select max(id) from sagas_outbox), 0) + 1, coalesce((select max(id) from sagas_message), 0) + 1,
        nextval(pg_get_serial_sequence('sagas_outbox', 'id')), nextval(pg_get_serial_sequence('sagas_message', 'id'))
    ) as at
), outbox as materialized (
    select o.id, start.at + row_number() over (order by o.id) as new from sagas_outbox o cross join start
), messages as materialized (
    select m.id, start.at + row_number() over (order by m.id) as new from sagas_message m cross join start
    where m.state <> 'sent'
), renewed as (
    update sagas_outbox o
    set id = n.new, token = o.token + 1, holder = null, publishes = 0,
        due_at = case when o.holder like 'relay:%%' then least(o.due_at, clock_timestamp()) else o.due_at end
    from outbox n where n.id = o.id
    returning o.id
), renewed_messages as (
    update sagas_message m
    set id = n.new, token = m.token + 1, holder = null
    from messages n where n.id = m.id
    returning m.id
)
select (select count(*) from renewed), (select count(*) from renewed_messages),
    setval(pg_get_serial_sequence('sagas_outbox', 'id'), (select max(new) from (
        select new from outbox union all select start.at from start) o)),
    setval(pg_get_serial_sequence('sagas_message', 'id'), (select max(new) from (
        select new from messages union all select start.at from start) m))
