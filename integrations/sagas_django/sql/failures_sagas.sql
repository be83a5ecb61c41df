select id from grouped where token = %(token)s and parked and (%(before)s::uuid is null or id < %(before)s::uuid)
order by id desc
limit %(limit)s
