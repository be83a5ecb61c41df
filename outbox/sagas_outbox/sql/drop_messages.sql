-- Dead messages are given up, and what was put off behind them is looked at at once.
with gone as (
    delete from sagas_message m
    where m.state = 'dead' and (%(every)s or m.message_id = any(%(ids)s::uuid[]))
    returning m.message_id, m.ordering_key
), woken as (
    update sagas_message m
    set holder = null, due_at = (select coalesce(%(now)s::timestamptz, clock_timestamp()))
    where m.holder = 'behind' and m.state = 'waiting'
      and m.ordering_key in (select g.ordering_key from gone g where g.ordering_key is not null)
)
select message_id from gone
