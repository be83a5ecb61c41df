"""The saga state machine. What happens next is decided in this package and nowhere else; the table is below.

Theory of operation
===================

`decide(plan, state, event)` answers one event with a `Decision`: the new state, the log entries
that say so, and the outbox rows the saga owns from now on. It is a pure function. The shell around
it writes all of a decision in one statement, or, when somebody else moved first, nothing, and asks
again from fresh state. `TABLE` below lists every pair of status and event that changes anything;
a pair that is not in it changes nothing, so a finished saga absorbs whatever still arrives.

State changes only through log entries: a rule writes entries, `evolve` folds each of them into the
state. Folding a stored log from entry 0 therefore gives the stored state again (`fold`), which is
what `sagas verify` compares.

The rules, each kept because its absence loses money:

1.  A step is worked on in one direction at a time: DO while the saga is running, UNDO while it is
    compensating, SETTLE while it is settling. `frontier` says which work is next; an answer about
    any other work is late and changes nothing.
2.  An attempt of an external step that raised, or whose worker died, is *unknown*. That is stored
    in the step's track with the next entry and never forgotten before an answer is known.
3.  An unknown attempt is asked about first (`assess`): the dedupe table, then `resolve`. Then the
    body may run again under the same key, while `max_attempts`, `max_deliveries` and `key_ttl` allow.
4.  Without an answer the step parks, unless its author said `on_unknown=COMPENSATE` or the saga is
    turning back anyway; then it is undone as unknown, if its compensation accepts `UNKNOWN`.
5.  `Refused` means "did not happen" only if no earlier attempt is unknown, and no `effect()` of this one happened,
    or may have.
6.  The pivot and what follows it are never undone: they are asked about, retried, else parked. A pivot that is skipped
    closes the way back like one that happened.
7.  Undo goes in reverse order of completion. A step that was undone as unknown is looked at once
    more (SETTLE) before the saga counts as compensated: its request may have landed late.
8.  An answer that arrives after the compensation of its step began opens that step for settling (again),
    also in a saga that had ended as compensated or cancelled: the only way out of a finished state.
9.  A cancel only sets a flag. The holder of the work in flight, or whoever takes it over, turns the
    saga back once it is known what that work did; a step that can only be undone given its result is
    tried again, within its limits, to learn that. A deadline that has passed does the same. Whoever holds a row when
    a cancel comes is not woken by it, and so leaves the row due: it never goes to sleep over a cancel.
10. A wait is a step without a body: its row is due when the wait ends. A signal is kept in the log, and taken by its
    wait as soon as that is next, in the decision that makes it so: it cannot be missed by being early.
11. A step's condition is looked at once, before anything of the step begins, and what came of it is logged first.
12. While a saga is paused nothing of it begins; what is under way is finished and recorded.
13. A redo is the operator's word: it forgets what a parked step is known to have done, and says so in the log. What it
    does next it does under a new key. It may not lead over a step that can be undone and happened, nor over the pivot.

14. Steps that do not need each other run side by side, each with a row of its own; a step begins when all that it needs
    has ended. When one fails (or an end was asked for), those that have not begun are withdrawn, those under way come
    to their end, and only then is anything undone. When one parks, the others finish their step and begin no other.
15. What becomes of a step over which a saga parked may be said by an operator: it happened, with this result; it did
    not happen; go on without it; or, turning back, it was undone by hand. The word counts as an answer and is logged as
    theirs; the key is closed, since an attempt may still be at work. It counts only while the saga stands as the
    operator saw it. The pivot can be said to have happened, or not, and is never gone on without; what follows the
    pivot cannot be turned back from. A cancel that was asked for is granted.
16. A step that starts other sagas waits for the end of all of them. When its saga turns back they are asked to turn
    back too, and it goes on turning back only when they have: what they completed is part of the step, so it is undone
    with it, in its place in the order. A child that waits for a person keeps its parent waiting, and of one that was
    aborted nobody knows what is left: its parent parks, once. A saga that is to turn back, or paused, starts none.
17. Semantic locks are taken after everything else is known, right before a body begins. A step that cannot have its
    lock has not begun: it is tried again later, which uses up no attempt, and is refused when its time to wait is over.
    What a saga holds it holds to its end, so whatever of it began once can go on, and its compensations need not wait.
18. After a restore from a backup the log may know less than the world outside. What is still to be done outside is in
    doubt then: in its turn it is asked about like an attempt whose worker died. It does not close the way back. A saga
    that turns back before its turn asks about what it could undo, one step at a time, before it undoes anything; none
    of that is begun in order to learn what it did.
19. What today's types cannot read is not tried: the step has neither begun nor failed, and the saga is parked. That the
    code is wrong is no reason to undo anything.

Compensation: Garcia-Molina & Salem, "Sagas", 1987. Empty undo and hanging: dtm's sub-transaction barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sagas.events import (
    Abort,
    Attempt,
    Begot,
    Blocked,
    Cancel,
    Children,
    Chosen,
    Decision,
    Doubt,
    Event,
    Failed,
    Kind,
    LateAnswer,
    Looks,
    Lost,
    MarkDone,
    MarkNotDone,
    MarkUndone,
    NotDone,
    Pause,
    Rebuild,
    Recalled,
    Redo,
    Refused,
    Resume,
    RetryNow,
    Signal,
    Skipped,
    SkipStep,
    Start,
    Succeeded,
    TimedOut,
    Undecided,
    UndoCompleted,
    Unstorable,
    Waits,
    Withdrawn,
    Work,
)  # fmt: skip
from sagas.machine import back, family, forward, look, requests
from sagas.machine.draft import Draft
from sagas.machine.look import (
    DIRECTION,
    GOING_ON,
    TERMINAL,
    UNDONE,
    at_rest,
    finished,
    frontier,
    goes_forward,
    going_on,
    parked,
    pivot_passed,
    rows,
    step_of,
    turning,
    undo_of,
)
from sagas.plan import Plan
from sagas.states import State, Status

__all__ = [
    "DIRECTION", "GOING_ON", "TABLE", "TERMINAL", "UNDONE", "Transition", "answers", "at_rest", "decide", "finished",
    "frontier", "goes_forward", "going_on", "parked", "pivot_passed", "place", "rows", "step_of", "turning",
    "undo_of",
]  # fmt: skip


def decide(plan: Plan, state: State | None, event: Event) -> Decision:
    """Answer one event.

    Args:
        plan: the definition the saga was started with.
        state: the saga as it stands; None for `Start`.
        event: what happened.

    Returns:
        The decision; one without entries when the event changes nothing. Its rows are those the saga does not have
        yet; the first takes the place of the row that an answer was about.

    Raises:
        ValueError: `Start` for a saga that exists, or another event for one that does not.
    """
    if state is None or isinstance(event, Start):
        if state is not None or not isinstance(event, Start):
            raise ValueError(f"{type(event).__name__} does not fit a saga that {'exists' if state else 'is not there'}")
        return _begin(plan, event)
    transition, acted, work = TABLE.get((state.status, type(event))), _work(event), frontier(plan, state)
    ended = state.status is Status.ABORTED  # what was under way then is nothing that the saga calls for
    if transition is None or (acted is not None and acted not in work and not ended):
        return Decision(state) if acted is None else place(plan, state, _now(event), acted)
    draft = Draft(plan, state, work, _now(event))
    transition.rule(draft, event)
    return draft.decision(acted)


def answers(status: Status, event: type[Event]) -> bool:
    """Whether such an event can change anything in a saga of this status."""
    return (status, event) in TABLE


def place(plan: Plan, state: State, now: float | None = None, work: Work | None = None) -> Decision:
    """Change nothing, and put a row where it belongs.

    Args:
        plan: the definition.
        state: the saga as it stands.
        now: epoch seconds, database clock.
        work: what the row stands for. Where the saga does not call for that, the row is of use only if some other work
            has none.
    """
    wanted = frontier(plan, state)
    if work in wanted:
        return Decision(state, rows=(look.row(plan, state, work, None, now),))
    return Decision(state, rows=rows(plan, state, now=now)[:1], spare=True)


def _now(event: Event) -> float | None:
    attempt: Attempt | None = getattr(event, "attempt", None)
    if attempt is not None:
        return attempt.now
    return event.now if isinstance(event, Children) else None


def _begin(plan: Plan, event: Start) -> Decision:
    draft = Draft(plan, State(Status.RUNNING, -1), ())
    draft.log(Kind.STARTED, saga=event.saga)
    return draft.decision(None)


def _work(event: Event) -> Work | None:
    """What an answer is about; requests concern the saga as a whole."""
    attempt: Attempt | None = getattr(event, "attempt", None)
    return None if attempt is None else Work(attempt.step, attempt.direction)


@dataclass(frozen=True, slots=True)
class Transition:
    """What one event does in one status: the rule, and every status it may lead to."""

    rule: Callable[[Draft, Any], None]
    leads_to: frozenset[Status]


def _to(rule: Callable[[Draft, Any], None], *leads_to: Status) -> Transition:
    return Transition(rule, frozenset(leads_to))


_R, _C, _S, _P = Status.RUNNING, Status.COMPENSATING, Status.SETTLING, Status.PARKED
_DONE, _BACK_ENDS = Status.COMPLETED, (Status.COMPENSATED, Status.CANCELLED)

TABLE: Final[dict[tuple[Status, type[Event]], Transition]] = {
    (_R, Succeeded): _to(forward.do_succeeded, _R, _C, _DONE, *_BACK_ENDS),
    (_R, Unstorable): _to(forward.do_unstorable, _P),
    (_R, Refused): _to(forward.do_refused, _R, _C, _P, *_BACK_ENDS),
    (_R, Failed): _to(forward.do_failed, _R, _C, _P, *_BACK_ENDS),
    (_R, NotDone): _to(forward.do_not_done, _R, _C, _S, _P, *_BACK_ENDS),
    (_R, Undecided): _to(forward.do_undecided, _R, _C, _P, *_BACK_ENDS),
    (_R, Lost): _to(forward.do_lost, _R, _C, _P, *_BACK_ENDS),
    (_R, Withdrawn): _to(forward.do_withdrawn, _R, _C, _S, *_BACK_ENDS),
    (_R, Waits): _to(forward.do_waits, _R),
    (_R, TimedOut): _to(forward.do_timed_out, _R, _C, _P, _DONE, *_BACK_ENDS),
    (_R, Chosen): _to(forward.do_chosen, _R),
    (_R, Skipped): _to(forward.do_skipped, _R, _C, _P, _DONE, *_BACK_ENDS),
    (_R, Begot): _to(family.do_begot, _R, _C, _S, _DONE, *_BACK_ENDS),
    (_R, Recalled): _to(family.recalled, _R),
    (_R, Looks): _to(family.looks, _R),
    (_R, Children): _to(family.seen, _R, _C, _P, _DONE, *_BACK_ENDS),
    (_R, Blocked): _to(forward.do_blocked, _R, _C, _P, *_BACK_ENDS),
    (_R, Cancel): _to(requests.cancel, _R),
    (_R, RetryNow): _to(requests.retry_now, _R),
    (_C, Succeeded): _to(back.back_succeeded, _C, _S, *_BACK_ENDS),
    (_C, Refused): _to(back.back_failed, _P),
    (_C, Failed): _to(back.back_failed, _C, _P),
    (_C, NotDone): _to(back.back_lost, _P),
    (_C, Undecided): _to(back.back_undecided, _C, _P),
    (_C, Lost): _to(back.back_lost, _P),
    (_C, Recalled): _to(family.recalled, _C),
    (_C, Looks): _to(family.looks, _C),
    (_C, Children): _to(family.seen, _C, _S, _P, *_BACK_ENDS),
    (_C, Cancel): _to(requests.cancel_late, _C),
    (_C, RetryNow): _to(requests.retry_now, _C),
    (_S, Succeeded): _to(back.back_succeeded, _S, *_BACK_ENDS),
    (_S, Unstorable): _to(back.settle_unstorable, _P),
    (_S, Refused): _to(back.back_failed, _P),
    (_S, Failed): _to(back.back_failed, _S, _P),
    (_S, NotDone): _to(back.settle_not_done, _S, *_BACK_ENDS),
    (_S, Undecided): _to(back.back_undecided, _S, _P),
    (_S, Lost): _to(back.back_lost, _P),
    (_S, Cancel): _to(requests.cancel_late, _S),
    (_S, RetryNow): _to(requests.retry_now, _S),
    (_P, Succeeded): _to(forward.do_succeeded, _P),
    (_P, Unstorable): _to(forward.do_unstorable, _P),
    (_P, Refused): _to(forward.do_refused, _P),
    (_P, Failed): _to(forward.do_failed, _P),
    (_P, NotDone): _to(forward.do_not_done, _P),
    (_P, Undecided): _to(forward.do_undecided, _P),
    (_P, Lost): _to(forward.do_lost, _P),
    (_P, Withdrawn): _to(forward.do_withdrawn, _P),
    (_P, Waits): _to(forward.do_waits, _P),
    (_P, TimedOut): _to(forward.do_timed_out, _P),
    (_P, Chosen): _to(forward.do_chosen, _P),
    (_P, Skipped): _to(forward.do_skipped, _P),
    (_P, Blocked): _to(forward.do_blocked, _P),
    (_P, Begot): _to(family.do_begot, _P),
    (_P, Recalled): _to(family.recalled, _P),
    (_P, Looks): _to(family.looks, _P),
    (_P, Children): _to(family.seen, _P),
    (_P, Cancel): _to(requests.cancel_parked, _P, _R),
    (_P, RetryNow): _to(requests.retry_parked, _R, _C, _S, _DONE),
    (_P, Abort): _to(requests.abort, Status.ABORTED),
    (_P, Redo): _to(requests.redo, _P, _R, _DONE),
    (_P, MarkDone): _to(requests.mark_done, _P, _R, _C, _DONE, *_BACK_ENDS),
    (_P, MarkNotDone): _to(requests.mark_not_done, _P, _R, _C, _S, *_BACK_ENDS),
    (_P, SkipStep): _to(requests.skip, _P, _R, _C, _DONE, *_BACK_ENDS),
    (_P, MarkUndone): _to(requests.mark_undone, _P, _C, _S, *_BACK_ENDS),
    (_R, MarkDone): _to(requests.resolve_late, _R),
    (_C, MarkDone): _to(requests.resolve_late, _C),
    (_S, MarkDone): _to(requests.resolve_late, _S),
    (_R, MarkNotDone): _to(requests.resolve_late, _R),
    (_C, MarkNotDone): _to(requests.resolve_late, _C),
    (_S, MarkNotDone): _to(requests.resolve_late, _S),
    (_R, SkipStep): _to(requests.resolve_late, _R),
    (_C, SkipStep): _to(requests.resolve_late, _C),
    (_S, SkipStep): _to(requests.resolve_late, _S),
    (_R, MarkUndone): _to(requests.resolve_late, _R),
    (_C, MarkUndone): _to(requests.resolve_late, _C),
    (_S, MarkUndone): _to(requests.resolve_late, _S),
    (_R, Redo): _to(requests.redo_late, _R),
    (_C, Redo): _to(requests.redo_late, _C),
    (_S, Redo): _to(requests.redo_late, _S),
    (_R, Pause): _to(requests.pause, _R),
    (_C, Pause): _to(requests.pause, _C),
    (_S, Pause): _to(requests.pause, _S),
    (_P, Pause): _to(requests.pause, _P),
    (_R, Resume): _to(requests.resume, _R, _DONE),
    (_C, Resume): _to(requests.resume, _C),
    (_S, Resume): _to(requests.resume, _S),
    (_P, Resume): _to(requests.resume_parked, _P, _R, _DONE),
    (_R, Signal): _to(requests.signal, _R, _DONE),
    (_P, Signal): _to(requests.signal_parked, _P, _R, _DONE),
    (_C, Signal): _to(requests.signal_late, _C),
    (_S, Signal): _to(requests.signal_late, _S),
    (_C, LateAnswer): _to(requests.late_answer, _C),
    (_S, LateAnswer): _to(requests.late_answer, _S),
    (_P, LateAnswer): _to(requests.late_answer, _P),
    (Status.COMPENSATED, LateAnswer): _to(requests.late_answer_reopens, _S),
    (Status.CANCELLED, LateAnswer): _to(requests.late_answer_reopens, _S),
    (Status.ABORTED, Succeeded): _to(forward.done_after_abort, Status.ABORTED),
    (_DONE, UndoCompleted): _to(family.undo_completed, _C, Status.CANCELLED),
    (_R, Rebuild): _to(requests.rebuild, _R),
    (_C, Rebuild): _to(requests.rebuild, _C),
    (_S, Rebuild): _to(requests.rebuild, _S),
    (_P, Rebuild): _to(requests.rebuild, _P),
    (_R, Doubt): _to(requests.doubt, _R),
    (_C, Doubt): _to(requests.doubt, _C),
    (_S, Doubt): _to(requests.doubt, _S),
    (_P, Doubt): _to(requests.doubt, _P),
}
