"""What is in a database of ours, as values that can be compared."""

from __future__ import annotations

from typing import Any

import psycopg

QUERIES = (
    "select 'column', c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
    " a.attidentity, a.attgenerated, a.attstorage, a.attcompression, coll.collname, pg_get_expr(d.adbin, d.adrelid)"
    " from pg_attribute a join pg_class c on c.oid = a.attrelid"
    " left join pg_collation coll on coll.oid = a.attcollation"
    " left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)"
    " where c.relnamespace = %(schema)s::regnamespace and c.relkind = 'r' and c.relname like 'sagas%%' and a.attnum > 0"
    " and not a.attisdropped",
    "select 'constraint', conrelid::regclass::text, conname, contype, condeferrable, convalidated,"
    " pg_get_constraintdef(oid) from pg_constraint"
    " where connamespace = %(schema)s::regnamespace and conrelid::regclass::text ~ 'sagas'",
    "select 'index', i.indrelid::regclass::text, pg_get_indexdef(i.indexrelid), i.indisunique, i.indisprimary"
    " from pg_index i join pg_class c on c.oid = i.indrelid"
    " where c.relnamespace = %(schema)s::regnamespace and c.relname like 'sagas%%'",
    "select 'function', proname, pg_get_functiondef(oid) from pg_proc"
    " where pronamespace = %(schema)s::regnamespace and proname like 'sagas%%'",
    "select 'trigger', tgname, tgenabled, pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = tgrelid"
    " where c.relnamespace = %(schema)s::regnamespace and tgname like 'sagas%%'",
    "select 'relation', relname, relkind, relpersistence,"
    " (select array_agg(o order by o) from unnest(reloptions) o)::text"
    " from pg_class where relnamespace = %(schema)s::regnamespace and relname like 'sagas%%'",
)


def catalog(database: psycopg.Connection[Any], schema: str = "public") -> set[tuple[Any, ...]]:
    """Columns, constraints, indexes, functions, triggers and storage options of our tables in a schema."""
    with database.transaction():
        database.execute("select set_config('search_path', %s, true)", [schema])  # so that names are printed bare
        return {row for query in QUERIES for row in database.execute(query.encode(), {"schema": schema})}
