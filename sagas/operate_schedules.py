"""Schedules on the command line: which there are, and pausing, resuming, running and forgetting one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from sagas import ports
from sagas.commanding import Argument, Command, Talk
from sagas.desk import Desk
from sagas.operate import one_line, table
from sagas.operate_asking import user
from sagas.schedules import firing, state
from sagas.schedules import table as rows
from sagas.schedules.declaration import schedules

HEAD = ("name", "saga", "when", "next tick", "last run", "remarks")

SCHEDULE: Final = Argument(name="schedule", help="name of the schedule")
REASON: Final = Argument(name="--reason", help="why; kept with the schedule, or with the saga", required=True)
ACTOR: Final = Argument(name="--actor", help="who asks; default: the user of this machine")


def found_in(desk: Desk) -> list[Any]:
    """All schedules in the table, by name."""
    return list(desk.rows("schedules", {"name": None, "now": None}))


def listing(desk: Desk) -> Iterator[str]:
    """All schedules, by name, with what there is to say about each."""
    found = found_in(desk)
    there = {each.name for each in found}
    if found:
        yield from table([HEAD, *(_cells(desk, each) for each in found)])
    else:
        yield f"no schedule is in the table of {desk.name!r}"
    here = schedules.of(desk.name)
    missing = [each.name for each in here if each.name not in there]
    if missing:
        yield (
            f"declared here and not in the table yet: {', '.join(missing)}; a relay or an embedded worker puts them "
            f"there when it starts, and `{desk.command} declare-schedules` does so now"
        )


def data(desk: Desk) -> list[dict[str, Any]]:
    """The same, for programs: what is in the table, the next ticks and the remarks."""
    return [
        each._asdict()
        | {"next_ticks": state.next_ticks(each, 5), "remarks": list(state.remarks(each, each.late, desk.words))}
        for each in found_in(desk)
    ]


def declare(desk: Desk, talk: Talk) -> None:
    """Put what this code declares into the table, and say what changed."""
    with desk.connect() as connection:
        changes = [(each.name, rows.declare(connection, each, replaces=True)) for each in schedules.of(desk.name)]
    changed, known = {name: became for name, became in changes if became}, {name for name, _ in changes}
    gone = [each.name for each in found_in(desk) if each.name not in known]
    talk.give({"declared": len(known), "changed": changed, "not_declared_here": gone})
    talk.all(f"schedule {name} is {became}" for name, became in changed.items())
    for name in gone:
        remedy = f"{desk.command} forget-schedule {name}"
        talk.say(f"schedule {name} is not declared here; if it is gone from the code: {remedy}")
    talk.say(f"{len(known)} schedules are declared here, {len(changed)} of them changed")


def pause(desk: Desk, name: str, *, reason: str, actor: str = "") -> str:
    """Pause a schedule, and say what that means.

    Raises:
        InvalidInput: there is no such schedule, or no reason.
    """
    with desk.connect() as connection:
        rows.pause(connection, name, actor=actor or user(), reason=reason)
    return (
        f"schedule {name} is paused: it starts nothing, and what it leaves out is not made up for; "
        f"`{desk.command} resume-schedule {name}` lets it go on"
    )


def resume(desk: Desk, name: str) -> str:
    """Let a schedule go on, and say what came of it.

    Raises:
        InvalidInput: there is no such schedule.
    """
    with desk.connect() as connection:
        was_paused = rows.resume(connection, name)
        (row,) = rows.rows(connection, name)
    if not was_paused:
        return f"schedule {name} was not paused"
    ticks = state.next_ticks(row, 1)
    return f"schedule {name} goes on" + (f"; its next tick is {ticks[0].isoformat()}" if state.declared(row) else "")


def run(desk: Desk, name: str, *, reason: str, actor: str = "") -> tuple[UUID, str, str]:
    """Start the saga of a schedule now; returns its id and key, and both in words.

    Raises:
        InvalidInput: this process does not declare it, there is no reason, or its input cannot be made.
        NotPossible: its last run is open, and its runs do not overlap.
    """
    with desk.connect() as connection:
        settings = ports.store(desk.name).settings
        id, key = firing.run_now(connection, settings, name, reason=reason, actor=actor or user())
    return id, key, f"schedule {name} started saga {id}, key {key!r}; its ticks stay as they are"


def forget(desk: Desk, name: str) -> str:
    """Take a schedule out of the table that is gone from the code.

    Raises:
        InvalidInput: there is no such schedule, or this code declares it.
    """
    with desk.connect() as connection:
        rows.forget(connection, name)
    return f"schedule {name} is forgotten; the sagas that it started stay"


def _cells(desk: Desk, row: rows.Row) -> tuple[str, ...]:
    words = desk.words
    ticks = state.next_ticks(row, 1)
    zone = "" if row.timing.startswith("every") else f" {row.timezone}"
    last = "never" if row.last_started_at is None else (
        f"{words.clock(row.last_started_at, 'seconds')} {words.word(words.STATUS, row.last_status)}".rstrip()
    )  # fmt: skip
    return (
        row.name, f"{row.saga}:{row.version}", f"{row.timing}{zone}",
        ticks[0].isoformat(" ", "seconds") if ticks else "-", last,
        one_line("; ".join(state.remarks(row, row.late, words))),
    )  # fmt: skip


def _list(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    if talk.json:
        talk.give(data(desk))
        return
    talk.all(listing(desk))


def _declare(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    declare(desk, talk)


def _pause(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    talk.say(pause(desk, given["schedule"], reason=given["reason"], actor=given["actor"] or ""))
    talk.give({"schedule": given["schedule"], "paused": True})


def _resume(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    talk.say(resume(desk, given["schedule"]))
    talk.give({"schedule": given["schedule"], "paused": False})


def _run(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    id, key, said = run(desk, given["schedule"], reason=given["reason"], actor=given["actor"] or "")
    talk.give({"schedule": given["schedule"], "saga": id, "key": key})
    talk.say(said)


def _forget(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    talk.say(forget(desk, given["schedule"]))
    talk.give({"schedule": given["schedule"], "forgotten": True})


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="schedules", help="schedules: when their next ticks are, and what they started last", run=_list),
    Command(name="declare-schedules", help="put the schedules of this code into the table now", run=_declare),
    Command(name="pause-schedule", help="let a schedule start nothing until it is resumed", run=_pause,
            arguments=(SCHEDULE, REASON, ACTOR)),
    Command(name="resume-schedule", help="let a paused schedule go on, from now on", run=_resume,
            arguments=(SCHEDULE,)),
    Command(name="run-schedule", help="start the saga of a schedule now", run=_run,
            arguments=(SCHEDULE, REASON, ACTOR)),
    Command(name="forget-schedule", help="take a schedule that is gone from the code out of the table", run=_forget,
            arguments=(SCHEDULE,)),
)  # fmt: skip
