"""Log lines: which saga each is about, in fields of its own, and no payload in any."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import transaction

from sagas import NOT_DONE, Refused
from sagas.logs import FIELDS, JsonFormatter, Label, SagaFilter
from sagas.registry import registry
from sagas.states import Status
from sagas.testing.moving import Clock
from tests.shop.families import Purchase
from tests.shop.sagas import Asked, Charge, Ordered, Trip
from tests.shop.waiting import Review, Reviewed, Sleeper
from tests.shop.world import World
from tests.support.stories import begin, begin_many, bring_forward, drain, expire_leases
from tests.support.workers import begin_due, one_worker

pytestmark = pytest.mark.usefixtures("shop")

SECRET = "4929-0000-1111"
SECRET_NUMBER = 731_731_731


class Kept(logging.Handler):
    """Keeps lines, as a formatter writes them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self.addFilter(SagaFilter())
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        """All of them."""
        return "\n".join(map(self.format, self.records))


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Every line of every logger."""
    handler, root = Kept(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def ours(kept: Kept) -> list[logging.LogRecord]:
    """The lines of workers."""
    return [each for each in kept.records if each.name == "sagas.worker"]


def test_lines_about_a_saga_say_which(kept: Kept, world: World) -> None:
    """Id, name, key and step, as fields and in the text."""
    world.always("charge", OSError("no route"))
    saga = begin(Charge, "k-1")
    drain()
    (parked,) = [each for each in ours(kept) if "parked" in each.getMessage()]
    assert [getattr(parked, field) for field in FIELDS] == [str(saga.id), "test.charge", "k-1", "charge"]
    line = json.loads(kept.format(parked))
    assert line["saga_id"] == str(saga.id) and line["level"] == "ERROR" and line["message"].startswith("saga test.")
    assert all(getattr(each, "saga_id", None) for each in ours(kept) if "saga test." in each.getMessage())


def test_lines_of_a_body_say_which_saga_it_is_of(kept: Kept, world: World) -> None:
    """Whatever logger the application uses; lines from elsewhere have empty fields."""
    shop = logging.getLogger("shop.orders")
    world.plan("book", lambda run: shop.info("booking"))
    world.plan("charge", lambda run: shop.info("charging") or "paid")
    saga = begin(Trip, "k-2")
    drain()
    shop.info("outside")
    lines = {each.getMessage(): each for each in kept.records if each.name == "shop.orders"}
    for message, step in (("booking", "book"), ("charging", "charge")):
        found = [getattr(lines[message], field) for field in FIELDS]
        assert found == [str(saga.id), "test.trip", "k-2", step]
    assert [getattr(lines["outside"], field) for field in FIELDS] == [""] * 4


def test_no_payload_is_in_any_line(kept: Kept, world: World) -> None:
    """Neither input, nor result, nor signal, nor what the dedupe table has; whatever goes wrong."""
    given = Ordered(number=SECRET_NUMBER)
    world.always("find", NOT_DONE)
    world.plan("charge", SECRET, saga="done")
    world.plan("charge", Refused("no"), saga="undone")
    world.always("charge", OSError("no route"), saga="parked")
    world.plan("charge", lambda run: {SECRET}, saga="unstorable")
    for key in ("done", "undone", "unstorable"):
        begin(Trip, key, given)
    begin(Charge, "parked", given)
    begin(Asked, "taken over", given)
    expire_leases()
    begin(Reviewed, "waits", given)
    drain(check=False)
    Reviewed.review.send(Review(ok=True, note=SECRET), key="waits", actor="ann", reason="fine")
    drain(check=False)
    Reviewed.review.send(Review(ok=True, note=SECRET), key="waits")  # too late: it is dropped, with a warning
    drain(check=False)
    assert any("dropped" in each.getMessage() for each in ours(kept))
    text = "\n".join(kept.format(each) for each in ours(kept))
    assert len(ours(kept)) > 3 and "saga_key" in text
    assert SECRET not in text and str(SECRET_NUMBER) not in text


def test_a_label_is_text_like_any_other() -> None:
    """It may be put into messages of one's own."""
    label = Label.of(id=7, name="n", key="k", step="s", work="s:do")
    assert f"{label}" == "saga n 7 (key 'k'), s:do" and label.saga_step == "s"


