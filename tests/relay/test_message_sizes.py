"""How many rows share a message follows what steps take, and work of two speeds does not stand in its own way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import monotonic, sleep

import pytest
from django.db import transaction

from sagas import Saga
from tests.relay.conftest import PlantMaker
from tests.relay.paced import SWAP, Brisk, Slow
from tests.relay.plant import Plant, wait_until

pytestmark = pytest.mark.full

FOLLOWS = 5.0  # seconds within which sizes follow
LOOKS = 4
LONGEST_WAIT = 0.3  # seconds from claim to begin, of a short step among long ones
APART = 20  # times as many short rows in a message as long ones
BEGUN = """select s.name, c.xmin::text as message, extract(epoch from c.at - (
        select max(p.at) from relay_change p where p.row_id = c.row_id and p.id < c.id
        and p.publishes > p.publishes_before))::float8 as waited
    from relay_change c join sagas_saga s on s.id = c.saga_id
    where c.holder like 'worker:%%' and c.holder_before like 'relay:%%' and c.at > %s and c.at <= %s"""


class Witness:
    """How long this machine keeps a thread waiting that has slept enough."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            before = monotonic()
            sleep(0.005)
            self.worst = max(self.worst, monotonic() - before - 0.005)


@pytest.fixture
def plant(new_plant: PlantMaker) -> Iterator[Plant]:
    """A backlog of both speeds, thoroughly mixed, and a worker with two children; each test starts the relay."""
    with new_plant({"PRUNE": False}) as plant:
        with plant._alias() as alias, transaction.atomic(using=alias):
            for number in range(5000):
                Brisk.start(number, key=f"brisk-{number}", using=alias)
                Slow.start(number, key=f"slow-{number}", using=alias)
        plant.worker("paced")
        yield plant


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was begun from messages for a while."""

    quick: list[int]  # rows in each message that had short ones
    slow: list[int]
    waited: list[float]  # seconds from claim to begin of the short ones
    machine: float  # seconds that the machine kept a thread waiting, at worst

    @property
    def holds(self) -> bool:
        """Whether messages are as they should be, and nobody waited too long."""
        sizes = median(self.quick) >= APART * median(self.slow)
        return sizes and max(self.waited) <= LONGEST_WAIT + self.machine

    def __str__(self) -> str:
        return (f"{median(self.quick):.0f} short rows in a message, {median(self.slow):.0f} long; of "
                f"{len(self.waited)} short ones half waited {median(self.waited):.3f} s, one {max(self.waited):.3f}; "
                f"the machine {self.machine:.3f} s")  # fmt: skip


def look(plant: Plant, quick: type[Saga[int]], slow: type[Saga[int]], seconds: float) -> Seen:
    """See what is begun from messages for so many seconds."""
    since = after(plant, 0)
    with Witness() as witness:
        until = after(plant, seconds)
    sizes: dict[str, Counter[str]] = {quick.saga_name: Counter(), slow.saga_name: Counter()}
    waits = []
    for name, message, waited in plant.fetch(BEGUN, since, until):
        sizes[name][message] += 1
        if name == quick.saga_name:
            waits.append(waited)
    assert waits and sizes[slow.saga_name], f"not enough to go by: {sizes}"
    return Seen(
        quick=[*sizes[quick.saga_name].values()], slow=[*sizes[slow.saga_name].values()],
        waited=waits, machine=witness.worst,
    )  # fmt: skip


def after(plant: Plant, seconds: float) -> object:
    """The moment so many seconds from now, by the database clock, once it has come."""
    moment = plant.value("select clock_timestamp() + make_interval(secs => %s)", seconds)
    wait_until(lambda: plant.value("select clock_timestamp() >= %s", moment), "time to pass", seconds + 30)
    return moment


def test_sizes_follow_within_seconds_and_the_short_do_not_wait_for_the_long(plant: Plant) -> None:
    """Nobody said what the steps take. Five seconds after the start, and again five after both changed places, a
    message carries twenty times as many short rows as long ones, and no short one waits over 300 ms between claim and
    begin. A machine that has much else to do is looked at up to four times."""
    relay = plant.relay()
    for quick, slow in ((Brisk, Slow), (Slow, Brisk)):
        after(plant, FOLLOWS)
        seen: list[Seen] = []
        while len(seen) < LOOKS and not (seen and seen[-1].holds):
            seen.append(look(plant, quick, slow, 2.0))
        print(quick.saga_name, *seen, sep="\n  ")
        assert seen[-1].holds, "\n".join(map(str, seen))
        plant.connection.execute(
            "insert into relay_note (key, what, attempt, pid, backend) values (%s, '', 0, 0, 0)", [SWAP]
        )
    relay.terminate()
    assert relay.wait(15) == 0, relay.output()
