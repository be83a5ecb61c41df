"""Steps that are done for each item of a list, on a real database."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.db import transaction

from sagas import NOT_DONE, DefinitionError, Refused, Saga, engine, external_step, pauses, step
from sagas.pauses import Scope
from sagas.states import Status
from sagas.worker import Worker
from sagas_django.models import OutboxRow, SagaRow
from sagas_django.store import DjangoStore
from tests.shop.families import After, Collects, Letters, Told, Tolerant, Twofold, Unsent
from tests.shop.sagas import Ordered
from tests.shop.world import World
from tests.support.stories import begin, bring_forward, drain, log_of
from tests.support.workers import begin_due, one_worker, run_batch

pytestmark = pytest.mark.usefixtures("shop")


def items_of(run: Any) -> list[SagaRow]:
    return list(SagaRow.objects.filter(parent=run.id).order_by("key", "run"))


def status(saga: type[Saga[Any]]) -> Status:
    return saga.get(key="a").status


def test_each_item_is_a_saga_and_results_are_in_order(world: World) -> None:
    """The bodies see the input and the results of the saga that declares them; the next step sees all results."""
    for number in range(7):
        world.plan(f"send-{number}", f"sent {number}")
    run = begin(Letters, input=Ordered(number=7))
    drain()
    assert status(Letters) == Status.COMPLETED
    assert world.of("report")[0].argument == [f"sent {number}" for number in range(7)]
    assert world.of("send-4")[0].argument == (7, 4)
    items = items_of(run)
    assert [item.key for item in items] == [f"{run.id}:post:{number:06}" for number in range(7)]
    assert {item.name for item in items} == {"test.letters.post"}
    assert len({call.key for call in world.calls if call.name.startswith("send-")}) == 7
    assert not OutboxRow.objects.exists()


def test_no_more_run_at_once_than_may(world: World) -> None:
    """The next are started as earlier ones end."""
    most = 0

    def count(run: Any) -> str:
        nonlocal most
        most = max(most, SagaRow.objects.filter(parent__isnull=False, finished_at=None).count())
        return "sent"

    for number in range(10):
        world.plan(f"send-{number}", count)
    begin(Letters, input=Ordered(number=10))
    drain()
    assert status(Letters) == Status.COMPLETED
    assert most == 3


@pytest.fixture
def too_much(world: World, settings: Any) -> Any:
    """Six letters were sent, and what that says of them is more than may be kept: it waits for a person."""
    settings.SAGAS = {"MAX_PAYLOAD": 1000, "WAKE": False}
    for number in range(6):
        world.plan(f"send-{number}", f"{number}" * 200)
    run = begin(Letters, input=Ordered(number=6))
    drain()
    saga = Letters.get(key="a")
    assert saga.status == Status.PARKED and "1,000 are allowed" in saga.error
    return run


def test_results_that_are_too_much_and_a_cancel(world: World, too_much: Any) -> None:
    """Every letter is recalled, with what its own step returned."""
    engine.cancel(Letters, key="a", reason="enough")
    drain()
    assert status(Letters) == Status.CANCELLED
    assert {call.name: call.argument for call in world.calls if call.name.startswith("recall-")} == {
        f"recall-{number}": f"{number}" * 200 for number in range(6)
    }


def test_results_that_are_too_much_and_a_retry(world: World, too_much: Any, settings: Any) -> None:
    """Nothing is sent again: they are looked at once more, and there is a result where more may be kept by then."""
    sent = [call.name for call in world.calls]
    engine.request(Letters.saga_name, "retry", key="a", reason="again", using="default")
    drain()
    assert status(Letters) == Status.PARKED and "1,000 are allowed" in Letters.get(key="a").error
    settings.SAGAS = {"WAKE": False}
    engine.request(Letters.saga_name, "retry", key="a", reason="more is allowed now", using="default")
    drain()
    assert status(Letters) == Status.COMPLETED
    assert [call.name for call in world.calls] == [*sent, "report"]


def test_an_item_that_was_skipped_has_no_result(world: World) -> None:
    """Where every item is to have one it waits for a person, who cancels, or gives the results of all."""
    world.always("send-1", OSError("no answer"))
    for key in ("a", "b"):
        begin(Letters, key, input=Ordered(number=3))
    drain()
    for item in SagaRow.objects.filter(key__endswith=":000001"):
        assert item.status == Status.PARKED
        engine.request(item.name, "skip", key=item.key, step="post", seen=item.seq, reason="lost", using="default")
    drain()
    for key in ("a", "b"):
        found = Letters.get(key=key)
        assert (found.status, found.error) == (
            Status.PARKED, "its item 1 has no result: an operator has skipped it"
        )  # fmt: skip
    engine.cancel(Letters, key="a", reason="enough")
    seq = SagaRow.objects.get(name="test.letters", key="b").seq
    engine.request(
        Letters.saga_name, "mark_done", key="b", step="post", seen=seq, result=["x", "y", "z"], reason="by hand",
        using="default",
    )  # fmt: skip
    drain()
    assert Letters.get(key="a").status == Status.CANCELLED
    assert {name for name in world.names if name.startswith("recall")} == {"recall-0", "recall-2"}
    assert Letters.get(key="b").status == Status.COMPLETED
    assert world.of("report")[0].argument == ["x", "y", "z"]


def test_none_at_all(world: World) -> None:
    """It is done at once, with an empty result."""
    begin(Letters, input=Ordered(number=0))
    drain()
    assert status(Letters) == Status.COMPLETED
    assert world.of("report")[0].argument == []


def test_too_many(world: World) -> None:
    """Before any is begun."""
    run = begin(Letters, input=Ordered(number=51))
    drain()
    assert status(Letters) == Status.COMPENSATED
    assert "51 items, and max_items=50" in Letters.get(key="a").error
    assert not items_of(run)


def test_one_that_fails_undoes_the_others(world: World) -> None:
    """Those under way are asked to turn back, those done are undone, those not begun never are."""
    world.plan("send-1", Refused("no such address"))
    run = begin(Letters, input=Ordered(number=9))
    drain()
    assert status(Letters) == Status.COMPENSATED
    sent = Counter(call.name.removeprefix("send-") for call in world.calls if call.name.startswith("send-"))
    recalled = Counter(call.name.removeprefix("recall-") for call in world.calls if call.name.startswith("recall-"))
    assert recalled == sent - Counter({"1": 1})
    assert "no such address" in Letters.get(key="a").error
    assert len(items_of(run)) < 9
    assert "report" not in world.names


def test_undo_of_the_whole_undoes_each(world: World) -> None:
    """With the item and its result."""
    world.plan("report", Refused("printer is broken"))
    begin(Letters, input=Ordered(number=5))
    drain()
    assert status(Letters) == Status.COMPENSATED
    assert {call.name for call in world.calls if call.name.startswith("recall")} == {f"recall-{n}" for n in range(5)}
    assert world.of("recall-2")[0].argument.startswith("send-2")


def test_some_may_fail(world: World) -> None:
    """As many as are tolerated; their place is None."""
    world.plan("send-1", Refused("no"))
    begin(Tolerant, input=Ordered(number=3))
    drain()
    assert status(Tolerant) == Status.COMPLETED
    world.plan("send-0", Refused("no"))
    world.plan("send-1", Refused("no"))
    begin(Tolerant, key="b", input=Ordered(number=3))
    drain()
    assert Tolerant.get(key="b").status == Status.COMPENSATED


def test_all_may_fail_where_results_are_collected(world: World) -> None:
    """`async def` bodies see the saga's input too."""
    for number in range(3):
        world.plan(f"send-{number}", Refused("no"))
    run = begin(Collects, input=Ordered(number=4))
    drain()
    assert status(Collects) == Status.COMPLETED
    assert world.of("send-3")[0].argument == 4
    assert [item.status for item in items_of(run)] == ["compensated"] * 3 + ["completed"]


