select sagas_send_v1((%s)::json)::text
