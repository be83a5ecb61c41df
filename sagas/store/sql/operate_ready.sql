select current_setting('server_version_num')::integer, to_regclass('sagas_schema') is not null
