-- What holds vacuum back, oldest first: transactions, prepared ones, and replication slots.
select found.what, found.who, found.seconds, found.xids from (
    select 'transaction' as what, concat_ws(' ', 'pid', pid::text, nullif(application_name, ''), state) as who,
        coalesce(extract(epoch from clock_timestamp() - xact_start), 0)::float8 as seconds,
        coalesce(greatest(age(backend_xmin), age(backend_xid)), 0)::bigint as xids
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
      and backend_type = 'client backend'
    union all
    select 'prepared transaction', gid, extract(epoch from clock_timestamp() - prepared)::float8, age(transaction)::bigint
    from pg_prepared_xacts where database = current_database()
    union all
    select 'replication slot', slot_name, 0::float8, greatest(age(xmin), age(catalog_xmin))::bigint
    from pg_replication_slots where xmin is not null or catalog_xmin is not null
) found
where found.seconds > %(seconds)s or found.xids > %(xids)s
order by found.seconds desc
limit 20
