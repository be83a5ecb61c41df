"""The log of one saga as lanes: when each step was under way, and when something of it failed. Units are per mille."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.utils import timezone
from django.utils.translation import gettext as _

from sagas_django.admin_timeline import TimelineEntry
from sagas_django.wording import span

WIDE: Final = 1000
THIN: Final = 3  # what is shorter can be seen all the same
FAILURES: Final = frozenset({"step_failed", "undo_failed", "settle_failed", "step_undecided", "parked"})
ABOUT_WORK: Final = ("step_", "undo_", "settle_", "waiting", "parked")


@dataclass(slots=True)
class Lane:
    """One step, in one direction."""

    step: str
    back: bool
    begun: datetime
    ended: datetime
    waits: bool = False
    marks: list[tuple[datetime, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A lane as it is drawn."""

    label: str
    kind: str  # do, undo or wait
    x: float
    width: float
    took: str
    title: str
    marks: tuple[tuple[float, str], ...]


def lanes(entries: Sequence[TimelineEntry], *, finished: bool) -> list[Bar]:
    """A bar for each step that the entries are about, in the order in which they began.

    Args:
        entries: of one log, in order.
        finished: whether the saga has ended; else the scale ends now.
    """
    found = _lanes(entries)
    if not found:
        return []
    begin = min(entries[0].at, *(lane.begun for lane in found))
    end = entries[-1].at if finished else timezone.now()
    whole = max((end - begin).total_seconds(), 0.001)
    return [_bar(lane, begin, whole) for lane in found]


def _lanes(entries: Sequence[TimelineEntry]) -> list[Lane]:
    open_lanes: dict[tuple[str, bool], Lane] = {}
    before = entries[0].at if entries else None
    for entry in entries:
        if entry.step and before is not None and entry.kind.startswith(ABOUT_WORK):
            key = (entry.step, entry.back)
            lane = open_lanes.setdefault(key, Lane(entry.step, key[1], entry.begun or before, entry.at))
            lane.ended = max(lane.ended, entry.at)
            lane.waits |= entry.kind == "waiting"
            if entry.kind in FAILURES:
                lane.marks.append((entry.at, entry.error or entry.label))
        before = entry.at
    return list(open_lanes.values())


def _bar(lane: Lane, begin: datetime, whole: float) -> Bar:
    def at(moment: datetime) -> float:
        return round(WIDE * (moment - begin).total_seconds() / whole, 1)

    took = span(lane.ended - lane.begun)
    label = _("%(step)s (undo)") % {"step": lane.step} if lane.back else lane.step
    x = min(at(lane.begun), WIDE - THIN)
    return Bar(
        label=label, kind="wait" if lane.waits else "undo" if lane.back else "do", x=x,
        width=max(THIN, at(lane.ended) - x), took=took,
        title=_("%(step)s: %(took)s, %(failures)d failures") % {
            "step": label, "took": took, "failures": len(lane.marks)
        },
        marks=tuple((at(moment), text) for moment, text in lane.marks),
    )  # fmt: skip
