"""Why a saga does not go on just now: read from its row, its definition in this process, and what is paused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from sagas import machine
from sagas.errors import UnknownSaga
from sagas.events import Direction
from sagas.pauses import Scope
from sagas.plan import Plan
from sagas.progress import SagaColumns, plan_of, state_of, work
from sagas.registry import registry
from sagas.states import State, StepState, StepStatus

if TYPE_CHECKING:
    from sagas.wording import Wording

UNKNOWN: Final = "its definition is not in this process"
CHANGED: Final = "its steps were changed without a new version: deploy the former code"
UNREADABLE: Final = "its row cannot be read"
LACKS: Final = "its definition has no step %(step)s"
PAUSED: Final = "is paused"
DEFINITION_PAUSED: Final = "definition %(name)s is paused by %(actor)s: %(reason)s"
QUEUE_PAUSED: Final = "queue %(name)s is paused by %(actor)s: %(reason)s"
SIGNAL: Final = "%(step)s waits for a signal"
SIGNAL_UNTIL: Final = "%(step)s waits for a signal until %(until)s (%(left)s)"
CHILD: Final = "%(step)s waits for the saga that it started"
CHILDREN: Final = "%(step)s waits for the sagas that it started: %(started)s of %(total)s so far"
CHILD_PARKED: Final = "%(name)s %(id)s (key %(key)s), which %(step)s started, is parked: %(error)s"
BEHIND: Final = "%(step)s waits in the line of %(line)s, which %(name)s %(id)s (key %(key)s) is first in"
OVERDUE: Final = "work in queue %(queue)s has been due since %(until)s (%(left)s), and nobody takes it"
FULL: Final = "%(step)s waits for a place in queue %(queue)s, which is at its limit"
UNSERVED: Final = "%(step)s in queue %(queue)s is published again and again, and no worker begins it"
UNDOES: Final = "%(step)s waits until what it started is undone"
BACKS_OFF: Final = "%(step)s starts its saga anew at %(until)s (%(left)s)"
SLEEPS: Final = "%(step)s sleeps until %(until)s (%(left)s)"
LOCK: Final = "%(step)s waits for a semantic lock until %(until)s (%(left)s)"
SETTLES: Final = "%(step)s is looked at once more at %(until)s (%(left)s), since nobody knows what became of it"
LOST: Final = "has lost its work: it has no row in the outbox"
EXPIRED: Final = "the claim of %(holder)s on %(step)s ended at %(until)s (%(left)s)"
TEXTS: Final = (
    LOCK, UNKNOWN, CHANGED, PAUSED, DEFINITION_PAUSED, QUEUE_PAUSED, SIGNAL, SIGNAL_UNTIL, SLEEPS, CHILD, CHILDREN,
    CHILD_PARKED, UNDOES, BACKS_OFF, BEHIND, OVERDUE, FULL, UNSERVED, UNREADABLE, LACKS,
    SETTLES, EXPIRED, LOST,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One reason, to be put into words."""

    text: str  # one of `TEXTS`
    values: Mapping[str, str] = field(default_factory=dict)
    until: datetime | None = None


