"""Commands that watch sagas and keep the database in shape, as a part of the table of all commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sagas import operate_keeping, operate_watching
from sagas.commanding import Argument, Command, Talk
from sagas.desk import Desk
from sagas.live import shown_live
from sagas.rights import PRUNER
from sagas.store.schema_files import roles_sql

NAME: Final = Argument(name="--name", help="only sagas of this name")
COUNT: Final = Argument(name="--count", help="end after so many looks; default: Ctrl-C ends it", type=int)


def _stats(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    found = operate_watching.samples(desk)
    talk.give(operate_watching.as_data(found))
    talk.all(operate_watching.stats_lines(desk, found))


def _top(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    pages = operate_watching.top(desk, interval=given["interval"], count=given["count"])
    try:
        if talk.json:
            for _, data in pages:
                talk.give(data)
        else:
            shown_live((lines for lines, _ in pages), talk.say)
    except KeyboardInterrupt:
        return


def _tail(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    try:
        for each in operate_watching.tail(
            desk, list(given["saga"]), name=given["name"], interval=given["interval"], count=given["count"],
            since_start=given["since_start"],
        ):  # fmt: skip
            talk.say(operate_watching.followed_text(desk, each))
            talk.give(operate_watching.followed_data(each))
    except KeyboardInterrupt:
        return


def _doctor(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    return operate_keeping.doctor(desk, talk)


def _prune(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    return operate_keeping.prune(desk, given, talk)


def _archive(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    operate_keeping.archive(desk, given, talk)


def _roles(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    talk.give({"sql": roles_sql()})
    talk.say(roles_sql())


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="tail", help="log entries as they are written, of all open sagas or of those named", run=_tail,
            follows=True, arguments=(
        Argument(name="saga", help="id, or name:key; default: all that are open, and new ones", many=True), NAME,
        Argument(name="--since-start", help="also what is in their logs already", type=bool),
        Argument(name="--interval", help="seconds between two looks (default: 1)", type=float, default=1.0), COUNT,
    )),
    Command(name="top", help="what there is of what, live", run=_top, follows=True, arguments=(
        Argument(name="--interval", help="seconds between two looks (default: 2)", type=float, default=2.0), COUNT,
    )),
    Command(name="stats", help="what there is of what: sagas, queues, processes", run=_stats),
    Command(name="doctor", help="look for what is misconfigured or needs somebody; fail if sagas cannot work",
            run=_doctor),
    Command(name="prune", help="archive and remove sagas that ended long ago, now", run=_prune, role=PRUNER, arguments=(
        Argument(name="--older-than", help="days since they ended (default: PRUNE_AFTER_DAYS)", type=float), NAME,
        Argument(name="--no-archive", help="keep nothing but their keys", type=bool),
        Argument(name="--keys-older-than", help="also forget the keys of sagas that ended so many days ago",
                 type=float),
        Argument(name="--dry-run", help="only say how many there are", type=bool),
    )),
    Command(name="archive", help="move the archive of pruned sagas to a file, as JSON Lines", run=_archive,
            role=PRUNER, arguments=(
        Argument(name="file", help="it is appended to"),
        Argument(name="--keep", help="leave them in the database too", type=bool),
    )),
    Command(name="roles", help="write the SQL that makes database roles of least privilege; changes nothing itself",
            run=_roles),
)  # fmt: skip
