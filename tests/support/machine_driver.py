"""Drives one saga through the pure machine, one delivery at a time, as a worker and its store would.

`Driven` stands for both: it begins a delivery, asks `assess` what to do, lets a `World` play the user's
bodies, has `decide` judge what came of it, and keeps log and row. Whatever a test is about, every decision
on the way is held against what must be true of all of them (`Driven.apply`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from sagas import machine
from sagas.events import (
    Abort,
    Answer,
    Attempt,
    Begot,
    Blocked,
    Cancel,
    Chosen,
    Decision,
    Direction,
    Entry,
    ErrorText,
    Event,
    Failed,
    Kind,
    Pause,
    Redo,
    Refused,
    Resume,
    RetryNow,
    Row,
    Signal,
    Skipped,
    Source,
    Start,
    Succeeded,
    Undecided,
    Unstorable,
    Waits,
    Work,
)  # fmt: skip
from sagas.fold import fold
from sagas.machine import look
from sagas.plan import ChildrenPlan, OnTimeout, OnUnknown, Plan, StepPlan, UndoPlan, WaitPlan
from sagas.retry import Retry
from sagas.states import Status, StepStatus
from sagas.takeover import Action, Ask, Choose, Memory, Misplaced, Run, Wait, assess
from tests.support.machine_checks import check_decision

DO, UNDO, SETTLE = Direction.DO, Direction.UNDO, Direction.SETTLE
ERROR = ErrorText("ConnectionError", "no reply")
INPUT = Raw(b'{"name":"shop.order","version":1,"input":{"order":7}}')
SETTLE_AFTER = 60.0
LOCK_WAIT = 50.0


def undo(**options: Any) -> UndoPlan:
    """An external compensation that takes three attempts, and a result only."""
    return UndoPlan(**{"external": True, "queue": "undo", "retry": Retry(max_attempts=3), "timeout": 30.0, **options})


def step(name: str = "charge", **options: Any) -> StepPlan:
    """An external step that takes three attempts and can be undone given its result."""
    given: dict[str, Any] = {
        "external": True, "queue": "do", "retry": Retry(max_attempts=3), "timeout": 30.0, "undo": undo(),
        "max_deliveries": 3,
    }  # fmt: skip
    return StepPlan(name=name, settle_after=SETTLE_AFTER, **{**given, **options})


def local(name: str = "reserve", **options: Any) -> StepPlan:
    """A local step with a local compensation."""
    return step(name, **{"external": False, "undo": undo(external=False), **options})


def pivot(name: str = "ship", **options: Any) -> StepPlan:
    """An external step that decides: what follows it is never undone."""
    return step(name, **{"pivot": True, "undo": None, **options})


def wait(name: str = "review", on_timeout: OnTimeout = OnTimeout.PARK) -> StepPlan:
    """A wait for a signal."""
    waits = WaitPlan(signal=True, on_timeout=on_timeout)
    return StepPlan(name=name, external=False, queue="do", retry=Retry(), wait=waits, max_deliveries=2)


def sleep(name: str = "pause") -> StepPlan:
    """A wait for a time."""
    waits = WaitPlan(signal=False)
    return StepPlan(name=name, external=False, queue="do", retry=Retry(), wait=waits, max_deliveries=2)


CHILDREN_UNDONE = UndoPlan(external=False, queue="do", retry=Retry(max_attempts=1), timeout=None, children=True)


def child(name: str = "payment", **options: Any) -> StepPlan:
    """A step that starts another saga."""
    given: dict[str, Any] = {
        "retry": Retry(max_attempts=1), "undo": CHILDREN_UNDONE, "max_deliveries": 2,
        "children": ChildrenPlan(),
    }  # fmt: skip
    return StepPlan(name=name, external=False, queue="do", **{**given, **options})


def begot(a: Attempt, count: int = 1, total: int = 1) -> Begot:
    """What a worker makes of a step that starts other sagas."""
    return Begot(a, Raw(b"{}"), count, total, UNSET if total == 1 else Raw(b"[1]"))


def plan(*steps: StepPlan) -> Plan:
    """A definition of these steps."""
    return Plan(name="shop.order", version=1, steps=steps)


ACCEPTS = undo(accepts_unknown=True)
COMPENSATE = OnUnknown.COMPENSATE


class Did(Enum):
    """What became of a body, or of asking `resolve`."""

    OK = "returned"
    FAIL = "raised"
    GIVE_UP = "raised a give_up_on error"
    REFUSE = "raised Refused"
    UNSTORABLE = "returned what cannot be stored"
    DIE = "its worker died"
    NOT_DONE = "resolve: it did not happen"
    UNDECIDED = "resolve: cannot tell"
    SKIP = "its condition is false"
    BLOCKED = "a semantic lock is held, and it may wait"
    HELD = "a semantic lock is held, and it does not wait"
    BEING_TAKEN = "a semantic lock is just being taken"


class World(Protocol):
    """What lies outside the machine: the bodies, `resolve` and the dedupe table."""

    def memory(self, work: Work) -> Memory:
        """What the dedupe table says about the effect at stake."""

    def ask(self, work: Work) -> Did | Raw:
        """Call `resolve`: a result, or NOT_DONE, UNDECIDED, DIE."""

    def body(self, work: Work, run: Run) -> Did | Raw:
        """Run the body: a result, or what else became of it."""

    def choose(self, work: Work) -> Did:
        """Look at the step's condition: OK, SKIP, FAIL or DIE."""

    def until(self, work: Work, now: float) -> float | Did | None:
        """When the wait ends, in epoch seconds; None: by a signal only; FAIL, DIE."""


