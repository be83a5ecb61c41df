"""What keeps a database in shape, on the command line: `doctor`, `prune`, `archive`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sagas import ports, retention
from sagas.commanding import Talk
from sagas.desk import Desk
from sagas.doctor import Level, Problem, examine
from sagas.errors import InvalidInput
from sagas.operate import one_line

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


def prune(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    """Archive and remove what ended long ago, now.

    Raises:
        InvalidInput: a number of days that is none.
    """
    desk.check_ready()
    settings = ports.store(desk.name).settings
    days = settings.prune_after_days if given["older_than"] is None else given["older_than"]
    age, archive = _seconds(days, "--older-than"), settings.archive and not given["no_archive"]
    with desk.connect() as connection:
        total, pruned = retention.ahead(connection, age=age, name=given["name"]), 0
        if not given["dry_run"]:
            with talk.bar(total, "sagas") as bar:
                for count in retention.prune(connection, age=age, archive=archive, name=given["name"]):
                    pruned += count
                    bar.update(count)
        stay = retention.ahead(connection, age=age, name=given["name"]) if pruned < total else 0
        keys = 0
        if given["keys_older_than"] is not None and not given["dry_run"]:
            keys = sum(retention.prune_keys(connection, age=_seconds(given["keys_older_than"], "--keys-older-than")))
    talk.give({"old_enough": total, "pruned": pruned, "archived": archive, "keys_forgotten": keys})
    kept = "are in the archive" if archive else "are gone, except for their keys"
    if given["dry_run"]:
        talk.say(f"{total} sagas ended more than {days:g} days ago; nothing was changed")
        return
    talk.say(f"{pruned} sagas that ended more than {days:g} days ago were pruned; they {kept}")
    if stay:
        talk.say(f"{stay} stay: they have work on its way, or parents or children that have not ended")
    if given["keys_older_than"] is not None:
        talk.say(f"{keys} keys were forgotten: they may be used again")


def _seconds(days: float, option: str) -> float:
    if not 0 <= days < math.inf:
        raise InvalidInput(f"{option} {days}: days, from 0 on", path=option.lstrip("-"))
    return days * retention.DAY


def archive(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    """Move the archive to a file.

    Raises:
        InvalidInput: the file cannot be written.
    """
    desk.check_ready()
    file, moved = Path(given["file"]), 0
    with desk.connect() as connection, talk.bar(retention.archived(connection), "sagas") as bar:
        for count in retention.move_archive(connection, file, keep=given["keep"]):
            moved += count
            bar.update(count)
    talk.give({"file": str(file), "sagas": moved, "kept": given["keep"]})
    stayed = "; they are still in the database" if given["keep"] else ""
    talk.say(f"{moved} sagas were written to {file}, one JSON object a line{stayed}")
