"""How sagas are put into words: the same on the command line and in the admin, and translatable."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from sagas import advice, stuck, why, wording
from sagas.actions import OFFERS
from sagas.wording import Words
from sagas.wording import word as word

STATUS: Words = {value: gettext_lazy(text) for value, text in wording.STATUS.items()}
STEP_STATUS: Words = {value: pgettext_lazy("step", text) for value, text in wording.STEP_STATUS.items()}
DIRECTION: Words = {value: gettext_lazy(text) for value, text in wording.DIRECTION.items()}
SOURCE: Words = {value: gettext_lazy(text) for value, text in wording.SOURCE.items()}
KIND: Words = {value: gettext_lazy(text) for value, text in wording.KIND.items()}
REQUEST: Words = {value: gettext_lazy(text) for value, text in wording.REQUEST.items()}
ACTION: Final[Words] = {
    "retry": pgettext_lazy("action", "Retry"),
    "cancel": pgettext_lazy("action", "Cancel"),
    "abort": pgettext_lazy("action", "Abort"),
    "pause": pgettext_lazy("action", "Pause"),
    "resume": pgettext_lazy("action", "Resume"),
    "redo": pgettext_lazy("action", "Redo"),
    "mark_done": pgettext_lazy("action", "Mark done"),
    "mark_not_done": pgettext_lazy("action", "Mark not done"),
    "skip": pgettext_lazy("action", "Skip step"),
    "mark_undone": pgettext_lazy("action", "Mark compensated"),
}
DOES: Final[Words] = {
    text: gettext_lazy(text)
    for offer in OFFERS.values()
    for text in (offer.does, offer.does_parked, *offer.does_here.values())
    if text
}

STUCK: Final[Words] = {why_stuck: gettext_lazy(text) for why_stuck, text in stuck.REMEDIES.items()}
WHY: Final[Words] = {text: gettext_lazy(text) for text in why.TEXTS}
NEXT: Final[Words] = {text: gettext_lazy(sentence) for text, sentence in advice.NEXT.items()}


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


def here(moment: datetime) -> datetime:
    """A moment as Django has them: naive in projects without time zones."""
    if settings.USE_TZ or not timezone.is_aware(moment):
        return moment
    return timezone.make_naive(moment, timezone.get_default_timezone())


def age(moment: datetime) -> str:
    """How long ago a moment was."""
    return span(timezone.now() - here(moment))


def from_now(moment: datetime) -> str:
    """When a moment is, seen from now."""
    left = here(moment) - timezone.now()
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


def say(text: str, values: Mapping[str, str]) -> str:
    """A sentence with its blanks filled in."""
    return word(WHY, text) % values
