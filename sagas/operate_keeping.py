"""What keeps a database in shape, on the command line: `doctor`, `prune`, `archive`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from sagas import archiving, ports, retention
from sagas.commanding import Talk
from sagas.desk import Desk
from sagas.doctor import Level, Problem, examine
from sagas.errors import InvalidInput
from sagas.operate import one_line
from sagas.ports import Connection

ORDER = (Level.ERROR, Level.WARNING, Level.NOTE)


def doctor(desk: Desk, talk: Talk) -> str | None:
    """Say what is wrong, worst first; returns the last word if something does not work."""
    desk.check_ready()
    found = [
        replace(each, hint=each.hint.replace("`sagas ", f"`{desk.command} "))
        for each in sorted(examine(desk), key=lambda each: ORDER.index(each.level))
    ]
    talk.give([
        {"id": each.id, "level": each.level.value, "message": each.message, "hint": each.hint} for each in found
    ])  # fmt: skip
    talk.all(_told(found))
    errors = sum(each.level is Level.ERROR for each in found)
    return f"{errors} of these keep sagas from working" if errors else None


def _told(found: Sequence[Problem]) -> Iterator[str]:
    for each in found:
        yield f"{each.level.value:<8} {each.id}: {one_line(each.message)}"
        yield f"         {one_line(each.hint)}"
    if not found:
        yield "nothing is wrong that could be seen from here"


def prune(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    """Archive and remove what ended long ago, now; returns the last word if something could not be removed.

    Raises:
        InvalidInput: a number of days that is none.
        psycopg.Error: of the connection, or of the server.
    """
    desk.check_ready()
    settings = ports.store(desk.name).settings
    days = settings.prune_after_days if given["older_than"] is None else given["older_than"]
    age, archive = _seconds(days, "--older-than"), settings.archive and not given["no_archive"]
    old = retention.Old(age=age, archive=archive, name=given["name"])
    left_out: list[str] = []
    with desk.connect() as connection:
        total, pruned = retention.ahead(connection, age=age, name=given["name"]), 0
        if not given["dry_run"]:
            try:
                pruned = _pruned(connection, old, total, talk, left_out)
            except psycopg.Error as problem:
                _complain(talk, left_out)
                if not retention.its_own(problem):
                    raise
                return f"pruning stopped: {problem.diag.message_primary or problem}"
        stay = retention.ahead(connection, age=age, name=given["name"]) if pruned < total else 0
        stay -= len(left_out)
        old_keys, keys = _keys(connection, given)
    talk.give({
        "old_enough": total, "pruned": pruned, "archived": archive, "keys_old_enough": old_keys, "keys_forgotten": keys,
    })  # fmt: skip
    kept = "are in the archive" if archive else "are gone, except for their keys"
    if given["dry_run"]:
        talk.say(f"{total} sagas ended more than {days:g} days ago; nothing was changed")
        if given["keys_older_than"] is not None:
            talk.say(f"{old_keys} keys are of sagas that ended more than {given['keys_older_than']:g} days ago")
        return None
    talk.say(f"{pruned} sagas that ended more than {days:g} days ago were pruned; they {kept}")
    if stay > 0:
        talk.say(f"{stay} stay: they have work on its way, or parents or children that have not ended")
    if given["keys_older_than"] is not None:
        talk.say(f"{keys} keys were forgotten: they may be used again")
    _complain(talk, left_out)
    return f"{len(left_out)} sagas could not be pruned, listed above" if left_out else None


def _pruned(connection: Connection, old: retention.Old, total: int, talk: Talk, left_out: list[str]) -> int:
    """How many sagas went; what is said of those that could not is added to `left_out`."""
    batches, pruned = retention.Batches(retention.BATCH), 0
    batches.on_left_out = left_out.append
    with talk.bar(total, "sagas") as bar:
        for count in retention.prune(connection, old, batches):
            pruned += count
            bar.update(count)
    return pruned


def _complain(talk: Talk, problems: Iterable[str]) -> None:
    for problem in problems:
        talk.complain(one_line(problem))


def _keys(connection: Connection, given: Mapping[str, Any]) -> tuple[int, int]:
    """How many keys are old enough to be forgotten, and how many were."""
    if given["keys_older_than"] is None:
        return 0, 0
    age, name = _seconds(given["keys_older_than"], "--keys-older-than"), given["name"]
    ahead = retention.keys_ahead(connection, age=age, name=name)
    return ahead, 0 if given["dry_run"] else sum(retention.prune_keys(connection, age=age, name=name))


def _seconds(days: float, option: str) -> float:
    if not 0 <= days < math.inf:
        raise InvalidInput(f"{option} {days}: days, from 0 on", path=option.lstrip("-"))
    return days * retention.DAY


def archive(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    """Move the archive to a file.

    Raises:
        InvalidInput: the file cannot be written, or not now.
    """
    desk.check_ready()
    file, moved = Path(given["file"]), 0
    with desk.connect() as connection, talk.bar(archiving.archived(connection), "sagas") as bar:
        for count in archiving.move_archive(connection, file, keep=given["keep"]):
            moved += count
            bar.update(count)
    talk.give({"file": str(file), "sagas": moved, "kept": given["keep"]})
    stayed = "; they are still in the database" if given["keep"] else ""
    talk.say(f"{moved} sagas were written to {file}, one JSON object a line{stayed}")
