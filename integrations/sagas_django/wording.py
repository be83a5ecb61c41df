"""How sagas are put into words: the same on the command line and in the admin, and translatable."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from sagas.events import Direction, Kind, Source
from sagas.states import Status, StepStatus

Words = Mapping[str, str | Promise]

STATUS: Final[Words] = {
    Status.RUNNING: gettext_lazy("running"),
    Status.COMPENSATING: gettext_lazy("compensating"),
    Status.SETTLING: gettext_lazy("settling"),
    Status.PARKED: gettext_lazy("parked"),
    Status.COMPLETED: gettext_lazy("completed"),
    Status.COMPENSATED: gettext_lazy("compensated"),
    Status.CANCELLED: gettext_lazy("cancelled"),
    Status.ABORTED: gettext_lazy("aborted"),
}
STEP_STATUS: Final[Words] = {
    StepStatus.PENDING: pgettext_lazy("step", "pending"),
    StepStatus.DONE: pgettext_lazy("step", "done"),
    StepStatus.NOT_DONE: pgettext_lazy("step", "did not happen"),
    StepStatus.UNKNOWN: pgettext_lazy("step", "unknown"),
    StepStatus.UNDONE: pgettext_lazy("step", "undone"),
}
DIRECTION: Final[Words] = {
    Direction.DO: gettext_lazy("do"),
    Direction.UNDO: gettext_lazy("undo"),
    Direction.SETTLE: gettext_lazy("settle"),
}
SOURCE: Final[Words] = {
    Source.BODY: gettext_lazy("the step itself"),
    Source.DEDUPE: gettext_lazy("the dedupe table"),
    Source.RESOLVE: gettext_lazy("resolve"),
}
KIND: Final[Words] = {
    Kind.STARTED: gettext_lazy("started"),
    Kind.STEP_DONE: gettext_lazy("step done"),
    Kind.STEP_FAILED: gettext_lazy("step failed"),
    Kind.STEP_UNDECIDED: gettext_lazy("resolve could not say"),
    Kind.STEP_NOT_DONE: gettext_lazy("step did not happen"),
    Kind.STEP_UNKNOWN: gettext_lazy("step given up, outcome unknown"),
    Kind.UNDO_DONE: gettext_lazy("undone"),
    Kind.UNDO_FAILED: gettext_lazy("undo failed"),
    Kind.UNDO_UNDECIDED: gettext_lazy("resolve of the undo could not say"),
    Kind.SETTLE_DONE: gettext_lazy("settled"),
    Kind.SETTLE_FAILED: gettext_lazy("settling failed"),
    Kind.SETTLE_UNDECIDED: gettext_lazy("settling could not say"),
    Kind.LATE_ANSWER: gettext_lazy("late answer"),
    Kind.REBUILT: gettext_lazy("rows made again"),
    Kind.CANCEL_REQUESTED: gettext_lazy("cancel requested"),
    Kind.RETRIED: gettext_lazy("retry requested"),
    Kind.COMPENSATING: gettext_lazy("turned back"),
    Kind.SETTLING: gettext_lazy("settling begins"),
    Kind.PARKED: gettext_lazy("parked"),
    Kind.COMPLETED: gettext_lazy("completed"),
    Kind.COMPENSATED: gettext_lazy("compensated"),
    Kind.CANCELLED: gettext_lazy("cancelled"),
    Kind.ABORTED: gettext_lazy("aborted"),
}
REQUEST: Final[Words] = {
    "cancel": gettext_lazy("cancel"),
    "retry": gettext_lazy("retry"),
    "abort": gettext_lazy("abort"),
}


def word(words: Words, value: str | None) -> str:
    """A value in words; itself when a newer version wrote one that this version does not know."""
    return "" if value is None else str(words.get(value, value))


def span(length: timedelta) -> str:
    """A length of time that one takes in at a glance: two units at most. Negative lengths count as none."""
    seconds = max(length.total_seconds(), 0.0)
    if round(seconds * 1000) < 1000:
        return _("%(ms)d ms") % {"ms": round(seconds * 1000)}
    if seconds < 9.95:
        return _("%(s).1f s") % {"s": seconds}
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        return _("%(d)d d %(h)d h") % {"d": days, "h": hours}
    if hours:
        return _("%(h)d h %(min)d min") % {"h": hours, "min": minutes}
    if minutes:
        return _("%(min)d min %(s)d s") % {"min": minutes, "s": whole % 60}
    return _("%(s)d s") % {"s": whole}


def age(moment: datetime) -> str:
    """How long ago a moment was."""
    return span(timezone.now() - moment)


def from_now(moment: datetime) -> str:
    """When a moment is, seen from now."""
    left = moment - timezone.now()
    if left <= timedelta(0):
        return _("%(span)s ago") % {"span": span(-left)}
    return _("in %(span)s") % {"span": span(left)}


def clock(moment: datetime, timespec: str = "milliseconds") -> str:
    """A moment in the local time zone."""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return local.replace(tzinfo=None).isoformat(" ", timespec)


def zone() -> str:
    """The time zone that `clock` uses."""
    return timezone.get_current_timezone_name()
