select coalesce(max(version), 0) from sagas_schema
