"""Sagas that start other sagas, on a real database."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from sagas import ContinueAs, DefinitionError, Refused, Retry, Saga, child_saga, engine, external_step, step
from sagas.states import Status
from sagas_django.models import SagaRow
from tests.shop.families import Capture, Decided, Decides, Grand, Paid, Payment, Purchase, Slow, Twice, Waiting
from tests.shop.sagas import Ordered
from tests.shop.waiting import Review
from tests.shop.world import World
from tests.support.stories import begin, bring_forward, differences, drain, log_of, outbox
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")


def child_of(run: Any, name: str | None = None) -> SagaRow:
    """The latest child of a saga."""
    return SagaRow.objects.filter(parent=run.id, **({"name": name} if name else {})).latest("id")


def status(saga: type[Saga[Any]], key: str = "a") -> Status:
    return saga.get(key=key).status


def test_a_child_is_started_and_its_result_is_the_step_s(world: World) -> None:
    """The child and the entry that tells of it are of one commit; the parent goes on with the child's result."""
    world.plan("take", "taken")
    run = begin(Purchase, input=Ordered(number=7))
    drain()
    assert status(Purchase) == Status.COMPLETED
    assert world.names == ["reserve", "hold", "take", "pack"]
    assert world.of("pack")[0].argument == "taken"
    assert log_of(run) == [
        "started", "step_done reserve", "children_started payment", "step_done payment", "step_done pack", "completed",
    ]  # fmt: skip
    child = child_of(run)
    assert (child.name, child.status, child.key) == ("test.payment", Status.COMPLETED, f"{run.id}:payment")
    assert child.parent_step == "payment"
    assert not outbox(run)


def test_a_parent_that_waits_costs_one_row(world: World) -> None:
    """No thread, no message, nothing due: the row of its step, and those of the child."""
    run = begin(Waiting)
    drain()
    (row,) = outbox(run)
    assert (row.step, row.holder, row.deliveries) == ("child", None, 0)
    assert status(Waiting) == Status.RUNNING
    with transaction.atomic():
        Slow.review.send(Review(ok=True), id=child_of(run).pk)
    drain()
    assert status(Waiting) == Status.COMPLETED


def test_a_child_that_fails_turns_the_parent_back(world: World) -> None:
    """It undoes itself, and then its parent undoes what came before."""
    world.plan("take", Refused("no money"))
    run = begin(Purchase)
    drain()
    assert status(Purchase) == Status.COMPENSATED
    assert child_of(run).status == Status.COMPENSATED
    assert world.names == ["reserve", "hold", "take", "let_go", "release"]
    assert "no money" in Purchase.get(key="a").error


def test_undo_of_a_parent_undoes_what_the_child_has_completed(world: World) -> None:
    """In its place in the order: after what came later, before what came earlier, and the parent waits for it."""
    world.plan("pack", Refused("box is broken"))
    run = begin(Purchase)
    drain()
    assert status(Purchase) == Status.COMPENSATED
    assert child_of(run).status == Status.CANCELLED
    assert world.names == ["reserve", "hold", "take", "pack", "give_back", "let_go", "release"]
    assert [line for line in log_of(run) if "payment" in line] == [
        "children_started payment", "step_done payment", "children_recalled payment", "undo_done payment",
    ]  # fmt: skip


def test_cancel_reaches_the_child(world: World) -> None:
    """The parent waits until the child has undone what it did, and only then undoes its own."""
    run = begin(Waiting)
    drain()
    with transaction.atomic():
        Waiting.cancel(key="a", reason="changed my mind")
    drain()
    assert (status(Waiting), child_of(run).status) == (Status.CANCELLED, Status.CANCELLED)
    assert world.names == ["first", "open", "close", "undo_first"]


def test_a_cancel_while_the_child_is_about_to_be_started(world: World) -> None:
    """It is applied by another worker before the start is recorded: no child is there then, or ever was."""
    run = begin(Waiting)
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))
        assert world.names == ["first"]
        starting = begin_due(worker)
        Waiting.cancel(key="a", reason="changed my mind")
        drain(check=False)
        run_batch(worker, starting)
    drain()
    assert status(Waiting) == Status.CANCELLED
    assert not SagaRow.objects.filter(parent=run.id)
    assert world.names == ["first", "undo_first"]


