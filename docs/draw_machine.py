"""Writes docs/machine.md and docs/machine.svg, drawn from the transition table:

.venv/bin/python docs/draw_machine.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from math import cos, hypot, pi, sin
from pathlib import Path
from textwrap import fill

from sagas.events import EVENTS, Direction, Event, Kind
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

![Eight statuses and the arrows between them; the same is in the table below.](machine.svg)

A saga begins as running, which is written with its first line of the log. In statuses with a double border it is
finished: it absorbs whatever still arrives, but for a late answer after its undo. Events after which a saga may also
stay where it is (a retry is planned, the next step begins) are under [transitions](#transitions) only.
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

AROUND = (
    Status.RUNNING, Status.COMPLETED, Status.CANCELLED, Status.COMPENSATED,
    Status.ABORTED, Status.PARKED, Status.SETTLING, Status.COMPENSATING,
)  # fmt: skip
GREY = "#57606a"
COLOURS = {
    Status.RUNNING: "#0969da", Status.COMPENSATING: "#bc4c00", Status.SETTLING: "#8250df", Status.PARKED: "#cf222e",
    Status.COMPLETED: "#1a7f37", Status.COMPENSATED: GREY, Status.CANCELLED: "#6e7781",
}  # fmt: skip
MIDDLE, RADII, HALF, BEND = (400, 210), (320, 170), (58, 18), 18
SIZE = tuple(f'width="{2 * (HALF[0] - less)}" height="{2 * (HALF[1] - less)}" rx="5"' for less in (0, 3))
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 420" font-family="system-ui, sans-serif" font-size="14"
    role="img" aria-label="The statuses of a saga and which may follow which.">
  <style>rect { fill: #f6f8fa; stroke-width: 1.4 } text { fill: #1f2328; text-anchor: middle }</style>
  <rect width="800" height="420" style="fill: #ffffff"/>"""

MEANING = {
    Direction.DO: "the steps whose needs have ended",
    Direction.UNDO: "the compensations, last done first",
    Direction.SETTLE: "the last look at steps that were undone without knowing",
}


def page() -> str:
    """The whole page."""
    parts = [
        HEAD, DIAGRAM, *arrow_list(), "", WORK, *works(), "", EVENT_LIST, *events(), "",
        TRANSITIONS, *transitions(), "", KINDS, fill(", ".join(f"`{kind.value}`" for kind in Kind), WIDTH),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def arrows() -> dict[tuple[Status, Status], list[str]]:
    """Pairs of statuses, and the names of all events that may lead from one to the other."""
    found: dict[tuple[Status, Status], list[str]] = {}
    for (status, event), transition in in_order():
        for to in Status:
            if to in transition.leads_to and to is not status:
                found.setdefault((status, to), []).append(event.__name__)
    return found


def arrow_list() -> Iterator[str]:
    """One row for each arrow of the picture."""
    yield "| from | to | by |"
    yield "|---|---|---|"
    for (status, to), names in arrows().items():
        yield f"| {status.value} | {to.value} | {', '.join(names)} |"


def picture() -> str:
    """The statuses on an ellipse, so that no arrow passes through one; arrows in the colour of where they begin."""
    lines = [line(*pair) for pair in arrows()]
    return "\n".join([SVG, *(f"  {each}" for each in [*markers(), *lines, *map(box, AROUND)]), "</svg>"]) + "\n"


def markers() -> Iterator[str]:
    """The heads of arrows, one for each colour."""
    for status, colour in COLOURS.items():
        yield (
            f'<marker id="{status.value}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
        )


def place(status: Status) -> tuple[float, float]:
    """The middle of its box."""
    angle = pi + 2 * pi * AROUND.index(status) / len(AROUND)
    return MIDDLE[0] + RADII[0] * cos(angle), MIDDLE[1] + RADII[1] * sin(angle)


def line(status: Status, to: Status) -> str:
    """A curve from the rim of one box to that of the other, bent to the right, so that two opposite ones stay apart."""
    (x, y), (to_x, to_y) = place(status), place(to)
    bend = BEND / hypot(to_x - x, to_y - y)
    over = (x + to_x) / 2 - bend * (to_y - y), (y + to_y) / 2 + bend * (to_x - x)
    (x, y), (to_x, to_y) = rim((x, y), over), rim((to_x, to_y), over)
    return (
        f'<path d="M{x:.0f} {y:.0f} Q{over[0]:.0f} {over[1]:.0f} {to_x:.0f} {to_y:.0f}" fill="none" '
        f'stroke="{COLOURS[status]}" stroke-width="1.5" marker-end="url(#{status.value})"/>'
    )


def rim(middle: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where a line from the middle of a box leaves it."""
    x, y = towards[0] - middle[0], towards[1] - middle[1]
    part = min(half / abs(each) for half, each in zip(HALF, (x, y), strict=True) if each)
    return middle[0] + part * x, middle[1] + part * y


def box(status: Status) -> str:
    """The box of a status; finished ones have a double border."""
    x, y = place(status)
    inner = f'<rect x="{x - HALF[0] + 3:.0f}" y="{y - HALF[1] + 3:.0f}" {SIZE[1]}/>' if status in TERMINAL else ""
    outer = f'<rect x="{x - HALF[0]:.0f}" y="{y - HALF[1]:.0f}" {SIZE[0]}/>'
    name = f'<text x="{x:.0f}" y="{y + 5:.0f}">{status.value}</text>'
    return f'<g stroke="{COLOURS.get(status, GREY)}">{outer}{inner}</g>{name}'


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
    docs = Path(__file__).parent
    (docs / "machine.md").write_text(page())
    (docs / "machine.svg").write_text(picture())
