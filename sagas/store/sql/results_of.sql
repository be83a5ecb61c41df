-- The results of one step of several sagas, of those that have one, each with the name of its saga.
select coalesce(json_agg(json_build_array(s.id, s.name, (l.data->'result')::text)), '[]')::text
from (select (%s)::json as given) q
cross join lateral json_array_elements_text(q.given->'ids') as e (id)
join sagas_saga s on s.id = e.id::uuid
join sagas_log l on l.saga_id = s.id and l.seq = (s.steps->(q.given->>'step')->>'result')::integer
where l.data->'result' is not null
