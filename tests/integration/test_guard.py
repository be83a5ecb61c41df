"""Unknown outcomes: asked about first, tried again under the same key, undone as unknown, or parked for a person."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from sagas import NOT_DONE, UNKNOWN, LeaseLost, Refused, Undecided
from sagas.states import Status
from sagas_django.models import DedupeRecord, SagaRow
from tests.shop.sagas import Asked, AskedPivot, Blind, BlindAsked, Charge, Local, Picky, UndoAsked
from tests.shop.world import World
from tests.support.stories import (
    NO_WAIT,
    begin,
    bring_forward,
    dedupe,
    drain,
    entries,
    expire_leases,
    log_of,
    outbox,
    second_connection,
)
from tests.support.workers import begin_due, one_worker, run_together

pytestmark = pytest.mark.usefixtures("shop")

LOST = ConnectionError("no reply")
SETTLED = timedelta(seconds=90)  # longer than `settle_after`, shorter than nothing else


def worker_dies(times: int = 1) -> None:
    """Workers begin what is due and are never heard of again."""
    for _ in range(times):
        with one_worker() as worker:
            assert begin_due(worker)
        expire_leases()


# --- asking first ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("died", [True, False])
def test_resolve_finds_the_result(world: World, died: bool) -> None:
    """An attempt that raised, or whose worker died, is asked about before anything is tried again."""
    world.plan("charge", LOST)
    world.plan("find", "charge-7")
    run = begin(Asked)
    if died:
        worker_dies()
    drain()
    assert world.names == (["find"] if died else ["charge", "find"])
    saga = Asked.get(key="a")
    assert saga.status == Status.COMPLETED
    done = next(entry for entry in entries(run) if entry.kind == "step_done")
    assert (done.data["result"], done.data["source"]) == ("charge-7", "resolve")
    assert saga.steps is not None and not saga.steps["charge"].do.unknown


def test_resolve_is_asked_under_the_key_of_the_attempt(world: World) -> None:
    """`resolve` sees the idempotency key that the attempt used."""
    world.plan("charge", LOST)
    begin(Asked)
    drain()
    assert len({call.key for call in world.calls}) == 1
    assert world.names == ["charge", "find"]


def test_not_done_is_tried_again(world: World) -> None:
    """`NOT_DONE`: the step runs again, under the same key."""
    world.plan("charge", LOST)
    world.plan("find", NOT_DONE)
    begin(Asked)
    drain()
    assert world.names == ["charge", "find", "charge"]
    assert (Asked.get(key="a").status, len({call.key for call in world.calls})) == (Status.COMPLETED, 1)


def test_not_done_after_the_last_attempt_turns_back(world: World) -> None:
    """Used up, and nothing happened: nothing to undo; what was ever unknown is asked about once more, later."""
    world.always("charge", LOST)
    world.always("find", NOT_DONE)
    run = begin(Asked)
    drain()
    assert world.count() == {"charge": 3, "find": 3}
    assert log_of(run)[-2:] == ["compensating charge", "settling"]
    drain(skip=SETTLED)
    assert log_of(run)[-2:] == ["settle_done charge", "compensated"]
    assert world.count() == {"charge": 3, "find": 4}


@pytest.mark.parametrize("answer", [Undecided("still booking"), TimeoutError("the bank is down")])
def test_undecided_is_asked_again(world: World, answer: Exception) -> None:
    """`Undecided`, or an error in `resolve`: asked again after the step's backoff; the body does not run meanwhile."""
    world.plan("charge", LOST)
    world.plan("find", answer, answer, "charge-7")
    run = begin(Asked)
    drain()
    assert world.names == ["charge", "find", "find", "find"]
    assert log_of(run)[1:] == [
        "step_failed charge", "step_undecided charge", "step_undecided charge", "step_done charge", "completed"
    ]  # fmt: skip


