"""What steps.md and failure-matrix.md say of attempts that are used up is what the machine does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sagas import FOREVER, Retry, Saga, external_step, step
from sagas.events import Work
from sagas.plan import Plan, StepPlan
from sagas.takeover import NOTHING, Memory, Run
from tests.docs.reading import ROOT, blocks
from tests.support.machine_driver import ACCEPTS, COMPENSATE, Did, Driven, local, pivot, plan
from tests.support.machine_driver import step as outside

DEFAULT = Retry()
MOST = 1000  # deliveries


class Failing:
    """Bodies raise, and `resolve` always gives this answer."""

    def __init__(self, says: Did = Did.UNDECIDED) -> None:
        self.says = says

    def memory(self, work: Work) -> Memory:
        return NOTHING

    def ask(self, work: Work) -> Did:
        return self.says

    def body(self, work: Work, run: Run) -> Did:
        return Did.OK if work.direction != "do" else Did.FAIL

    def choose(self, work: Work) -> Did:
        raise AssertionError(work)

    def until(self, work: Work, now: float) -> None:
        raise AssertionError(work)


def lived(of: Plan, says: Did = Did.UNDECIDED, *, step: int = 0) -> tuple[str, float]:
    """Where a saga comes to when its step number `step` fails and fails, and after how many seconds."""
    saga = Driven(of)
    for _ in range(step):
        saga.deliver(Did.OK)
    name, begun = of.steps[step].name, saga.now
    for _ in range(MOST):
        saga.deliver_in(Failing(says))
        if saga.row is None or (saga.row.step, saga.row.direction) != (name, "do"):
            return saga.status, saga.now - begun
    return saga.status, saga.now - begun


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page's code defines."""
    names: dict[str, Any] = {"__name__": __name__}
    for block in blocks(ROOT / "docs" / "steps.md")[:2]:
        exec(block.text, names)
    return names


def patiences(page: dict[str, Any]) -> Iterator[Retry]:
    yield from (DEFAULT, Retry(max_attempts=3, first=2, factor=3, longest=10), page["NIGHT_ASKED"])


def test_how_long_a_retry_lasts(page: dict[str, Any]) -> None:
    """The function on the page says it, with and without a `resolve`; jitter only makes it shorter."""
    for retry in patiences(page):
        assert lived(plan(outside(retry=retry))) == ("parked", page["lasts"](retry))
        assert lived(plan(outside(retry=retry, has_resolve=True))) == ("parked", page["lasts"](retry, resolve=True))
        assert lived(plan(local(retry=retry)))[1] == page["lasts"](retry)


DONE, KNOWN = outside("before"), {"has_resolve": True, "retry": DEFAULT}
OUTCOMES: list[tuple[str, int, Did, str]] = [  # the row, which step fails, what resolve says, where the saga comes to
    ("local, up to and with the pivot", 1, Did.UNDECIDED, "compensating"),
    ("external, before the pivot, `resolve` says `NOT_DONE`", 1, Did.NOT_DONE, "compensating"),
    ("external, nobody can tell, `on_unknown=PARK` (the default)", 1, Did.UNDECIDED, "parked"),
    ("external, before the pivot, nobody can tell, `on_unknown=COMPENSATE`", 1, Did.UNDECIDED, "compensating"),
    ("the pivot, external, `resolve` says `NOT_DONE`", 1, Did.NOT_DONE, "parked"),
    ("after the pivot, with a `retry=` of its own", 1, Did.UNDECIDED, "parked"),
]  # fmt: skip
PLANS: dict[str, tuple[StepPlan, ...]] = {
    "local, up to and with the pivot": (DONE, local(pivot=True, undo=None, retry=DEFAULT)),
    "external, before the pivot, `resolve` says `NOT_DONE`": (DONE, outside(**KNOWN)),
    "external, nobody can tell, `on_unknown=PARK` (the default)": (DONE, outside(**KNOWN)),
    "external, before the pivot, nobody can tell, `on_unknown=COMPENSATE`": (
        DONE, outside(on_unknown=COMPENSATE, undo=ACCEPTS, retry=DEFAULT),
    ),
    "the pivot, external, `resolve` says `NOT_DONE`": (DONE, pivot(**KNOWN)),
    "after the pivot, with a `retry=` of its own": (pivot(), local(retry=DEFAULT, undo=None)),
}  # fmt: skip


@pytest.mark.parametrize(("row", "failing", "says", "status"), OUTCOMES)
def test_what_happens_when_attempts_are_used_up(row: str, failing: int, says: Did, status: str) -> None:
    """A line of the table for each; only what parks needs a person."""
    assert lived(plan(*PLANS[row]), says, step=failing)[0] == status
    (line,) = [line for line in (ROOT / "docs" / "steps.md").read_text().splitlines() if line.startswith(f"| {row} |")]
    assert line.endswith("| yes |") is (status == "parked") and ("parks" in line) is (status == "parked")


def test_what_follows_the_pivot_is_tried_until_it_works() -> None:
    """Unless it has a `retry=` of its own; before the pivot the default is that of everybody."""

    class After(Saga[None], name="docs.steps.after", version=1):
        @step(compensate=None)
        def before(self) -> None: ...

        @external_step(compensate=None, pivot=True)
        def decides(self) -> None: ...

        @step
        def patient(self) -> None: ...

        @external_step(retry=Retry(max_attempts=2))
        def told(self) -> None: ...

    assert [each.retry.max_attempts for each in After.plan.steps] == [5, 5, FOREVER, 2]


def test_the_matrix_has_the_same_figures(page: dict[str, Any]) -> None:
    """Of the default `Retry`."""
    text = (ROOT / "docs" / "failure-matrix.md").read_text()
    assert text.count(f"by default within {page['lasts'](DEFAULT):.0f} s") == 2
    assert f"with a `resolve` that cannot ask either within {page['lasts'](DEFAULT, resolve=True):.0f} s" in text
