select sagas_start_v1((%s)::json)::text
