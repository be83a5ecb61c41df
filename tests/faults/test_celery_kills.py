"""The same over relay, Redis and Celery: relays and pool children are killed; the broker is only a hint."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest

from sagas import Saga
from sagas.points import Point
from sagas.testing.processes import Process
from sagas.testing.servers import Redis
from tests.faults.app.sagas import AskedOrder, KeyedOrder, Ordered, parcel
from tests.faults.conftest import SceneMaker
from tests.faults.sampling import sampled
from tests.faults.scenario import BACK, LOCAL, QUEUES, Scenario
from tests.faults.scene import ROOT, Scene, drain, kill
from tests.faults.sight import Row, View, wait_until

CHILD_POINTS = (
    Point.AFTER_BEGIN, Point.BEFORE_BODY, Point.AFTER_BODY, Point.BEFORE_RECORD, Point.AFTER_RECORD
)  # fmt: skip
LOSSES = len(CHILD_POINTS) - 1  # what is killed after the record is not lost


@dataclass(frozen=True, kw_only=True)
class Children:
    """The pool child at one piece of work is killed at each point in turn."""

    saga: type[Saga[Ordered]]
    work: str

    def __str__(self) -> str:
        return f"children-{self.saga.__name__}-{self.work}"

    def expected(self) -> Scenario:
        """What this would be as a kill of an embedded worker after the record."""
        back = self.work not in BACK[:3]
        return Scenario(saga=self.saga, back=back, work=self.work, place=Point.AFTER_RECORD)


@dataclass(frozen=True, kw_only=True)
class Relays:
    """A relay is killed after it claimed, and another after it published, before each piece of work."""

    wiped: bool = False  # then the broker forgets everything, and a third one publishes again

    def __str__(self) -> str:
        return "relays-wiped" if self.wiped else "relays"


@dataclass(frozen=True, kw_only=True)
class Between:
    """All steps but the first are in one queue, and the pool child is killed between them."""

    back: bool

    def __str__(self) -> str:
        return f"between-{'back' if self.back else 'forward'}"


AnyKill = Children | Relays | Between


def _always(case: tuple[AnyKill]) -> bool:
    """Those that are unlike any other; kills of relays in short are in tests/relay."""
    if isinstance(case[0], Children):
        return case[0].saga is KeyedOrder and case[0].work == "charge:undo"
    return isinstance(case[0], Between) and not case[0].back


SCENARIOS: list[AnyKill] = [
    Relays(),
    Relays(wiped=True),
    Between(back=False),
    Between(back=True),
    *(Children(saga=KeyedOrder, work=work) for work in ("reserve:do", "charge:do", "charge:undo", "reserve:undo")),
    *(Children(saga=AskedOrder, work=work) for work in ("charge:do", "ship:do")),
]
CASES = sampled("test_celery_kill", "kills beside Celery", [(each,) for each in SCENARIOS], 0, always=_always)


@pytest.mark.parametrize("scenario", CASES, ids=str)
def test_celery_kill(scenario: AnyKill, redis_server: Redis, outcome: Future[None]) -> None:
    """Whoever is killed: each step once in the log, each effect once at the bank, nothing left over."""
    outcome.result()


def play(scenario: AnyKill, new_scene: SceneMaker, redis_server: Redis) -> None:
    match scenario:
        case Children():
            _kill_children(scenario, new_scene, redis_server)
        case Relays():
            _kill_relays(scenario.wiped, new_scene, redis_server)
        case Between():
            _kill_between(scenario.back, new_scene, redis_server)


# --- pool children ---


def _kill_children(scenario: Children, new_scene: SceneMaker, redis: Redis) -> None:
    expected = scenario.expected()
    with _celery_scene(new_scene, scenario.saga, redis, FAULTS_PUBLISH_WINDOW="10") as scene:
        if expected.back:
            scene.bank.script({"fault": "refuse", "order": parcel(scene.order)})
        if expected.asked:
            for order in (scene.order, parcel(scene.order)):
                scene.bank.script({"fault": "ignore_keys", "order": order})
        scene.start()
        celery = _celery(scene, fault=" ".join(f"{point}@{scenario.work}:pause" for point in CHILD_POINTS))
        celery.wait_for_output("ready.")
        relay = _relay(scene)
        for losses, point in enumerate(CHILD_POINTS):
            hit = scene.wait_for_hit(celery, losses)
            assert hit.pid != celery.pid
            if point is Point.AFTER_RECORD:
                _look_after_record(scene, expected)
                kill(hit.pid, celery)
                _look_after_record(scene, expected)
            else:
                view = _lost(expected, losses)
                assert scene.view() == view
                kill(hit.pid, celery)
                assert scene.view() == view
        scene.wait_until_ended()
        _compare(scene, expected, attempts=LOSSES + (not _asked(expected)), seen=1 if _asked(expected) else 3)
        drain(relay)
        drain(celery, "ready.")


def _asked(expected: Scenario) -> bool:
    return expected.asked and expected.work.endswith(":do") and expected.work not in LOCAL


def _lost(expected: Scenario, losses: int) -> View:
    """Begun once more, taken over `losses` times: each take-over and each begin brings a new token."""
    before = replace(expected, place=Point.BEFORE_BODY)
    position = before.recorded
    row = Row(work=expected.work, holder="worker", token=2 * position + 1 + 2 * losses, deliveries=1 + losses)
    return replace(before.at_death(), outbox=[row])


def _look_after_record(scene: Scene, expected: Scenario) -> None:
    """What comes next is free, or published by now; no child is there to begin it."""
    view, wanted = scene.view(), expected.at_death()
    assert [(row.work, row.deliveries) for row in view.outbox] == [(row.work, 0) for row in wanted.outbox]
    assert all(row.holder in ("", "relay") for row in view.outbox)
    assert _plain(view, expected.work) == _plain(wanted, expected.work)


def _plain(view: View, work: str) -> View:
    """Without the outbox, and without who answered for the work that was hurt and at which attempt."""
    step, _, direction = work.partition(":")
    kinds = ("undo_done",) if direction == "undo" else ("step_done", "step_not_done")
    log = [
        replace(line, attempt=0, source="") if line.step == step and line.kind in kinds else line for line in view.log
    ]
    return replace(view, outbox=[], log=log)


def _compare(scene: Scene, expected: Scenario, *, attempts: int, seen: int) -> None:
    view, wanted = scene.view(), replace(expected, place=Point.AFTER_BEGIN).at_end()  # the next step is not hurt
    assert view.outbox == []
    assert _plain(view, expected.work) == _plain(wanted, expected.work)
    hurt = next(line for line, plain in zip(view.log, _plain(view, expected.work).log, strict=True) if line != plain)
    assert (hurt.attempt, hurt.source) == (attempts, "resolve" if _asked(expected) else "body")
    assert scene.findings() == []
    assert scene.money() == expected.money()
    requests = {work: 1 for work in expected.chain if work not in LOCAL}
    assert scene.seen() == requests | ({expected.work: seen} if expected.work in requests else {})


def _kill_between(back: bool, new_scene: SceneMaker, redis: Redis) -> None:
    # Each begin and each record brings a new token, and so does each take-over of a lost one.
    kills = [("charge:undo", 5), ("reserve:undo", 8)] if back else [("ship:do", 4)]
    with _celery_scene(new_scene, KeyedOrder, redis, FAULTS_PUBLISH_WINDOW="10", FAULTS_ONE_QUEUE="all") as scene:
        if back:
            scene.bank.script({"fault": "refuse", "order": parcel(scene.order)})
        scene.start()
        celery = _celery(scene, fault=" ".join(f"{Point.BETWEEN_STEPS}@{work}:pause" for work, _ in kills))
        celery.wait_for_output("ready.")
        relay = _relay(scene)
        for number, (work, token) in enumerate(kills):
            hit = scene.wait_for_hit(celery, number)
            now = Scenario(saga=KeyedOrder, back=back, work=work, place=Point.BETWEEN_STEPS)
            view = scene.view()
            assert view.outbox == [Row(work=work, holder="worker", token=token, deliveries=1)]
            assert scene.kinds() == [(line.kind, line.step) for line in now.at_death().log]
            kill(hit.pid, celery)
            assert scene.view() == view
        scene.wait_until_ended()
        view = scene.view()
        assert scene.kinds() == [(line.kind, line.step) for line in now.at_end().log]
        assert sum(line.attempt - 1 for line in view.log if line.attempt) == len(kills), "a kill is an attempt"
        assert scene.findings() == []
        assert scene.money() == now.money()
        assert set(scene.seen().values()) == {1}
        drain(relay)
        drain(celery, "ready.")


# --- relays ---


def _kill_relays(wiped: bool, new_scene: SceneMaker, redis: Redis) -> None:
    with _celery_scene(new_scene, KeyedOrder, redis, FAULTS_PUBLISH_WINDOW="0.3") as scene:
        scene.bank.script({"fault": "refuse", "order": parcel(scene.order)})
        scene.start()
        celery = _celery(scene)
        celery.wait_for_output("ready.")
        for position, work in enumerate(BACK):
            celery.pause()
            deaths = [(Point.AFTER_CLAIM, 0), (Point.AFTER_PUBLISH, 1)] + [(Point.AFTER_PUBLISH, 1)] * wiped
            now = Scenario(saga=KeyedOrder, back=True, work=work, place=Point.AFTER_BEGIN)
            for publishes, (point, in_broker) in enumerate(deaths, 1):
                if publishes > 2:
                    _wipe(scene, redis)
                relay = _relay(scene, fault=f"{point}:pause")
                hit = scene.wait_for_hit(relay)
                row = Row(work=work, holder="relay", token=2 * position, deliveries=0, publishes=publishes)
                view = replace(now.at_death(), outbox=[row])
                assert scene.view() == view
                kill(hit.pid, relay)
                assert scene.view() == view
                # published, it waits in the broker, or in the socket of the frozen worker that had asked for one
                assert _messages(scene, redis, QUEUES[work]) <= in_broker
            celery.resume()
            wait_until(partial(_is_recorded, scene, now), f"{work} to be recorded")
        scene.wait_until_ended()
        end = replace(now, work=BACK[-1], place=Point.AFTER_RECORD)
        assert scene.view() == end.at_end()
        assert scene.findings() == []
        assert scene.money() == end.money()
        assert scene.seen() == end.seen_by_bank()
        drain(celery, "ready.")


def _is_recorded(scene: Scene, now: Scenario) -> bool:
    return len(scene.kinds()) > len(now.at_death().log)


def _wipe(scene: Scene, redis: Redis) -> None:
    """Everything that Redis holds of this scene is gone; it is shared, so no FLUSHALL."""
    forget = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end return 'gone'"
    assert "gone" in redis.command("EVAL", forget, "0", scene.settings["FAULTS_PREFIX"] + "*")


def _messages(scene: Scene, redis: Redis, queue: str) -> int:
    return int(redis.command("LLEN", scene.settings["FAULTS_PREFIX"] + queue).removeprefix(":"))


# --- processes ---


@contextmanager
def _celery_scene(
    new_scene: SceneMaker, saga: type[Saga[Ordered]], redis: Redis, **settings: str
) -> Iterator[Scene]:  # fmt: skip
    with new_scene(saga, REDIS_URL=redis.url, **settings) as scene:
        scene.settings["FAULTS_PREFIX"] = f"{scene.order}:"
        yield scene


def _celery(scene: Scene, fault: str | None = None) -> Process:
    options = ("--concurrency=1", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=INFO")
    return scene.processes.python(
        "-m", "celery", "-A", "tests.faults.celery_app", "worker", *options, "-Q", ",".join([*QUEUES.values(), "all"]),
        name="celery", env=scene.environment(fault), cwd=ROOT,
    )  # fmt: skip


def _relay(scene: Scene, fault: str | None = None) -> Process:
    return scene.command("sagas", "relay", "--app=tests.faults.celery_app", name="relay", fault=fault)
