"""The page in the docs that says what is checked, how many worlds that are, and what would be noticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.modelcheck.check import Report, Violation
from tests.modelcheck.mutations import Mutation
from tests.modelcheck.scenario import FAULTS, Scenario

PLACE: Final = Path(__file__).parents[2] / "docs" / "guarantees-checked.md"

HEAD: Final = """\
# What is checked exhaustively, and what that would notice

<!-- Written by `python -m tests.modelcheck`. Do not edit. -->

Every interleaving of small sagas over the real state machine, the real take-over rules and the real decision of the
guard; the statements are pure functions with the guards of the SQL files. In every world: one owner of a row, one log
entry per `seq`, rows that are what their log folds to, no compensation beside a live lease of its step, an end in reach
without further faults; at `completed` every effect happened once, at `compensated` and `cancelled` none stands, as far
as the provider allows ([guarantees-table.md](guarantees-table.md)).

A relay that is frozen between its claim and its publish is a message that arrives long after its row was published
again; messages are kept in no order, and all of them may be late. Of time there is only what waits and deadlines
need, and it passes at any moment; whatever else can end (a lease, a backoff, a publish window), ends at any moment.

Of signals: each that was sent is on its way, in the log or taken, or its saga had ended, and never taken twice; they
are in the log in the order in which they were sent, also over runs that go on from each other; no wait ends before its
time without its signal, nor times out once its signal is on the way. Nothing begins in a paused saga, and no step after
the deadline of one that can turn back. What was skipped had not begun. The next run exists exactly when the one before
has completed with it, and no cancel is dropped that was asked of a saga from which a run has gone on. A redo never asks
under a former key; what had happened under that is the operator's to know. What an operator says of a step is true when
it is said, and does not count once the saga has moved on.

No saga completes before its child has, none counts as undone before its child is; no step is undone while a child that
was started after it has not come to its end, and no child before what came after it. A saga that waits for its child
sleeps until somebody wakes it, so that an end that is not told is an end that cannot be reached. A saga that is to turn
back starts none.
"""

WORLDS: Final = ("checked", "the provider offers", "goes wrong, at most", "worlds")
TEETH: Final = """
## What would be noticed

Each rule here was taken away, and a shortest way found to break a promise.
"""


def render(reports: Iterable[Report], found: Iterable[tuple[Mutation, Violation]]) -> str:
    """The page."""
    counted = list(reports)
    total = sum(report.states for report in counted)
    rows = ["| " + " | ".join(WORLDS) + " |", "|---|---|---|---:|", *map(_row, counted), f"| all | | | {total:,} |"]
    return "\n".join((HEAD, *rows, TEETH, *(line for each in found for line in _trace(*each))))


def names(scenarios: Iterable[Scenario], mutations: Iterable[Mutation]) -> Iterator[str]:
    """What the page has to mention."""
    yield from (f"| {scenario.name} |" for scenario in scenarios)
    yield from (f"### {_capital(mutation.name)}" for mutation in mutations)


def _row(report: Report) -> str:
    scenario = report.scenario
    asks = (
        ("cancel", scenario.cancels), ("retry", scenario.retries), ("abort", scenario.aborts),
        ("pause", scenario.pauses), ("redo", scenario.redos),
        ("an operator's word", scenario.resolves), ("signal", len(scenario.signals)),
    )  # fmt: skip
    people = [name if many == 1 else f"{many} x {name}" for name, many in asks if many]
    kinds = "anything" if scenario.kinds == FAULTS else ", ".join(sorted(scenario.kinds))
    at_most = f"{scenario.faults} of: {kinds}" if scenario.faults else "nothing"
    wrong = at_most + ("".join(f"; {each}" for each in people))
    return f"| {scenario.name} | {scenario.provider}; requests land {scenario.late} | {wrong} | {report.states:,} |"


def _trace(mutation: Mutation, violation: Violation) -> Iterator[str]:
    yield f"### {_capital(mutation.name)}\n"
    yield f"The rule is there because {mutation.because}. Without it: {violation.rule}.\n"
    yield from (f"{place}. {step}" for place, step in enumerate(violation.trace, 1))
    yield ""


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]