def test_cannot_tell_is_tried_again_then_parks(world: World) -> None:
    """Asked as often as `Retry` says, then tried again; when nothing is left a person decides."""
    world.always("charge", LOST)
    world.always("find", Undecided())
    begin(Asked)
    drain()
    assert world.names == (["charge"] + ["find"] * 3) * 3
    saga = Asked.get(key="a")
    assert (saga.status, saga.error) == (Status.PARKED, "its outcome is unknown, and no further attempt may begin")
    assert saga.steps is not None and saga.steps["charge"].do.unknown
    world.reset()
    world.plan("find", "charge-7")
    call_command("sagas", "retry", "test.asked:a", reason="asked by phone")
    drain()
    assert (Asked.get(key="a").status, world.names) == (Status.COMPLETED, ["find"])


def test_a_resolve_that_returns_nonsense_parks(world: World) -> None:
    """An answer that cannot be stored says that it happened: no second charge, no blind undo."""
    world.plan("charge", LOST)
    world.plan("find", "a\x00b")
    begin(Asked)
    drain()
    assert (Asked.get(key="a").status, world.names) == (Status.PARKED, ["charge", "find"])


def test_a_dead_worker_of_a_local_step_leaves_no_doubt(world: World) -> None:
    """Its transaction was rolled back: it simply runs again."""
    run = begin(Local)
    worker_dies()
    drain()
    assert (log_of(run), world.names) == (["started", "step_done body", "completed"], ["body"])


def test_without_resolve_it_is_tried_again_under_the_same_key(world: World) -> None:
    """The other side tells repetitions apart by the key, in every attempt, process and retry."""
    world.plan("charge", LOST)
    run = begin(Charge)
    worker_dies()
    drain()
    assert [call.key for call in world.of("charge")] == [f"{run.id}:charge:do:0"] * 2


def test_deaths_count_as_attempts(world: World) -> None:
    """`max_attempts` bounds begun bodies however they ended; unknown and used up parks."""
    begin(Charge)
    drain_book()
    worker_dies(3)
    drain()
    saga = Charge.get(key="a")
    assert (saga.status, world.names) == (Status.PARKED, [])
    assert saga.steps is not None and saga.steps["charge"].do.unknown


def drain_book() -> None:
    """Run the local first step of `Charge`, and nothing else."""
    run_together()
    bring_forward()


def test_a_step_that_kills_its_workers_parks(world: World) -> None:
    """`max_deliveries`, also of a local step; its neighbours are not blamed."""
    begin(Local)
    begin(Asked, "b")
    worker_dies(5)
    drain()
    assert (Local.get(key="a").status, Local.get(key="a").error) == (Status.PARKED, "5 workers died over it")
    assert Asked.get(key="b").status == Status.PARKED
    call_command("sagas", "retry", "test.local:a", reason="more memory")
    drain()
    assert Local.get(key="a").status == Status.COMPLETED


def test_deaths_are_no_failures(world: World) -> None:
    """Crashes and failures are counted apart: a death costs no backoff and no failure."""
    run = begin(Asked)
    worker_dies()
    [row] = outbox(run)
    assert (row.deliveries, row.failures) == (1, 0)
    drain(skip=NO_WAIT)
    assert Asked.get(key="a").status == Status.COMPLETED


# --- limits ----------------------------------------------------------------------------------------------------


def test_no_retry_after_key_ttl(world: World) -> None:
    """Once the other side may have forgotten the key no attempt begins, however many are left."""
    world.plan("there", KeyError("no reply"))
    run = begin(Picky)
    drain(skip=NO_WAIT)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set first_begun_at = first_begun_at - interval '30 seconds'")
    drain()
    assert (Picky.get(id=run.id).status, world.count()["there"]) == (Status.PARKED, 1)


def test_within_key_ttl_it_is_tried_again(world: World) -> None:
    """The control of the test above."""
    world.plan("there", KeyError("no reply"))
    run = begin(Picky)
    drain(skip=NO_WAIT)
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set first_begun_at = first_begun_at - interval '10 seconds'")
    drain()
    assert (Picky.get(id=run.id).status, world.count()["there"]) == (Status.COMPLETED, 2)


