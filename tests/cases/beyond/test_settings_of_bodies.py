"""What a body sets in its session: a tenant, a role, a time limit. It is not for the sagas that come after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from sqlalchemy import Engine, text

from sagas import Saga, step
from sagas.endings import outlasts, setting
from sagas.states import Status
from sagas_sqlalchemy import Sagas
from tests.cases.conftest import sql
from tests.shop.sagas import Ordered
from tests.shop.world import World, world
from tests.sqlalchemy import conftest as alchemy
from tests.sqlalchemy.conftest import engine, make_engine, make_runtime, runtime, shop_template, url
from tests.sqlalchemy.shop import ODD, Odd, Told
from tests.support.stories import begin_many
from tests.support.workers import begin_due, one_worker, pooled, run_batch

__all__ = ["engine", "make_engine", "make_runtime", "runtime", "shop_template", "url"]

TENANT = "current_setting('beyond.tenant', true)"


class Tenants(Saga[Ordered], name="beyond.tenants", version=1):
    """One of many says whose rows it is about, as rules of row-level security want to know it."""

    @step(compensate=None)
    def body(self) -> None:
        world.act("body", self)
        ((tenant,),) = sql(f"select {TENANT}")
        world.notes.append(f"{self.key} {tenant or ''}".strip())


@pytest.fixture(params=["thread", "pool"])
def kept_connection(shop: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """`CONN_MAX_AGE = None`: a thread keeps its connection. Or `OPTIONS = {"pool": ...}`: they are given back."""
    if request.param == "pool":
        with pooled():
            yield
        return
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    yield
    connection.close()


@pytest.mark.parametrize("way", ["select set_config('beyond.tenant', 'x', true)", "set beyond.tenant to 'x'"])
@pytest.mark.usefixtures("kept_connection")
def test_the_tenant_of_one_saga_is_not_that_of_others(world: World, way: str) -> None:
    """A body says which tenant it works for. Bodies of other sagas, in the same transaction or later on the same
    connection, see none, and not that one: they would read and write another tenant's rows."""
    world.always("body", lambda run: sql(way), saga="odd")
    with one_worker() as worker:
        for batch in (["a", "odd", "b", "c"], ["d"]):
            begin_many(Tenants, batch)
            run_batch(worker, begin_due(worker))
    assert set(world.notes) == {"a", "b", "c", "d", "odd x"}
    assert Tenants.get(key="odd").status is Status.COMPLETED


@pytest.mark.parametrize("way", ["select set_config('beyond.tenant', 'x', true)", "set beyond.tenant to 'x'"])
def test_the_same_in_a_session(
    way: str, engine: Engine, runtime: Sagas, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likewise with SQLAlchemy, whose pool keeps connections."""
    seen: list[str] = []

    def look(self: Any) -> None:
        if self.input.text == "odd":
            self.session.execute(text(way))
        seen.append(f"{self.input.text} {self.session.scalar(text(f'select {TENANT}')) or ''}".strip())

    monkeypatch.setitem(ODD, "look", look)
    for batch in (["first"], ["a", "odd", "b"], ["d"]):
        alchemy.begin(engine, Odd, *(Told("look", each) for each in batch))
        alchemy.drain(runtime)
    assert set(seen) == {"first", "a", "odd x", "b", "d"}


@pytest.mark.parametrize(
    ("script", "found", "for_good"),
    [
        ("SET LOCAL ROLE reader", True, False), ("set search_path to a", True, True), ("reset all", True, True),
        ("select set_config('a.b', %s, true)", True, False), ("select set_config('a.b', %s, false)", True, True),
        ("set local a.b = 1; set c.d = 2", True, True), ("-- why\nset a.b = 1", True, True),
        ("update t\nset a = 1", False, False), ("set constraints all immediate", True, False),
        ("create temp table a (b int) on commit drop", True, False), ("create temporary table a (b int)", True, True),
        ("select temp from a", False, False), ("select 1 into temp a", True, True),
        ("create or replace temp view a as select 1", True, True),
        ("select set_config('a.b', 'x', false), set_config('c.d', 'y', true)", True, True),
        ("select set_config('a.b', 'x', true), set_config('c.d', 'y', true)", True, False),
        ("insert into t values ('; set a = 1')", False, False), ("set transaction read only", False, False),
    ],
)  # fmt: skip
def test_what_counts_as_setting(script: str, found: bool, for_good: bool) -> None:
    """Statements that set something, and those of them whose effect outlives the transaction."""
    statement = setting(script)
    assert (statement is not None, statement is not None and outlasts(statement)) == (found, for_good)
