"""Writes what the check found into the docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.modelcheck.check import Violation
from tests.modelcheck.invariants import NET, TWICE
from tests.modelcheck.scenario import Late
from tests.modelcheck.table import LINES, REDOS, Line

PLACE: Final = Path(__file__).parents[2] / "docs" / "guarantees-table.md"

HEAD: Final = """\
# What the other side has to offer, and what is then guaranteed

<!-- Written by `python -m tests.modelcheck`; a test compares it with what the check finds. Do not edit. -->

What happens in your own database happens exactly once, whatever fails. What happens in another system depends on
what that system offers to those who call it:

- **keys**: requests under one idempotency key are one effect, and get one answer.
- **tombstones**: an undo that is asked for without a result also stops a request under the same key that arrives
  later. A compensation that accepts `UNKNOWN` plants it.
- **`resolve`**: it can be asked what became of the requests under one key.

Each line below was found by exploring every interleaving of one external step, two workers, a caller who cancels, and
what goes wrong: a worker is frozen and its lease ends (it wakes and goes on at any later moment), a request times out
and lands later or never, a request is refused; any two of these, or a cancel and one. Undoing one effect twice is
taken to undo it once: a compensation has to be idempotent per effect, whatever else is offered.
"""

COLUMNS: Final = (
    "keys", "tombstones", "`resolve`", "compensation accepts `UNKNOWN`", "completed: the effect happened exactly once",
    "undone: no effect stands", "one attempt, its answer is lost",
)  # fmt: skip

NOTES: Final = """
*However late*: a request may land years after its worker died. *Before settling*: it lands, if ever, within
`settle_after` of the undo. *Before anyone looks*: it lands, if ever, before the next worker asks about it or tries
again, so within the lease or the backoff. All three are about requests whose answer nobody hears: where the worker
lives to hear it, the answer reopens the saga that was undone, and the effect is undone too.

*A person decides*: the saga parks; nothing is tried again or undone unasked. An operator's retry allows attempts
again, and so does a caller's cancel: its undo may need the result. Tombstones do nothing for a compensation that does
not accept `UNKNOWN`. A pivot is never undone: it is asked about, tried again under its key while its limits allow, and
then parks.
"""

REDO: Final = """
## Redo: what the operator answers for

`redo` does a parked step again under a new key, so that to the provider it is another request: keys, tombstones and
`resolve` say nothing about the two of them together. *Made sure*: when the redo is applied, nothing stands under the
former key and no request of it is on its way, or about to be sent by a worker that is still alive. A step that guards
its effects with `effect()` needs no look at workers: the redo closes the former key, and whoever still has it is
stopped before the next effect.

| the provider offers | the step guards its effects | the operator has made sure: exactly once | has not |
|---|---|---|---|
"""

TRACES: Final = """
## Where it fails

The shortest way to each failure that the table admits. `charge:do` is the step, `charge:undo` its compensation,
`charge:settle` the last look at a step that was undone as unknown.
"""


def render() -> str:
    """The page."""
    rows = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS), *map(_row, LINES)]
    return "\n".join((HEAD, *rows, NOTES.rstrip(), _redos(), TRACES.rstrip(), "", *_traces()))


def _row(line: Line) -> str:
    offers = (line.provider.keys, line.provider.tombstones, line.provider.resolve, line.accepts)
    cells = ["yes" if offered else "-" for offered in offers]
    return "| " + " | ".join((*cells, line.holds(TWICE), line.holds(NET), line.lost_answer)) + " |"


def _redos() -> str:
    lines = [
        f"| {line.provider} | {'yes' if line.guarded else '-'} | {line.holds(blind=False)} | {line.holds(blind=True)} |"
        for line in REDOS
    ]
    trace = REDOS[0].violations[TWICE].trace
    steps = [f"{place}. {step}" for place, step in enumerate(trace, 1)]
    return "\n".join((REDO.rstrip(), *lines, "", "The shortest way to twice:", "", *steps))


def _traces() -> Iterator[str]:
    found: dict[Violation, list[str]] = {}
    for line in LINES:
        for late, broken in line.violations.items():
            for violation in broken.values():
                found.setdefault(violation, []).append(_when(line, late))
    for number, (violation, lines) in enumerate(found.items(), 1):
        yield f"### {number}. {violation.rule[0].upper()}{violation.rule[1:]}\n"
        yield from (f"- {line}" for line in lines)
        yield ""
        yield from (f"{place}. {step}" for place, step in enumerate(violation.trace, 1))
        yield ""


def _when(line: Line, late: Late) -> str:
    accepts = "accepts" if line.accepts else "does not accept"
    lands = {
        Late.EVER: "requests land however late", Late.SETTLING: "requests land before settling",
        Late.LOOK: "requests land before anyone looks",
    }[late]  # fmt: skip
    return f"the provider offers {line.provider}; the compensation {accepts} `UNKNOWN`; {lands}"
