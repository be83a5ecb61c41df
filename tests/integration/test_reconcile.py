"""What the other side knows, compared by idempotency key with what the sagas here say, and written down."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from django.core.management import call_command

from sagas import reconcile, reconciling, verify
from sagas.engine import SagaRun, request
from sagas.errors import InvalidInput
from sagas.keys import idempotency_key
from sagas.payloads import PLAIN
from sagas.reconcile import Verdict, _Here, _verdict, compare
from sagas.reconcile_lists import Address, Effect, address, read
from sagas.reconciling import write_down
from sagas.restored import Doubted
from sagas.states import State, Status, StepState, StepStatus
from sagas_django.models import LogEntry, SagaRow
from sagas_django.store import DjangoStore
from sagas_outbox.queries import query
from tests.shop.families import Purchase
from tests.shop.sagas import Trip
from tests.shop.world import World
from tests.support.backup import Backup, Bought
from tests.support.stories import begin, begin_many, dedupe, differences, drain, entries, log_of, outbox

pytestmark = pytest.mark.usefixtures("shop")
Lister = Callable[..., Path]


@pytest.fixture
def listed(tmp_path: Path) -> Lister:
    """Writes a list of what the other side knows."""

    def write(*effects: dict[str, Any]) -> Path:
        path = tmp_path / "bank.jsonl"
        path.write_text("".join(json.dumps(effect) + "\n" for effect in effects))
        return path

    return write


def reconciled(path: Path, *options: str) -> dict[str, Any]:
    """What the command says, as data."""
    out = io.StringIO()
    with suppress(SystemExit):
        call_command("sagas", "reconcile", str(path), "--json", *options, stdout=out, skip_checks=True)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def verdicts(answer: dict[str, Any]) -> dict[str, str]:
    """Verdict by the end of each key."""
    return {each["key"].split(":", 1)[1]: each["verdict"] for each in answer["data"]["found"]}


def effect(saga: SagaRun | UUID, step: str, direction: str = "do", generation: int = 0, **more: Any) -> dict[str, Any]:
    id = saga if isinstance(saga, UUID) else saga.id
    return {"key": idempotency_key(id, step, direction, generation), "amount": "12.50", **more}


# --- lists ---


def test_json_lines_and_csv_say_the_same(tmp_path: Path) -> None:
    """Amounts stay as they were written; the fields may be called otherwise; a result is JSON."""
    key = idempotency_key(uuid4(), "charge")
    lines = tmp_path / "a.jsonl"
    lines.write_text(
        f'{{"idempotency_key": "{key}", "id": "ch_7", "amount": 12.50, "created": 1764, "result": "ch_7"}}\n\n'
    )
    table = tmp_path / "a.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([
            ["id", "idem", "amount", "created", "result"], ["ch_7", key, "12.50", "1764", '"ch_7"'],
        ])  # fmt: skip
    (one,), (two,) = list(read(lines)), list(read(table, key="idem"))
    assert one == two
    assert (one.key, one.reference, one.amount, one.at) == (key, "ch_7", "12.50", "1764")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"id": "ch_7"}\n', "line 1: it has no key or idempotency_key; it has id"),
        ('{"key": "a"}\n{"key"\n', "line 2: no JSON object"),
        ("id,amount\nch_7,1\n", "line 2: it has no key or idempotency_key; it has id, amount"),
    ],
)
def test_a_list_that_cannot_be_read(tmp_path: Path, text: str, says: str) -> None:
    """The message names the line."""
    path = tmp_path / "list"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=says):
        list(read(path))
    with pytest.raises(InvalidInput, match="No such file"):
        list(read(tmp_path / "none"))


def test_what_a_key_says() -> None:
    """Saga, step, effect, direction and generation; other people's keys say nothing."""
    id = uuid4()
    assert address(f"{id}:charge/fee-2:undo:3") == Address(id, "charge", "fee-2", "undo", 3)
    for other in ("", "order-7", f"{id}:charge:do:x", f"{id}:charge:back:0", "a:charge:do:0", f"{id}::do:0"):
        assert address(other) is None, other


# --- verdicts ---


