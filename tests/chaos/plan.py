"""What is to happen, drawn from a seed before anything does: what is asked for, and what goes wrong, and when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.kinds import KINDS, Kind


class Blow(StrEnum):
    """What can go wrong."""

    KILL = "kill"  # SIGKILL to a relay or worker; another is started
    KILL_CHILD = "kill_child"  # SIGKILL to one pool child of a Celery worker
    FREEZE = "freeze"  # SIGSTOP for longer than a lease
    ROLL = "roll"  # SIGTERM, as a deploy does; another is started
    POSTGRES_KILL = "postgres_kill"  # kill -9, restart
    POSTGRES_RESET = "postgres_reset"  # every connection is reset, and for a moment each new one
    POSTGRES_HANG = "postgres_hang"  # a network that is cut
    POSTGRES_DEAF = "postgres_deaf"  # requests arrive, answers do not
    POSTGRES_SLOW = "postgres_slow"
    POSTGRES_CUT = "postgres_cut"  # each connection ends in the middle of an answer
    COMMIT_LOST = "commit_lost"  # a connection ends when COMMIT is said
    COMMIT_UNHEARD = "commit_unheard"  # the same, and the server has heard it
    TERMINATE = "terminate"  # pg_terminate_backend of some sessions
    REDIS_FLUSH = "redis_flush"
    REDIS_KILL = "redis_kill"
    REDIS_HANG = "redis_hang"
    REDIS_FULL = "redis_full"  # a memory limit that evicts any key


WEIGHTS = {
    Blow.KILL: 6, Blow.KILL_CHILD: 4, Blow.FREEZE: 4, Blow.ROLL: 2, Blow.POSTGRES_KILL: 2, Blow.POSTGRES_RESET: 2,
    Blow.POSTGRES_HANG: 1, Blow.POSTGRES_DEAF: 2, Blow.POSTGRES_SLOW: 1, Blow.POSTGRES_CUT: 2, Blow.COMMIT_LOST: 4,
    Blow.COMMIT_UNHEARD: 4, Blow.TERMINATE: 3, Blow.REDIS_FLUSH: 3, Blow.REDIS_KILL: 2, Blow.REDIS_HANG: 2,
    Blow.REDIS_FULL: 2,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Strike:
    """One thing that goes wrong.

    Args:
        at: seconds since the beginning.
        blow: what.
        draw: from 0 to 1; decides whom it meets.
        seconds: how long, where it lasts.
    """

    at: float
    blow: Blow
    draw: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.blow} (draw {self.draw:.3f}, {self.seconds:.1f} s)"


class Ask(StrEnum):
    """What an application asks for."""

    START = "start"
    ROLL_BACK = "roll_back"  # start, and roll back
    SIGNAL = "signal"
    REMARK = "remark"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    HOLD_UP = "hold_up"  # a definition, for all of its sagas
    LET_GO = "let_go"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One thing that is asked for, in a transaction of its own."""

    at: float
    ask: Ask
    kind: str
    order: str
    number: int
    decline: str | None = None  # the part that the bank is told to refuse


def strikes(seed: int, seconds: float, every: float, lease: float) -> list[Strike]:
    """What goes wrong within so many seconds, one thing each `every` seconds on average.

    Each thing happens once, in a random order, before any happens again: a short run meets many of them.
    """
    rng = random.Random(f"strikes {seed}")
    at, drawn = rng.uniform(0, every), _blows(rng)
    found = []
    while at < seconds:
        blow = next(drawn)
        lasts = lease * rng.uniform(1.2, 1.8) if blow is Blow.FREEZE else rng.uniform(0.3, 1.8)
        found.append(Strike(at=at, blow=blow, draw=rng.random(), seconds=lasts))
        at += rng.uniform(0.4, 1.6) * every
    return found


def _blows(rng: random.Random) -> Iterator[Blow]:
    first = list(Blow)
    rng.shuffle(first)
    first.sort(key=lambda blow: rng.random() / WEIGHTS[blow])
    yield from first
    while True:
        yield rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


def wishes(seed: int, seconds: float, many: int) -> list[Wish]:
    """So many orders within so many seconds, and what becomes of them from outside, in order of time."""
    rng = random.Random(f"wishes {seed}")
    names, shares = list(KINDS), [kind.share for kind in KINDS.values()]
    found: list[Wish] = []
    for number in range(many):
        name = names[number] if number < len(names) else rng.choices(names, shares)[0]
        found += _story(rng, KINDS[name], name, f"{name}-{number}", number, rng.uniform(0, seconds))
    for name in rng.sample(names, 2):
        at = rng.uniform(0.2, 0.6) * seconds
        held = {"kind": name, "order": "", "number": 0}
        found.append(Wish(at=at, ask=Ask.HOLD_UP, **held))  # type: ignore[arg-type]
        found.append(Wish(at=at + rng.uniform(1, 4), ask=Ask.LET_GO, **held))  # type: ignore[arg-type]
    return sorted(found, key=lambda wish: wish.at)


def _story(rng: random.Random, kind: Kind, name: str, order: str, number: int, at: float) -> Iterator[Wish]:
    """One order: how it is started, and what comes later."""

    def wish(at: float, ask: Ask, decline: str | None = None) -> Wish:
        return Wish(at=at, ask=ask, kind=name, order=order, number=number, decline=decline)

    if rng.random() < 0.03:
        yield wish(at, Ask.ROLL_BACK)
        return
    decline = rng.choice(kind.declines) if kind.declines and rng.random() < 0.15 else None
    yield wish(at, Ask.START, decline)
    if kind.reviewed and rng.random() < 0.85:
        said = at + rng.uniform(0, 3)
        yield wish(said, Ask.SIGNAL)
        if rng.random() < 0.3:
            yield wish(said + rng.uniform(0, 1), Ask.SIGNAL)  # a webhook that is delivered twice
        if name == "reviewed" and rng.random() < 0.5:
            yield wish(said + rng.uniform(0, 1), Ask.REMARK)
    if kind.cancels and rng.random() < 0.2:
        yield wish(at + rng.uniform(0, 3), Ask.CANCEL)
    if rng.random() < 0.1:
        paused = at + rng.uniform(0, 2)
        yield wish(paused, Ask.PAUSE)
        yield wish(paused + rng.uniform(0.5, 4), Ask.RESUME)
