"""`ContinueAs`: a saga that goes on for long does so in runs, each with a short log of its own."""

from __future__ import annotations

import json
import logging

import pytest
from django.db import connection, transaction

from sagas import DefinitionError, KeyConflict, OnExisting, Saga, external_step, step
from sagas.engine import SagaRun
from sagas.outcome import ContinueAs
from sagas.rebuild import rebuild
from sagas.states import Status
from sagas_django.models import LogEntry, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.going_on import Poll, Subscription
from tests.shop.sagas import THRICE, Ordered
from tests.shop.waiting import Review
from tests.shop.world import World
from tests.shop.world import world as world_of_all
from tests.support.stories import begin, bring_forward, drain, entries, expire_leases, log_of, outbox
from tests.support.waiting import ask
from tests.support.workers import begin_due, one_worker, run_batch, run_together

pytestmark = pytest.mark.usefixtures("shop")


def test_each_run_completes_and_the_next_begins_with_the_new_input(world: World) -> None:
    """One key, one run after another; each log says which saga it goes on in."""
    first = begin(Poll)
    drain()
    runs = list(SagaRow.objects.filter(name="test.poll").order_by("run"))
    assert [(row.run, row.status, row.key) for row in runs] == [(n, "completed", "a") for n in (1, 2, 3, 4)]
    assert [call.argument for call in world.calls] == [0, 1, 2, 3]
    assert Poll.get(key="a").run == 4
    ends = LogEntry.objects.filter(kind="completed").order_by("saga_id")
    assert [end.data.get("continued") for end in ends] == [*(str(row.pk) for row in runs[1:]), None]
    assert first.id == runs[0].pk
    assert not outbox(first)


def test_a_step_that_is_recorded_twice_starts_one_run(world: World) -> None:
    """The next run exists exactly when the step's answer does."""
    begin(Poll)
    run_together()  # look
    run_together()  # again, and the start of the second run
    assert SagaRow.objects.filter(name="test.poll").count() == 2
    assert LogEntry.objects.filter(kind="started").count() == 2


def test_signals_nobody_waited_for_go_over_to_the_next_run(world: World) -> None:
    """Three renewals sent at once are taken by three runs, in order, although only the first existed then."""
    begin(Subscription)
    with transaction.atomic():
        for note in ("jan", "feb", "mar"):
            Subscription.renewal.send(Review(True, note), key="a")
    drain()
    assert [call.argument for call in world.calls] == ["jan", "feb", "mar"]
    run = Subscription.get(key="a")
    assert (run.run, run.status) == (4, Status.RUNNING)
    (row,) = outbox(run)
    assert (row.step, row.holder) == ("renewal", None)


def test_only_the_last_step_may_go_on() -> None:
    """Anything else would leave steps that nobody runs; the class says so when it is created."""
    with pytest.raises(DefinitionError, match="only the last step may return ContinueAs"):

        class Wrong(Saga[Ordered], name="test.wrong_continue", version=1):
            @step(compensate=None)
            def one(self) -> ContinueAs:
                return ContinueAs(self.input)

            @step(compensate=None)
            def two(self) -> None: ...


def test_nothing_runs_beside_a_step_that_goes_on() -> None:
    """The run would end with the other one, and nobody would go on from it."""
    with pytest.raises(DefinitionError, match="it may return ContinueAs while one may still run beside it"):

        class Wrong(Saga[Ordered], name="test.wrong_beside", version=1):
            @step(compensate=None)
            def one(self) -> None: ...

            @step(compensate=None, after=[])
            def two(self) -> ContinueAs:
                return ContinueAs(self.input)


def test_a_signal_that_races_the_end_of_a_run_reaches_the_next(world: World) -> None:
    """It was begun for a run that ended, in another process, before it could be recorded there."""
    begin(Subscription)
    with transaction.atomic():
        Subscription.renewal.send(Review(True, "jan"), key="a")
    run_together()  # the signal: it is taken at once
    with transaction.atomic():
        Subscription.renewal.send(Review(True, "feb"), key="a")
    with one_worker() as worker:
        begun = begin_due(worker)
        (signal,) = [each for each in begun if each.kind == "signal"]
        for _ in range(4):
            run_batch(worker, [each for each in begun if each is not signal])
            bring_forward()
            begun = begin_due(worker)
        assert Subscription.get(key="a").run == 2
        run_batch(worker, [*begun, signal])
    drain()
    assert [call.argument for call in world.calls] == ["jan", "feb"]