# --- refused, pivot --------------------------------------------------------------------------------------------


def test_refused_after_an_unknown_attempt_is_unknown(world: World) -> None:
    """`Refused` speaks of its own attempt only: an earlier one may have happened, so it is asked about."""
    world.plan("charge", LOST, Refused("already used"))
    world.plan("find", NOT_DONE, "charge-7")
    begin(Asked)
    drain()
    assert world.names == ["charge", "find", "charge", "find"]
    assert Asked.get(key="a").status == Status.COMPLETED


def test_refused_after_an_unknown_attempt_without_resolve_parks(world: World) -> None:
    """Nobody can be asked and the undo needs a result: a person decides."""
    world.plan("charge", LOST, Refused("already used"))
    begin(Charge)
    drain()
    assert (Charge.get(key="a").status, world.count()) == (Status.PARKED, {"charge": 2})


def test_an_unknown_pivot_is_never_undone(world: World) -> None:
    """Asked, tried again under the same key, and then parked: neither skipped nor undone."""
    world.always("ship", LOST)
    world.always("find", Undecided())
    begin(AskedPivot)
    drain()
    assert AskedPivot.get(key="a").status == Status.PARKED
    assert world.count() == {"ship": 3, "find": 9}
    AskedPivot.cancel(key="a", reason="the customer left")
    drain()
    assert AskedPivot.get(key="a").status == Status.PARKED
    assert "unbook" not in world.names


def test_a_pivot_that_is_found_goes_on(world: World) -> None:
    """What `resolve` finds is the pivot's result."""
    world.plan("ship", LOST)
    world.plan("find", "shipment-7")
    begin(AskedPivot)
    drain()
    assert AskedPivot.get(key="a").status == Status.COMPLETED


# --- undone as unknown, and settled ----------------------------------------------------------------------------


def test_undone_as_unknown_on_the_authors_word(world: World) -> None:
    """`on_unknown=COMPENSATE`: undone with `UNKNOWN`, the key is closed, and looked at once more later."""
    world.plan("charge", LOST)
    run = begin(Blind)
    drain()
    assert world.names == ["charge", "refund"]
    assert world.of("refund")[0].argument is UNKNOWN
    assert Blind.get(key="a").status == Status.SETTLING
    assert dedupe(run)["charge:do:0"] == "closed"
    [row] = outbox(run)
    with connection.cursor() as cursor:
        cursor.execute("select extract(epoch from o.due_at - s.updated_at) from sagas_outbox o, sagas_saga s")
        assert float(cursor.fetchone()[0]) == pytest.approx(60)
    assert (row.direction, row.step) == ("settle", "charge")


def test_settling_without_resolve_undoes_once_more(world: World) -> None:
    """Nobody can be asked: the compensation again, with `UNKNOWN`, under a new generation of its key."""
    world.plan("charge", LOST)
    run = begin(Blind)
    drain(skip=SETTLED)
    assert [call.key.rsplit(":", 1)[1] for call in world.of("refund")] == ["0", "1"]
    assert [call.argument for call in world.of("refund")] == [UNKNOWN, UNKNOWN]
    assert log_of(run)[-4:] == ["undo_done charge", "settling", "settle_done charge", "compensated"]


def test_settling_asks_and_finds_nothing(world: World) -> None:
    """`resolve` says NOT_DONE at the end as well: compensated, and nothing was undone twice."""
    world.plan("charge", LOST)
    world.plan("find", Undecided(), NOT_DONE)
    begin(BlindAsked)
    drain(skip=SETTLED)
    assert (BlindAsked.get(key="a").status, world.names) == (Status.COMPENSATED, ["charge", "find", "refund", "find"])


