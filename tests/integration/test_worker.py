"""The embedded worker runs sagas to their end, step after step, and back where a step says no."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from sagas import ConfigurationError, Refused
from sagas.states import Status
from sagas_django.models import DedupeRecord, OutboxRow, SagaRow
from tests.shop.models import Booking
from tests.shop.sagas import Charge, Externals, Local, Locals, OneAttempt, Ordered, Picky, Pivoted, Queues, Trip
from tests.shop.world import World
from tests.support.stories import NO_WAIT, begin, begin_many, drain, entries, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")


def test_three_steps_to_the_end(world: World) -> None:
    """Local, external, local: each once, with the results of those before, and nothing is left in the outbox."""
    run = begin(Trip)
    drain()
    booking = Booking.objects.get(step="book")
    assert world.names == ["book", "charge", "confirm"]
    assert world.of("confirm")[0].argument == (booking.pk, "charge-2")
    assert log_of(run) == ["started", "step_done book", "step_done charge", "step_done confirm", "completed"]
    saga = Trip.get(key="a")
    assert (saga.status, saga.seq, saga.error, saga.finished_at is not None) == (Status.COMPLETED, 4, "", True)
    assert outbox(run) == []
    assert [call.attempt for call in world.calls] == [1, 1, 1]
    assert entries(run)[2].data["result"] == "charge-2"


def test_idempotency_keys_name_saga_step_and_direction(world: World) -> None:
    """Each effect has a key of its own, made of nothing volatile."""
    world.plan("charge", ConnectionError("no reply"))
    world.plan("confirm", Refused("no"))
    run = begin(Trip)
    drain()
    keys = {call.name: call.key for call in world.calls}
    assert keys["charge"] == f"{run.id}:charge:do:0"
    assert keys["refund"] == f"{run.id}:charge:undo:0"
    assert [call.key for call in world.of("charge")] == [keys["charge"]] * 2
    assert [call.attempt for call in world.of("charge")] == [1, 2]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_many_sagas(world: World, concurrency: int) -> None:
    """A backlog is worked off, each step of each saga once."""
    begin_many(Trip, [str(number) for number in range(25)])
    begin_many(Locals, [str(number) for number in range(25)])
    drain(concurrency=concurrency)
    assert set(SagaRow.objects.values_list("status", flat=True)) == {"completed"}
    assert world.count() == {"book": 25, "charge": 25, "confirm": 25}
    assert Booking.objects.count() == 25 * 2 + 25 * 3
    assert not OutboxRow.objects.exists()


def test_two_workers_share_the_work(world: World) -> None:
    """Two workers on one backlog run each step once."""
    from tests.support.stories import Aside

    begin_many(Trip, [str(number) for number in range(40)])
    workers = [Aside(lambda: drain(concurrency=2, check=False)) for _ in range(2)]
    for worker in workers:
        worker.join()
    drain()
    assert world.count() == {"book": 40, "charge": 40, "confirm": 40}
    assert {entry.token for run in SagaRow.objects.all() for entry in entries(run.id)[1:]} != {None}


def test_backoff_grows_and_is_kept_in_the_row(world: World) -> None:
    """A failed step waits its backoff in the outbox: half of 10 s, half of 20 s; nobody sleeps meanwhile."""
    world.always("charge", ConnectionError("no reply"))
    run = begin(Charge)
    for failures, delay in ((1, 5.0), (2, 10.0)):
        drain(skip=NO_WAIT)
        [row] = outbox(run)
        with connection.cursor() as cursor:
            cursor.execute("select extract(epoch from o.due_at - s.updated_at) from sagas_outbox o, sagas_saga s")
            assert float(cursor.fetchone()[0]) == pytest.approx(delay)
        assert (row.failures, row.holder, row.deliveries) == (failures, None, 0)
        assert entries(run)[-1].data["retry_in"] == delay
        from tests.support.stories import bring_forward

        bring_forward()
    drain()
    assert (Charge.get(key="a").status, world.count()["charge"]) == (Status.PARKED, 3)


def test_one_attempt_is_not_used_up_by_a_neighbours_crash(world: World) -> None:
    """Work that may begin once begins alone: no batch and no earlier step takes it along."""
    keys = [str(number) for number in range(12)]
    begin_many(OneAttempt, keys)
    together: list[int] = []

    def look(_: Any) -> str:
        held = OutboxRow.objects.filter(step="once", deliveries__gt=0, holder__isnull=False)
        together.append(held.count())
        return "done"

    world.always("once", look)
    drain(concurrency=2)
    assert set(together) <= {1, 2}, "one for each thread"
    assert world.count() == {"prepare": 12, "once": 12}


@pytest.mark.parametrize("step", ["book", "confirm"])
def test_local_retries_then_turns_back(world: World, step: str) -> None:
    """A local step that keeps failing did nothing; after its attempts the saga turns back."""
    world.always(step, ValueError("broken"))
    begin(Trip)
    drain()
    assert Trip.get(key="a").status == Status.COMPENSATED
    assert Trip.get(key="a").error == "failed: broken"
    assert world.count()[step] == 3
    assert Booking.objects.count() == 0


def test_give_up_on(world: World) -> None:
    """One error of a `give_up_on` class ends the retries: local turns back, external is unknown and parks."""
    world.plan("here", ValueError("no"), saga="local")
    world.plan("there", ValueError("no"), saga="external")
    begin(Picky, "local")
    begin(Picky, "external")
    drain()
    assert world.count() == {"here": 2, "there": 1}
    assert Picky.get(key="local").status == Status.COMPENSATED
    # compensate=None: nothing to undo, so its author says that it can be left unknown; PARK asks a person first
    assert Picky.get(key="external").status == Status.PARKED


def test_other_errors_are_retried(world: World) -> None:
    """An error that is not in `give_up_on` is tried as often as `max_attempts` says."""
    world.plan("here", *[KeyError("later")] * 4)
    world.plan("there", *[SystemExit(1)] * 4)
    begin(Picky)
    drain()
    assert (Picky.get(key="a").status, world.count()) == (Status.COMPLETED, {"here": 5, "there": 5})


def test_refused_compensates_in_reverse_order(world: World) -> None:
    """`Refused`: stop and compensate; each compensation is given its step's stored result."""
    world.plan("confirm", Refused("sold out"))
    run = begin(Trip)
    drain()
    assert world.names == ["book", "charge", "confirm", "refund", "unbook"]
    assert world.of("refund")[0].argument == "charge-2"
    assert world.of("unbook")[0].argument == entries(run)[1].data["result"]
    assert Trip.get(key="a").status == Status.COMPENSATED
    assert Trip.get(key="a").error == "refused: sold out"
    assert Booking.objects.count() == 0
    assert log_of(run)[3:] == [
        "step_not_done confirm", "compensating confirm", "undo_done charge", "undo_done book", "compensated"
    ]  # fmt: skip


