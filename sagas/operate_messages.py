"""Plain messages on the command line: what waits, what has died, and sending it again or giving it up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sagas.commanding import Argument, Command, Talk
from sagas.desk import Desk
from sagas.errors import InvalidInput
from sagas.operate import one_line, table
from sagas_outbox import delivery

MOST: Final = 100  # lines
ALL: Final = "all"
VERBS: Final = ("waiting", "dead", "replay", "drop")


def waiting(desk: Desk) -> tuple[list[Any], Iterator[str]]:
    """How many messages wait for which destination, as rows and as lines."""
    found = list(desk.rows("messages_waiting", {"now": None}))
    if not found:
        return [], iter([f"no message waits in {desk.name!r}"])
    head = ("destination", "waiting", "due", "for s", "tried before", "dead", "last error")
    lines = table(
        [head]
        + [
            (each.destination, str(each.waiting), str(each.due), f"{max(0.0, each.late):.0f}" if each.due else "",
             str(each.tried), str(each.dead), one_line(each.error))
            for each in found
        ]
    )  # fmt: skip
    return [each._asdict() for each in found], iter(lines)


def dead(desk: Desk, limit: int = MOST) -> tuple[list[Any], Iterator[str]]:
    """Messages that were given up, the newest first, as rows and as lines."""
    found = list(desk.rows("messages_dead", {"most": limit}))
    if not found:
        return [], iter([f"no message is dead in {desk.name!r}"])
    head = ("message", "destination", "key", "tries", "dead since", "error")
    lines = table(
        [head]
        + [
            (str(each.message_id), each.destination, one_line(each.ordering_key or ""), str(each.failures),
             desk.words.clock(each.finished_at, "seconds"), one_line(each.error))
            for each in found
        ]
    )  # fmt: skip
    data = [each._asdict() | {"message_id": str(each.message_id)} for each in found]
    return data, iter(lines)


def chosen(given: Sequence[str], verb: str) -> list[UUID] | None:
    """Which dead messages are meant; None: all of them.

    Raises:
        InvalidInput: none is named, or one of them is no id.
    """
    if not given:
        raise InvalidInput(f"messages {verb}: name messages by their ids, or say `{ALL}`", path="message")
    if list(given) == [ALL]:
        return None
    try:
        return [UUID(each) for each in given]
    except ValueError:
        raise InvalidInput(f"messages {verb} {' '.join(given)}: no ids, nor `{ALL}`", path="message") from None


def _change(
    desk: Desk, talk: Talk, given: Sequence[str], verb: str, change: Callable[..., set[UUID]], done: str
) -> str | None:  # fmt: skip
    ids = chosen(given, verb)
    with desk.connect() as connection:
        found = change(connection, ids)
    talk.give([str(id) for id in sorted(found)])
    talk.say(f"{len(found)} messages {done}")
    missing = sorted(str(id) for id in set(ids or ()) - found)
    return f"not dead, or not there: {', '.join(missing)}" if missing else None


def _messages(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    desk.check_ready()
    verb, ids = given["verb"], list(given["message"] or ())
    if verb not in VERBS:
        raise InvalidInput(f"messages {verb}: one of {', '.join(VERBS)}", path="verb")
    if verb == "replay":
        return _change(desk, talk, ids, verb, delivery.replay, "are sent again")
    if verb == "drop":
        return _change(desk, talk, ids, verb, delivery.drop, "are given up; what waited behind them goes on")
    if ids:
        raise InvalidInput(f"messages {verb} takes no ids", path="message")
    data, lines = dead(desk, given["limit"]) if verb == "dead" else waiting(desk)
    talk.give(data)
    talk.all(lines)
    return None


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        name="messages", help="plain messages: waiting, dead, replay ID.. or all, drop ID.. or all", run=_messages,
        arguments=(
            Argument(name="verb", help=" | ".join(VERBS)),
            Argument(name="message", help="ids of dead messages, or all", many=True),
            Argument(name="--limit", help=f"at most so many dead ones (default: {MOST})", type=int, default=MOST),
        ),
    ),
)  # fmt: skip
