"""Celery prefork workers: connections, continuation, hand-back, and children that die."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sagas.testing.processes import Process
from tests.relay.conftest import PlantMaker
from tests.relay.plant import SHORT, Plant, children, wait_until
from tests.relay.sagas import OTHER_QUEUE, Chain, Deadly, Hop, Job, Local, Short, Together

pytestmark = pytest.mark.usefixtures("relay")

GATE, SECOND_GATE = 1, 2


@dataclass(frozen=True, kw_only=True)
class Running:
    """A plant with one relay and one worker of two children."""

    plant: Plant
    worker: Process
    relay: Process


@pytest.fixture(scope="module")
def running(new_plant: PlantMaker) -> Iterator[Running]:
    with new_plant(SHORT) as plant:
        for saga in (Together, Deadly):  # before the relay looks
            plant.measured(saga, "act", 0.001)
        yield Running(plant=plant, worker=plant.worker(f"quick,{OTHER_QUEUE}"), relay=plant.relay())


@pytest.fixture
def plant(running: Running) -> Plant:
    return running.plant


@pytest.fixture
def relay(running: Running) -> Process:
    return running.relay


def sockets_to(port: int, pid: int) -> set[str]:
    """The sockets of a process that are connected to a port, by the kernel's number."""
    connected = {
        fields[9] for fields in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        if int(fields[2].split(":")[1], 16) == port
    }  # fmt: skip
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor) if descriptor.is_symlink() else ""
        if target.startswith("socket:["):
            held.add(target[len("socket:[") : -1])
    return held & connected


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def begun_from_messages(plant: Plant, key: str) -> int:
    """How many messages it took: how often rows of a saga were begun that a relay had published."""
    return int(
        plant.value(
            "select count(*) from relay_change c join sagas_saga s on s.id = c.saga_id where s.key = %s"
            " and c.holder like 'worker:%%' and c.holder_before like 'relay:%%'", key
        )
    )  # fmt: skip


def test_no_connection_crosses_a_fork(running: Running) -> None:
    """Each child opens its own, the parent opens none."""
    plant = running.plant
    with plant.gate(GATE):
        plant.start("left", job=Job(gate=GATE))
        plant.start("right", job=Job(gate=GATE))
        (_, _, left, one), (_, _, right, other) = plant.wait_for_notes("left")[0], plant.wait_for_notes("right")[0]
        assert left != right and one != other
        assert sorted(children(running.worker.pid)) == sorted((left, right))
        port = plant.connection.info.port
        held = {pid: sockets_to(port, pid) for pid in (running.worker.pid, left, right)}
    assert held[running.worker.pid] == set()
    assert min(len(held[left]), len(held[right])) >= 2  # Django's, and the engine's
    assert not held[left] & held[right]
    plant.wait_until_completed("left", "right")


def test_one_message_does_for_all_steps_of_one_queue(plant: Plant) -> None:
    """The worker that finished a step goes on with the next; no message, no other process."""
    plant.start("chain", saga=Chain)
    plant.wait_until_completed("chain")
    notes = plant.notes("chain")
    assert [what for what, *_ in notes] == ["first", "second", "third"]
    assert len({pid for _, _, pid, _ in notes}) == 1
    assert begun_from_messages(plant, "chain") == 1


def test_a_step_of_another_queue_goes_through_the_relay(plant: Plant) -> None:
    """So that workers of that queue run it, not the one that happens to be there."""
    plant.start("hop", saga=Hop)
    plant.wait_until_completed("hop")
    assert [what for what, *_ in plant.notes("hop")] == ["first", "second", "third"]
    assert begun_from_messages(plant, "hop") == 3