def test_what_is_collected_has_failed_for_certain(world: World) -> None:
    """After an exception that is no refusal an item fails where its `resolve` says so, and parks where none does."""
    for number in range(2):
        world.always(f"send-{number}", ValueError("?"))
    world.always("find-0", NOT_DONE)
    world.always("find-1", NOT_DONE)
    told = begin(Told, input=Ordered(number=3))
    begin(Collects, input=Ordered(number=3))
    drain()
    assert (status(Told), status(Collects)) == (Status.COMPLETED, Status.RUNNING)
    assert Told.post.result_of(id=told.id)[:2] == [None, None]
    assert [item.status for item in items_of(Collects.get(key="a"))] == ["parked"] * 2 + ["completed"]


def test_after_the_pivot_those_that_failed_are_begun_anew(world: World) -> None:
    """And only those."""
    world.plan("send-1", Refused("no"))
    run = begin(After, input=Ordered(number=3))
    drain()
    assert status(After) == Status.COMPLETED
    assert [(item.key[-1], item.run, item.status) for item in items_of(run)] == [
        ("0", 1, "completed"), ("1", 1, "compensated"), ("1", 2, "completed"), ("2", 1, "completed"),
    ]  # fmt: skip


def sent(world: World) -> Counter[str]:
    return Counter(call.name for call in world.calls if call.name.startswith("send-"))


