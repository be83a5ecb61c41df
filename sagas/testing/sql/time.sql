-- The database clock, in microseconds since 1970; the argument is of no use here.
select cast(cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) as text)
from (select cast(%s as text)) unused