def test_rows_behind_a_slow_body_go_elsewhere(plant: Plant) -> None:
    """They shared its message, and are given back as if they had not been begun."""
    behind = [f"behind-{number}" for number in range(8)]
    with plant.gate(GATE):
        plant.start_each({"slow": Job(gate=GATE)} | {key: Job() for key in behind}, saga=Together)
        plant.wait_for_notes("slow")
        plant.wait_until_completed(*behind)
        assert {begun_from_messages(plant, key) for key in behind} == {2}  # together with the slow one, and again
        assert plant.status("slow") == "running"
    plant.wait_until_completed("slow")
    assert {key: plant.attempts(key)[0] for key in ("slow", *behind)} == dict.fromkeys(
        ("slow", *behind), ("step_done", 1)
    )
    assert {len(plant.notes(key)) for key in behind} == {1}


def test_cut_connections_heal_without_a_restart(running: Running) -> None:
    """A server that cuts every idle connection costs no attempt, no lease and no publish window."""
    plant = running.plant
    with plant.gate(GATE):  # both children have been at work, so both have a connection to lose
        plant.start("before-1", "before-2", job=Job(gate=GATE))
        first, second = plant.wait_for_notes("before-1")[0], plant.wait_for_notes("before-2")[0]
    plant.wait_until_completed("before-1", "before-2")
    assert first[2] != second[2]
    mark = plant.mark()
    cut = plant.value(
        "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and state = 'idle'"
    )  # fmt: skip
    assert cut >= 5
    keys = [f"healed-{number}" for number in range(6)]
    plant.start(*keys[:3], saga=Local)
    plant.start(*keys[3:])
    plant.wait_until_completed(*keys)
    assert [plant.attempts(key)[0] for key in keys] == [("step_done", 1)] * 6
    assert set(plant.begins(mark).values()) == {1}
    assert plant.publishes(mark) == len(keys)
    assert running.worker.poll() is None and running.relay.poll() is None


def test_a_body_past_its_timeout_and_grace_loses_its_process(plant: Plant) -> None:
    """By SIGKILL; the row is taken over when its lease ends, as unknown. The child next to it notices nothing."""
    with plant.gate(SECOND_GATE):
        plant.start("sibling", job=Job(gate=SECOND_GATE))
        sibling = plant.wait_for_notes("sibling")[0][2]
        with plant.gate(GATE):
            plant.start("overrun", job=Job(gate=GATE), saga=Short)
            overrun = plant.wait_for_notes("overrun")[0][2]
            wait_until(lambda: gone(overrun), "the end of the child whose body took too long")
        plant.wait_until_completed("overrun")
        assert not gone(sibling) and plant.status("sibling") == "running"
    plant.wait_until_completed("sibling")
    assert plant.attempts("overrun")[0] == ("step_done", 2)
    assert plant.attempts("sibling")[0] == ("step_done", 1)


def test_a_killed_child_is_taken_over(plant: Plant) -> None:
    """When the lease ends, and not before."""
    with plant.gate(GATE):
        plant.start("victim", job=Job(gate=GATE))
        victim = plant.wait_for_notes("victim")[0][2]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: gone(victim), "the end of the child")
    plant.wait_until_completed("victim")
    assert plant.attempts("victim")[0] == ("step_done", 2)
    waited = plant.value(
        "select extract(epoch from max(at) - min(at))::float8 from relay_note where key = 'victim' and what = ''"
    )
    assert waited > SHORT["LEASE"] - SHORT["HEARTBEAT"]


def test_a_step_that_kills_every_process_parks_and_holds_nobody_up(plant: Plant) -> None:
    """After `max_deliveries`; who shared its message goes on, and is not blamed."""
    neighbours = [f"neighbour-{number}" for number in range(5)]
    plant.start_each(
        {neighbours[0]: Job(), "deadly": Job(ends=True)} | {key: Job() for key in neighbours[1:]}, saga=Deadly
    )
    wait_until(lambda: plant.notes("deadly"), "the first death")
    plant.wait_until_completed(*neighbours)
    others = [f"meanwhile-{number}" for number in range(3)]
    plant.start(*others)
    plant.wait_until_completed(*others)
    wait_until(lambda: plant.status("deadly") == "parked", "the deadly step to be parked")
    assert len(plant.notes("deadly")) == 3
    assert Counter(plant.status(key) for key in (*neighbours, *others)) == {"completed": 8}