@pytest.mark.parametrize("failing", [1, 3, 5, 6])
def test_after_the_pivot_one_of_many_is_begun_anew(world: World, failing: int) -> None:
    """Wherever it is in the list: those after the first batch are come to again as well."""
    world.plan("unsent", [*range(7)])
    world.plan(f"send-{failing}", Refused("no"))
    run = begin(Unsent)
    drain()
    assert status(Unsent) == Status.COMPLETED
    assert sent(world) == {f"send-{n}": 2 if n == failing else 1 for n in range(7)}
    assert {item.key[-1] for item in items_of(run) if item.run == 2} == {str(failing)}


def test_after_the_pivot_the_items_are_those_of_the_first_time(world: World) -> None:
    """`for_each` is called once: who is unsent has changed by the time those that failed are begun anew."""
    world.plan("unsent", [1, 2, 3], [2])
    world.plan("send-2", Refused("no"))
    begin(Unsent)
    drain()
    assert status(Unsent) == Status.COMPLETED
    assert sent(world) == {"send-1": 1, "send-2": 2, "send-3": 1}
    assert len(world.of("unsent")) == 1


def test_an_aborted_item_and_a_retry_starts_what_did_not_complete_anew(world: World) -> None:
    """Also where it is none of the first batch: what is left of the former round is no failure of this one."""
    world.plan("send-4", *[ValueError("?")] * 3)
    run = begin(Letters, input=Ordered(number=7))
    drain()
    (parked,) = [item for item in items_of(run) if item.status == Status.PARKED]
    engine.request(None, "abort", id=parked.pk, reason="seen to", using="default")
    drain()
    assert status(Letters) == Status.PARKED
    engine.request(Letters.saga_name, "retry", key="a", reason="again", using="default")
    drain()
    assert status(Letters) == Status.COMPLETED
    answers = world.of("report")[0].argument
    assert [answer.rsplit("-", 1)[0] for answer in answers] == [f"send-{number}" for number in range(7)]


def work(worker: Worker) -> None:
    """Run all that is due, in one process."""
    while bring_forward() and (begun := begin_due(worker)):
        run_batch(worker, begun)


def test_items_of_a_later_step_see_what_came_of_an_earlier_one(world: World) -> None:
    """Although the worker has looked at the saga for the items of that one before; also after a redo of it."""
    with one_worker() as worker:
        world.plan("remind-1", *[ValueError("?")] * 3)
        run = begin(Twofold, input=Ordered(number=2))
        work(worker)
        assert [call.argument for call in world.of("remind-0")] == ["announce-0-1"]
        (parked,) = [item for item in items_of(run) if item.status == Status.PARKED]
        engine.request(None, "abort", id=parked.pk, reason="seen to", using="default")
        work(worker)
        world.plan("announce-0", "said anew")
        engine.request(Twofold.saga_name, "redo", key="a", step="announce", reason="mended", using="default")
        work(worker)
    drain()
    assert status(Twofold) == Status.COMPLETED
    assert world.of("remind-0")[-1].argument == "said anew"
    assert world.of("thank-1")[0].argument.startswith("remind-1")  # `async def`