def test_refused_at_once_is_not_retried(world: World) -> None:
    """A step that definitely did nothing is not undone itself."""
    world.plan("charge", Refused("declined"))
    begin(Trip)
    drain()
    assert world.names == ["book", "charge", "unbook"]


def test_nothing_to_undo(world: World) -> None:
    """`compensate=None` is passed over on the way back."""
    world.plan("there", Refused("no"))
    run = begin(Picky)
    drain()
    assert (Picky.get(key="a").status, log_of(run)[-1]) == (Status.COMPENSATED, "compensated")


@pytest.mark.parametrize("external", [True, False])
def test_compensation_is_retried_then_parks(world: World, external: bool) -> None:
    """A failing compensation has attempts of its own; used up it parks, and `retry` takes it up again."""
    name = "refund" if external else "unbook"
    world.plan(name, *[ConnectionError("no reply")] * 3)
    world.plan("confirm", Refused("no"))
    run = begin(Trip)
    drain()
    saga = Trip.get(key="a")
    assert (saga.status, saga.parked_from, world.count()[name]) == (Status.PARKED, Status.COMPENSATING, 3)
    assert saga.error == "compensation failed: no reply"
    call_command("sagas", "retry", str(run.id), reason="mended")
    drain()
    assert (Trip.get(key="a").status, world.count()[name]) == (Status.COMPENSATED, 4)
    assert Booking.objects.count() == 0
    assert len({call.key for call in world.of(name)}) == 1


