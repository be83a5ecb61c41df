-- Lock due rows for a worker that runs them itself, and read their tokens; which ones is said in claim.sql. Runs inside
-- a transaction of its own together with the begin statement: claiming and loading in one statement would pair the new
-- outbox row with the saga as it was when the statement started.
-- any(array[id]) is looked up by index also where the planner believes the outbox to be empty; "=" may read it whole.
with given as materialized (
    select w.*, w.lane <> 0 and (select exists (select from sagas_queue)) and exists (
        select from sagas_queue q where q.name = w.queue) as limited
    from unnest((select %(queues)b::text[]), (select %(numbers)b::int[]), (select %(priorities)b::int[]),
            (select %(lanes)b::int[]), (select %(asks)b::int[]), (select %(mosts)b::int[]), (select %(spares)b::int[]),
            (select %(turns)b::int[]), (select %(marks)b::timestamptz[])) -- unseen by the planner: one plan for all
        with ordinality as w (queue, number, priority, lane, ask, most, spare, turn, mark, nth_lane)
    where not exists (select from sagas_pause p where p.kind = 'queue' and p.name = w.queue)
), rooms as materialized (
    select r.limited as queue, r.room from sagas_room_v1(array(select distinct g.queue from given g where g.limited),
        %(begun)s::bool, coalesce(%(now)s::timestamptz, clock_timestamp())) r
    where (select exists (select from given g where g.limited))
), wants as materialized (
    select g.*, case when g.limited then least(g.most, r.room) else g.most end as places
    from given g left join rooms r on r.queue = g.queue
), found as materialized (
    select o.id, o.token, o.deliveries, w.queue, w.number, w.nth_lane, w.priority, w.limited, w.places, w.spare, w.turn,
        row_number() over lane as nth, count(*) over lane as found
    from wants w cross join lateral (
        select c.id, c.token, c.deliveries, c.due_at from sagas_outbox c
        where c.queue = w.queue and c.priority = w.priority and c.lane = w.lane and c.due_at >= w.mark
          and c.due_at <= (select coalesce(%(now)s::timestamptz, clock_timestamp())) -- read once, so that the index ends there
          and (c.deliveries = 0 or %(begun)s)
        order by c.due_at
        limit case when w.limited then least(w.ask, w.places + case when w.places > 0 and exists ( -- who is behind needs none
            select from sagas_outbox k where k.kind = 'step' and k.ordering_key is not null) then 50 else 0 end) else w.ask end
        for update skip locked
    ) o
    window lane as (partition by w.nth_lane order by o.due_at
        rows between unbounded preceding and unbounded following)
), behind as materialized (
    select b.row_id, b.seconds from sagas_behind_v1(
        array(select f.id from found f), coalesce(%(now)s::timestamptz, clock_timestamp()), false) b
    where (select exists (select from sagas_outbox o where o.kind = 'step' and o.ordering_key is not null))
), turns as (
    select f.*, row_number() over (partition by f.number, f.limited order by f.nth, f.turn) <= f.spare as by_turns
    from found f where f.id not in (select b.row_id from behind b)
), due as materialized (
    select t.*, row_number() over (
        partition by t.number, t.limited order by t.by_turns desc, t.priority desc, t.nth, t.turn) as place
    from turns t
), put_behind as (
    update sagas_outbox o
    set due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => b.seconds)
    from behind b join found f on f.id = b.row_id
    where o.id = any(array[b.row_id]) and b.row_id between 1 and 9223372036854775807 -- always: the planner expects few
    returning o.id, o.token, f.nth_lane
)
select d.id, d.token, d.deliveries, d.nth_lane, d.found, d.place, d.number
from due d where d.place <= d.places
union all
select p.id, p.token, 0, p.nth_lane, 0, 0, 0 from put_behind p
order by number, place, id