def test_the_deadline_of_a_parent_reaches_the_child(world: World) -> None:
    """It is the parent's row that is due then."""
    with transaction.atomic():
        run = Waiting.start(Ordered(), key="a", deadline=timedelta(hours=1))
    drain()
    with connections["default"].cursor() as cursor:
        cursor.execute("update sagas_saga set deadline = clock_timestamp() where id = %s", [run.id])
        cursor.execute("update sagas_outbox set due_at = clock_timestamp() where saga_id = %s", [run.id])
    drain(check=False)
    assert (status(Waiting), child_of(run).status) == (Status.COMPENSATED, Status.CANCELLED)
    assert world.names == ["first", "open", "close", "undo_first"]


def test_a_child_that_completes_in_spite_of_the_cancel_is_undone(world: World) -> None:
    """The cancel found it ended; its parent learns so, and undoes it like a step that was under way."""
    run = begin(Waiting)
    drain()
    with transaction.atomic():
        Slow.review.send(Review(ok=True), id=child_of(run).pk)
        Waiting.cancel(key="a", reason="too late")
    drain()
    assert (status(Waiting), child_of(run).status) == (Status.CANCELLED, Status.CANCELLED)
    assert world.names == ["first", "open", "close", "undo_first"]


def test_a_child_that_parks_keeps_its_parent_waiting(world: World) -> None:
    """Nothing is undone behind the back of a person; once it goes on, so does the parent."""
    world.always("give_back", ValueError("bank is closed"))
    world.plan("pack", Refused("box is broken"))
    run = begin(Purchase)
    drain()
    assert status(Purchase) == Status.COMPENSATING
    assert child_of(run).status == Status.PARKED
    assert "release" not in world.names
    (row,) = outbox(run)
    assert (row.step, row.direction, row.holder) == ("payment", "undo", None)
    world._script.clear()
    engine.request(None, "retry", id=child_of(run).pk, reason="bank is open", using="default")
    drain()
    assert status(Purchase) == Status.COMPENSATED
    assert world.names[-3:] == ["give_back", "let_go", "release"]


def test_an_operator_who_cancels_the_child_turns_the_parent_back(world: World) -> None:
    """A child is a saga like any other."""
    run = begin(Waiting)
    drain()
    engine.cancel(Slow, id=child_of(run).pk, reason="by hand")
    drain()
    assert status(Waiting) == Status.COMPENSATED
    assert world.names == ["first", "open", "close", "undo_first"]


def test_an_aborted_child_parks_its_parent(world: World) -> None:
    """What the child left behind nobody knows; a retry of the parent starts it anew, under the same key."""
    world.always("take", ValueError("?"))
    run = begin(Purchase)
    drain()
    first = child_of(run)
    assert (first.status, status(Purchase)) == (Status.PARKED, Status.RUNNING)
    engine.request(None, "abort", id=first.pk, reason="hopeless", using="default")
    drain()
    assert status(Purchase) == Status.PARKED
    assert "aborted" in Purchase.get(key="a").error
    assert not outbox(run)
    world._script.clear()
    engine.request(Purchase.saga_name, "retry", key="a", reason="again", using="default")
    drain()
    second = child_of(run)
    assert (second.key, second.run) == (first.key, 2)
    assert (second.status, status(Purchase)) == (Status.COMPLETED, Status.COMPLETED)


def test_a_child_aborted_while_it_is_undone_parks_its_parent_once(world: World) -> None:
    """Who retries the parent says that what the child did is seen to."""
    world.always("give_back", ValueError("?"))
    world.plan("pack", Refused("box is broken"))
    run = begin(Purchase)
    drain()
    engine.request(None, "abort", id=child_of(run).pk, reason="by hand", using="default")
    drain()
    assert status(Purchase) == Status.PARKED
    engine.request(Purchase.saga_name, "retry", key="a", reason="seen to", using="default")
    drain()
    assert status(Purchase) == Status.COMPENSATED
    assert world.names[-1] == "release"


def test_retry_starts_a_child_anew(world: World) -> None:
    """As often as `retry=` says, under the next run of its key; beside it nothing is disturbed."""
    world.plan("take", Refused("no money"))
    run = begin(Twice)
    drain()
    assert status(Twice) == Status.RUNNING
    rows = SagaRow.objects.filter(parent=run.id).order_by("run")
    assert [(row.run, row.status) for row in rows] == [(1, "compensated"), (2, "completed")]
    with transaction.atomic():
        Twice.review.send(Review(ok=True), key="a")
    drain()
    assert status(Twice) == Status.COMPLETED


