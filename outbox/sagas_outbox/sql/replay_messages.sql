-- Dead messages wait again as if they had never failed, and what was put off behind them is looked at at once.
with revived as (
    update sagas_message m
    set state = 'waiting', finished_at = null, failures = 0, error = '', token = m.token + 1,
        due_at = (select coalesce(%(now)s::timestamptz, clock_timestamp()))
    where m.state = 'dead' and (%(every)s or m.message_id = any(%(ids)s::uuid[]))
    returning m.message_id, m.ordering_key
), woken as (
    update sagas_message m
    set holder = null, due_at = (select coalesce(%(now)s::timestamptz, clock_timestamp()))
    where m.holder = 'behind' and m.state = 'waiting'
      and m.ordering_key in (select r.ordering_key from revived r where r.ordering_key is not null)
)
select message_id from revived