def test_what_agrees_needs_nobody(world: World, listed: Lister) -> None:
    """Done here and there, undone here and there; keys of others are counted only."""
    whole = begin(Trip, "whole")
    drain()
    world.plan("confirm", *[RuntimeError("no")] * 3)
    back = begin(Trip, "back")
    drain()
    assert SagaRow.objects.get(id=back.id).status == "compensated"
    path = listed(effect(whole, "charge"), effect(back, "charge"), effect(back, "charge", "undo"), {"key": "order-7"})
    answer = reconciled(path)
    assert answer["ok"]
    assert answer["data"]["found"] == []
    assert {name: count for name, count in answer["data"]["counts"].items() if count} == {"known": 3, "foreign": 1}


def test_sagas_that_vanished(world: World, backup: type[Backup], listed: Lister) -> None:
    """Each orphan is named with its saga, step and key; one that was undone as well needs nobody."""
    before = backup()
    lost, undone = begin(Trip, "lost"), begin(Trip, "undone")
    drain()
    before.restore()
    path = listed(
        effect(lost, "charge", reference="ch_1"), effect(undone, "charge"), effect(undone, "charge", "undo")
    )  # fmt: skip
    answer = reconciled(path)
    assert not answer["ok"]
    (found,) = answer["data"]["found"]
    assert (found["verdict"], found["saga"], found["step"]) == ("vanished", str(lost.id), "charge")
    assert (found["key"], found["reference"], found["amount"]) == (f"{lost.id}:charge:do:0", "ch_1", "12.50")
    assert datetime.now(UTC).strftime("%Y-%m-%d") in found["label"]
    assert "no such saga is here" in "".join(answer["said"])


def test_a_child_that_may_be_started_again_is_no_orphan(world: World, backup: type[Backup], listed: Lister) -> None:
    """Its parent is here, and would start it under the same id: nobody is to undo it before that saga has ended."""
    saga = begin(Purchase)
    before = backup()
    drain()
    (child,) = SagaRow.objects.filter(parent=saga.id)
    path = listed(effect(child.pk, "take"), effect(uuid4(), "charge"))
    before.restore()
    assert verdicts(reconciled(path)) == {"take:do:0": "awaited", "charge:do:0": "vanished"}
    drain()
    assert verdicts(reconciled(path)) == {"charge:do:0": "vanished"}
    before.restore()
    request(Purchase.saga_name, "cancel", key="a", reason="enough", using="default")
    drain()
    assert verdicts(reconciled(path)) == {"take:do:0": "vanished", "charge:do:0": "vanished"}


def test_only_what_was_undone_needs_nobody(listed: Lister) -> None:
    """The undo of one effect says nothing of another one, and that of a redo nothing of the attempt before."""
    lost, redone = uuid4(), uuid4()
    path = listed(
        effect(lost, "charge/fee"), effect(lost, "charge/price"), effect(lost, "charge/fee", "undo"),
        effect(redone, "charge"), effect(redone, "charge", generation=1), effect(redone, "charge", "undo"),
    )  # fmt: skip
    keys = [each["key"] for each in reconciled(path)["data"]["found"]]
    assert keys == [f"{lost}:charge/price:do:0", f"{redone}:charge:do:0"]


CHARGE, UNDONE = Address(uuid4(), "charge", "", "do", 0), Address(uuid4(), "charge", "", "undo", 0)


def verdict(state: State, where: Address, *, answered: bool) -> Verdict:
    """Of a key that the log does not know of."""
    here = _Here(label="a saga", state=state, known={"key"} if answered else set())
    return _verdict(here, where, Effect(key="key"))


@pytest.mark.parametrize(
    ("status", "step", "says"),
    [
        (Status.RUNNING, StepState(), Verdict.KNOWN),
        (Status.COMPENSATING, StepState(), Verdict.BEHIND),
        (Status.CANCELLED, StepState(), Verdict.BEHIND),
        (Status.COMPLETED, StepState(status=StepStatus.SKIPPED), Verdict.BEHIND),
        (Status.COMPENSATING, StepState(status=StepStatus.UNKNOWN), Verdict.KNOWN),
        (Status.SETTLING, StepState(status=StepStatus.NOT_DONE, unsettled=True), Verdict.KNOWN),
        (Status.COMPENSATED, StepState(status=StepStatus.UNDONE), Verdict.KNOWN),
        (Status.COMPENSATED, StepState(status=StepStatus.NOT_DONE, settled=1), Verdict.KNOWN),
        (Status.RUNNING, StepState(generation=1), Verdict.FORMER),
    ],
)
def test_an_answer_counts_while_the_saga_will_look_at_it(status: Status, step: StepState, says: Verdict) -> None:
    """That it was written down is not enough: a saga that turned back before it never comes to it."""
    assert verdict(State(status, 3, {"charge": step}), CHARGE, answered=True) is says


