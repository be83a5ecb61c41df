"""What becomes of messages whose batch has come back: sent, to be tried again, or dead."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from sagas_outbox.breaker import Breaker
from sagas_outbox.delivery import Taken, Unsent
from sagas_outbox.errors import Refused, Unreachable, Unsendable
from sagas_outbox.publishers import Behind, MessagePublisher, Outcome

log = logging.getLogger("sagas.relay")

FIRST_RETRY, LONGEST_RETRY = 1.0, 600.0  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Messages that one lane sends."""

    lane: object
    publisher: MessagePublisher | None  # None: nobody serves this destination
    taken: Sequence[Taken]
    claimed_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a batch."""

    batch: Batch
    outcomes: Sequence[Outcome] = ()
    problem: BaseException | None = None  # instead of outcomes


class Judge:
    """Of one relay.

    Args:
        tries: how often sending a message may fail before it is dead.
    """

    def __init__(self, *, tries: int) -> None:
        self._tries = tries
        self._breakers: defaultdict[object, Breaker] = defaultdict(Breaker)  # of lanes and of destinations

    def room(self, whom: object, most: int) -> int:
        """How many messages to take now for a lane or a destination."""
        return self._breakers[whom].room(most)

    def judge(self, answer: Answer) -> tuple[list[Taken], list[Unsent]]:
        """What was sent, and what becomes of what was not."""
        batch, problem = answer.batch, answer.problem
        if problem is not None:
            return [], self._failed(batch, problem)
        pairs = list(zip(batch.taken, answer.outcomes, strict=True))
        sent = [each for each, outcome in pairs if outcome is None]
        tried = [(each.message.destination, outcome) for each, outcome in pairs if not isinstance(outcome, Behind)]
        failed = {destination: problem for destination, problem in tried if problem is not None}
        self._note(batch.lane, {each.message.destination for each in sent}, failed)
        if sent and len(tried) < len(pairs):
            self._breakers[batch.lane].cut(len(tried))
        if batch.publisher is not None and any(_lost(problem) for problem in failed.values()):
            batch.publisher.reset()
        return sent, [self.fate(each, outcome) for each, outcome in pairs if outcome is not None]

    def _failed(self, batch: Batch, problem: BaseException) -> list[Unsent]:
        """A whole batch was not sent, or nobody knows."""
        unreachable = isinstance(problem, Unreachable)
        if isinstance(problem, Unsendable):
            return [self.fate(each, problem) for each in batch.taken]
        pause = self._breakers[batch.lane].failed(surely=unreachable)
        names = sorted({each.message.destination for each in batch.taken})
        log.warning(
            "messages for %s were not sent (failure %d in a row); they wait, other destinations go on: %r",
            ", ".join(names[:5]), self._breakers[batch.lane].failures, problem,
        )  # fmt: skip
        if batch.publisher is not None:
            batch.publisher.reset()
        if not unreachable:
            return [self.fate(each, problem) for each in batch.taken]
        return [
            Unsent(taken=each, counts=False, dead=False, delay=pause, error=_words(problem)) for each in batch.taken
        ]  # fmt: skip

    def _note(self, lane: object, good: Set[str], bad: Mapping[str, BaseException]) -> None:
        """Let the breakers of the lane and of single destinations know."""
        for each in {lane, *good} if good else ():
            if self._breakers[each].sent():
                log.warning("messages for %s are sent again", each if isinstance(each, str) else "Celery")
        for destination, problem in bad.items():
            surely = isinstance(problem, Unreachable)
            if surely or destination not in good:
                self._breakers[destination].failed(surely=surely)
                log.warning("messages for %s were not sent: %s", destination, _words(problem))

    def fate(self, taken: Taken, problem: BaseException) -> Unsent:
        """What becomes of one message that failed."""
        if isinstance(problem, Behind):
            return Unsent(taken=taken, counts=False, dead=False, delay=0.0, error="")
        if isinstance(problem, Unreachable):
            pause = self._breakers[taken.message.destination].pause()
            return Unsent(taken=taken, counts=False, dead=False, delay=pause, error=_words(problem))
        tries = taken.failures + 1
        dead = isinstance(problem, Unsendable) or tries >= self._tries
        if dead:
            log.error(
                "message %s for %s is dead after %d tries: %r; `messages replay` sends it again",
                taken.message.id, taken.message.destination, tries, problem,
            )  # fmt: skip
        delay = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(taken.failures, 20)) * random.uniform(0.5, 1.0)
        return Unsent(taken=taken, counts=True, dead=dead, delay=delay, error=_words(problem))


def _lost(problem: BaseException) -> bool:
    """Whether it is about the connection, and not about one destination."""
    return isinstance(problem, Unreachable) and not isinstance(problem, Refused)


def _words(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"
