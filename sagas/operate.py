"""What operators ask for on the command line, as text lines: the same in every integration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from sagas import engine, machine
from sagas.at_hand import AtHand, at_hand
from sagas.commanding import Bars, no_bars
from sagas.desk import Desk, LogLine, OutboxLine, SagaLine
from sagas.engine import SagaRun
from sagas.errors import InvalidInput
from sagas.events import Kind
from sagas.payloads import shown_value
from sagas.plan import StepPlan
from sagas.progress import StepLine, plan_of, state_of, work
from sagas.rebuild import rebuild
from sagas.states import Status, StepStatus
from sagas.verify import Finding, verify
from sagas.why import HeldLine, PauseLine, told, why
from sagas.wording import Wording

WIDEST = 60  # characters of a reason in a listing
MOST_LOCKS = 100
MOST_KIN = 20  # lines about the sagas that one has started
MOST_HELD = 200  # sagas that keep others waiting
WIDEST_VALUE = 200  # characters of a signal, or of progress


def find(desk: Desk, wanted: str) -> SagaRun:
    """A saga by its id or by `name:key`.

    Raises:
        SagaNotFound: there is none.
        InvalidInput: it is neither.
        StoreNotReady: the database cannot be reached, or lacks our tables.
    """
    name, colon, key = wanted.partition(":")
    if colon:
        return engine.find(name, key=key, using=desk.using)
    try:
        id = UUID(wanted)
    except ValueError:
        raise InvalidInput(
            f"{wanted!r} is neither a saga's id nor name:key; `{desk.command} list` shows both", path="saga"
        ) from None
    return engine.find(None, id=id, using=desk.using)


def listing(
    desk: Desk, *, statuses: list[str], name: str | None, limit: int, waiting: bool = False
) -> Iterator[str]:  # fmt: skip
    """Sagas, newest first, each with why it does not go on.

    Raises:
        InvalidInput: a status that does not exist, or a limit below 1.
        StoreNotReady: the database cannot be reached, or lacks our tables.
    """
    found = chosen(desk, statuses=statuses, name=name, limit=limit, waiting=waiting)
    if not found:
        yield f"no saga in {desk.name!r}" + (" fits" if statuses or name or waiting else "")
        return
    lines = list(saga_cells(desk, found))
    yield from table(lines)
    if any(line[-1] != saga.key for line, saga in zip(lines[1:], found, strict=True)):  # something is noted beside it
        yield f"`{desk.command} show ID` says more of each: why, and what can be done where it does not go on"


def _ended(saga: SagaLine) -> bool:
    state = state_of(saga)
    return state is not None and machine.finished(state)


def held_by(desk: Desk, found: Iterable[SagaLine]) -> Sequence[HeldLine]:
    """What keeps some of these waiting: a parked saga that they started, the first in their line, nobody there."""
    ids = [saga.id for saga in found if not _ended(saga)]
    return desk.rows("held_by", {"ids": ids, "limit": MOST_HELD}) if ids else ()


def parked_over(desk: Desk, found: Iterable[SagaLine]) -> dict[UUID, list[AtHand]]:
    """What those of these have parked over that wait for a person."""
    return at_hand(desk, [saga for saga in found if (state := state_of(saga)) is not None and machine.parked(state)])


def chosen(
    desk: Desk, *, statuses: list[str], name: str | None, limit: int, waiting: bool = False
) -> Sequence[SagaLine]:  # fmt: skip
    """The sagas that `listing` lists; raises what it raises."""
    desk.check_ready()
    for status in statuses:
        _check_status(status)
    if limit < 1:
        raise InvalidInput(f"--limit {limit}: at least 1", path="limit")
    return desk.sagas(statuses=statuses, name=name, limit=limit, waiting=waiting)


def saga_cells(desk: Desk, found: Sequence[SagaLine]) -> Iterator[tuple[str, ...]]:
    """Sagas as a table, head first."""
    yield ("status", "id", "age", "step", "name", "key")
    pauses, held, parked = desk.rows("pauses", {}), held_by(desk, found), parked_over(desk, found)
    for saga in found:
        yield _cells(saga, pauses, held, parked.get(saga.id, ()), desk.words)


def table(lines: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Lines with aligned columns."""
    cells = list(lines)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _check_status(status: str) -> None:
    known = [each.value for each in Status]
    if status not in known:
        close = get_close_matches(status, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
        raise InvalidInput(f"--status {status!r}: no such status{hint}", path="status")


def _cells(
    saga: SagaLine, pauses: Sequence[PauseLine], held: Sequence[HeldLine], parked: Iterable[AtHand], words: Wording
) -> tuple[str, ...]:  # fmt: skip
    notes = [_shortened(saga.error)] if saga.error else []
    notes += [
        _shortened(f"{each.error.type}: {each.error.message}")
        for each in parked
        if each.error is not None and each.error.message not in saga.error  # else that is the reason
    ]
    notes += [one_line(told(reason, words)) for reason in why(saga, pauses, held)]
    key = f"{saga.key}  ({'; '.join(notes)})" if notes else saga.key
    return (
        words.word(words.STATUS, saga.status), str(saga.id), words.age(saga.created_at), current_step(saga, words),
        saga.name, key,
    )  # fmt: skip


def _shortened(text: str) -> str:
    line = " ".join(one_line(text).split())
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"


def current_step(saga: SagaLine, words: Wording) -> str:
    """What a saga is about to do, or parked over; nothing when it has ended or this process lacks its definition."""
    plan, state = plan_of(saga.name, saga.version), state_of(saga)
    if plan is None or state is None:
        return ""
    return ", ".join(
        each.step if each.direction.value == "do" else f"{each.step} ({words.word(words.DIRECTION, each.direction)})"
        for each in work(plan, state)
    )


def step_text(line: StepLine, words: Wording, skipped: str = "") -> str:
    """One step in words.

    Args:
        line: the step.
        words: how to put things.
        skipped: why it was skipped, if it was.
    """
    state, parts = line.state, []
    if line.plan is not None:
        parts.append(_sort(line.plan) + (" pivot" if line.plan.pivot else ""))
    for track, what in ((state.do, "attempt"), (state.undo, "undo attempt")):
        parts += [f"{track.attempts} {what}{'' if track.attempts == 1 else 's'}"] if track.attempts else []
    parts += ["outcome of an attempt unknown"] if line.unknown else []
    parts += [f"done anew {state.generation} times"] if state.generation else []
    parts += ["waits for a semantic lock"] if state.blocked is not None else []
    parts += [f"signals queued: {len(state.signals)}"] if state.signals else []
    parts += [one_line(skipped)] if skipped and state.status is StepStatus.SKIPPED else []
    parts += [f"next: {words.word(words.DIRECTION, line.next)}"] if line.next else []
    return f"step      {line.name:<24} {words.word(words.STEP_STATUS, state.status):<15} {', '.join(parts)}".rstrip()


def _sort(planned: StepPlan) -> str:
    if planned.children is not None:
        return "children" if planned.children.at_once > 1 else "child"
    if planned.wait is not None:
        return "wait for a signal" if planned.wait.signal else "sleep"
    return "external" if planned.external else "local"


def lock_text(lock: Any, saga: UUID, words: Wording) -> str:
    """One semantic lock in words, as it concerns a saga."""
    does = "awaited" if lock.waiting else "held"
    whose = "this saga" if lock.saga_id == saga else f"saga {lock.name or '?'} {lock.saga_id} (key {lock.key!r})"
    since = f"{words.clock(lock.at, 'seconds')} ({words.age(lock.at)} ago)"
    return f"lock      {one_line(lock.subject):<24} {does} by {one_line(whose)}, step {lock.step}, since {since}"


def kin_text(line: Any, words: Wording) -> str:
    """The saga that started this one, or one that this one started."""
    label = "parent" if line.is_parent else "child"
    run = f", run {line.run}" if line.run > 1 else ""
    error = f": {one_line(line.error)}" if line.error and not line.is_parent else ""
    status = words.word(words.STATUS, line.status)
    return f"{label:<9} {line.parent_step:<24} {status:<15} {line.name} {line.id} (key {line.key!r}{run}){error}"


def outbox_text(row: OutboxLine, words: Wording) -> str:
    """One outbox row in words."""
    what = (
        f"{row.step} ({words.word(words.DIRECTION, row.direction)})"
        if row.step
        else words.word(words.REQUEST, row.kind)
    )
    held = f"held by {row.holder} until" if row.holder else "held by nobody, due"
    progress = "" if row.progress is None else f", progress {bounded(row.progress)}"
    return (
        f"outbox    {what:<24} {held} {words.clock(row.due_at, 'seconds')} ({words.from_now(row.due_at)}), "
        f"queue {row.queue}, {row.deliveries} deliveries, {row.failures} failures{progress}"
    )


def bounded(value: object) -> str:
    """A value that may be shown as one line of JSON, or its beginning."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDEST_VALUE else text[: WIDEST_VALUE - 1] + "…"


def entry_text(entry: LogLine, words: Wording) -> str:
    """One log line in words; of payloads only what was signalled is shown."""
    data: dict[str, Any] = entry.data if isinstance(entry.data, dict) else {"reason": "what it says cannot be read"}
    parts = [f"{words.word(words.KIND, entry.kind):<22}", entry.step or ""]
    if entry.attempt:
        parts.append(f"attempt {entry.attempt}")
    if data.get("source") and data["source"] != "body":
        parts.append(f"answered by {words.word(words.SOURCE, data['source'])}")
    if entry.kind == Kind.SIGNALLED and "result" in data:
        parts.append(bounded(shown_value(data["result"])))
    if data.get("ref") is not None:
        parts.append(f"of entry {data['ref']}")
    if data.get("until") is not None:
        parts.append(f"until {words.clock(datetime.fromtimestamp(data['until'], UTC), 'seconds')}")
    for name in ("reason", "actor"):
        if data.get(name):
            parts.append(f"{name}: {data[name]}")
    if data.get("continued"):
        parts.append(f"goes on as saga {data['continued']}")
    if data.get("ignored"):
        parts.append("changed nothing")
    if data.get("unknown"):
        parts.append("outcome unknown")
    if data.get("retry_in") is not None:
        parts.append(f"again after {data['retry_in']:.1f} s")
    if data.get("error"):
        parts.append(f"{data['error'].get('type', '')}: {data['error'].get('message', '')}")
    return one_line("  ".join(part for part in parts if part))


def one_line(text: str) -> str:
    """Text without line breaks and control characters, which would let an error message forge lines."""
    return "".join(each if each.isprintable() else " " for each in text)


def verification(
    desk: Desk, wanted: list[str], complain: Callable[[str], Any], bar: Bars = no_bars
) -> tuple[int, int]:  # fmt: skip
    """Compare sagas with their logs; returns how many were looked at and how many problems there are."""
    desk.check_ready()
    ids = [find(desk, each).id for each in wanted] or None
    seen = problems = 0
    with desk.connect() as connection, bar(_total(desk, ids), "sagas") as shown:
        for found in verify(connection, ids):
            if isinstance(found, Finding):
                problems += 1
                complain(str(found))
            else:
                shown.update(found - seen)
                seen = found
    return seen, problems


def rebuilding(
    desk: Desk, wanted: list[str], say: Callable[[str], Any], complain: Callable[[str], Any], bar: Bars = no_bars
) -> tuple[int, int]:  # fmt: skip
    """Make rows again from logs; returns how many sagas were changed and how many could not be rebuilt."""
    desk.check_ready()
    ids = [_id(desk, each) for each in wanted] or None
    changed = problems = 0
    with desk.connect() as connection, bar(_total(desk, ids), "sagas") as shown:
        for found in rebuild(connection, ids):
            shown.update(1)
            if found.problem:
                problems += 1
                complain(f"{found.label}: {found.problem}")
            elif found.changed:
                changed += 1
                say(f"{found.label}: rows made again from its log")
    return changed, problems


def _total(desk: Desk, ids: Sequence[UUID] | None) -> int:
    return len(ids) if ids is not None else max(int(desk.rows("size_estimate", {})[0][0]), 1)


def _id(desk: Desk, wanted: str) -> UUID:
    """An id as it is, since its row may be gone; name:key by its row."""
    try:
        return UUID(wanted)
    except ValueError:
        return find(desk, wanted).id