def test_local_compensation_is_one_transaction(world: World) -> None:
    """A local compensation that raises is rolled back with everything it wrote."""
    world.plan("unbook", lambda run: Booking.objects.all().delete() and 1 / 0)
    world.plan("charge", Refused("no"))
    begin(Trip)
    begin(Locals, "other")
    drain()
    assert Booking.objects.count() == 3
    assert Trip.get(key="a").status == Status.COMPENSATED


def test_compensation_survives_a_refusal_of_its_own(world: World) -> None:
    """A compensation that says `Refused` parks at once: undoing cannot be given up silently."""
    world.plan("refund", Refused("too old"))
    world.plan("confirm", Refused("no"))
    begin(Trip)
    drain()
    assert (Trip.get(key="a").status, world.count()["refund"]) == (Status.PARKED, 1)


def test_after_the_pivot_failures_park(world: World) -> None:
    """No way back after the pivot: a refusal or used-up retries park, and nothing is undone."""
    world.plan("invoice", Refused("no"), saga="refused")
    world.plan("confirm", *[ValueError("no")] * 3, saga="failed")
    for key in ("refused", "failed"):
        begin(Pivoted, key)
    drain()
    for key in ("refused", "failed"):
        assert Pivoted.get(key=key).status == Status.PARKED
        call_command("sagas", "retry", f"test.pivoted:{key}", reason="mended")
    drain()
    assert {Pivoted.get(key=key).status for key in ("refused", "failed")} == {Status.COMPLETED}
    assert "unbook" not in world.names


def test_refused_pivot_turns_back(world: World) -> None:
    """The pivot itself may still say no."""
    world.plan("ship", Refused("no such address"))
    begin(Pivoted)
    drain()
    assert (Pivoted.get(key="a").status, world.names) == (Status.COMPENSATED, ["ship", "unbook"])


def test_queues(world: World) -> None:
    """A worker of one queue leaves the steps of another to others."""
    from sagas.embedded import Embedded
    from sagas_django.store import DjangoStore

    run = begin(Queues)
    for queue, done in (("right", []), ("left", ["left"]), ("left", ["left"]), ("right", ["left", "right"])):
        Embedded(DjangoStore("default"), queues=[queue], concurrency=1).run(until_idle=True)
        assert world.names == done
    assert Queues.get(id=run.id).status == Status.COMPLETED


def test_worker_command(world: World) -> None:
    """`manage.py sagas worker --until-idle` does the same."""
    begin(Trip)
    call_command("sagas", "worker", "--until-idle", "--concurrency", "2")
    assert Trip.get(key="a").status == Status.COMPLETED
    call_command("sagas", "show", "test.trip:a")
    call_command("sagas", "list", "--status", "completed")
    call_command("sagas", "verify")


def test_bodies_see_their_saga(world: World) -> None:
    """`self` has input, id, key, attempt, headers, results and step statuses; heartbeat says alive."""
    seen: list[object] = []

    def look(run: Trip) -> str:
        run.heartbeat()
        seen.extend([run.input, run.id, run.key, run.attempt, run.headers])
        seen.extend([run.book.status, run.charge.status, run.confirm.attempts, run.charge.attempts])
        with pytest.raises(ConfigurationError, match=r"charge:do: an external step has no session.* local @step$"):
            run.session  # noqa: B018
        return "seen"

    world.plan("charge", look)
    world.plan("book", lambda run: seen.append(run.session))
    from django.db import transaction

    with transaction.atomic():
        saga = Trip.start(Ordered(7), key="a", headers={"traceparent": "00-1"})
    drain()
    assert seen == [None, Ordered(7), saga.id, "a", 1, {"traceparent": "00-1"}, "done", "pending", 0, 0]


def test_dedupe_stays_empty_without_trouble() -> None:
    """No doubt, no row: the dedupe table costs nothing while everything goes well."""
    begin_many(Externals, ["a", "b"])
    begin(Trip)
    begin(Local)
    drain()
    assert not DedupeRecord.objects.exists()