@dataclass
class Script:
    """A world for one delivery; what is not scripted must not be called."""

    does: Did | Raw | None = None
    asked: Did | Raw | None = None
    chooses: Did | None = None
    waits: float | Did | None = 100.0  # seconds
    remembers: Memory = field(default_factory=Memory)
    meanwhile: Callable[[], object] = lambda: None  # what happens while the body runs
    ran: Run | None = None

    def memory(self, work: Work) -> Memory:
        return self.remembers

    def ask(self, work: Work) -> Did | Raw:
        assert self.asked is not None, f"resolve was called for {work}"
        answer, self.asked = self.asked, None
        return answer

    def body(self, work: Work, run: Run) -> Did | Raw:
        assert self.does is not None, f"the body was run for {work}: {run}"
        answer, self.does, self.ran = self.does, None, run
        self.meanwhile()
        return answer

    def choose(self, work: Work) -> Did:
        assert self.chooses is not None, f"the condition was looked at for {work}"
        answer, self.chooses = self.chooses, None
        self.meanwhile()
        return answer

    def until(self, work: Work, now: float) -> float | Did | None:
        self.meanwhile()
        return now + self.waits if isinstance(self.waits, float) else self.waits


class Driven:
    """One saga, its log and its outbox row."""

    def __init__(self, plan: Plan, *, deadline: float | None = None) -> None:
        """`deadline` in seconds."""
        self.plan, self.now, self.log = plan, 1_000_000.0, list[Entry]()
        self.row: Row | None = None
        self.held = False
        self.deliveries = 0
        self.due = self.now
        self.marks: set[str] = set()
        self.beside = False
        self.last = started(plan, None if deadline is None else self.now + deadline)
        self.state = fold(self.last.entries)
        self._take(self.last)

    # --- what a worker does ---------------------------------------------------------------------------------

    def deliver(self, body: Did | Raw | None = None, *, ask: Did | Raw | None = None, **more: Any) -> Script:
        """One delivery that goes exactly so: asks (or not), then runs the body (or not)."""
        script = Script(body, ask, **more)
        self.deliver_in(script)
        assert script.asked is None, f"resolve was not called, but {self.last}"
        assert script.does is None, f"the body was not run, but {self.last}"
        assert script.chooses is None, f"the condition was not looked at, but {self.last}"
        return script

    def deliver_in(self, world: World) -> Answer | None:
        """One delivery in this world. Returns the answer that was recorded; None when there was none."""
        assert self.row is not None, f"nothing to deliver: {self.state.status}"
        self.now = max(self.now, self.due)
        if self.state.paused:  # as the store does: nothing begins
            self.due = self.now + look.PAUSE
            return None
        self.deliveries += 1
        self.row = msgspec.structs.replace(self.row, first_begun_at=self.row.first_begun_at or self.now)
        attempt = Attempt(
            step=self.row.step, direction=self.row.direction, deliveries=self.deliveries,
            first_begun_at=self.row.first_begun_at, now=self.now,
        )  # fmt: skip
        self.held = True
        event = self._carry_out(attempt, world)
        self.held = False
        if isinstance(event, Misplaced):
            self._take(machine.place(self.plan, self.state, self.now))
            return None
        if event is not None:
            self.apply(event)
        return event

    def _carry_out(self, a: Attempt, world: World) -> Answer | Misplaced | None:
        work, memory = Work(a.step, a.direction), world.memory(Work(a.step, a.direction))
        action = self._assess(a, memory)
        if isinstance(action, Ask):
            said = world.ask(work)
            if said is Did.DIE:
                return None
            if said is Did.UNDECIDED:
                return Undecided(a, ERROR)
            if said is Did.UNSTORABLE:
                return Unstorable(a, ERROR)
            if isinstance(said, Raw) and a.direction is not SETTLE:
                return Succeeded(a, said, Source.RESOLVE)
            if isinstance(said, Raw):
                action = self._assess(a, Memory(memory.closed, said))
            else:
                action = self._assess(a, memory, not_done=True)
        assert not isinstance(action, Ask), action
        if isinstance(action, Choose):
            return chosen(a, world.choose(work))
        if isinstance(action, Wait):
            return waiting(a, world.until(work, a.now))
        if isinstance(action, Misplaced):
            expected = work not in machine.frontier(self.plan, self.state)
            assert expected or machine.step_of(self.state, a.step).status is StepStatus.WAITING
        if not isinstance(action, Run):
            return action
        return answer(a, world.body(work, action))

    def _assess(self, a: Attempt, memory: Memory, not_done: bool = False) -> Action:
        return assess(self.plan, self.state, a, memory=memory, not_done=not_done)

    # --- what callers and operators do ----------------------------------------------------------------------

    def cancel(self) -> Decision:
        return self.apply(Cancel("customer", "changed their mind"))

    def retry_now(self) -> Decision:
        return self.apply(RetryNow("operator", "bank is back"))

    def abort(self) -> Decision:
        return self.apply(Abort("operator", "settled by telephone"))

    def signal(self, name: str = "review", value: bytes = b'"yes"') -> Decision:
        return self.apply(Signal(name, Raw(value), "reviewer", "looks fine"))

    def pause(self) -> Decision:
        return self.apply(Pause("operator", "the bank is down"))

    def resume(self) -> Decision:
        return self.apply(Resume("operator", "the bank is back"))

    def redo(self, name: str) -> Decision:
        return self.apply(Redo(name, "operator", "it was lost over there"))

    # --- what the store does, and what must be true of every decision ---------------------------------------

    def apply(self, event: Event) -> Decision:
        """Decide, check, and keep what was decided."""
        before = self.state
        decision = machine.decide(self.plan, before, event)
        assert machine.decide(self.plan, before, event) == decision, "not deterministic"
        check_decision(self.plan, before, event, decision)
        self._take(decision, answered=isinstance(event, Answer))
        if len(self.log) <= 12 or self.row is None:  # in between, `check_decision` held each new entry against it
            assert fold(self.log) == self.state
        assert self.held or (self.row is None) == (machine.frontier(self.plan, self.state) == ())
        return decision

    def _take(self, decision: Decision, answered: bool = True) -> None:
        self.log += decision.entries
        self.state, self.last = decision.state, decision
        self.marks |= {mark.step for mark in decision.marks if mark.state == "closed"}
        if (decision.wake or decision.surplus) and not self.held:
            self.due = self.now
            over = self.row and Work(self.row.step, self.row.direction) in decision.surplus
            self.row = None if over or machine.finished(decision.state) else self.row
        if self.held and not answered and decision.rows:
            self.beside = True  # the row that is held is of no use any more, and there is another
        if answered and decision.spare and self.beside:
            self.beside = False
        elif answered or decision.rows:
            self.row, self.deliveries = next(iter(decision.rows), None), 0
            self.due = self.now + (self.row.delay if self.row else 0.0)

    # --- what tests look at ---------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self.state.status

    def must_be(self, status: Status) -> None:
        assert self.state.status is status, f"{self.state.status}, not {status}: {self.kinds}"

    @property
    def kinds(self) -> list[str]:
        """The log, as `kind step`."""
        return [f"{entry.kind} {entry.step}" if entry.step else str(entry.kind) for entry in self.log]

    @property
    def delay(self) -> float:
        """Seconds until the row is due."""
        return self.due - self.now

    def steps_of(self, *kinds: Kind) -> list[str]:
        """Names of the steps that entries of these kinds are about, in order of the log."""
        return [entry.step or "" for entry in self.log if entry.kind in kinds]


