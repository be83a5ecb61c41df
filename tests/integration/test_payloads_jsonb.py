"""Values of made-up types through the real column: what Postgres makes of their JSON is read as what it was."""

from __future__ import annotations

from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagas import InvalidInput
from sagas.codec import fingerprint
from sagas.payloads import Payloads
from sagas.testing.servers import Postgres
from tests.support.codecs import NoCheck, ZlibCodec
from tests.unit.test_codec_types import holds_large_int_in_model, same, types

WAYS = [Payloads(), Payloads([ZlibCodec()]), Payloads([NoCheck(7)])]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(types.flatmap(lambda made: st.tuples(st.just(made[0]), made[1])), min_size=1, max_size=8))
def through_the_column(connection: psycopg.Connection[Any], values: list[tuple[Any, Any]]) -> None:
    stored, kept = [], []
    for declared, value in values:
        for payloads in WAYS:
            try:
                stored.append(payloads.store(value, declared, limit=10**6, what="input").decode())
            except InvalidInput:
                if not holds_large_int_in_model(value):
                    raise
            else:
                kept.append((declared, value, payloads))
    rows = connection.execute(
        "select t::jsonb::text from unnest(%s::text[]) with ordinality u (t, n) order by n", [stored]
    )
    for (declared, value, payloads), before, (after,) in zip(kept, stored, rows, strict=True):
        assert same(value, payloads.read(before, declared, what="input")), (declared, value, before)
        assert same(value, payloads.read(after, declared, what="input")), (declared, value, after)
        assert fingerprint(before) == fingerprint(after)


def test_what_the_column_gives_back_is_the_same(postgres_server: Postgres, fresh_database: str) -> None:
    """Plain and sealed, first read from memory (the worker that goes on) and then from the table (any other)."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        through_the_column(connection)