def test_settling_finds_a_late_effect(world: World) -> None:
    """The request landed after all: it is undone given its result, under a new generation of the key."""
    world.plan("charge", LOST)
    world.plan("find", Undecided(), "charge-7")
    begin(BlindAsked)
    drain(skip=SETTLED)
    assert world.names == ["charge", "find", "refund", "find", "refund"]
    late = world.calls[-1]
    assert (late.argument, late.key.rsplit(":", 1)[1]) == ("charge-7", "1")
    assert BlindAsked.get(key="a").status == Status.COMPENSATED


def test_a_tombstone_is_planted_for_what_was_not_done(world: World) -> None:
    """A compensation that accepts UNKNOWN is called also when `resolve` said NOT_DONE: the request may still land."""
    world.plan("charge", LOST)
    world.plan("find", NOT_DONE)
    begin(BlindAsked)
    drain()
    assert world.names == ["charge", "find", "refund"]
    assert world.of("refund")[0].argument is UNKNOWN


def test_settling_that_cannot_tell_parks(world: World) -> None:
    """No answer in the end: a person is asked, the saga does not count as compensated."""
    world.plan("charge", LOST)
    world.always("find", Undecided())
    begin(BlindAsked)
    drain(skip=SETTLED)
    saga = BlindAsked.get(key="a")
    assert (saga.status, saga.parked_from) == (Status.PARKED, Status.SETTLING)


def test_cancelled_while_unknown(world: World) -> None:
    """A cancel turns an unknown step back as unknown where that is accepted, and ends as cancelled."""
    begin(BlindAsked)
    worker_dies()
    BlindAsked.cancel(key="a", reason="enough")
    world.plan("find", Undecided(), NOT_DONE)
    drain(skip=SETTLED)
    assert BlindAsked.get(key="a").status == Status.CANCELLED
    assert world.names == ["find", "refund", "find"]


# --- the dedupe table ------------------------------------------------------------------------------------------


def test_a_failed_attempt_is_marked_started(world: World) -> None:
    """A doubt leaves a line in the dedupe table."""
    world.plan("charge", LOST)
    run = begin(Charge)
    drain(skip=NO_WAIT)
    assert dedupe(run) == {"charge:do:0": "started"}


def test_closed_is_written_when_compensation_begins(world: World) -> None:
    """Every external effect that is about to be undone is closed for late attempts; local ones need no mark."""
    world.plan("charge", LOST)
    world.plan("refund", LOST)
    begin(Charge)
    drain(skip=NO_WAIT)
    Charge.cancel(key="a", reason="enough")
    drain()
    run = Charge.get(key="a")
    assert run.status == Status.CANCELLED
    assert dedupe(run) == {"charge:do:0": "closed"}


def test_an_answer_in_the_dedupe_table_is_taken(world: World) -> None:
    """A take-over looks there before it asks or tries again."""
    run = begin(Asked)
    worker_dies()
    with second_connection() as other:
        other.execute(
            "insert into sagas_dedupe (key, saga_id, state, response) values (%s, %s, 'done', '\"charge-7\"')",
            [f"{run.id}:charge:do:0", run.id],
        )
    drain()
    assert (world.names, Asked.get(key="a").status) == ([], Status.COMPLETED)
    assert entries(run)[1].data["source"] == "dedupe"


def test_closed_stops_an_attempt(world: World) -> None:
    """Whatever row is begun for it: a closed effect is not tried again."""
    run = begin(Charge)
    drain_book()
    with second_connection() as other:
        other.execute(
            "insert into sagas_dedupe (key, saga_id, state) values (%s, %s, 'closed')",
            [f"{run.id}:charge:do:0", run.id],
        )
    drain()
    assert (world.names, Charge.get(key="a").status) == ([], Status.PARKED)


def test_a_late_answer_is_kept(world: World) -> None:
    """A body whose lease was lost meanwhile: its answer goes to the dedupe table, and whoever took over finds it."""

    def overtaken(run: Any) -> str:
        expire_leases()
        with one_worker() as other:
            assert begin_due(other)
        return "charge-late"

    world.plan("charge", overtaken)
    run = begin(Asked)
    drain()
    assert dedupe(run) == {"charge:do:0": "done"}
    assert DedupeRecord.objects.get().response == "charge-late"
    assert log_of(run) == ["started"]
    expire_leases()
    drain()
    assert (Asked.get(key="a").status, world.names) == (Status.COMPLETED, ["charge"])
    assert entries(run)[1].data["result"] == "charge-late"