def started(plan: Plan, deadline: float | None = None) -> Decision:
    """A start as the store makes it: it adds the deadline, which only its clock can tell."""
    decision = machine.decide(plan, None, Start(INPUT))
    replace, (first, *more) = msgspec.structs.replace, decision.entries
    first = replace(first, data=replace(first.data, deadline=deadline))
    return replace(decision, entries=(first, *more), state=replace(decision.state, deadline=deadline))


def chosen(a: Attempt, did: Did) -> Answer | None:
    """What a worker makes of a condition."""
    if did is Did.FAIL:
        return Failed(a, ERROR, began=False)
    assert did in (Did.OK, Did.SKIP, Did.DIE), did
    return None if did is Did.DIE else Chosen(a) if did is Did.OK else Skipped(a, "nothing to pay")


def waiting(a: Attempt, until: float | Did | None) -> Answer | None:
    """What a worker makes of a wait that was reached."""
    if not isinstance(until, Did):
        return Waits(a, until)
    assert until in (Did.FAIL, Did.DIE), until
    return Failed(a, ERROR, began=False) if until is Did.FAIL else None


def result(name: str) -> Raw:
    """The result that a step of this name returns."""
    return Raw(b'"%s-1"' % name.encode())


def answer(a: Attempt, did: Did | Raw) -> Answer | None:
    """What a worker makes of the end of a body."""
    if isinstance(did, Raw):
        return Succeeded(a, did)
    if did is Did.REFUSE:
        return Refused(a, ERROR)
    if did is Did.UNSTORABLE:
        return Unstorable(a, ERROR)
    if did in (Did.BLOCKED, Did.HELD, Did.BEING_TAKEN):
        patience = LOCK_WAIT if did is Did.BLOCKED else 0.0
        return Blocked(a, "account:7", "somebody has it", patience, held=did is not Did.BEING_TAKEN)
    if did in (Did.FAIL, Did.GIVE_UP):
        return Failed(a, ERROR, give_up=did is Did.GIVE_UP)
    assert did in (Did.OK, Did.DIE), did
    return Succeeded(a, result(a.step)) if did is Did.OK else None