@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "begun"])
def test_a_cancel_that_races_the_end_of_a_run_reaches_the_next(begun: bool, world: World) -> None:
    """It was asked of a run whose last step was at work, so no further run is paid for."""
    begin(Poll)
    run_together()  # look
    with one_worker() as worker:
        ending = begin_due(worker)
        Poll.cancel(key="a", reason="enough")
        requests = begin_due(worker) if begun else []
        run_batch(worker, ending)
        assert Poll.get(key="a").run == 2
        assert [each.kind for each in requests] == ["cancel"] * begun
        run_batch(worker, requests)
    run_together()  # of the next run nothing begins beside it
    assert len(world.calls) == 1
    drain()
    run = Poll.get(key="a")
    assert (run.run, run.status, len(world.calls)) == (2, Status.CANCELLED, 1)
    assert log_of(run)[:2] == ["started", "cancel_requested"]


def test_a_cancel_that_saw_a_run_which_has_ended_since_stops_the_next(world: World) -> None:
    """Its transaction was open meanwhile: the worker goes on with no further step of the run that is there by then."""
    first = begin(Poll)
    with one_worker(goes_on=True) as worker:
        run_batch(worker, begin_due(worker))
        assert Poll.get(key="a").run == 2
        looking = begin_due(worker)
        _ask_as_seen(first, "cancel")
        run_batch(worker, looking)
    run = Poll.get(key="a")
    assert (run.run, len(world.calls)) == (2, 2)
    drain()
    run = Poll.get(key="a")
    assert (run.run, run.status, len(world.calls)) == (2, Status.CANCELLED, 2)


def test_a_pause_and_a_resume_that_race_the_end_of_a_run(world: World) -> None:
    """Both reach the next run, in the order in which they were asked for."""
    begin(Poll)
    run_together()  # look
    with one_worker() as worker:
        ending = begin_due(worker)
        ask("pause", Poll.get(key="a"))
        ask("resume", Poll.get(key="a"))
        ask("pause", Poll.get(key="a"))
        run_batch(worker, ending)
    drain()
    run = Poll.get(key="a")
    assert (run.run, run.paused, len(world.calls)) == (2, True, 1)
    assert log_of(run) == ["started", "paused", "resumed", "paused"]


def test_what_goes_on_from_a_paused_saga_is_paused(world: World) -> None:
    """The last step was at work when the pause was applied: it is recorded, and nothing of the next run begins."""
    first = begin(Poll)
    run_together()  # look
    with one_worker() as worker:
        ending = begin_due(worker)
        ask("pause", first, reason="look at this first")
        run_batch(worker, begin_due(worker))
        run_batch(worker, ending)
    drain()
    run = Poll.get(key="a")
    assert (run.run, run.paused, len(world.calls)) == (2, True, 1)
    assert str(first.id) in entries(run)[1].data["reason"]
    ask("resume", run)
    drain()
    assert (Poll.get(key="a").run, len(world.calls)) == (4, 4)


def test_a_resume_that_races_the_end_of_a_paused_run_is_not_undone(world: World) -> None:
    """It was asked for before the next run inherited the pause, and commits after that: it has the last word."""
    first = begin(Poll)
    run_together()  # look
    with one_worker() as worker, DjangoStore("default").connect() as operator:
        ending = begin_due(worker)
        ask("pause", first)
        run_batch(worker, begin_due(worker))
        with operator.transaction():
            operator.execute("select sagas_request_v1(%s)", [_request(first, "resume")])
            run_batch(worker, ending)
    second = Poll.get(key="a")
    drain()
    assert log_of(second)[:3] == ["started", "paused", "resumed"]
    assert (second.run, Poll.get(key="a").run, len(world.calls)) == (2, 4, 4)