def test_a_branch_that_fails_recalls_the_child_beside_it(world: World) -> None:
    """The child's end is awaited like that of any step under way."""

    class Beside(Saga[Ordered], name="test.child_beside", version=1):
        child = child_saga(Slow, input=lambda self: self.input, after=[])

        @step(compensate=None, after=[])
        def fail(self) -> None:
            if not SagaRow.objects.filter(parent=self.id).exists():
                raise Retry("the branch beside this one has not begun yet")
            raise Refused("no")

    run = begin(Beside)
    drain()
    assert (status(Beside), child_of(run).status) == (Status.COMPENSATED, Status.CANCELLED)
    assert world.names in (["open", "close"], [])


def test_a_child_after_the_pivot_is_started_until_it_completes(world: World) -> None:
    """There is no way back for its parent."""
    world.plan("take", Refused("no"), Refused("no"), "yes")
    run = begin(Decided)
    drain()
    assert status(Decided) == Status.COMPLETED
    assert [row.status for row in SagaRow.objects.filter(parent=run.id).order_by("run")] == [
        "compensated", "compensated", "completed",
    ]  # fmt: skip


def test_a_child_that_is_the_pivot_decides(world: World) -> None:
    """Undone: its parent turns back. Completed: there is no way back."""
    world.plan("capture", Refused("no"))
    begin(Decides)
    begin(Decides, key="b")
    drain()
    assert {status(Decides, "a"), status(Decides, "b")} == {Status.COMPENSATED, Status.COMPLETED}


def test_children_of_children(world: World) -> None:
    """Undo goes down the whole family, last thing first."""
    world.plan("thank", Refused("no card"))
    begin(Grand)
    drain()
    assert status(Grand) == Status.COMPENSATED
    assert world.names == [
        "reserve", "hold", "take", "pack", "thank", "unpack", "give_back", "let_go", "release",
    ]  # fmt: skip


def test_pause_of_the_parent_while_the_child_ends(world: World) -> None:
    """What the child brought is recorded; the next step begins after the resume."""
    run = begin(Waiting)
    drain()
    engine.request(Waiting.saga_name, "pause", key="a", reason="look", using="default")
    drain()
    with transaction.atomic():
        Slow.review.send(Review(ok=True), id=child_of(run).pk)
    drain()
    assert status(Waiting) == Status.COMPLETED  # its end needs no step


def test_rows_lost_are_made_again(world: World) -> None:
    """A parent whose row is gone finds out how its children stand; a child still knows its parent."""
    from sagas.rebuild import rebuild
    from sagas_django.store import DjangoStore

    run = begin(Waiting)
    drain()
    with transaction.atomic():
        Slow.review.send(Review(ok=True), id=child_of(run).pk)
    child = child_of(run).pk
    with connections["default"].cursor() as cursor:
        cursor.execute("delete from sagas_outbox where saga_id = %s", [run.id])
        cursor.execute("delete from sagas_saga where id in (%s, %s)", [run.id, child])
    with DjangoStore("default").connect() as connection:
        assert all(each.changed and not each.problem for each in rebuild(connection))
    assert child_of(run).pk == child
    drain()
    assert status(Waiting) == Status.COMPLETED
    assert differences() == []


def test_woken_early_it_looks_and_sleeps_again(world: World) -> None:
    """A row that is due without a reason costs a look, and the saga waits as before."""
    run = begin(Waiting)
    drain()
    before = log_of(run)
    bring_forward(skip=timedelta(days=10000))
    drain()
    assert log_of(run) == before
    assert len(outbox(run)) == 1


def test_what_cannot_be_is_refused_when_the_class_is_made() -> None:
    """With the name of the step, and what to write instead."""
    with pytest.raises(DefinitionError, match="cannot be undone from its pivot 'capture' on"):

        class _(Saga[Ordered], name="test.bad_pivot", version=1):
            captured = child_saga(Capture, input=lambda self: self.input)

    with pytest.raises(DefinitionError, match="a Saga class"):
        child_saga(Ordered, input=lambda self: self)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="not a step of Slow"):
        child_saga(Slow, input=lambda self: self.input, result=Payment.take)
    with pytest.raises(DefinitionError, match="plain function"):
        child_saga(Payment, input=Paid(1))  # type: ignore[call-overload]

    class Goes(Saga[Ordered], name="test.goes_on_child", version=1):
        @external_step(compensate=None)
        def poll(self) -> ContinueAs | None:
            return None

    with pytest.raises(DefinitionError, match="a child has to end"):

        class __(Saga[Ordered], name="test.bad_end", version=1):
            child = child_saga(Goes, input=lambda self: self.input)


