"""`heartbeat(progress=...)`: a long step goes on where it was."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from sagas import InvalidInput, PayloadTooLarge
from sagas.states import Status
from sagas_django.models import OutboxRow
from tests.shop.sagas import Ordered
from tests.shop.waiting import Import, LocalImport
from tests.shop.world import World
from tests.support.stories import begin, drain, entries, log_of, outbox, second_connection

pytestmark = pytest.mark.usefixtures("shop")


def lines(world: World) -> list[int]:
    """The lines that were imported, in order."""
    return [call.argument for call in world.of("line")]


def test_the_next_attempt_goes_on_where_the_last_one_was(world: World) -> None:
    """What failed is tried again, what was done before is not."""
    world.plan("line", "0", "1", RuntimeError("line 2"))
    saga = begin(Import, input=Ordered(5))
    drain()
    assert lines(world) == [0, 1, 2, 2, 3, 4]
    assert entries(saga)[-3].data["result"] == 5


def test_progress_is_written_at_once(world: World) -> None:
    """It is in the database when `heartbeat` returns: whatever kills the worker, the next one finds it."""
    seen: list[Any] = []
    world.plan("line", "0", lambda run: seen.append(OutboxRow.objects.get(saga_id=run.id).progress))
    begin(Import, input=Ordered(2))
    drain()
    assert seen == [1]


def test_another_step_begins_without_it(world: World) -> None:
    """What is kept belongs to one step of one saga: nothing of it is left when the step is done."""
    saga = begin(Import, input=Ordered(2))
    drain()
    assert log_of(saga)[-1] == "completed" and outbox(saga) == []
    assert [call.argument for call in world.of("after")] == [None]


def test_a_lost_lease_ends_the_body_without_writing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An attempt that was taken over from does not spoil what the next one has written, and learns of it at once."""

    def taken_over(run: Any) -> None:
        with second_connection() as other:
            other.execute(
                "update sagas_outbox set token = token + 1, holder = null, progress = '7', due_at = clock_timestamp()"
                " where saga_id = %s", [run.id],
            )  # fmt: skip

    world.plan("line", "0", taken_over)
    saga = begin(Import, input=Ordered(9))
    with caplog.at_level(logging.ERROR):
        drain()
    assert lines(world) == [0, 1, 7, 8]
    assert log_of(saga) == ["started", "step_done load", "step_done after", "completed"]


def test_progress_survives_a_pause_and_a_hand_back(world: World) -> None:
    """Whoever takes the row for a moment leaves it."""
    world.plan("line", "0", RuntimeError("once"))
    saga = begin(Import, input=Ordered(3))
    drain(skip=timedelta(0))
    assert outbox(saga)[0].progress == 1
    with connection.cursor() as cursor:
        cursor.execute("insert into sagas_pause (kind, name) values ('definition', 'test.import')")
    drain()
    (row,) = outbox(saga)
    assert (row.progress, row.holder, row.deliveries) == (1, None, 0)
    with connection.cursor() as cursor:
        cursor.execute("delete from sagas_pause")
        cursor.execute("update sagas_outbox set due_at = clock_timestamp()")
    drain()
    assert lines(world) == [0, 1, 1, 2]


@pytest.mark.parametrize("progress", [{1, 2}, "a\0b", float("nan"), "x" * 70_000, {"a": object()}])
def test_progress_that_cannot_be_stored_is_refused(progress: Any, world: World) -> None:
    """The body is told, in words that name it; nothing is written."""
    caught: list[BaseException] = []

    def beat(run: Any) -> None:
        with pytest.raises(Exception, match="progress") as found:
            run.heartbeat(progress=progress)
        caught.append(found.value)

    world.plan("line", beat)
    begin(Import, input=Ordered(1))
    drain()
    assert len(caught) == 1 and isinstance(caught[0], (InvalidInput, PayloadTooLarge)), caught


def test_a_local_step_has_no_progress(world: World) -> None:
    """What it has written is undone when it does not end, so the message says to begin at the beginning."""
    begin(LocalImport)
    drain()
    found = LocalImport.get(key="a")
    assert found.status == Status.COMPENSATED
    assert "heartbeat(progress=...) is for external steps" in found.error
