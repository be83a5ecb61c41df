"""What a saga is at, or parked over: under which key the other side was asked, and what went wrong last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from sagas import machine
from sagas.events import Direction, Kind
from sagas.keys import idempotency_key
from sagas.plan import Plan, StepPlan
from sagas.progress import plan_of, state_of, work
from sagas.states import State, StepState

if TYPE_CHECKING:
    from sagas.desk import Desk, LogLine, SagaLine

FAILURES: Final = (
    Kind.STEP_FAILED, Kind.STEP_UNDECIDED, Kind.STEP_NOT_DONE, Kind.UNDO_FAILED, Kind.UNDO_UNDECIDED,
    Kind.SETTLE_FAILED, Kind.SETTLE_UNDECIDED,
)  # fmt: skip

TURNS: Final = (Kind.TURNING, Kind.COMPENSATING)

Place = tuple[UUID, str, str]  # saga, step, direction


class ErrorLine(Protocol):
    """A row of `last_errors.sql`."""

    @property
    def at(self) -> datetime: ...
    @property
    def attempt(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def traceback(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AtHand:
    """One piece of work that a saga is at, or parked over."""

    step: str
    direction: Direction
    keys: tuple[tuple[Direction, str], ...]  # idempotency keys that the other side may know; none of what is local
    error: ErrorLine | None  # what went wrong last; None: nothing has


def at_hand(desk: Desk, sagas: Iterable[SagaLine]) -> dict[UUID, list[AtHand]]:
    """What some sagas are at, with one statement for all of them; nothing of those that have ended, or whose
    definition is not in this process.

    Args:
        desk: where they are.
        sagas: their rows.
    """
    found = {saga.id: list(_work(saga)) for saga in sagas}
    errors = _last_errors(desk, [(id, step, way.value) for id, each in found.items() for step, way, _ in each])
    return {
        id: [
            AtHand(step=step, direction=way, keys=keys, error=errors.get((id, step, way.value)))
            for step, way, keys in each
        ]
        for id, each in found.items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedError:
    """The error of a log entry."""

    at: datetime
    attempt: int
    type: str
    message: str
    traceback: str


def turned_back_over(log: Iterable[LogLine]) -> AtHand | None:
    """The step over which a saga has turned back, with its last error; None where it has not, or none is kept.

    Args:
        log: of one saga, in order.
    """
    last: dict[str | None, LoggedError] = {}
    for entry in log:
        data = entry.data if isinstance(entry.data, dict) else {}
        if entry.kind in TURNS:
            found = last.get(entry.step)
            if found is None or entry.step is None:
                return None
            return AtHand(step=entry.step, direction=Direction.DO, keys=(), error=found)
        if entry.kind in FAILURES and data.get("direction") == Direction.DO and isinstance(data.get("error"), dict):
            texts = {name: str(data["error"].get(name, "")) for name in ("type", "message", "traceback")}
            last[entry.step] = LoggedError(at=entry.at, attempt=entry.attempt, **texts)
    return None


def _work(saga: SagaLine) -> Iterator[tuple[str, Direction, tuple[tuple[Direction, str], ...]]]:
    plan, state = plan_of(saga.name, saga.version), state_of(saga)
    if plan is None or state is None or machine.finished(state):
        return
    for each in work(plan, state):
        yield each.step, each.direction, tuple(_keys(saga.id, plan, state, each.step, each.direction))


def _keys(id: UUID, plan: Plan, state: State, name: str, direction: Direction) -> Iterator[tuple[Direction, str]]:
    """The keys that somebody outside can be asked about: that of the step, and of its compensation if that is next."""
    planned, step = plan.by_name[name], machine.step_of(state, name)
    if planned.external:
        yield Direction.DO, idempotency_key(id, name, generation=step.generation)
    if direction is not Direction.DO and _undone_outside(planned):
        yield Direction.UNDO, idempotency_key(id, name, "undo", _undo_generation(step, direction))


def _undone_outside(planned: StepPlan) -> bool:
    return planned.undo is not None and planned.undo.external


def _undo_generation(step: StepState, direction: Direction) -> int:
    return step.settled + 1 if direction is Direction.SETTLE else 0


def _last_errors(desk: Desk, places: list[Place]) -> Mapping[Place, ErrorLine]:
    if not places:
        return {}
    sagas, steps, directions = zip(*places, strict=True)
    rows: Iterable[Any] = desk.rows("last_errors", {
        "sagas": list(sagas), "steps": list(steps), "directions": list(directions), "kinds": list(FAILURES),
    })  # fmt: skip
    return {(each.saga_id, each.step, each.direction): each for each in rows}