class PauseLine(Protocol):
    """A pause, whoever read it."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def actor(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def at(self) -> datetime: ...


class HeldLine(Protocol):
    """What keeps a saga waiting, mostly another one, whoever read it: see `held_by.sql`."""

    @property
    def saga_id(self) -> UUID: ...
    @property
    def kind(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def since(self) -> datetime | None: ...


class WaitingSaga(SagaColumns, Protocol):
    """What has to be known of a saga."""

    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def definition(self) -> str: ...


def why(saga: WaitingSaga, pauses: Iterable[PauseLine], held_by: Iterable[HeldLine] = ()) -> list[Reason]:
    """Every reason why a saga does not go on, other than work that is under way; none when it has ended.

    Args:
        saga: its row.
        pauses: everything that is paused in its database.
        held_by: what keeps sagas waiting, as far as somebody looked.
    """
    state = state_of(saga)
    if state is not None and machine.finished(state):
        return []
    plan = plan_of(saga.name, saga.version)
    found = [*_misfit(saga), *_paused(saga, plan, state, pauses)]
    if state is None:
        return [Reason(text=UNREADABLE), *found]
    if plan is not None:
        found += (Reason(text=LACKS, values={"step": name}) for name in state.steps if name not in plan.by_name)
    ours = [each for each in held_by if each.saga_id == saga.id]
    found += [*_waits(plan, state), *_held(ours)]
    return found or list(_overdue(ours))


def _children(name: str, step: StepState, until: datetime | None) -> Iterator[Reason]:
    if step.started == 0:
        yield Reason(text=BACKS_OFF, values={"step": name}, until=until)
    elif step.total > 1 and not step.recalled:
        values = {"step": name, "started": str(step.started), "total": str(step.total)}
        yield Reason(text=CHILDREN, values=values)
    elif not step.recalled:
        yield Reason(text=CHILD, values={"step": name})


def _held(held_by: Iterable[HeldLine]) -> Iterator[Reason]:
    """Other sagas that have to go on first: what they need is said on their own pages; or a time that has to pass."""
    for each in held_by:
        values = {"step": each.step, "id": str(each.id), "name": each.name, "key": each.key}
        if each.kind == "line":
            yield Reason(text=BEHIND, values=values | {"line": each.error})
        elif each.kind == "child":
            yield Reason(text=CHILD_PARKED, values=values | {"error": each.error})
        elif each.kind == "full":
            yield Reason(text=FULL, values={"step": each.step, "queue": each.name})
        elif each.kind == "unserved":
            yield Reason(text=UNSERVED, values={"step": each.step, "queue": each.name})
        elif each.kind == "lost":
            yield Reason(text=LOST)
        elif each.kind == "settle":
            yield Reason(text=SETTLES, values={"step": each.step}, until=each.since)
        elif each.kind == "expired":
            yield Reason(text=EXPIRED, values={"step": each.step, "holder": each.error}, until=each.since)


def _overdue(held_by: Iterable[HeldLine]) -> Iterator[Reason]:
    """Work that nobody takes though nothing keeps it."""
    late = [each for each in held_by if each.kind == "late"]
    for each in late[:1]:
        yield Reason(text=OVERDUE, values={"queue": each.name}, until=each.since)


def told(reason: Reason, words: Wording) -> str:
    """A reason in words."""
    values = dict(reason.values)
    if reason.until is not None:
        values |= {"until": words.clock(reason.until, "seconds"), "left": words.from_now(reason.until)}
    return words.say(reason.text, values)


def fits(name: str, version: int, definition: str) -> bool:
    """Whether this process has the definition a saga was started with.

    Args:
        name: of the saga.
        version: of the saga.
        definition: fingerprint of the steps it was started with; nothing where that is not known.

    Raises:
        UnknownSaga: it has none of this name and version.
    """
    return definition in ("", registry.get(name, version).fingerprint())


def _misfit(saga: WaitingSaga) -> Iterator[Reason]:
    try:
        if not fits(saga.name, saga.version, saga.definition):
            yield Reason(text=CHANGED)
    except UnknownSaga:
        yield Reason(text=UNKNOWN)


def _paused(
    saga: WaitingSaga, plan: Plan | None, state: State | None, pauses: Iterable[PauseLine]
) -> Iterator[Reason]:  # fmt: skip
    if saga.paused:
        yield Reason(text=PAUSED)
    queues = _queues(plan, state)
    for each in pauses:
        values = {"name": each.name, "actor": each.actor or "?", "reason": each.reason}
        if each.kind == Scope.QUEUE and each.name in queues:
            yield Reason(text=QUEUE_PAUSED, values=values)
        elif each.kind == Scope.DEFINITION and each.name == saga.name and each.version in (0, saga.version):
            name = f"{each.name}:{each.version}" if each.version else each.name
            yield Reason(text=DEFINITION_PAUSED, values=values | {"name": name})


def _queues(plan: Plan | None, state: State | None) -> set[str]:
    """The queues that its next work is in."""
    if plan is None or state is None:
        return set()
    planned = [(plan.by_name[each.step], each.direction) for each in work(plan, state)]
    return {
        step.queue if direction is Direction.DO or step.undo is None else step.undo.queue for step, direction in planned
    }


def _waits(plan: Plan | None, state: State) -> Iterator[Reason]:
    if machine.parked(state):  # a person is waited for; `error` says why
        return
    for name, step in state.steps.items():
        if step.blocked is not None:
            yield Reason(text=LOCK, values={"step": name}, until=datetime.fromtimestamp(step.blocked, UTC))
        if step.recalled:
            yield Reason(text=UNDOES, values={"step": name})
        if step.status is not StepStatus.WAITING:
            continue
        planned = plan.by_name.get(name) if plan else None
        until = None if step.until is None else datetime.fromtimestamp(step.until, UTC)
        if planned is not None and planned.children is not None:
            yield from _children(name, step, until)
        elif planned is not None and planned.wait is not None and not planned.wait.signal:
            yield Reason(text=SLEEPS, values={"step": name}, until=until)
        else:
            yield Reason(text=SIGNAL if until is None else SIGNAL_UNTIL, values={"step": name}, until=until)
