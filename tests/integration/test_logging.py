"""Log lines: which saga each is about, in fields of its own, and no payload in any."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest

from sagas import NOT_DONE, Refused
from sagas.logs import FIELDS, JsonFormatter, Label, SagaFilter
from tests.shop.sagas import Asked, Charge, Ordered, Trip
from tests.shop.waiting import Review, Reviewed
from tests.shop.world import World
from tests.support.stories import begin, drain, expire_leases

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
