"""Settings of a database, of roles and of calls with which sagas cannot work, or only seem not to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import IntegrityError, connection, transaction

from sagas import RAISE, InvalidInput
from sagas.doctor import Level, Problem, examine
from sagas.states import Status
from sagas_django.operate import DjangoDesk
from sagas_django.store import DjangoStore
from tests.cases.beyond.test_database import database_set
from tests.cases.conftest import sql
from tests.shop.sagas import Ordered, Trip
from tests.shop.world import World
from tests.support.stories import begin, drain

pytestmark = pytest.mark.usefixtures("shop")


def found() -> dict[str, Problem]:
    """What `doctor` finds, by id."""
    return {each.id: each for each in examine(DjangoDesk("default"))}


@pytest.mark.parametrize(
    ("setting", "value", "id"),
    [("datestyle", "'German, DMY'", "date-style"), ("default_transaction_read_only", "on", "read-only")],
)
def test_settings_that_sagas_cannot_work_with(setting: str, value: str, id: str) -> None:
    """Times that psycopg cannot read, a database that takes no writes: named, beside whatever else is wrong."""
    with database_set(**{setting: value}):
        problems = found()
    assert problems[id].level is Level.ERROR
    assert id not in found()


def test_numbers_that_did_not_come_along() -> None:
    """The rows were copied to another server and the sequences were not (logical replication leaves them out):
    `start()` fails, `doctor` says why, and what it advises is all that it takes."""
    for key in "abc":
        begin(Trip, key)
    sql("select setval('sagas_outbox_id_seq', (select min(id) from sagas_outbox))")
    with pytest.raises(IntegrityError, match="sagas_outbox_pkey"):
        begin(Trip, "d")
    problem = found()["sequence-behind"]
    assert problem.level is Level.ERROR
    sql(problem.hint)
    assert "sequence-behind" not in found()
    begin(Trip, "d")
    drain()


def test_what_to_do_about_an_existing_saga_in_plain_text() -> None:
    """`on_existing="raise"` is a text and would be taken for the default, which raises nothing: it is refused, as is
    the `RAISE` of `send()`, with the names of those that can be meant."""
    names = "OnExisting.RETURN, OnExisting.RAISE, OnExisting.NEW_IF_COMPENSATED"
    for wrong in ("raise", RAISE):
        with pytest.raises(InvalidInput, match=f"on_existing=.*raise.*: pass one of {names}$"), transaction.atomic():
            Trip.start(Ordered(), key="a", on_existing=wrong)  # type: ignore[arg-type]


@pytest.fixture
def assumed_role(shop: str) -> Iterator[None]:
    """The alias logs in as a role that owns nothing and assumes the one that may do everything (`assume_role`)."""
    for statement in ("create role beyond_app nologin", "create role beyond_login login noinherit password 'x'"):
        sql(statement)
    sql("grant beyond_app to beyond_login")
    sql("grant all on all tables in schema public to beyond_app")
    options = connection.settings_dict["OPTIONS"] | {"assume_role": "beyond_app"}
    before = {name: connection.settings_dict[name] for name in ("USER", "PASSWORD", "OPTIONS")}
    connection.close()
    connection.settings_dict.update(USER="beyond_login", PASSWORD="x", OPTIONS=options)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)
        sql("drop owned by beyond_app")
        sql("drop role beyond_login")
        sql("drop role beyond_app")


@pytest.mark.usefixtures("assumed_role")
def test_an_alias_that_assumes_a_role(world: World) -> None:
    """Django's `assume_role`: connections that workers and relays open beside Django's assume it too. If not, sagas
    would be started and nobody could carry them out."""
    begin(Trip)
    with DjangoStore("default").connect() as raw:
        assert raw.execute("select current_user, session_user").fetchone() == ("beyond_app", "beyond_login")
    drain()
    assert Trip.get(key="a").status is Status.COMPLETED
