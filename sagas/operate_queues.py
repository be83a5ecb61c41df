"""Limits of queues on the command line, as a part of the table of all commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from sagas import queues
from sagas.commanding import Argument, Command, Talk
from sagas.desk import Desk
from sagas.errors import InvalidInput
from sagas.operate import one_line, table
from sagas.operate_asking import user
from sagas.queues import Limits, Queue

HEAD: Final = ("queue", "at work", "at most", "begun lately", "at most", "says", "since", "reason")
NONE: Final = "none"
QUEUE: Final = Argument(name="queue", help="name of the queue")


def listing(desk: Desk, found: Sequence[Queue]) -> Iterator[str]:
    """The queues with limits, and how much of them is used."""
    if not found:
        yield f"no queue has limits in {desk.name!r}"
        return
    yield from table(
        [HEAD]
        + [
            (each.name, str(each.at_work), str(each.concurrency or ""), str(each.lately) if each.rate else "",
             each.words, one_line(each.actor) or "code", desk.words.clock(each.at, "seconds"), one_line(each.reason))
            for each in found
        ]
    )  # fmt: skip


def wanted(before: Queue | None, concurrency: str | None, rate: str | None) -> Limits:
    """The limits that an operator asks for; what is not said stays as it was.

    Raises:
        InvalidInput: nothing is said, or what is said cannot be meant.
    """
    if concurrency is None and rate is None:
        raise InvalidInput("say --concurrency, --rate or both; `none` lifts one", path="concurrency")
    if concurrency not in (None, NONE) and not concurrency.isdecimal():
        raise InvalidInput(f"--concurrency {concurrency!r}: a whole number of at least 1, or none", path="concurrency")
    most = before.concurrency if before else None
    often = (before.words if before else "") or None
    if concurrency is not None:
        most = None if concurrency == NONE else int(concurrency)
    if rate is not None:
        often = None if rate == NONE else rate
    return Limits(concurrency=most, rate=often)


def _queues(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    with desk.connect() as connection:
        found = queues.queues(connection)
    talk.give([asdict(each) for each in found])
    talk.all(listing(desk, found))


def _limit(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    name, reason = given["queue"], given["reason"]
    if not name or not reason.strip():
        raise InvalidInput("name the queue, and say --reason for those who find it", path="reason")
    with desk.connect() as connection:
        before = next((each for each in queues.queues(connection) if each.name == name), None)
        limits = wanted(before, given["concurrency"], given["rate"])
        queues.limit(connection, name, limits, actor=given["actor"] or user(), reason=reason)
    talk.give(asdict(limits))
    many = "any number of" if limits.concurrency is None else f"at most {limits.concurrency}"
    often = "" if limits.rate is None else f", and at most {limits.rate} begin"
    talk.say(f"queue {name} in {desk.name!r}: {many} steps are at work at the same time{often}, whatever code declares")
    talk.say(f"what is at work goes on; `{desk.command} reset-queue {name}` lets what code declares hold again")


def _reset(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    with desk.connect() as connection:
        if not queues.reset(connection, given["queue"]):
            raise InvalidInput(f"queue {given['queue']}: no operator has changed its limits", path="queue")
    talk.give({"queue": given["queue"], "reset": True})
    talk.say(f"queue {given['queue']} in {desk.name!r}: what code declares holds again")


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="queues", help="queues with limits, and how much of them is used", run=_queues),
    Command(name="limit-queue", help="change the limits of a queue for all workers and relays, now", run=_limit,
            arguments=(
        QUEUE, Argument(name="--concurrency", help="steps at work at the same time, or none for any number"),
        Argument(name="--rate", help="steps that begin in a period, such as 100/m or 30/10s, or none"),
        Argument(name="--reason", help="why", required=True),
        Argument(name="--actor", help="who asks; default: the user of this machine"),
    )),
    Command(name="reset-queue", help="let the limits of a queue that code declares hold again", run=_reset,
            arguments=(QUEUE,)),
)  # fmt: skip
