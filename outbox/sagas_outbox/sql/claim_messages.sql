-- Take due messages to send them, oldest first, a limited number for each destination. Of an ordering key only a run from
-- its first unfinished message on is taken: a message is left where an earlier one of its key is unfinished and was not
-- locked here, and is put off, so that claims need not look at it again and again: until that one is due, or for a tenth of
-- its age within limits, which are wide if it is dead. Whoever finishes it wakes what is behind it; this statement's snapshot
-- may be older than that, and then what was not behind anything before is missed, and so is not put off for long. No more is
-- taken than has room in a relay's memory: what Postgres has compressed counts as if that had made it 32 times smaller, which
-- costs no look at it. Rows put off are counted in a last line with id 0.
with moment as materialized ( -- one for all rows, so that those put off together keep their order
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
), wants as materialized (
    select destination, room, mark
    from unnest(%(destinations)b::text[], %(rooms)b::int[], %(marks)b::timestamptz[]) as w (destination, room, mark)
), looked as materialized (
    select m.id, m.ordering_key, sum(m.bytes) over (order by m.id) - m.bytes as bytes_before
    from wants w cross join lateral (
        select c.id, c.ordering_key, case when pg_column_compression(c.payload) is null then 1 else 32 end::bigint
            * pg_column_size(c.payload) as bytes
        from sagas_message c
        where c.state = 'waiting' and c.destination = w.destination and c.due_at >= w.mark
          and c.due_at <= (select now from moment)
        order by c.due_at, c.id
        limit w.room
        for update skip locked
    ) m
), ahead as materialized (
    select k.ordering_key, f.id, f.due_at, greatest(
            case when f.dead then %(dead_soon)s else %(soon)s end::float8,
            least(
                case when f.dead then %(dead)s when f.held then %(held)s else %(due)s end::float8,
                extract(epoch from (select now from moment) - f.created_at)::float8 / 10)) as wait
    from (
        select ordering_key, max(id) as last from looked where ordering_key is not null group by ordering_key
    ) k cross join lateral (
        select e.id, e.created_at,
            case when e.state = 'waiting' and coalesce(e.holder, 'behind') = 'behind' then e.due_at end as due_at,
            coalesce(e.holder, 'behind') <> 'behind' as held, e.state = 'dead' as dead
        from sagas_message e
        where e.ordering_key = k.ordering_key and e.state <> 'sent' and e.id < k.last
          and e.id not in (select id from looked)
        order by e.id
        limit 1
    ) f
), put_off as (
    update sagas_message m
    set holder = 'behind',
        due_at = greatest(a.due_at, (select now from moment) + make_interval(secs =>
            case when m.holder = 'behind' then a.wait else least(a.wait, %(dead_soon)s) end))
    from looked l join ahead a on a.ordering_key = l.ordering_key and a.id < l.id
    where m.id = l.id
    returning m.id
), claimed as (
    update sagas_message m
    set holder = %(holder)s,
        token = m.token + 1,
        due_at = (select now from moment) + make_interval(secs => %(lease)s::float8)
    from looked l left join ahead a on a.ordering_key = l.ordering_key
    where m.id = l.id and (a.id is null or l.id < a.id) and l.bytes_before < %(bytes)s
    returning m.id, m.token, m.message_id, m.destination, m.ordering_key, m.failures, m.payload::text as payload,
        m.options::text as options, m.headers::text as headers, m.created_at
)
select * from (
    select * from claimed
    union all
    select 0, count(*), null, '', null, 0, '', null, null, null from put_off having count(*) > 0
) lines
order by id
