"""`sagas show`: what the command line says of one saga."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sagas import operate_payloads
from sagas.advice import Advice, about, possible
from sagas.at_hand import AtHand, at_hand, turned_back_over
from sagas.desk import Desk, LogLine, SagaLine
from sagas.engine import SagaRun
from sagas.events import Direction, Kind
from sagas.operate import entry_text, find, held_by, kin_text, lock_text, one_line, outbox_text, step_text
from sagas.progress import UNREADABLE, plan_of, state_of, step_lines
from sagas.why import Reason, told, why
from sagas.wording import Wording

MOST_LOCKS: Final = 100
MOST_KIN: Final = 20  # lines about the sagas that one has started


def description(desk: Desk, wanted: str, *, payloads: bool = False, traceback: bool = False) -> Iterator[str]:
    """One saga: where it stands and why, its steps in declared order, its work in the outbox and its log.

    Args:
        desk: where.
        wanted: its id, or name:key.
        payloads: with its input, results and signals, as far as they may be shown.
        traceback: with that of the last error of what it is at, and of what it has turned back over.
    """
    saga, words = find(desk, wanted), desk.words
    line, log, outbox = desk.saga(saga.id), desk.log(saga.id), desk.outbox(saga.id)
    yield from _head(saga, words)
    yield from _errors([turned_back_over(log), *at_hand(desk, [line])[saga.id]], words, traceback=traceback)
    reasons = why(line, desk.rows("pauses", {}), held_by(desk, [line]))
    for reason in reasons:
        yield f"waits     {one_line(told(reason, words))}"
    for each in next_for(desk, saga, reasons):
        yield f"next      {each.command or each.does}"
        if each.command:
            yield f"          {each.does}"
    for each in desk.rows("operate_family", {"saga": saga.id, "limit": MOST_KIN}):
        yield kin_text(each, words)
    yield from _steps(saga, line, log, words)
    for lock in desk.rows("locks", {"saga": saga.id, "limit": MOST_LOCKS}):
        yield lock_text(lock, saga.id, words)
    for row in outbox:
        yield outbox_text(row, words)
    yield from _log(log, operate_payloads.by_entry(desk, saga.id) if payloads else {}, words)


def _log(log: Sequence[LogLine], payloads: Mapping[int, Sequence[str]], words: Wording) -> Iterator[str]:
    previous = None
    for entry in log:
        since = "" if previous is None else f"+{(entry.at - previous).total_seconds():.3f} s"
        yield f"{entry.seq:>5}  {words.clock(entry.at)}  {since:>12}  {entry_text(entry, words)}"
        for line in payloads.get(entry.seq, ()):
            yield f"       {line}"
        previous = entry.at


def _errors(found: Sequence[AtHand | None], words: Wording, *, traceback: bool) -> Iterator[str]:
    """Who asked for a traceback is told where there is none."""
    for each in found:
        if each is not None:
            yield from _at_hand(each, words, traceback=traceback)
    if traceback and not any(each is not None and each.error is not None for each in found):
        yield "error     none is kept: nothing has failed in the step it is at, or has turned back over"


def _at_hand(found: AtHand, words: Wording, *, traceback: bool) -> Iterator[str]:
    """What somebody has to know who asks the other side what became of it."""
    forward = found.direction is Direction.DO
    what = found.step if forward else f"{found.step} ({words.word(words.DIRECTION, found.direction)})"
    if found.error is not None:
        more = "" if traceback or not found.error.traceback else "; --traceback says where"
        when = f"{words.clock(found.error.at, 'seconds')} ({words.age(found.error.at)} ago)"
        text = f"{found.error.type}: {found.error.message}"
        yield f"error     {what}, attempt {found.error.attempt}: {one_line(text)}, {when}{more}"
    for direction, key in found.keys:
        of = found.step if direction is Direction.DO else f"the compensation of {found.step}"
        yield f"key       {key} is the idempotency key of {of}"
    if traceback and found.error is not None:
        yield from (f"          {one_line(each)}" for each in found.error.traceback.split("\n") if each)


def next_for(desk: Desk, saga: SagaRun, reasons: Sequence[Reason]) -> Iterator[Advice]:
    """What can be done about a saga that does not go on."""
    if saga.parked_from is not None and plan_of(saga.name, saga.version) is not None:
        yield from possible(saga.id, saga.allowed_actions, command=desk.command)
    yield from about(saga.id, reasons, command=desk.command)


def _head(saga: SagaRun, words: Wording) -> Iterator[str]:
    yield f"saga      {saga.name} version {saga.version}, key {saga.key!r}, run {saga.run}"
    yield f"id        {saga.id}"
    parked_from = f" (from {words.word(words.STATUS, saga.parked_from)})" if saga.parked_from else ""
    cancel = ", cancel requested" if saga.cancel_requested else ""
    paused = ", paused" if saga.paused else ""
    yield f"status    {words.word(words.STATUS, saga.status)}{parked_from}{cancel}{paused}"
    if saga.error:
        yield f"reason    {one_line(saga.error)}"
    if saga.created_at and saga.updated_at:
        yield f"started   {words.clock(saga.created_at, 'seconds')} {words.zone()} ({words.age(saga.created_at)} ago)"
        last = "ended" if saga.finished_at else "changed"
        yield f"{last:<9} {words.clock(saga.updated_at, 'seconds')} {words.zone()} ({words.age(saga.updated_at)} ago)"
    if saga.deadline:
        yield f"deadline  {words.clock(saga.deadline, 'seconds')} {words.zone()} ({words.from_now(saga.deadline)})"


def _steps(saga: SagaRun, line: SagaLine, log: Sequence[LogLine], words: Wording) -> Iterator[str]:
    plan, state = plan_of(saga.name, saga.version), state_of(line)
    if plan is None:
        yield f"steps     this process does not know {saga.name} version {saga.version}: only begun steps are shown"
    if state is None:
        yield f"steps     {UNREADABLE}; the log is the truth"
        return
    skipped = {entry.step: str(entry.data.get("reason", "")) for entry in log if entry.kind == Kind.STEP_SKIPPED}
    for each in step_lines(saga.id, plan, state):
        yield step_text(each, words, skipped.get(each.name, ""))
