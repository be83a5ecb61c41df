"""Prints docs/machine.md, drawn from the transition table:

.venv/bin/python docs/draw_machine.py > docs/machine.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from textwrap import fill

from sagas.events import EVENTS, Direction, Event, Kind, Start
from sagas.machine import DIRECTION, TABLE, TERMINAL, Transition
from sagas.states import Status

WIDTH = 120

HEAD = """\
# The state machine

<!-- Written by `docs/draw_machine.py` from `sagas.machine.TABLE`; a test compares them. Do not edit. -->

What a saga does next is decided in [sagas/machine](../sagas/machine/__init__.py) and nowhere else: `decide(plan, state,
event)` is a pure function over the table below. The rules behind it are at the head of that file; what they give is in
[guarantees.md](guarantees.md), how decisions are written in [architecture.md](architecture.md).
"""

DIAGRAM = """\
## Statuses

Arrows are the events that may lead from one status to another. Events after which a saga may also stay where it is
(a retry is planned, the next step begins) are in the table only. A saga that is finished absorbs whatever still
arrives, but for a late answer after its undo.
"""

WORK = """\
In each of these statuses a saga has work, and owns an outbox row for it:
"""

EVENT_LIST = """\
## Events

What a worker finds out about a begun attempt, and what is asked for from outside.
"""

TRANSITIONS = """\
## Transitions

Every pair of status and event that changes anything. A pair that is not listed changes nothing. Where several statuses
are named, what is known about the step decides: its kind and limits, whether an attempt is unknown, whether it comes
before or after the pivot, whether a cancel was asked for or the deadline has passed, what signals are there already.
"""

KINDS = """\
## Log kinds

The closed list. State changes only by writing entries of these kinds; folding them gives the state again
([sagas/fold.py](../sagas/fold.py)).
"""

MEANING = {
    Direction.DO: "the steps whose needs have ended",
    Direction.UNDO: "the compensations, last done first",
    Direction.SETTLE: "the last look at steps that were undone without knowing",
}


def page() -> str:
    """The whole page."""
    parts = [
        HEAD, DIAGRAM, "```mermaid", *diagram(), "```", "", WORK, *works(), "", EVENT_LIST, *events(), "",
        TRANSITIONS, *transitions(), "", KINDS, fill(", ".join(f"`{kind.value}`" for kind in Kind), WIDTH),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def diagram() -> Iterator[str]:
    """The diagram in Mermaid: one arrow for each pair of statuses, labelled with all events that lead along it."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {Status.RUNNING.value}: {Start.__name__}"
    arrows: dict[tuple[Status, Status], list[str]] = {}
    for (status, event), transition in in_order():
        for to in Status:
            if to in transition.leads_to and to is not status:
                arrows.setdefault((status, to), []).append(event.__name__)
    for (status, to), names in arrows.items():
        yield f"    {status.value} --> {to.value}: {', '.join(names)}"
    for status in Status:
        if status in TERMINAL:
            yield f"    {status.value} --> [*]"


def works() -> Iterator[str]:
    """What a saga works on in each status that has work."""
    yield "| status | direction of its work | what that is |"
    yield "|---|---|---|"
    for status, direction in DIRECTION.items():
        yield f"| {status.value} | `{direction.value}` | {MEANING[direction]} |"


def events() -> Iterator[str]:
    """Every event and what it says, in the words of its docstring."""
    yield "| event | what it says |"
    yield "|---|---|"
    for event in EVENTS:
        yield f"| {event.__name__} | {' '.join((inspect.getdoc(event) or '').split())} |"


def transitions() -> Iterator[str]:
    """The table: status, event, and every status it may lead to."""
    yield "| in status | event | leads to |"
    yield "|---|---|---|"
    for (status, event), transition in in_order():
        to = ", ".join(to.value for to in Status if to in transition.leads_to)
        yield f"| {status.value} | {event.__name__} | {to} |"


def in_order() -> Iterator[tuple[tuple[Status, type[Event]], Transition]]:
    """The table's entries by status, then event, both in declared order."""
    for status in Status:
        for event in EVENTS:
            if (status, event) in TABLE:
                yield (status, event), TABLE[status, event]


if __name__ == "__main__":
    sys.stdout.write(page())
