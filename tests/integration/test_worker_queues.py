"""An embedded worker serves its queues alike, however much waits in one of them, and begins only what it runs."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import transaction

from sagas import Saga, external_step
from sagas.embedded import Embedded
from sagas_django.store import DjangoStore

ran: list[str] = []
EACH = 50  # sagas in each queue
QUEUES = [f"queue-{number:02}" for number in range(20)]


def _in_queue(queue: str) -> type[Saga[int]]:
    class InQueue(Saga[int], name=f"test.in_{queue}", version=1):
        """One step, in one of many queues."""

        @external_step(pivot=True, queue=queue)
        def only(self) -> None:
            ran.append(queue)

    return InQueue


SAGAS = {queue: _in_queue(queue) for queue in QUEUES}


@pytest.mark.usefixtures("shop", "quiet")
def test_every_queue_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog in each of twenty queues: none has to wait until the others are empty, and what is begun is run."""
    ran.clear()
    with transaction.atomic():
        for saga in SAGAS.values():
            for number in range(EACH):
                saga.start(number, key=str(number))
    begun: list[int] = []
    embedded = Embedded(DjangoStore("default"), concurrency=2)
    for saga in SAGAS.values():
        embedded.pace.note((saga.saga_name, "only", "do"), 0.001)  # what nobody has measured is dealt out one by one
    begin = embedded.worker.begin
    monkeypatch.setattr(embedded.worker, "begin", lambda *given, **more: note(begun, begin(*given, **more)))
    embedded.run(until_idle=True)
    assert Counter(ran) == dict.fromkeys(QUEUES, EACH)
    firsts = [ran.index(queue) for queue in QUEUES]
    assert max(firsts) < 0.5 * len(ran), firsts
    assert sum(begun) <= 2 * len(ran)


def note(begun: list[int], rows: list[object]) -> list[object]:
    begun.append(len(rows))
    return rows
