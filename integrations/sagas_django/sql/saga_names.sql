-- The first names that have sagas, each found by one probe of the unique index: no scan, however many sagas there are.
with recursive found(name, hops) as (
    (select s.name, 1 from sagas_saga s order by s.name limit 1)
    union all
    select (select s.name from sagas_saga s where s.name > f.name order by s.name limit 1), f.hops + 1
    from found f where f.name is not null and f.hops < %(limit)s
)
select f.name from found f where f.name is not null order by f.name
