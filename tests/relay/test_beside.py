"""Sagas in a Celery application with beat, events and monitors: neither side is in the other's way."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sagas_celery.checks import TASK
from tests.relay.conftest import PlantMaker
from tests.relay.plant import PATIENCE, ROOT, Plant, wait_until

OTHER = "celery.accumulate"  # some task of the application's own
SCHEDULE = {"tick": {"task": OTHER, "schedule": 0.5, "args": [1, 2]}}


def events_until(plant: Plant, done: set[str]) -> dict[str, set[str]]:
    """What a monitor such as Flower is told: for each task the kinds of its events, until these have succeeded."""
    names: dict[str, str] = {}
    seen: dict[str, set[str]] = {}
    deadline = time.monotonic() + PATIENCE

    def on_event(event: dict[str, Any]) -> None:
        if "name" in event:
            names[event["uuid"]] = event["name"]
        if (name := names.get(event.get("uuid", ""))) is not None:
            seen.setdefault(name, set()).add(event["type"])
        if done <= {name for name, kinds in seen.items() if "task-succeeded" in kinds}:
            receiver.should_stop = True

    with plant.celery.connection_for_read() as connection:
        receiver = plant.celery.events.Receiver(connection, handlers={"*": on_event})
        plant.start("watched")
        while not receiver.should_stop:
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {done}; seen {seen}"
            try:
                receiver.capture(limit=None, timeout=1, wakeup=True)
            except TimeoutError:
                continue
    return seen


@pytest.mark.full
def test_beside_beat_and_under_a_monitor(
    new_plant: PlantMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker with an embedded beat and events: the schedule's task runs, a saga completes, a monitor sees both."""
    monkeypatch.setenv("RELAY_CELERY", json.dumps({"CELERY_BEAT_SCHEDULE": SCHEDULE}))
    with new_plant() as plant:
        plant.worker("celery,quick", "-E", "-B", "-s", str(tmp_path / "beat"), processes=1)
        plant.relay()
        seen = events_until(plant, {TASK, OTHER})
        assert {"task-received", "task-started", "task-succeeded"} <= seen[TASK]
        plant.wait_until_completed("watched")
        inspect = plant.celery.control.inspect(timeout=10)
        (registered,) = inspect.registered().values()
        assert TASK in registered
        assert list(inspect.scheduled().values()) == [[]], "timers are rows, not messages with an ETA"


def flower(plant: Plant) -> Callable[[str], Any]:
    """Start Flower beside the plant. Returns what asks its API; None as long as it gives no answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {**plant.environment(), "FLOWER_UNAUTHENTICATED_API": "true"}
    words = ("-m", "celery", "-A", "tests.relay.celery_app", "flower", "--address=127.0.0.1", f"--port={port}")
    started = plant.processes.python(*words, name="flower", env=told, cwd=ROOT)

    def ask(path: str) -> Any:
        assert started.poll() is None, started.output()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=10) as answer:
                return json.load(answer)
        except urllib.error.URLError:
            return None

    return ask


@pytest.mark.full
def test_under_flower(new_plant: PlantMaker) -> None:
    """The real Flower shows our worker with its queues, our task among what it has, and that it succeeded."""
    pytest.importorskip("flower", reason="NOT RUN: Flower is not installed")
    with new_plant() as plant:
        ask = flower(plant)
        plant.worker("celery,quick", "-E", processes=1)
        plant.relay()
        wait_until(lambda: ask("workers?refresh=1"), "Flower sees the worker")
        plant.start("watched")
        plant.wait_until_completed("watched")
        seen = wait_until(
            lambda: ask(f"tasks?taskname={TASK}&state=SUCCESS"), "Flower has seen a message of the relay succeed"
        )
        assert {task["name"] for task in seen.values()} == {TASK}
        (worker,) = ask("workers").values()
        assert TASK in worker["registered"]
        assert {queue["name"] for queue in worker["active_queues"]} == {"celery", "quick"}
