"""Large payloads work, and neither slow nor burden what runs beside them."""

from __future__ import annotations

import os
import threading
import tracemalloc
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection, connections

from sagas import PayloadTooLarge, Refused
from sagas.payloads import LARGE
from sagas.states import Status
from sagas.store import large as large_rows
from sagas_django.models import LogEntry, OutboxRow
from tests.shop.payloads import AsyncBulk, Bulk
from tests.shop.world import World
from tests.support.codecs import FernetCodec
from tests.support.stories import NO_WAIT, begin, differences, drain, log_of
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")

MEGABYTE = 1024 * 1024
SMALL = b"small"
ENOUGH = {"WAKE": False, "MAX_PAYLOAD": 40 * MEGABYTE}


def large(megabytes: int) -> bytes:
    """Bytes that cannot be compressed, of which base64 has that many megabytes."""
    return os.urandom(megabytes * MEGABYTE * 3 // 4)


@pytest.mark.parametrize(
    "codec",
    [
        pytest.param(None, id="plain"),
        pytest.param(FernetCodec(Fernet.generate_key()), id="sealed", marks=pytest.mark.full),
    ],
)
def test_twenty_megabytes_in_and_out_and_undone(codec: Any, world: World, settings: Any) -> None:
    """A 20 MB input makes a 20 MB result; a later step reads both, and the compensation gets them."""
    settings.SAGAS = {**ENOUGH, "PAYLOAD_CODEC": codec}
    seen: list[bool] = []
    given = large(20)
    world.plan("end", Refused("no"))
    world.plan("look", lambda run: seen.append(run.make.result == given[::-1]))
    begin(Bulk, input=given)
    assert begin(Bulk, input=given).created is False
    drain()
    assert Bulk.get(key="a").status is Status.COMPENSATED
    assert seen == [True]
    assert [call.argument for call in world.of("unmake")] == [True]
    assert differences() == []


def test_more_than_allowed_is_refused_by_name(world: World) -> None:
    """At start() with the limit and what to do; as a result it parks the saga, which has happened."""
    with pytest.raises(PayloadTooLarge, match=r"allowed; .* max_payload \(saga test.bulk version 1\)$"):
        begin(Bulk, input=large(2))


def test_begin_leaves_large_payloads_where_they_are(world: World, settings: Any) -> None:
    """A batch of sagas with megabytes behind them costs a worker no memory: only who asks loads, and then forgets."""
    settings.SAGAS = ENOUGH
    for number in range(12):
        begin(Bulk, f"k{number}", large(2))
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))  # make: everything is loaded, one after the other
        tracemalloc.start()
        begun = begin_due(worker)
        _, peak = tracemalloc.get_traced_memory()
        assert len(begun) == 12
        assert [each.history for each in begun] == [{0: None, 1: None}] * 12
        assert peak < MEGABYTE
        run_batch(worker, begun)  # note: looks at nothing
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2 * MEGABYTE
        assert world.count() == {"make": 12, "note": 12}


def test_a_worker_that_goes_on_forgets_a_large_result(world: World, settings: Any) -> None:
    """The next step begins in the commit that recorded the result, and does not carry it along."""
    settings.SAGAS = ENOUGH
    for number in range(10):
        begin(Bulk, f"k{number}", large(2))
    with one_worker(goes_on=True) as worker:
        begun = begin_due(worker)
        tracemalloc.start()
        run_batch(worker, begun)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert world.count() == {"make": 10, "note": 10, "look": 10, "end": 10}
        assert peak < 60 * MEGABYTE  # a few copies of one 2 MB payload, and not of twenty


def test_neighbours_are_done_before_a_large_payload_is_looked_at(world: World, settings: Any) -> None:
    """In a batch of one saga with 20 MB and 99 small ones the 99 are recorded before the large one's body begins."""
    settings.SAGAS = ENOUGH
    begin(Bulk, "large", large(20))  # the oldest: by age it would be the first
    for number in range(99):
        begin(Bulk, f"k{number}", SMALL)
    done: list[int] = []

    def look(run: Any) -> None:
        done.append(LogEntry.objects.filter(kind="step_done").count())
        connections.close_all()

    world.plan("make", look, saga="large")
    with one_worker() as worker:
        begun = begin_due(worker)
        assert [each.key for each in begun][-1] == "large"
        run_batch(worker, begun)
        assert done == [99]
        begun = begin_due(worker)
        assert len(begun) == 100  # the local step is the same: in a transaction of its own
        world.plan("note", look, saga="large")
        run_batch(worker, begun)
    assert done == [99, 199]


def test_a_large_result_is_recorded_by_itself(world: World, settings: Any) -> None:
    """What happened before it in the batch does not wait for it to be written."""
    settings.SAGAS = {**ENOUGH, "FLUSH": 10.0}
    for key in ("a", "b", "c"):
        begin(Bulk, key, SMALL * (LARGE if key == "b" else 1))
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from sagas_log a join sagas_log b on b.kind = a.kind and b.xmin = a.xmin"
            " and b.saga_id <> a.saga_id where a.kind = 'step_done' and length(a.data::text) > %s",
            [LARGE],
        )
        assert cursor.fetchone() == (0,)


def test_small_sagas_load_everything_at_once(world: World, settings: Any) -> None:
    """Up to the limit history comes with begin: no statement more than before."""
    begin(Bulk, input=SMALL)
    drain(skip=NO_WAIT)
    assert log_of(Bulk.get(key="a").id)[-1] == "completed"
    begin(Bulk, "b", SMALL)
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))
        (begun,) = begin_due(worker)
        assert None not in begun.history.values() and not begun.heavy


@pytest.mark.parametrize("size", [1, LARGE])
def test_a_wrong_key_is_noticed_before_a_large_payload_is_loaded(size: int, world: World, settings: Any) -> None:
    """A probe beside each large sealed payload tells: the row waits, no body begins, and nothing large was loaded."""
    one, two = Fernet.generate_key(), Fernet.generate_key()
    settings.SAGAS = {**ENOUGH, "PAYLOAD_CODEC": FernetCodec(one)}
    run = begin(Bulk, input=os.urandom(size))
    settings.SAGAS = {**ENOUGH, "PAYLOAD_CODEC": FernetCodec(two)}
    with one_worker() as worker:
        assert begin_due(worker) == []
    assert (OutboxRow.objects.get(saga_id=run.id).deliveries, world.calls) == (0, [])
    settings.SAGAS = {**ENOUGH, "PAYLOAD_CODEC": FernetCodec(two, one)}
    drain()
    assert Bulk.get(key="a").status is Status.COMPLETED


def test_nothing_large_is_loaded_on_the_event_loop(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `async def` body finds its large input there: the statement that loads it ran in a thread before."""
    settings.SAGAS = ENOUGH
    loaded_in: list[str] = []
    fetch = large_rows.fetch

    def noted(*arguments: Any) -> bytes:
        loaded_in.append(threading.current_thread().name)
        return fetch(*arguments)

    monkeypatch.setattr(large_rows, "fetch", noted)
    given = large(2)
    begin(AsyncBulk, input=given)
    drain()
    assert AsyncBulk.get(key="a").status is Status.COMPLETED
    assert len(loaded_in) == 1 and loaded_in[0].startswith("sagas-async-io")
    assert [call.argument for call in world.calls] == [len(given)]
