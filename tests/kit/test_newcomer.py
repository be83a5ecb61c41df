"""Somebody who has just installed the package, knows the fixture `sagas`, and makes mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sagas.testing.servers import Postgres
from tests.kit.project import Project, blocks, django_project

TESTS = """
import pytest
from django.db import connection, transaction
from market.models import Order
from market.sagas import OrderPlaced, PlaceOrder
from market.views import place_order

def test_forgot_to_answer(sagas):
    place_order(cents=950)
    sagas.answers(PlaceOrder).find_charge.undecided()
    sagas.drain()

def test_wrong_name(sagas):
    sagas.answers(PlaceOrder).chargee.returns("ch_1")

def test_wrong_type(sagas):
    sagas.answers(PlaceOrder).charge.returns(950)

def test_saga_that_turned_back(sagas):
    sagas.answers(PlaceOrder).charge.refuses("card declined")
    run = sagas.run(PlaceOrder, OrderPlaced(1, 950))
    assert run.status == "completed"

def test_without_the_fixture():
    place_order(cents=950)

@pytest.mark.django_db(transaction=True)
def test_a_real_transaction(sagas):
    sagas.answers(PlaceOrder).charge.returns("ch_1")
    assert not connection.in_atomic_block
    place_order(cents=950)
    sagas.drain()
    assert Order.objects.get().paid_with == "ch_1"

def test_in_a_transaction(sagas):
    assert connection.in_atomic_block and not Order.objects.exists()
"""


ALONE = """
from django.db import connection
from market.sagas import OrderPlaced, PlaceOrder

def test_it(sagas):
    sagas.answers(PlaceOrder).charge.returns("ch_1")
    sagas.run(PlaceOrder, OrderPlaced(1, 950))
    assert connection.connection.info.dbname.startswith("test_")
"""


@pytest.fixture
def project(postgres_server: Postgres, tmp_path: Path) -> Iterator[Project]:
    """The saga of the documentation, and tests that fail."""
    with django_project(postgres_server, tmp_path) as made:
        made.write({"market/sagas.py": blocks("testing.md")["market/sagas.py"], "test_mine.py": TESTS})
        yield made


def test_mistakes_are_explained(project: Project) -> None:
    """The output says what is wrong, in terms of the newcomer's own code."""
    ran = project.pytest()
    told = ran.stdout
    assert "2 passed" in told and "5 failed" in told, told + ran.stderr
    assert "1 saga did not finish" in told and "saga market.place_order" in told
    assert "RuntimeError: no test should reach the bank" in told
    assert "return bank.charge(self.input.cents, key=self.idempotency_key)" in told  # the traceback of the step
    assert "'chargee'; did you mean 'charge'?" in told
    assert "answer of step PlaceOrder.charge" in told
    assert "sagas of this test" in told and "card declined" in told  # of what ran otherwise than expected
    assert "Database access not allowed" in told


def test_the_fixture_alone_is_given_a_test_database(project: Project) -> None:
    """pytest-django makes one for tests that say they use one; the kit must never run on the project's own."""
    project.write({"test_mine.py": ALONE})
    ran = project.pytest()
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_a_project_that_does_not_use_it(tmp_path: Path) -> None:
    """The plugin is there for everybody, and imports nothing before it is asked for."""
    project = Project(tmp_path, {})
    project.write({
        "pytest.ini": "[pytest]\nfilterwarnings = error\n",
        "test_other.py": "import sys\ndef test_it():\n"
        "    assert not {'sagas.testing.kit', 'sagas.worker', 'django', 'sqlalchemy'} & set(sys.modules)\n"
        "def test_fails():\n    assert 1 == 2\n",
    })  # fmt: skip
    ran = project.pytest("-p", "no:django")
    assert "1 passed" in ran.stdout and "1 failed" in ran.stdout, ran.stdout + ran.stderr
    assert "sagas of this test" not in ran.stdout
