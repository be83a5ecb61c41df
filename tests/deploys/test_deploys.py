"""A deploy loses nothing, does nothing twice, and fails nothing: old and new code side by side, real processes."""

from __future__ import annotations

import pytest

from tests.deploys.app.newer import BuyInsured
from tests.deploys.app.sagas import Buy
from tests.deploys.scene import Scene
from tests.relay.plant import wait_until

ADDED = """
alter table sagas_saga add column colour text;
alter table sagas_outbox add column colour text;
alter table sagas_log add column colour text;
alter table sagas_dedupe add column colour text;
create table sagas_colour (name text primary key);
create function sagas_start_v9(request json) returns json language sql as $$ select sagas_start_v1(request) $$;
"""


def test_a_rolling_deploy(scene: Scene) -> None:
    """Tables first, then workers, then the application, while somebody buys: old workers go on with new tables, sagas
    that old code has started are ended by new code, and those of the new version by whoever knows it."""
    scene.relay()
    old = scene.work()
    with scene.stream(Buy, "old") as keys:
        scene.more(keys, 3)
        scene.connection.execute(ADDED)
        scene.more(keys, 3)
        scene.code = "new"
        scene.work()
        scene.leave(old)
        scene.more(keys, 3)
    scene.buy("new-1", "new-2", saga=BuyInsured)
    scene.check(*keys, "new-1", "new-2")


@pytest.mark.full
def test_a_rolling_restart_under_load(scene: Scene) -> None:
    """Two relays and three workers are replaced one by one, while old and new sagas are started all the time."""
    relays, workers = [scene.relay() for _ in range(2)], [scene.work() for _ in range(3)]
    with scene.stream(Buy, "old") as old_keys:
        scene.more(old_keys)
        scene.connection.execute(ADDED)
        scene.code = "new"
        for worker in workers[:1]:
            scene.leave(worker)
            workers.append(scene.work())
        with scene.stream(BuyInsured, "new") as new_keys:  # too early: two workers do not know it yet
            scene.more(old_keys)
            for relay in relays:
                scene.leave(relay)
                scene.relay()
                scene.more(old_keys, 5)
            for worker in workers[1:3]:
                scene.leave(worker)
                scene.work()
                scene.more(old_keys, 5)
            scene.more(new_keys)
    scene.check(*old_keys, *new_keys)


@pytest.mark.full
def test_everything_is_stopped_and_started(scene: Scene) -> None:
    """A deploy that stops all relays and workers at once, under load, is a pause."""
    processes = [scene.relay(), scene.work(), scene.work()]
    with scene.stream(Buy, "old") as keys:
        scene.more(keys)
        for process in processes:
            scene.leave(process)
        bought = len(keys)
        wait_until(lambda: len(keys) >= bought + 20, "the application to go on")
        scene.code = "new"
        scene.relay()
        scene.work()
        scene.more(keys)
    scene.check(*keys)


@pytest.mark.full
def test_restored_while_workers_run(scene: Scene) -> None:
    """After a failover that nobody was asked about it is said while relays and workers are at work already: what they
    are about to record is kept, and nothing is lost or done twice."""
    scene.relay()
    scene.work()
    with scene.stream(Buy, "a") as keys:
        for _ in range(3):
            scene.more(keys, 5)
            assert scene.json("restored", "--reason", "failover")["ok"]
        scene.more(keys, 5)
    scene.check(*keys)


@pytest.mark.full
def test_new_sagas_wait_for_new_workers(scene: Scene) -> None:
    """The application came first: what old workers do not know they give back, and nothing of it fails."""
    scene.relay()
    old = scene.work()
    scene.buy("new-1", "new-2", saga=BuyInsured)
    old.wait_for_output("deploys.buy", 60)  # it says what it does not know
    scene.buy("old-1", saga=Buy)
    scene.wait_until_completed("old-1")
    assert {scene.status("new-1"), scene.status("new-2")} == {"running"}
    scene.code = "new"
    scene.work()
    scene.check("new-1", "new-2", "old-1")


@pytest.mark.full
def test_draining_a_version_and_a_queue(scene: Scene) -> None:
    """What is held up by a paused queue is what `drain` counts; when it goes on, the version is drained, and its class
    may go: workers of a code without it have nothing to wait for."""
    scene.code = "new"
    scene.relay()
    scene.work()
    assert scene.json("pause-queue", "parcels", "--reason", "the carrier moves")["ok"]
    keys = [f"old-{number}" for number in range(10)]
    scene.buy(*keys, saga=Buy)
    noted = "select count(*) from sagas_log where kind = 'step_done' and step = 'note'"
    wait_until(lambda: scene.value(noted) == len(keys), "all to come to the paused queue")
    left = scene.json("drain", "deploys.buy", "1")
    assert not left["ok"]
    assert left["error"].startswith("10 sagas of deploys.buy version 1 are open")
    assert scene.parcels() == {}
    scene.buy("new-1", saga=BuyInsured)
    assert scene.json("resume-queue", "parcels")["ok"]
    assert scene.json("drain", "deploys.buy", "1", "--wait", "60")["ok"]
    scene.check(*keys, "new-1")
