"""Random plans and random worlds for the state machine, drawn by Hypothesis.

A tape of small numbers makes every choice; when it has run out, every choice is the first, and first comes
what happens where nothing goes wrong. So each run ends in a world without trouble.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from sagas import machine
from sagas.events import Direction, Work
from sagas.plan import OnTimeout, OnUnknown, Plan, StepPlan, UndoPlan
from sagas.retry import Retry
from sagas.states import Status
from sagas.takeover import Memory, Run
from tests.support.machine_driver import Did, Driven, result, sleep, step, undo, wait

T = TypeVar("T")
TAPES = st.binary(min_size=4, max_size=50)
PLAN_SIZE = 44  # choices enough for any plan here
SHORT = 20.0  # seconds: shorter than any deadline here
LONG = 10_000.0  # seconds: longer than any `key_ttl` here
KEY_TTL = 1_000.0


class Tape:
    """Choices, made in advance."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.left = list(reversed(numbers))

    @property
    def over(self) -> bool:
        return not self.left

    def choose(self, options: Sequence[T]) -> T:
        """One of these; the first when the tape has run out."""
        return options[self.left.pop() % len(options)] if self.left else options[0]


class Troubled:
    """A world in which anything may happen to a body, as long as the tape says so."""

    bodies: Sequence[Did] = (Did.OK, Did.FAIL, Did.DIE, Did.REFUSE, Did.GIVE_UP, Did.UNSTORABLE)

    def __init__(self, plan: Plan, tape: Tape) -> None:
        self.plan, self.tape, self.ran = plan, tape, Counter[Work]()

    def memory(self, work: Work) -> Memory:
        """Late answers turn up in the dedupe table now and then."""
        late = self.plan.by_name[work.step].external and self.tape.choose([False] * 9 + [True])
        return Memory(response=result(work.step)) if late else Memory()

    def ask(self, work: Work) -> Did | Raw:
        said: list[Did | Raw] = [result(work.step), Did.NOT_DONE, Did.UNDECIDED, Did.DIE]
        return self.tape.choose(said)

    def body(self, work: Work, run: Run) -> Did | Raw:
        self.ran[work] += 1
        storable = work.direction is not Direction.DO or not self.plan.by_name[work.step].external
        return self.tape.choose(self.bodies[:-1] if storable else self.bodies)

    def choose(self, work: Work) -> Did:
        return look_at_condition(self.tape)

    def until(self, work: Work, now: float) -> float | Did | None:
        return begin_to_wait(self.plan, work, now, self.tape)


def look_at_condition(tape: Tape) -> Did:
    """True where nothing goes wrong."""
    return tape.choose((Did.OK, Did.SKIP, Did.FAIL, Did.DIE))


def begin_to_wait(plan: Plan, work: Work, now: float, tape: Tape) -> float | Did | None:
    """For a time; where a signal is waited for, perhaps without end."""
    wait = plan.by_name[work.step].wait
    ends = (now + SHORT, now + LONG, Did.FAIL, Did.DIE)
    return tape.choose((*ends, None) if wait is not None and wait.signal else ends)


def plans(**fixed: Any) -> st.SearchStrategy[Plan]:
    """A definition of up to four steps, often with a pivot, waits, conditions; what is fixed holds for every body."""
    return st.binary(min_size=PLAN_SIZE, max_size=PLAN_SIZE).map(lambda numbers: _plan(Tape(numbers), fixed))


def _plan(tape: Tape, fixed: dict[str, Any]) -> Plan:
    names = tape.choose(["a", "ab", "abc", "abcd"])
    pivot = tape.choose([None, *range(len(names))])
    steps = []
    for position, name in enumerate(names):
        passed = pivot is not None and position >= pivot
        final = {"undo": None, "pivot": position == pivot} if passed else {}
        if position != pivot and (waits := _wait(tape, name, passed)):
            steps.append(waits)
        else:
            steps.append(_step(tape, name, {**fixed, **final}))
    return Plan(name="shop.order", version=1, steps=tuple(steps))


def _wait(tape: Tape, name: str, passed: bool) -> StepPlan | None:
    kind = tape.choose(["body"] * 5 + ["sleep", "wait", "wait"])
    on_timeout = tape.choose(list(OnTimeout))
    if passed and on_timeout is OnTimeout.COMPENSATE:
        on_timeout = OnTimeout.PARK
    return {"sleep": sleep(name), "wait": wait(name, on_timeout)}.get(kind)


