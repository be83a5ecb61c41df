-- What `doctor` asks about the server and this connection.
select extract(epoch from clock_timestamp())::float8 as now,
    pg_is_in_recovery() as replica,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('fsync') as fsync,
    current_setting('autovacuum') as autovacuum,
    current_setting('default_transaction_read_only') as read_only,
    current_setting('server_encoding') as encoding,
    (select reset_val from pg_settings where name = 'default_transaction_isolation') as isolation, -- before we set it
    current_setting('DateStyle') as date_style,
    pg_postmaster_start_time()::text || '/' || (select oid from pg_database where datname = current_database())::text
        || '/' || 'sagas_saga'::regclass::oid::text as identity
