"""A broker that refuses, hangs and then works again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from sagas.states import Status
from sagas_celery.publisher import CeleryPublisher
from tests.cases.conftest import PATIENCE, Letter, deliver, relaying, sql, wait_until
from tests.shop.sagas import Externals
from tests.support.stories import Aside, begin, outbox

pytestmark = pytest.mark.usefixtures("shop")

BOUND = 0.3  # seconds one publish may take


class Moody(Celery):
    """Refuses the first message, hangs over the second and takes the third."""

    def __init__(self) -> None:
        super().__init__("tests.cases.moody", broker="memory://", set_as_current=False)
        self.calls, self.connections = 0, 0
        self.wakes = threading.Event()
        self.letters: list[Letter] = []

    def connection_for_write(self, *arguments: Any, **options: Any) -> Any:
        self.connections += "connect_timeout" in options  # the others are never opened, they tell the URL
        return super().connection_for_write(*arguments, **options)

    def send_task(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionRefusedError("down")
        if self.calls == 2:
            self.wakes.wait(PATIENCE)
            return
        rows = tuple((id, token) for id, token in options["kwargs"]["rows"])
        self.letters.append(Letter(options["queue"], rows))


@pytest.fixture
def moody() -> Iterator[Moody]:
    """The broker, which wakes up at the end."""
    app = Moody()
    yield app
    app.wakes.set()
    wait_until(lambda: all(each.name != "sagas-publish" for each in threading.enumerate()), "the threads to end")
    app.close()


@pytest.fixture
def publisher(moody: Moody) -> Iterator[CeleryPublisher]:
    """Publishes to it, and lets go of it at the end."""
    publisher = CeleryPublisher(moody, "default", timeout=BOUND)
    yield publisher
    publisher.reset()


def test_pb03_refused_then_hung_then_published(moody: Moody, publisher: CeleryPublisher) -> None:
    """Three passes, each of bounded length and over a connection of its own; the row goes out once, and no attempt is
    burnt by it."""
    run = begin(Externals)
    with relaying(publisher, poll=0.02) as relay:
        for published in (0, 0, 1):
            passed: list[int] = []
            began = time.monotonic()
            sql("update sagas_outbox set due_at = clock_timestamp()")
            Aside(lambda passed=passed: passed.append(relay.run_once())).join(PATIENCE / 2)  # type: ignore[misc]
            assert time.monotonic() - began < BOUND + 2
            assert passed == [published]
            [row] = outbox(run)
            assert (row.publishes, row.token, row.deliveries) == (published, 0, 0)
        assert (moody.calls, moody.connections) == (3, 3)
        [letter] = moody.letters
        assert deliver(letter, goes_on=True) == 1
    assert Externals.get(key="a").status == Status.COMPLETED


def test_pb03_a_hung_publish_that_gets_through_after_all(moody: Moody, publisher: CeleryPublisher) -> None:
    """What was given up may arrive later, beside what was sent again: the first of the two begins the row."""
    begin(Externals)
    moody.calls = 2
    with relaying(publisher) as relay:
        assert relay.run_once() == 1
        sql("update sagas_outbox set due_at = clock_timestamp(), holder = null, publishes = 0")  # as if given up
        assert relay.run_once() == 1
        late, again = moody.letters
        assert late == again
        assert [deliver(again), deliver(late)] == [1, 0]