def test_cancel(world: World) -> None:
    """Reaches every item that is under way."""

    def cancel(run: Any) -> str:
        with transaction.atomic():
            Letters.cancel(key="a", reason="stop")
        return "sent"

    world.plan("send-0", cancel)
    begin(Letters, input=Ordered(number=9))
    drain()
    assert status(Letters) == Status.CANCELLED
    sent = {call.name[-1] for call in world.calls if call.name.startswith("send-")}
    assert {call.name[-1] for call in world.calls if call.name.startswith("recall-")} == sent


def test_an_item_that_parks_keeps_the_whole_waiting(world: World) -> None:
    """A person sees to it, and the saga goes on."""
    world.always("send-1", ValueError("?"))
    run = begin(Letters, input=Ordered(number=2))
    drain()
    assert status(Letters) == Status.RUNNING
    parked = [item for item in items_of(run) if item.status == Status.PARKED]
    assert len(parked) == 1
    world._script.clear()
    engine.request(None, "retry", id=parked[0].pk, reason="mended", using="default")
    drain()
    assert status(Letters) == Status.COMPLETED


def test_a_pause_starts_no_more(world: World) -> None:
    """Until it is resumed."""

    def pause(run: Any) -> str:
        engine.request(Letters.saga_name, "pause", key="a", reason="look", using="default")
        return "sent"

    world.plan("send-0", pause)
    run = begin(Letters, input=Ordered(number=9))
    drain()
    before = len(items_of(run))
    assert before < 9
    engine.request(Letters.saga_name, "resume", key="a", reason="go on", using="default")
    drain()
    assert status(Letters) == Status.COMPLETED
    assert "children_started post" in log_of(run)


def test_a_pause_of_all_sagas_of_the_name_starts_no_more(world: World) -> None:
    """Items that are under way end, and none follows them until the pause is over."""
    run = begin(Letters, input=Ordered(number=9))
    with DjangoStore("default").connect() as wire, one_worker() as worker:
        while not items_of(run):
            run_batch(worker, begin_due(worker))
        items = begin_due(worker)
        pauses.pause(wire, Scope.DEFINITION, Letters.saga_name, reason="look")
        run_batch(worker, items)
        drain(check=False)
        assert len(items_of(run)) == 3
        (row,) = OutboxRow.objects.filter(saga_id=run.id, kind="children")
        assert row.holder is None
        assert pauses.resume(wire, Scope.DEFINITION, Letters.saga_name)
    drain()
    assert status(Letters) == Status.COMPLETED


def test_what_cannot_be_is_refused_when_the_class_is_made() -> None:
    """With the name of the step, and what to write instead."""
    with pytest.raises(DefinitionError, match="many items cannot decide"):
        external_step(for_each=lambda self: [], pivot=True)(lambda self, item: None)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="concurrency=0"):

        @external_step(for_each=lambda self: [1], concurrency=0)
        def one(self: Any, item: int) -> None: ...

    with pytest.raises(DefinitionError, match="must take exactly"):

        @external_step(for_each=lambda self: [1])  # type: ignore[arg-type]
        def two(self: Any) -> None: ...

    with pytest.raises(DefinitionError, match="has no compensation"):

        class _(Saga[Ordered], name="test.each_no_undo", version=1):
            @external_step(for_each=lambda self: [1])
            def three(self, item: int) -> None: ...

    with pytest.raises(DefinitionError, match="no annotation"):

        class __(Saga[Ordered], name="test.each_untyped", version=1):
            @external_step(for_each=lambda self: [1], compensate=None)
            def four(self, item) -> None: ...  # type: ignore[no-untyped-def]

    assert step
