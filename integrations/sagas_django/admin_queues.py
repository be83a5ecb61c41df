"""Queues: a page that says of each how much waits, for how long, what holds it up, and who serves it."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext as _

from sagas import clock
from sagas.pauses import Scope
from sagas.queues import Queue
from sagas.registry import registry
from sagas_django.admin_actions import AskingAdmin
from sagas_django.admin_timeline import fetch
from sagas_django.board import LATE, MOST, MOST_PROCESSES, MOST_QUEUES
from sagas_django.operate import rows
from sagas_django.wording import from_now, span
from sagas_outbox.presence import MISSING

MOST_LANES: Final = 500
LANES_SHOWN: Final = 10  # of each queue
NOTHING: Final = {"rows": 0, "due": 0, "later": 0, "published": 0, "running": 0, "retried": 0, "expired": 0,
                  "oldest_seconds": 0.0}  # fmt: skip


class QueuesAdmin(AskingAdmin):
    """Has a page of queues."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.queues_view)
        return [path("queues/", view, name=f"{self.opts.app_label}_{self.opts.model_name}_queues"), *super().get_urls()]

    def queues_view(self, request: HttpRequest) -> HttpResponse:
        """Every queue that has work, is paused or limited, or that a step of this process belongs to."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request), "title": _("Queues"), "opts": self.opts, "media": self.media,
            "queues": queues(self.get_queryset(request).db), "most": MOST,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/sagas/sagarow/queues.html", context)


def queues(alias: str) -> list[dict[str, Any]]:
    """What there is to say of each queue, in as many queries however many there are.

    Args:
        alias: the database.
    """
    depth = {each["queue"]: each for each in fetch(alias, "board_queues", limit=MOST_QUEUES, most=MOST)}
    pauses = {each.name: each for each in rows(alias, "pauses", {}) if each.kind == Scope.QUEUE}
    limits = {each.name: Queue(**each._asdict()) for each in rows(alias, "queue_list", {"now": clock.now()})}
    lanes, served = _lanes(alias), _served(alias)
    lines = []
    for name in sorted(depth.keys() | pauses.keys() | limits.keys() | _declared()):
        found = depth.get(name, NOTHING)
        lines.append({
            **found, "name": name, "pause": pauses.get(name), "limits": limits.get(name),
            "oldest": span(timedelta(seconds=found["oldest_seconds"])) if found["due"] else "",
            "late": found["oldest_seconds"] > LATE,
            "lanes": lanes.get(name, [])[:LANES_SHOWN], "more_lanes": len(lanes.get(name, ())) > LANES_SHOWN,
            "workers": served(name, "worker"), "relays": served(name, "relay"),
        })  # fmt: skip
    return sorted(lines, key=lambda line: (line["pause"] is None, -line["oldest_seconds"], line["name"]))


def _declared() -> set[str]:
    steps = [step for each in registry.definitions() for step in each.plan.steps]
    return {step.queue for step in steps} | {step.undo.queue for step in steps if step.undo}


def _lanes(alias: str) -> dict[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in fetch(alias, "queue_lanes", limit=MOST_LANES):
        name = _("requests and signals") if each["lane"] == 0 else each["name"] or "?"
        found[each["queue"]].append(
            {"name": name, "priority": each["priority"], "due": from_now(each["due_at"]), "late": each["late"] > 0}
        )
    return found


def _served(alias: str) -> Any:
    """Counts the relays or workers that are alive and serve a queue; one that names no queues serves all."""
    processes = [
        (each.holder.partition(":")[0], {name for name in each.queues.split(",") if name})
        for each in rows(alias, "processes", {"now": clock.now(), "limit": MOST_PROCESSES})
        if each.silent_seconds <= MISSING
    ]

    def count(queue: str, kind: str) -> int:
        return sum(kind == found and (not names or queue in names) for found, names in processes)

    return count
