"""What to do next about a saga that does not go on: a sentence for each reason, and the command that does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sagas import why
from sagas.actions import Action
from sagas.why import Reason

NEXT: Final[Mapping[str, str]] = {
    why.UNKNOWN: "Start this where the code of the application is that has it; workers need that code too.",
    why.CHANGED: "Deploy the former code again, and give the changed steps a new version.",
    why.PAUSED: "Resume it when the reason for the pause is gone.",
    why.DEFINITION_PAUSED: "Resume the definition when the reason for the pause is gone.",
    why.QUEUE_PAUSED: "Resume the queue when the reason for the pause is gone.",
    why.SIGNAL: "If the signal was lost, send it.",
    why.SIGNAL_UNTIL: "If the signal was lost, send it; else it goes on by itself when the time is up.",
    why.SLEEPS: "Nothing is to be done: it goes on by itself.",
    why.LOCK: "It goes on by itself when who holds the lock has ended: see to that saga.",
    why.CHILD: "It goes on by itself when that saga has ended.",
    why.CHILDREN: "It goes on by itself when they have ended.",
    why.CHILD_PARKED: "See to that saga: it waits for a person, and this one goes on by itself when it does.",
    why.UNDOES: "It goes on by itself when that is undone.",
    why.BACKS_OFF: "It goes on by itself; a retry makes it due now.",
    why.BEHIND: "See to that saga: a line goes on when its first one does.",
    why.UNREADABLE: "Compare it with its log, and make it again from there (`sagas rebuild`).",
    why.LACKS: "Compare it with its log, and make it again from there (`sagas rebuild`).",
    why.LOST: "Make its row again from its log, once no worker can still be at it.",
    why.OVERDUE: "Look whether a relay runs, and a worker of this queue.",
    why.SETTLES: "Nothing is to be done: it goes on by itself.",
    why.EXPIRED: "Another worker takes it over by itself; if none does, look whether one of this queue runs.",
    why.UNSERVED: "Start a Celery worker that serves this queue, or free one; or the queue's name is wrong in queue=.",
    why.FULL: "It goes on by itself when its turn comes; a wider limit lets more of them work at a time.",
}
COMMANDS: Final[Mapping[str, str]] = {
    why.PAUSED: "resume %(saga)s --reason WHY",
    why.DEFINITION_PAUSED: "resume-definition %(name)s",
    why.QUEUE_PAUSED: "resume-queue %(name)s",
    why.SIGNAL: "signal %(saga)s %(step)s VALUE --reason WHY",
    why.SIGNAL_UNTIL: "signal %(saga)s %(step)s VALUE --reason WHY",
    why.LOCK: "locks",
    why.CHILD_PARKED: "show %(id)s",
    why.BACKS_OFF: "retry %(saga)s --reason WHY",
    why.BEHIND: "show %(id)s",
    why.UNREADABLE: "verify %(saga)s",
    why.LACKS: "verify %(saga)s",
    why.LOST: "rebuild %(saga)s",
    why.OVERDUE: "doctor",
    why.EXPIRED: "doctor",
    why.UNSERVED: "doctor",
    why.FULL: "queues",
}
ACTIONS: Final[Mapping[str, str]] = {
    "redo": "redo %(saga)s %(step)s --reason WHY",
    "mark_done": "resolve %(saga)s %(step)s --done RESULT --reason WHY",
    "mark_not_done": "resolve %(saga)s %(step)s --not-done --reason WHY",
    "skip": "resolve %(saga)s %(step)s --skip --reason WHY",
    "mark_undone": "resolve %(saga)s %(step)s --compensated --reason WHY",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One thing that can be done."""

    does: str  # a sentence
    command: str = ""  # what to type for it, where a command does it


def about(saga: UUID, reasons: Iterable[Reason], *, command: str) -> Iterator[Advice]:
    """What to do about the reasons for which a saga does not go on; each thing once.

    Args:
        saga: the saga.
        reasons: why it does not go on.
        command: what commands begin with.
    """
    found = {}
    for reason in reasons:
        rest = COMMANDS.get(reason.text, "") % {"saga": str(saga), **reason.values}
        found[NEXT[reason.text], rest] = Advice(does=NEXT[reason.text], command=f"{command} {rest}" if rest else "")
    yield from found.values()


def possible(saga: UUID, actions: Iterable[Action], *, command: str) -> Iterator[Advice]:
    """What can be asked of a saga that waits for a person.

    Args:
        saga: the saga.
        actions: those that are allowed.
        command: what commands begin with.
    """
    for each in actions:
        if each.name == "pause":  # nothing of it begins anyway
            continue
        rest = ACTIONS.get(each.name, f"{each.name} %(saga)s --reason WHY") % {"saga": saga, "step": each.step}
        yield Advice(does=each.does, command=f"{command} {rest}")
