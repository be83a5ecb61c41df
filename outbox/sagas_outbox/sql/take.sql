select sagas_take_v1((%s)::json)::text
