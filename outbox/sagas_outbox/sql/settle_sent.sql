-- These messages are sent: they go, or stay for as long as what was sent is kept. Whoever lost one meanwhile leaves it be.
with mine as materialized (
    select m.id from sagas_message m
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
)
select id from gone union all select id from kept
