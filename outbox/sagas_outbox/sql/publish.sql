select sagas_publish_v1((%s)::json)::text
