select (data->'saga'->'input')::text from sagas_log where saga_id = (%s)::uuid and seq = 0
