-- Sessions of other users, of which the server tells this one nothing but that they are there.
select count(*) as sessions from pg_stat_activity
where datname = current_database() and query = '<insufficient privilege>'