def test_an_input_that_cannot_be_made_turns_the_saga_back(world: World) -> None:
    """Nothing was started, so there is nothing to wait for."""

    class Bad(Saga[Ordered], name="test.bad_input_child", version=1):
        child = child_saga(Payment, input=lambda self: Paid("much"))  # type: ignore[arg-type]

    run = begin(Bad)
    drain()
    assert status(Bad) == Status.COMPENSATED
    assert not SagaRow.objects.filter(parent=run.id).exists()


def test_an_operator_need_not_wait_for_the_backoff(world: World) -> None:
    """`retry` starts the child at once, with a new budget."""

    class Patient(Saga[Ordered], name="test.patient_parent", version=1):
        paid = child_saga(Payment, input=lambda self: Paid(1), retry=Retry(max_attempts=2, first=3600, longest=3600))

    world.plan("take", Refused("no money"))
    begin(Patient)
    drain()
    assert status(Patient) == Status.RUNNING
    engine.request(Patient.saga_name, "retry", key="a", reason="now", using="default")
    drain()
    assert status(Patient) == Status.COMPLETED


def test_operators_see_who_is_waited_for(world: World) -> None:
    """`show` names the parent, the children, and the one that waits for a person."""
    from sagas.operate_show import description
    from sagas_django.operate import DjangoDesk

    world.always("give_back", ValueError("bank is closed"))
    world.plan("pack", Refused("box is broken"))
    run = begin(Purchase)
    drain()
    child = child_of(run)
    desk = DjangoDesk("default")
    lines = "\n".join(description(desk, str(run.id)))
    assert "waits     payment waits until what it started is undone" in lines
    assert f"test.payment {child.pk} (key {child.key}), which payment started, is parked: " in lines
    next_one = "See to that saga: it waits for a person, and this one goes on by itself when it does."
    assert f"next      manage.py sagas show {child.pk}\n          {next_one}" in lines
    assert f"child     payment                  parked          test.payment {child.pk}" in lines
    of_child = "\n".join(description(desk, str(child.pk)))
    assert f"parent    payment                  compensating    test.purchase {run.id}" in of_child
    goes_on = "The saga goes on where it parked, with a new budget of attempts."
    assert f"next      manage.py sagas retry {child.pk} --reason WHY\n          {goes_on}" in of_child


def test_a_list_names_the_parked_child(
    world: World, client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """Whoever looks at a list of sagas learns at once which child the parent waits for, in the admin too, and from
    however far below; in one statement for all sagas of the list."""
    world.always("give_back", ValueError("bank is closed"))
    world.plan("pack", Refused("box is broken"))
    run = begin(Purchase)
    drain()
    child = child_of(run)
    told = f"test.payment {child.pk} (key {child.key}), which payment started, is parked: "
    out = io.StringIO()
    call_command("sagas", "list", stdout=out)
    (line,) = [each for each in out.getvalue().splitlines() if each.split()[1] == str(run.id)]
    assert told in line and "`manage.py sagas show ID` says" in out.getvalue()
    out = io.StringIO()
    call_command("sagas", "list", "--json", stdout=out)
    (found,) = [each for each in json.loads(out.getvalue())["data"] if each["id"] == str(run.id)]
    assert found["held_by"] == [
        {"because": "parked child", "step": "payment", "id": str(child.pk), "name": "test.payment", "key": child.key}
    ]
    client.force_login(User.objects.create_superuser("root"))
    listed, page = "/admin/sagas/sagarow/", f"/admin/sagas/sagarow/{run.id}/change/"
    for _ in range(2):  # and once more, with twice as many
        with django_assert_num_queries(7):
            assert told in unescape(client.get(listed).content.decode())
        begin(Purchase, "b")
        drain()
    html = unescape(client.get(page).content.decode())
    assert told in html and "See to that saga" in html and f'{listed}{child.pk}/change/">Go there' in html
    User.objects.all().delete()


def test_a_compensation_of_its_own(world: World) -> None:
    """Where the child cannot be undone, what its parent declares is called with the result."""

    class Bought(Saga[Ordered], name="test.own_compensation", version=1):
        captured = child_saga(Capture, input=lambda self: self.input, result=Capture.capture)

        @captured.compensate(external=True)
        def refund(self, captured: str) -> None:
            world.act("refund", self, captured)

        @step(compensate=None)
        def fail(self) -> None:
            raise Refused("no")

    run = begin(Bought)
    drain()
    assert (status(Bought), child_of(run).status) == (Status.COMPENSATED, Status.COMPLETED)
    assert world.names == ["hold", "capture", "refund"]
    assert world.of("refund")[0].argument == "capture-2"