def test_a_late_answer_beside_closed_keeps_the_state(world: World) -> None:
    """On `closed` the response is added and the state stays: the compensation is given it when settling."""

    def overtaken(run: Any) -> str:
        Blind.cancel(key="a", reason="enough")
        expire_leases()
        drain(check=False)
        assert Blind.get(key="a").status == Status.SETTLING
        return "charge-late"

    world.plan("charge", overtaken)
    run = begin(Blind)
    with one_worker() as worker:
        begun = begin_due(worker)
        worker.run(worker.take_up(begun))
    record = DedupeRecord.objects.get(key=f"{run.id}:charge:do:0")
    assert (record.state, record.response) == ("closed", "charge-late")
    drain(skip=SETTLED)
    looks = ["charge-late", "charge-late"]  # one of them was about to be had when the answer came
    assert [call.argument for call in world.of("refund")] == [UNKNOWN, *looks]
    assert Blind.get(key="a").status == Status.CANCELLED


def test_a_late_answer_after_not_done_reopens(world: World) -> None:
    """`resolve` said twice that nothing happened, so nothing was undone; the answer of a body that still lived says
    otherwise, and it is undone given that answer."""

    def overtaken(run: Any) -> str:
        Asked.cancel(key="a", reason="enough")
        expire_leases()
        drain(check=False, skip=SETTLED)
        assert Asked.get(key="a").status == Status.CANCELLED
        return "charge-late"

    world.plan("charge", overtaken)
    world.plan("find", NOT_DONE, NOT_DONE)
    run = begin(Asked)
    with one_worker() as worker:
        worker.run(worker.take_up(begin_due(worker)))
    drain(skip=SETTLED)
    assert [call.argument for call in world.of("refund")] == ["charge-late"]
    assert Asked.get(key="a").status == Status.CANCELLED
    assert log_of(run)[-4:] == ["late_answer charge", "settling charge", "settle_done charge", "cancelled"]


def test_a_lost_lease_ends_the_body(world: World) -> None:
    """`LeaseLost` in a body records nothing; whoever took over decides."""
    world.plan("charge", LeaseLost())
    run = begin(Charge)
    drain()
    assert log_of(run) == ["started", "step_done book"]
    expire_leases()
    drain()
    assert Charge.get(key="a").status == Status.COMPLETED


# --- compensations with a resolve of their own -----------------------------------------------------------------


@pytest.mark.parametrize(("answer", "refunds"), [(None, 1), (NOT_DONE, 2)])
def test_resolve_of_a_compensation(world: World, answer: object, refunds: int) -> None:
    """An unknown compensation is asked about, with the step's result, before it is tried again."""
    world.plan("body", Refused("no"))
    world.plan("refund", LOST)
    world.plan("find_refund", answer)
    begin(UndoAsked)
    drain()
    assert world.count()["refund"] == refunds
    assert (UndoAsked.get(key="a").status, world.of("find_refund")[0].argument) == (Status.COMPENSATED, "charge-1")
    assert {call.key.split(":", 1)[1] for call in world.of("refund") + world.of("find_refund")} == {"charge:undo:0"}


def test_a_dead_worker_of_a_compensation(world: World) -> None:
    """A worker that died while undoing: the compensation runs again under its key, and is asked about first."""
    world.plan("body", Refused("no"))
    world.plan("find_refund", None)
    begin(UndoAsked)
    run_together()
    bring_forward()
    run_together()
    bring_forward()
    worker_dies()
    drain()
    assert UndoAsked.get(key="a").status == Status.COMPENSATED
    assert world.names == ["charge", "body", "find_refund"]
    assert SagaRow.objects.get().status == "compensated"
