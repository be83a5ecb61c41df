"""Semantic locks in users' own tests: on one connection, in a transaction that may never commit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction

from sagas.states import Status
from sagas.testing import Kit, explore
from tests.shop.locking import Awaits, Guest, Holds, Wanted
from tests.shop.waiting import Review

ONE = Wanted(["account:7"])


@pytest.fixture(params=["db", "transactional_db"])
def kit(request: pytest.FixtureRequest) -> Kit:
    """The kit inside a test's transaction, and where everything commits."""
    request.getfixturevalue(request.param)
    found: Kit = request.getfixturevalue("sagas")
    return found


def held() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from sagas_lock")
        return int(cursor.fetchone()[0])


def test_a_test_sees_who_is_kept_out(kit: Kit) -> None:
    """Who does not wait is refused; who waits goes on when the holder has ended, and time is moved, not waited for."""
    with transaction.atomic():
        Holds.start(ONE, key="a")
    kit.drain()
    with transaction.atomic():
        Holds.start(ONE, key="b")
    kit.drain()
    assert Holds.get(key="b").status == Status.COMPENSATED
    with transaction.atomic():
        Awaits.start(ONE, key="c")
        Holds.review.send(Review(True), key="a")
    kit.drain(skip=timedelta(minutes=1))
    assert Awaits.get(key="c").status == Holds.get(key="a").status == Status.COMPLETED
    assert held() == 0


def test_a_test_sees_the_wait_end(kit: Kit) -> None:
    """The clock moves over all of it."""
    with transaction.atomic():
        Holds.start(ONE, key="a")
    kit.drain()
    with transaction.atomic():
        Awaits.start(ONE, key="c")
    kit.drain(skip=timedelta(hours=1))
    assert Awaits.get(key="c").status == Status.COMPENSATED


@pytest.mark.django_db
def test_it_can_be_explored() -> None:
    """Whatever goes wrong, no story leaves a lock behind."""
    found = explore(Guest, ONE, invariant=lambda: held() == 0)
    assert len(found.stories) > 10