def test_a_cancel_of_a_run_that_has_ended_is_of_that_run_only(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """By its id, when another had gone on from it: nothing is undone, and the log of the worker says so."""
    first = begin(Subscription)
    _send("jan")
    drain()
    with caplog.at_level(logging.WARNING, "sagas.worker"):
        Subscription.cancel(id=first.id, reason="too late")
        drain()
    run = Subscription.get(key="a")
    assert (run.run, run.status) == (2, Status.RUNNING)
    assert f"{first.id}" in caplog.text and "the saga has ended, the cancel comes too late" in caplog.text


def test_a_cancel_does_not_reach_a_saga_that_was_started_anew(world: World) -> None:
    """That has the same key, and is none of the runs that went on from the one which was to be cancelled."""
    first = begin(Poll)
    run_together()  # look
    run_together()  # again, and the start of the second run
    Poll.cancel(key="a", reason="enough")
    drain()
    _ask_as_seen(first, "cancel")  # looked at while it ran, and committed only now
    with transaction.atomic():
        run = Poll.start(Ordered(), key="a", on_existing=OnExisting.NEW_IF_COMPENSATED)
    drain()
    assert run.run == 3
    assert Poll.get(id=run.id).status == Status.COMPLETED


def test_the_same_start_again_finds_the_saga_that_goes_on(world: World) -> None:
    """However far it has come: `start()` with the input it was first given is still the same start."""
    first = begin(Poll)
    drain()
    again = begin(Poll)
    assert (again.created, again.run) == (False, 4)
    with pytest.raises(KeyConflict):
        begin(Poll, input=Ordered(99))
    with DjangoStore("default").connect() as another:
        another.execute("delete from sagas_saga where run > 1")
        assert all(not each.problem for each in rebuild(another))
    assert begin(Poll).run == 4
    assert first.created


def test_a_signal_that_was_carried_over_comes_before_one_that_is_still_on_its_way(world: World) -> None:
    """Two were sent, the first was heard by the run that ended: the next run takes that one first."""
    begin(Subscription)
    _send("jan")
    run_together()
    with one_worker() as worker:
        _send("feb")
        run_batch(worker, begin_due(worker))  # it is heard, and not needed
        bring_forward()
        ending = begin_due(worker)
        _send("mar")
        run_batch(worker, ending)
    assert Subscription.get(key="a").run == 2
    drain()
    assert [call.argument for call in world.calls] == ["jan", "feb", "mar"]


def test_an_answer_that_came_too_late_to_be_recorded_does_not_end_the_line(world: World) -> None:
    """The dedupe table cannot say that another run has to follow, so whoever takes over asks the body again."""
    begin(Subscription)
    _send("jan")
    run_together()
    with one_worker() as frozen, one_worker() as heir:
        begun = begin_due(frozen)
        assert [each.attempt and each.attempt.step for each in begun] == ["again"]
        expire_leases()
        assert begin_due(heir)
        run_batch(frozen, begun)
    expire_leases()
    drain()
    run = Subscription.get(key="a")
    assert (run.run, run.status) == (2, Status.RUNNING)
    assert len({call.key for call in world.calls}) == 1


class AskedPoll(Saga[Ordered], name="test.asked_poll", version=1):
    """Its one step can be asked about."""

    @external_step(retry=THRICE, compensate=None)
    def again(self) -> str | ContinueAs:
        world_of_all.act("again", self, self.input.number)
        return "enough" if self.input.number else ContinueAs(Ordered(1))

    @again.resolve
    def found(self) -> str | ContinueAs:
        return ContinueAs(Ordered(1))


def test_resolve_may_say_that_another_run_has_to_follow(world: World) -> None:
    """The answer was lost: what `resolve` says counts as if the body had returned it."""
    world.plan("again", ConnectionError("no reply"))
    begin(AskedPoll)
    drain()
    run = AskedPoll.get(key="a")
    assert (run.run, run.status) == (2, Status.COMPLETED)
    assert [call.argument for call in world.calls] == [0, 1]


def _ask_as_seen(run: SagaRun, kind: str) -> None:
    """Commit a request of a transaction that has seen this run, and not what became of it since."""
    with connection.cursor() as cursor:
        cursor.execute("select sagas_request_v1(%s)", [_request(run, kind)])


def _request(run: SagaRun, kind: str) -> str:
    return json.dumps({"id": str(run.id), "kind": kind, "queue": "default", "payload": {"reason": "a test"}})


def _send(note: str) -> None:
    with transaction.atomic():
        Subscription.renewal.send(Review(True, note), key="a")
