select sagas_get_v1((%s)::json)::text
