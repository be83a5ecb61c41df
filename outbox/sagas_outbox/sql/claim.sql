-- Take due rows to publish them, a limited number from each queue. Rows are in lanes, one for each saga name and
-- priority, and each lane is read oldest first, as far as was asked for; of what is found so, the higher priority goes
-- first, and lanes of the same priority take turns. `spare` places of a queue are given by turns alone, so that what is
-- passed over is not passed over for ever. A queue with limits gives no more than it has room for.
-- A row never begun keeps its token, and its publish window doubles each time (capped), so that a slow
-- broker cannot make every message stale. A begun row whose lease ended gets a new token: whoever held
-- it is fenced off. `mark` is a low-water mark of due_at: it spares the scan of dead index entries.
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
    select o.id, o.due_at as was_due, w.queue, w.number, w.nth_lane, w.priority, w.limited, w.places, w.spare, w.turn,
        row_number() over lane as nth, count(*) over lane as found
    from wants w cross join lateral (
        select c.id, c.due_at from sagas_outbox c
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
), behind as materialized ( -- those that are not the first in the line of their ordering key
    select b.row_id, b.seconds from sagas_behind_v1(
        array(select f.id from found f), coalesce(%(now)s::timestamptz, clock_timestamp()), false) b
    where (select exists (select from sagas_outbox o where o.kind = 'step' and o.ordering_key is not null))
), turns as (
    select f.*, row_number() over (partition by f.number, f.limited order by f.nth, f.turn) <= f.spare as by_turns
    from found f where f.id not in (select b.row_id from behind b)
), due as materialized (
    select t.id, t.was_due, t.number, t.nth_lane, t.limited, t.found, t.places, row_number() over (
        partition by t.number, t.limited order by t.by_turns desc, t.priority desc, t.nth, t.turn) as place
    from turns t
), put_behind as (
    update sagas_outbox o
    set due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => b.seconds)
    from behind b join found f on f.id = b.row_id
    where o.id = any(array[b.row_id]) and b.row_id between 1 and 9223372036854775807 -- always: the planner expects few
    returning o.id, o.token, o.queue, o.kind, f.nth_lane
), claimed as (
    update sagas_outbox o
    set holder = %(holder)s,
        token = o.token + case when o.deliveries > 0 then 1 else 0 end,
        publishes = o.publishes + 1,
        due_at = coalesce(%(now)s::timestamptz, clock_timestamp())
            + make_interval(secs => %(window)s::float8 * 2 ^ least(o.publishes, %(doublings)s::int))
    from due
    where o.id = any(array[due.id]) and due.place <= due.places
    returning o.id, o.token, o.queue, o.kind, o.saga_id, o.step, o.direction, o.deliveries, o.publishes,
        due.was_due, due.number, due.nth_lane, due.found, due.place, due.limited
), slots as (
    insert into sagas_slot (outbox_id, queue, token)
    select c.id, c.queue, c.token from claimed c where c.limited
    on conflict (outbox_id) do update set queue = excluded.queue, token = excluded.token, begun = false, cell = null
)
select c.id, c.token, c.queue, c.kind, s.name, c.step, c.direction, c.deliveries, c.publishes, c.was_due, c.nth_lane,
    c.found, c.place, c.number
from claimed c left join sagas_saga s on s.id = c.saga_id
union all
select p.id, p.token, p.queue, p.kind, null, null, null, 0, 0, null, p.nth_lane, 0, 0, 0 from put_behind p
order by number, place, id
