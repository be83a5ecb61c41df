"""Messages that no relay sent: duplicated, late, forged, unreadable. They do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sagas.testing.processes import Process
from tests.relay.conftest import PlantMaker
from tests.relay.plant import Plant, wait_until
from tests.relay.sagas import Job

GATE = 1
UNREADABLE: list[dict[str, Any]] = [
    {},
    {"v": 2, "store": "default", "rows": [[1, 0]]},
    {"v": "1", "store": "default", "rows": [[1, 0]]},
    {"v": 1, "store": ["default"], "rows": [[1, 0]]},
    {"v": 1, "store": "default", "rows": "all"},
    {"v": 1, "store": "default", "rows": [[1]]},
    {"v": 1, "store": "default", "rows": [[-1, 0]]},
    {"v": 1, "store": "default", "rows": [["1", "0"]]},
    {"v": 1, "store": "default", "rows": [[True, False]]},
    {"v": 1, "store": "default", "rows": [[2**70, 0]]},
    {"v": 1, "store": "default", "rows": [[1.5, 0]]},
    {"v": 1, "store": "default", "rows": [[1, 0]] * 10_001},
]


@pytest.fixture(scope="module")
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    with new_plant() as plant:
        plant.relay()
        yield plant


@pytest.fixture(scope="module")
def worker(plant: Plant) -> Process:
    return plant.worker("quick")


def send(plant: Plant, *arguments: Any, **keywords: Any) -> None:
    """Send to the task what a relay would not."""
    plant.celery.send_task("sagas.run", args=arguments, kwargs=keywords, queue="quick", retry=False)


def send_rows(plant: Plant, *rows: tuple[int, int], store: str = "default") -> None:
    send(plant, v=1, store=store, rows=[list(row) for row in rows])


def wait_for_answers(worker: Process, count: int) -> None:
    """Wait until the worker has dealt with so many messages, counted from the beginning."""
    wait_until(lambda: answers(worker) >= count, f"{count} messages to be dealt with")


def answers(worker: Process) -> int:
    said = worker.output()
    return said.count("] succeeded in") + said.count("] raised")


def row_of(plant: Plant, key: str) -> tuple[int, int]:
    found: tuple[int, int] = plant.fetch(
        "select o.id, o.token from sagas_outbox o join sagas_saga s on s.id = o.saga_id where s.key = %s", key
    )[0]  # fmt: skip
    return found


def test_unreadable_messages_are_dropped(plant: Plant, worker: Process) -> None:
    """And reported; the worker goes on."""
    before = answers(worker)
    for message in UNREADABLE:
        send(plant, **message)
    send(plant, 1, "default", "all", "and more")
    send(plant, 1, "default", [])
    wait_for_answers(worker, before + len(UNREADABLE) + 2)
    assert worker.output().count("ERROR sagas.worker MainThread: a saga message that cannot be read") == len(UNREADABLE)
    plant.start("after-garbage")
    plant.wait_until_completed("after-garbage")


def test_a_message_for_an_unknown_store_says_so(plant: Plant, worker: Process) -> None:
    """A worker that lacks the alias must not pass for one that did the work."""
    send_rows(plant, (1, 0), store="elsewhere")
    worker.wait_for_output("store 'elsewhere' is not set up in this process; known: default")


def test_a_message_delivered_again_begins_nothing(plant: Plant, worker: Process) -> None:
    """Its token was consumed; and no guess at the next one helps while somebody holds the row."""
    with plant.gate(GATE):
        plant.start("once", job=Job(gate=GATE))
        plant.wait_for_notes("once")
        row, token = row_of(plant, "once")
        before = answers(worker)
        for guess in range(token + 4):
            send_rows(plant, (row, guess), (row, guess))
        wait_for_answers(worker, before + token + 4)
        assert plant.row("once") == ("worker", 1, token)
        assert len(plant.notes("once")) == 1
    plant.wait_until_completed("once")
    send_rows(plant, (row, token), (row, token + 1))
    plant.start("after-duplicates")
    plant.wait_until_completed("after-duplicates")
    assert plant.attempts("once") == [("step_done", 1), ("completed", 0)]


def test_a_message_about_a_row_that_no_relay_published_begins_nothing(plant: Plant, worker: Process) -> None:
    """However right its token: a row that waits for its time cannot be hurried by whoever can write to the broker."""
    plant.start("patient")
    plant.wait_until_completed("patient")
    saga = plant.value("select id from sagas_saga where key = 'patient'")
    row = plant.value(
        "insert into sagas_outbox (saga_id, kind, step, direction, queue, due_at)"
        " values (%s, 'step', 'act', 'do', 'quick', clock_timestamp() + interval '1 hour') returning id", saga
    )  # fmt: skip
    before = answers(worker)
    send_rows(plant, (row, 0))
    send_rows(plant, (row + 1000, 0), (0, 0))
    wait_for_answers(worker, before + 2)
    assert plant.fetch("select holder, token, deliveries from sagas_outbox where id = %s", row) == [(None, 0, 0)]


def test_half_a_message_is_as_good_as_a_whole_one(plant: Plant, worker: Process) -> None:
    """Rows that are not there, or not ours to begin, do not keep the others of a message from being begun."""
    relays = plant.value("select count(*) from sagas_outbox where holder like 'relay:%%'")
    plant.start("mixed")
    plant.wait_until_completed("mixed")
    saga = plant.value("select id from sagas_saga where key = 'mixed'")
    assert relays == 0
    row = plant.value(
        "insert into sagas_outbox (saga_id, kind, step, direction, queue, due_at, holder, publishes)"
        " values (%s, 'step', 'act', 'do', 'quick', clock_timestamp() + interval '1 hour', 'relay:other', 1)"
        " returning id", saga
    )  # fmt: skip
    send_rows(plant, (row + 1000, 0), (row, 0), (0, 7))
    wait_until(lambda: not plant.fetch("select 1 from sagas_outbox where id = %s", row), "the row to be dealt with")
    assert len(plant.notes("mixed")) == 1  # the saga had completed: the row stood for nothing any more