def levels(kept: Kept) -> list[tuple[str, str]]:
    """Level and text of what workers say, without its traceback."""
    return [(each.levelname, each.getMessage().partition("\n")[0].partition("), ")[2]) for each in ours(kept)]


def test_each_failed_attempt_is_told(kept: Kept, world: World) -> None:
    """With where it failed; and that a saga turns back over it, though nobody asked for that."""
    world.always("book", ZeroDivisionError("by zero"))
    begin(Trip, "a")
    drain()
    told = levels(kept)
    failed = [each for each in told if "attempt" in each[1]]
    assert failed[0] == ("WARNING", "book:do: step failed, attempt 1: ZeroDivisionError")
    assert len(failed) == 3
    assert [level for level, text in told if "turns back, what was done is undone" in text] == ["ERROR"]
    (first, *_) = [each for each in ours(kept) if "attempt 1" in each.getMessage()]
    assert re.search(r'\n  File ".*/tests/shop/sagas.py", line \d+, in book\b', first.getMessage())
    assert "by zero" not in kept.text


def test_a_refusal_is_no_error(kept: Kept, world: World) -> None:
    """It is an answer of the other side, and what follows is as its author wanted it."""
    world.plan("charge", Refused("card declined"))
    begin(Trip, "a")
    drain()
    assert ("INFO", "charge:do: refused") in levels(kept)
    assert {level for level, _ in levels(kept)} == {"INFO"}


def turns(kept: Kept) -> list[str]:
    """The levels at which it is told that sagas turn back."""
    return [level for level, text in levels(kept) if "turns back, what was done is undone" in text]


def test_an_end_that_was_asked_for_is_no_error(kept: Kept, time_machine: Clock, world: World) -> None:
    """A cancel, and a wait whose time is over: nothing has failed. A deadline is such an end too."""
    with transaction.atomic():
        Sleeper.start(Ordered(9), key="deadline", deadline=timedelta(hours=1))
    for key in ("cancelled", "late"):
        begin(Reviewed, key)
    drain()
    with transaction.atomic():
        Reviewed.cancel(key="cancelled", reason="changed her mind")
    drain()
    time_machine.advance(timedelta(days=3))
    drain()
    ended = [Reviewed.get(key="cancelled"), Reviewed.get(key="late"), Sleeper.get(key="deadline")]
    assert [each.status for each in ended] == [Status.CANCELLED, Status.COMPENSATED, Status.COMPENSATED]
    assert turns(kept) == ["INFO"] * 3
    assert {level for level, _ in levels(kept)} == {"INFO"}


def test_children_that_fail_are_an_error(kept: Kept, world: World) -> None:
    """The saga that started them turns back over it, and nobody asked for that."""
    world.plan("take", Refused("no money"))
    begin(Purchase, "a")
    drain()
    assert turns(kept) == ["ERROR"]


def test_a_version_that_a_worker_lacks_is_told_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout is no error: a warning for each name and version, that says how many sagas wait; the next one some
    minutes later. Other versions have lines of their own."""
    begin_many(Trip, "abc")
    begin(Charge, "d")
    now = [1000.0]
    monkeypatch.setattr("sagas.lacking.monotonic", lambda: now[0])
    with monkeypatch.context() as old, one_worker() as worker:
        old.setattr(registry, "_sagas", {})
        for _ in range(3):
            assert begin_due(worker) == []
            bring_forward()
        first = levels_of(kept, "left to a worker that has it")
        begin(Trip, "e")
        now[0] += 301.0
        assert begin_due(worker) == []
    assert sorted(first) == [
        ("WARNING", "1 saga of test.charge version 1"), ("WARNING", "3 sagas of test.trip version 1"),
    ]  # fmt: skip
    later = levels_of(kept, "left to a worker that has it")[2:]
    assert sorted(later) == [
        ("WARNING", "1 saga of test.charge version 1"), ("WARNING", "4 sagas of test.trip version 1"),
    ]  # fmt: skip
    assert "ERROR" not in {level for level, _ in levels(kept)}


def levels_of(kept: Kept, text: str) -> list[tuple[str, str]]:
    """Level and beginning of the lines that say something."""
    found = [(each.levelname, each.getMessage().partition(f" {text}")) for each in ours(kept)]
    return [(level, begins) for level, (begins, said, _) in found if said]