def test_an_undo_counts_when_the_saga_turns_back() -> None:
    """Not before, although its answer is here already: a cancel may not be granted."""
    for answered in (True, False):
        assert verdict(State(Status.RUNNING, 3), UNDONE, answered=answered) is Verdict.TURNED_BACK
        assert verdict(State(Status.COMPLETED, 3), UNDONE, answered=answered) is Verdict.TURNED_BACK
    assert verdict(State(Status.RUNNING, 3, failing=True), UNDONE, answered=True) is Verdict.KNOWN
    assert verdict(State(Status.COMPENSATING, 3), UNDONE, answered=True) is Verdict.KNOWN
    assert verdict(State(Status.COMPENSATING, 3), UNDONE, answered=False) is Verdict.AHEAD
    assert verdict(State(Status.CANCELLED, 3), UNDONE, answered=False) is Verdict.BEHIND


def test_a_saga_that_ended_without_it(world: World, listed: Lister) -> None:
    """Refused here, and yet it is in the books over there."""
    saga = begin(Trip)
    world.plan("book", *[RuntimeError("no seat")] * 3)
    drain()
    assert verdicts(reconciled(listed(effect(saga, "charge")))) == {"charge:do:0": "behind"}


def test_what_the_list_lacks(listed: Lister) -> None:
    """Only where the list is said to be complete, and only of steps that it knows at all."""
    one, two = begin(Trip, "one"), begin(Trip, "two")
    drain()
    path, start = listed(effect(one, "charge")), (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    assert reconciled(path)["ok"]
    answer = reconciled(path, "--since", start)
    (found,) = answer["data"]["found"]
    assert (found["verdict"], found["saga"], found["step"]) == ("lacking", str(two.id), "charge")
    assert reconciled(path, "--since", start, "--until", start)["ok"]
    assert "a time such as" in reconciled(path, "--since", "yesterday")["error"]


def test_a_former_generation(world: World, listed: Lister) -> None:
    """An operator had it done anew, and the first attempt happened after all."""
    world.plan("charge", *[RuntimeError("no answer")] * 3)
    saga = begin(Trip)
    drain()
    request(None, "redo", id=saga.id, step="charge", reason="lost", actor="ann", using=None)
    drain()
    answer = reconciled(listed(effect(saga, "charge"), effect(saga, "charge", generation=1)))
    assert verdicts(answer) == {"charge:do:0": "former"}


# --- writing down ---


def test_steps_are_settled_by_what_is_known(world: World, backup: type[Backup], listed: Lister) -> None:
    """Two effects of a saga that went back in time: their answers are taken, nothing is asked or done again."""
    saga = begin(Bought)
    before = backup()
    drain()
    before.restore()
    path = listed(effect(saga, "charge", result="charge-1", reference="c1"), effect(saga, "ship", result="ship-2"))
    assert verdicts(reconciled(path)) == {"charge:do:0": "ahead", "ship:do:0": "ahead"}
    assert log_of(saga) == ["started"], "nothing is written without --apply"
    assert "--reason" in reconciled(path, "--apply")["error"]
    answer = reconciled(path, "--apply", "--reason", "failover", "--actor", "ann")
    assert answer["ok"], answer
    assert dedupe(saga) == {"charge:do:0": "done", "ship:do:0": "done"}
    (said,) = [entry for entry in entries(saga) if entry.kind == "doubted" and entry.step == "charge"]
    assert said.data["actor"] == "ann"
    assert said.data["reason"] == f"failover: {saga.id}:charge:do:0 is known over there as c1"
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "completed"
    assert world.names == ["charge", "ship"], "from before, and never again"
    assert reconciled(path)["ok"]


def test_a_result_of_the_wrong_type_is_not_written_down(backup: type[Backup], listed: Lister) -> None:
    """The message says so, and nothing of that effect is written."""
    saga = begin(Bought)
    answer = reconciled(listed(effect(saga, "charge", result=7)), "--apply", "--reason", "failover")
    assert not answer["ok"]
    assert "not written down" in "".join(answer["said"])
    assert dedupe(saga) == {}
    assert log_of(saga) == ["started"]


def test_without_a_result_the_step_is_asked_about(world: World, listed: Lister) -> None:
    """That it was begun is known, what came of it is not."""
    saga = begin(Bought)
    assert reconciled(listed(effect(saga, "charge")), "--apply", "--reason", "failover")["ok"]
    world.plan("find_charge", "charge-7")
    drain()
    assert world.names == ["find_charge", "ship"]


def test_what_was_turned_back_turns_back_again(world: World, backup: type[Backup], listed: Lister) -> None:
    """Charged and refunded in the history that was lost. Charged again under its key the bank would answer as before,
    and the saga would go on with money that was given back."""
    saga = begin(Bought)
    before = backup()
    drain()
    before.restore()
    world.reset()
    path = listed(effect(saga, "charge", result="charge-1"), effect(saga, "charge", "undo"))
    assert verdicts(reconciled(path)) == {"charge:do:0": "ahead", "charge:undo:0": "turned back"}
    assert reconciled(path, "--apply", "--reason", "failover")["ok"]
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "cancelled"
    assert world.names == [], "neither charged nor refunded once more"
    assert differences() == []


def test_a_redo_that_was_lost(world: World, backup: type[Backup], listed: Lister) -> None:
    """Generations come again: asked for once more, the redo is the same act under the same key, and is answered."""
    world.plan("charge", *[RuntimeError("no answer")] * 3)
    saga = begin(Trip)
    drain()
    before = backup()
    request(None, "redo", id=saga.id, step="charge", reason="lost", actor="ann", using=None)
    drain()
    before.restore()
    done = len(world.of("charge"))
    path = listed(effect(saga, "charge", generation=1, result="charge-9"))
    assert verdicts(reconciled(path)) == {"charge:do:1": "ahead"}
    assert reconciled(path, "--apply", "--reason", "failover")["ok"]
    request(None, "redo", id=saga.id, step="charge", reason="again", actor="ann", using=None)
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "completed"
    assert len(world.of("charge")) == done
    assert world.of("confirm")[-1].argument[1] == "charge-9"


def test_a_parked_saga_is_to_be_retried(world: World, listed: Lister) -> None:
    """It waits for a person, and now somebody knows."""
    world.plan("charge", *[RuntimeError("no answer")] * 3)
    saga = begin(Trip)
    drain()
    answer = reconciled(listed(effect(saga, "charge", result="charge-9")), "--apply", "--reason", "the bank says so")
    assert answer["data"]["found"][0]["became"] == "its answer is written down; it is parked: retry it"
    request(None, "retry", id=saga.id, reason="reconciled", using=None)
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "completed"
    assert len(world.of("charge")) == 3


def test_what_cannot_be_read_is_one_of_many(listed: Lister) -> None:
    """A damaged saga, and a step that nobody has heard of, do not keep the others from being compared."""
    damaged, other, fine = begin(Trip, "damaged"), begin(Bought, "other"), begin(Bought, "fine")
    SagaRow.objects.filter(id=damaged.id).update(steps={"book": {"status": "no such thing"}})
    path = listed(effect(damaged, "charge"), effect(other, "unheard"), effect(fine, "charge", result="c"))
    answer = reconciled(path, "--apply", "--reason", "failover")
    found = {each["saga"]: (each["verdict"], each["became"]) for each in answer["data"]["found"]}
    assert found[str(damaged.id)] == ("unreadable", "")
    assert found[str(other.id)][1].startswith("not written down")
    assert found[str(fine.id)] == ("ahead", "its answer is written down")
    SagaRow.objects.filter(id=damaged.id).delete()


def test_what_was_undone_in_vain(world: World, backup: type[Backup], listed: Lister) -> None:
    """A saga that has passed its pivot cannot turn back: that is said, each time, and nothing is written down."""
    world.plan("charge", "charge-1")
    world.plan("ship", *[RuntimeError("no answer")] * 9)
    world.plan("find_parcel", *[RuntimeError("no answer")] * 30)
    saga = begin(Bought)
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "parked"
    path, log = listed(effect(saga, "charge", "undo")), log_of(saga)
    for _ in range(2):
        answer = reconciled(path, "--apply", "--reason", "failover")
        assert not answer["ok"]
        assert "passed its pivot" in answer["data"]["found"][0]["became"]
    assert log_of(saga) == log
    assert [row.kind for row in outbox(saga)] == []


def test_the_cancel_comes_with_the_first_answer(backup: type[Backup], listed: Lister) -> None:
    """Whoever dies between two answers leaves a saga that turns back."""
    saga = begin(Bought)
    path = listed(effect(saga, "charge", result="charge-1"), effect(saga, "charge", "undo"))
    with DjangoStore("default").connect() as aside:
        found = list(compare(aside, list(read(path))))
        next(iter(write_down(aside, found, payloads=PLAIN, actor="ann", reason="failover")))
    assert dedupe(saga) == {"charge:do:0": "done"}
    assert sorted(row.kind for row in outbox(saga)) == ["cancel", "step"]


def test_what_does_not_fit_is_not_half_written(
    world: World, listed: Lister, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A doubt that cannot be written, since workers move the saga on, takes the answer with it."""
    saga = begin(Bought)
    problem = Doubted(saga_id=saga.id, label="a saga", problem="workers move it on all the time")
    monkeypatch.setattr(reconciling, "doubt_work", lambda *_, **__: problem)
    answer = reconciled(listed(effect(saga, "charge", result="charge-1")), "--apply", "--reason", "failover")
    assert answer["data"]["found"][0]["became"] == "not written down: workers move it on all the time"
    assert dedupe(saga) == {}


@pytest.mark.parametrize(("step", "direction"), [("unheard", "undo"), ("unheard/fee", "do")])
def test_a_step_that_nobody_has_heard_of(listed: Lister, step: str, direction: str) -> None:
    """It is not written into the saga, which nobody could read any more."""
    saga = begin(Bought)
    answer = reconciled(listed(effect(saga, step, direction, result=1)), "--apply", "--reason", "failover")
    assert answer["data"]["found"][0]["became"].startswith("not written down")
    assert (dedupe(saga), log_of(saga)) == ({}, ["started"])
    drain()
    assert SagaRow.objects.get(id=saga.id).status == "completed"


def test_an_effect_of_a_compensation_has_its_own_answer(listed: Lister) -> None:
    """Not that of the compensation, which is nothing."""
    found = Address(uuid4(), "charge", "refund", "undo", 0)
    assert reconciling._answer({}, found, '{"id": 7}', PLAIN) == '{"id": 7}'


def test_rows_and_logs_are_of_one_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is done after the first of them is read, and before the other is, has not been done for either."""
    saga = begin(Trip)
    asked: list[str] = []

    def meanwhile(package: str, name: str) -> LiteralString:
        asked.append(name)
        if len(asked) == 2:
            drain(check=False)
        return query(package, name)

    effect = Effect(key=idempotency_key(saga.id, "charge"))
    with DjangoStore("default").connect() as raw:
        with monkeypatch.context() as patched:
            patched.setattr(reconcile, "query", meanwhile)
            patched.setattr(verify, "query", meanwhile)
            assert [match.verdict for match in compare(raw, [effect])] == [Verdict.AHEAD]
        assert set(asked) == {"logs", "reconcile_sagas"}
        assert [match.verdict for match in compare(raw, [effect])] == [Verdict.KNOWN]


def test_logs_come_a_few_lines_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a batch of sagas may be more than fits into memory."""
    begin_many(Trip, "abc")
    drain()
    effects = [Effect(key=idempotency_key(row.pk, "charge")) for row in SagaRow.objects.all()]
    lines: list[int] = []
    fetched = psycopg.ServerCursor._fetch_gen

    def counted(cursor: psycopg.ServerCursor[Any], size: int | None) -> Any:
        found = yield from fetched(cursor, size)
        lines.append(len(found))
        return found

    monkeypatch.setattr(psycopg.ServerCursor, "_fetch_gen", counted)
    monkeypatch.setattr(verify, "LINES", 4)
    with DjangoStore("default").connect() as raw:
        assert [match.verdict for match in compare(raw, effects)] == [Verdict.KNOWN] * 3
    assert max(lines) == 4 and sum(lines) == LogEntry.objects.count()
