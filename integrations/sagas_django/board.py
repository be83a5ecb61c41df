"""What the dashboard shows, read from Postgres each time; every query looks at a bounded number of rows."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.db import DatabaseError, connections, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from sagas import clock, measure
from sagas.states import Status
from sagas.tally import EXPIRED, RETRIES
from sagas_django.admin_timeline import fetch
from sagas_django.conf import sagas_settings
from sagas_django.operate import rows
from sagas_django.wording import STATUS, STUCK, age, span, word
from sagas_outbox.presence import MISSING

MOST: Final = 20_000  # rows that a figure is counted from
MOST_QUEUES: Final = 100
MOST_NAMED: Final = 10  # sagas that are named
MOST_PROCESSES: Final = 200
MINUTES: Final = 60
LATELY: Final = 5  # minutes
LATE: Final = 30.0  # seconds that work may be due before the page warns
PATIENCE: Final = 200  # milliseconds for finding stuck sagas, which may mean looking at all that are open
SERIES: Final = ("started", "good", "bad", "held")  # as board_rates.sql calls them


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """One minute of the chart of rates; heights in SVG units."""

    x: int
    started: float
    completed: float
    failed: float
    title: str


def board(sagas: QuerySet[Any]) -> dict[str, Any]:
    """Everything on the dashboard.

    Args:
        sagas: those that the user may see; their database is the one that is looked at.
    """
    alias = sagas.db
    parked = list(sagas.filter(parked_from__isnull=False).order_by("-id").defer("headers", "steps")[: MOST_NAMED + 1])
    definitions = _definitions(fetch(alias, "board_open", most=MOST))
    queues = fetch(alias, "board_queues", limit=MOST_QUEUES, most=MOST)
    stuck, processes = _stuck(alias), _processes(alias)
    return {
        "parked": [{"saga": saga, "since": age(saga.updated_at)} for saga in parked[:MOST_NAMED]],
        "more_parked": len(parked) > MOST_NAMED,
        "stuck": stuck, "stuck_unknown": stuck is None,
        "definitions": definitions, "open": sum(each["sagas"] for each in definitions), "most": MOST,
        "rates": _rates(fetch(alias, "board_rates", most=MOST, good=Status.COMPLETED.value)),
        "queues": [each | {"oldest": span(timedelta(seconds=each["oldest_seconds"]))} for each in queues],
        "oldest": span(timedelta(seconds=max((each["oldest_seconds"] for each in queues), default=0.0))),
        "due": sum(each["due"] for each in queues),
        "trouble": _trouble(alias),
        "processes": processes, "warnings": _warnings(queues, processes),
    }  # fmt: skip


def _warnings(queues: list[dict[str, Any]], processes: list[dict[str, Any]]) -> list[str]:
    """What keeps sagas from going on that is none of theirs."""
    late = [
        _("Work in queue %(queue)s has been due for %(oldest)s, and nobody takes it: does a relay run, and a worker of "
          "this queue?") % {"queue": each["queue"], "oldest": span(timedelta(seconds=each["oldest_seconds"]))}
        for each in queues if each["oldest_seconds"] > LATE
    ]  # fmt: skip
    gone = [
        (_("The relay %(host)s %(pid)d") if each["relay"] else _("The worker %(host)s %(pid)d"))
        % {"host": each["process"].host, "pid": each["process"].pid}
        + " " + _("has gone without a word; last seen %(silent)s ago.") % {"silent": each["silent"]}
        for each in processes if each["missing"]
    ]  # fmt: skip
    return [*late[:MOST_NAMED], *gone[:MOST_NAMED]]


def _definitions(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Open sagas by definition, each with its statuses as shares of a bar; those with something parked first."""
    by_name: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in found:
        by_name[each["name"]].append(each)
    lines = []
    for name, parts in by_name.items():
        total, x, bars = sum(part["sagas"] for part in parts), 0.0, []
        for part in parts:
            width = round(1000 * part["sagas"] / total, 1)
            bars.append({"status": part["status"], "word": word(STATUS, part["status"]), "sagas": part["sagas"],
                         "x": x, "width": width})  # fmt: skip
            x += width
        lines.append({"name": name, "sagas": total, "bars": bars, "parked": sum(part["parked"] for part in parts)})
    return sorted(lines, key=lambda line: (-line["parked"], line["name"]))


