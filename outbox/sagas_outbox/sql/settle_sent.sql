-- These messages are sent: they go, or stay for as long as what was sent is kept. Whoever lost one meanwhile leaves it be.
-- What was put off behind them is looked at at once: of each key the next, twice as many as were sent, and not all that wait.
with mine as materialized (
    select m.id, m.ordering_key from sagas_message m
    join unnest(%(ids)b::bigint[], %(tokens)b::bigint[]) as h (id, token) on h.id = m.id and h.token = m.token
    where m.state = 'waiting'
    order by m.id
    for update of m
), gone as (
    delete from sagas_message m using mine where m.id = mine.id and not %(keep)s returning m.id
), kept as (
    update sagas_message m
    set state = 'sent', holder = null, finished_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    from mine where m.id = mine.id and %(keep)s
    returning m.id
), woken as (
    update sagas_message m
    set holder = null, due_at = (select coalesce(%(now)s::timestamptz, clock_timestamp()))
    from (
        select ordering_key, max(id) as last, count(*) as sent from mine where ordering_key is not null group by ordering_key
    ) k cross join lateral (
        select b.id from sagas_message b
        where b.ordering_key = k.ordering_key and b.state <> 'sent' and b.id > k.last
        order by b.id limit 2 * k.sent
    ) n
    where m.id = n.id and m.holder = 'behind' and m.state = 'waiting'
)
select id from gone union all select id from kept
