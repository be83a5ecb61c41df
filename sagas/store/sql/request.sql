select sagas_request_v1((%s)::json)::text