def _rates(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The last hour, minute by minute."""
    counts = {(each["minute"], each["what"]): each["sagas"] for each in found}
    totals = {what: sum(counts.get((minute, what), 0) for minute in range(MINUTES)) for what in SERIES}
    failed = {minute: counts.get((minute, "bad"), 0) + counts.get((minute, "held"), 0) for minute in range(MINUTES)}
    highest = max([1, *counts.values(), *(counts.get((m, "good"), 0) + failed[m] for m in failed)])
    bars = [_bars(minute, counts, failed[minute], 100 / highest) for minute in range(MINUTES)]
    return {"bars": bars, "highest": highest, "totals": totals, "any": bool(found)}


def _bars(minute: int, counts: dict[tuple[int, str], int], failed: int, scale: float) -> Bars:
    started, completed = counts.get((minute, "started"), 0), counts.get((minute, "good"), 0)
    words = {"ago": MINUTES - minute, "started": started, "completed": completed, "failed": failed}
    return Bars(
        x=minute * 10, started=round(started * scale, 1), completed=round(completed * scale, 1),
        failed=round(failed * scale, 1),
        title=_("%(ago)d min ago: %(started)d started, %(completed)d completed, %(failed)d not") % words,
    )  # fmt: skip


def _trouble(alias: str) -> list[dict[str, Any]]:
    """Retries and claim expiries as workers have counted them, minute by minute: what the metrics count, as rates."""
    found = rows(alias, "tally_minutes", {})
    lines = []
    for what, label in ((RETRIES, _("Retries")), (EXPIRED, _("Claims that expired"))):
        counts = [0] * MINUTES
        for each in found:
            if each.what == what and 0 <= each.minute < MINUTES:
                counts[each.minute] = each.count
        highest = max(1, *counts)
        bars = [
            {"x": minute * 10, "height": round(count * 40 / highest, 1),
             "title": _("%(ago)d min ago: %(count)d") % {"ago": MINUTES - 1 - minute, "count": count}}
            for minute, count in enumerate(counts) if count
        ]  # fmt: skip
        lines.append({"what": what, "label": label, "total": sum(counts), "lately": sum(counts[-LATELY:]) / LATELY,
                      "bars": bars, "highest": highest})  # fmt: skip
    return lines


def _stuck(alias: str) -> list[dict[str, Any]] | None:
    """The newest sagas that are stuck; None where that could not be found out in time."""
    with suppress(DatabaseError), transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute("select set_config('statement_timeout', %s, true)", [str(PATIENCE)])
        found = measure.find_stuck(partial(rows, alias), sagas_settings(), limit=MOST_NAMED)
        transaction.set_rollback(True, using=alias)  # or a transaction around this one would keep the setting
        return [
            {"id": each.id, "label": f"{each.name} {each.key}", "why": word(STUCK, each.reason),
             "since": age(each.since)}
            for each in found
        ]  # fmt: skip
    return None


def _processes(alias: str) -> list[dict[str, Any]]:
    """Relays and workers: those that have gone silent first."""
    found = rows(alias, "processes", {"now": clock.now(), "limit": MOST_PROCESSES})
    lines = [
        {"process": each, "relay": each.holder.startswith("relay:"), "missing": each.silent_seconds > MISSING,
         "silent": span(timedelta(seconds=each.silent_seconds)), "age": age(each.started_at)}
        for each in found
    ]  # fmt: skip
    return sorted(lines, key=lambda line: not line["missing"])