def _step(tape: Tape, name: str, fixed: dict[str, Any]) -> StepPlan:
    external = tape.choose([True, True, False])
    drawn = {
        "external": external,
        "retry": _retry(tape),
        "key_ttl": tape.choose([None, KEY_TTL]),
        "has_resolve": external and tape.choose([False, True]),
        "undo": _undo(tape, external),
        "max_deliveries": tape.choose([1, 2, 3]),
        "has_when": tape.choose([False, False, False, True]),
    }
    given = {**drawn, **fixed}
    if given["undo"] is None or given["undo"].accepts_unknown:
        given["on_unknown"] = tape.choose(list(OnUnknown))
    return step(name, **given)


def _undo(tape: Tape, external: bool) -> UndoPlan | None:
    has_resolve, accepts_unknown = tape.choose([False, True]), tape.choose([False, True])
    return tape.choose(
        [
            undo(external=external, retry=_retry(tape), has_resolve=external and has_resolve,
                 accepts_unknown=external and accepts_unknown),
            undo(external=external, retry=_retry(tape)),
            None,
        ]
    )  # fmt: skip


def _retry(tape: Tape) -> Retry:
    return Retry(max_attempts=tape.choose([1, 2, 3]))


def begun(plan: Plan, tape: Tape) -> Driven:
    """A saga from its start, sometimes with a deadline."""
    return Driven(plan, deadline=tape.choose([None, None, 100.0, 2 * LONG]))


def run(saga: Driven, world: Any, tape: Tape, *, moves: int = 60, redo: bool = False) -> None:
    """Deliveries and requests as the tape has them, until it is over; `redo`: also an operator who forgets steps."""
    asked = ["cancel", "retry", "wait", "abort", "signal", "signal", "pause", "resume", *["redo", "redo"] * redo]
    for _ in range(moves):
        if tape.over:
            return
        what = tape.choose(["deliver"] * 8 + asked)
        if what == "wait":
            saga.now += LONG
        elif what == "deliver":
            if saga.row is not None:
                saga.deliver_in(world)
            elif saga.status is Status.PARKED:
                saga.retry_now()
        elif what != "abort" or tape.choose([False, False, True]):
            ask(saga, what, tape)


def ask(saga: Driven, what: str, tape: Tape) -> None:
    """A request from outside."""
    requests = {
        "cancel": saga.cancel, "retry": saga.retry_now, "abort": saga.abort, "pause": saga.pause, "resume": saga.resume,
    }  # fmt: skip
    if what in requests:
        requests[what]()
    else:
        name = tape.choose([*saga.plan.by_name, "unheard of"])
        saga.signal(name) if what == "signal" else saga.redo(name)


def drain(saga: Driven, world: Any) -> None:
    """Deliver until there is nothing to deliver; what does not end fails."""
    saga.resume()
    for _ in range(12 * len(saga.plan.steps) + 8):
        if saga.row is None:
            return
        before = saga.state
        saga.deliver_in(world)
        if saga.state is before and (name := waits_for_a_signal(saga)):
            saga.signal(name)
    raise AssertionError(f"still at work after many deliveries: {saga.kinds}")


def waits_for_a_signal(saga: Driven) -> str | None:
    """The wait that a saga is at, parked there or not."""
    state = saga.state
    if state.parked_from is not None:
        state = replace(state, status=state.parked_from)
    for work in machine.frontier(saga.plan, state):
        planned = saga.plan.by_name[work.step]
        return work.step if planned.wait is not None and planned.wait.signal else None
    return None


def finish(saga: Driven, world: Any) -> None:
    """Drain, and resume what is parked, until it is finished or cannot be helped."""
    drain(saga, world)
    for _ in range(len(saga.plan.steps) + 2):
        if saga.status in machine.TERMINAL or beyond_help(saga):
            return
        if name := waits_for_a_signal(saga):
            saga.signal(name)
        saga.retry_now()
        drain(saga, world)
    assert saga.status in machine.TERMINAL or beyond_help(saga), f"parked for ever: {saga.kinds}"


def beyond_help(saga: Driven) -> bool:
    """Parked over a step whose key the other side has forgotten, and no answer of `resolve` allows to turn back."""
    if saga.state.parked_from is not Status.RUNNING:
        return False
    (work,) = machine.frontier(saga.plan, replace(saga.state, status=Status.RUNNING))
    planned, do = saga.plan.by_name[work.step], machine.step_of(saga.state, work.step).do
    return (
        do.unknown
        and not (planned.has_resolve and saga.plan.may_turn_back(planned.name) and not planned.pivot)
        and planned.key_ttl is not None
        and do.first_begun_at is not None
        and saga.now - do.first_begun_at >= planned.key_ttl
    )
