"""What is wrong with an installation, before it hurts: `sagas doctor`. Each look says what, why it matters, what to do.

What an integration knows (its Celery app, its settings) it adds by `Desk.problems`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import psycopg

from sagas import ports
from sagas.errors import SagaError
from sagas.measure import Rows, find_stuck, rows_of
from sagas.registry import registry
from sagas.schedules.state import FAILED, OVERDUE
from sagas.settings import Settings
from sagas.store.schema_files import NAMES, schema_sql

if TYPE_CHECKING:
    from sagas.desk import Desk

LONG: Final = 300.0  # seconds that a transaction may be open
OLD: Final = 5_000_000  # transactions that vacuum may be behind
SKEW: Final = 2.0  # seconds between this host's clock and the server's
UNCLAIMED: Final = 30.0  # seconds that work may be due before any relay or worker takes it
BLOATED: Final = 100_000  # dead rows, where they are also more than the live ones
MOST_NAMED: Final = 5

MADE: Final = re.compile(
    r"^create (?:or replace )?(?:unique )?(index|function|trigger|view) (\w+)", re.IGNORECASE | re.MULTILINE
)


class Level(StrEnum):
    """How bad it is."""

    ERROR = "error"  # sagas do not work, or will be lost or done twice
    WARNING = "warning"  # they work, and will hurt some day
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that `doctor` found."""

    id: str
    level: Level
    message: str
    hint: str


Look = Callable[[Rows, Settings], Iterable[Problem]]


def _error(id: str, message: str, hint: str) -> Problem:
    return Problem(id=id, level=Level.ERROR, message=message, hint=hint)


def _warning(id: str, message: str, hint: str) -> Problem:
    return Problem(id=id, level=Level.WARNING, message=message, hint=hint)


def _note(id: str, message: str, hint: str) -> Problem:
    return Problem(id=id, level=Level.NOTE, message=message, hint=hint)


def examine(desk: Desk) -> Iterator[Problem]:
    """Look at everything there is to look at; worst things need not come first.

    Args:
        desk: where. Its tables are there.
    """
    settings = ports.store(desk.name).settings
    yield from desk.problems()
    with desk.connect() as connection:
        rows = rows_of(connection)
        yield from _settings(rows)
        connection.execute("set datestyle to iso")  # or what is wrong with it would be all that anybody hears of
        for look in LOOKS:
            yield from look(rows, settings)
    yield from _aliases()


def _settings(rows: Rows) -> Iterator[Problem]:
    """What the database, or the role, sets for connections that cannot work with it."""
    (found,) = rows("doctor_server", {})
    if not found.date_style.startswith("ISO"):
        yield _error(
            "date-style", f"DateStyle is {found.date_style!r}: psycopg cannot read times that are written like that",
            "alter database ... set datestyle to 'ISO, MDY'; or reset it for the role that sets it.",
        )  # fmt: skip
    if found.read_only == "on" and not found.replica:
        yield _error(
            "read-only", "default_transaction_read_only is on: nothing can be written",
            "Reset it for the database and for the role of these connections.",
        )  # fmt: skip
    if found.encoding != "UTF8":
        yield _error(
            "encoding", f"the database's encoding is {found.encoding}: texts with other characters cannot be stored",
            "Move to a database that is made with encoding UTF8.",
        )  # fmt: skip


def _numbers(rows: Rows, settings: Settings) -> Iterator[Problem]:
    """Sequences do not go along with logical replication, nor with a copy of the rows alone."""
    for each in rows("doctor_numbers", {}):
        if each.known and (each.last or 0) < (each.highest or 0):
            yield _error(
                "sequence-behind", f"{each.sequence} has come to {each.last or 0}, and {each.name} has numbers up to "
                f"{each.highest}: what is written fails as a duplicate",
                f"select setval('{each.sequence}', {each.highest});",
            )  # fmt: skip


def _server(rows: Rows, settings: Settings) -> Iterator[Problem]:
    before = time.time()
    (found,) = rows("doctor_server", {})
    after = time.time()
    if found.replica:
        yield _error("replica", "the database is a replica: nothing can be written", "Connect to the primary.")
    if found.fsync == "off":
        yield _warning("fsync", "fsync is off: a crash of the server may lose or damage sagas", "Switch it on.")
    if found.synchronous_commit == "off":
        yield _warning(
            "synchronous-commit", "synchronous_commit is off: a crash of the server forgets what was committed last",
            "Leave it on for these connections.",
        )  # fmt: skip
    if found.isolation != "read committed":
        unset = "; workers do not set it behind a pooler, so limits of queues and ordering keys do not hold"
        yield (_warning if settings.prepared else _error)(
            "isolation", f"default_transaction_isolation is {found.isolation!r}: local steps fail where others have "
            f"written meanwhile, and are tried again{'' if settings.prepared else unset}",
            "alter role ... set default_transaction_isolation to 'read committed'; ask for more where it is needed.",
        )  # fmt: skip
    if found.autovacuum == "off":
        yield _warning("autovacuum", "autovacuum is off: the outbox grows without end", "Switch it on.")
    skew = (before + after) / 2 - found.now
    if abs(skew) > SKEW + (after - before):
        yield _warning(
            "clock-skew", f"this host's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the server's",
            "Sagas go by the server's clock, but ids sort by the host's, and ages are shown by it: set it with NTP.",
        )  # fmt: skip


def _transactions(rows: Rows, settings: Settings) -> Iterator[Problem]:
    for each in rows("doctor_long", {"seconds": LONG, "xids": OLD}):
        age = f"open for {each.seconds:.0f} s" if each.seconds > LONG else f"{each.xids} transactions old"
        old = each.xids > OLD
        yield _warning(
            "old-xmin" if old else "long-transaction", f"{each.what} ({each.who}) is {age}: vacuum removes nothing "
            f"that was deleted since, so claims get slower", "End it; find out what keeps it open.",
        )  # fmt: skip
    ((hidden,),) = rows("doctor_unseen", {})
    if hidden:
        yield _note(
            "unseen-sessions", f"{hidden} sessions of other users cannot be looked into: a long transaction of theirs "
            f"would not be found", "grant pg_read_all_stats to the user of these connections.",
        )  # fmt: skip


def _objects(rows: Rows, settings: Settings) -> Iterator[Problem]:
    found = {(each.kind, each.name): each.fit for each in rows("doctor_objects", {})}
    for number in range(1, len(NAMES) + 1):
        for kind, name in MADE.findall(schema_sql(number)):
            place = (kind.lower(), name)
            if place not in found:
                yield _error(
                    f"missing-{place[0]}", f"{place[0]} {name} is missing", "Make it again from the SQL files."
                )
            elif not found[place]:
                what = "is not valid" if place[0] == "index" else "is switched off"
                hint = f"reindex index {name};" if place[0] == "index" else f"alter table ... enable trigger {name};"
                yield _error(f"unfit-{place[0]}", f"{place[0]} {name} {what}", hint)


def _tables(rows: Rows, settings: Settings) -> Iterator[Problem]:
    for each in rows("doctor_tables", {}):
        if each.no_vacuum:
            yield _warning("autovacuum", f"autovacuum is off for {each.name}", f"alter table {each.name} reset (...);")
        if each.dead > BLOATED and each.dead > each.live:
            yield _warning(
                "bloat", f"{each.name} has {each.dead} dead rows beside {each.live} live ones",
                "Look for long transactions above; else make autovacuum work harder.",
            )  # fmt: skip


def _processes(rows: Rows, settings: Settings) -> Iterator[Problem]:
    for each in rows("measure_processes", {}):
        if each.missing:
            yield _warning(
                "missing-processes", f"{each.missing} of the {each.kind}s went without a word ({each.alive} are there)",
                "They were killed, or cannot reach the database; what they held is taken over when their claims end. A "
                "day after its last word a process is forgotten, and not missed any more.",
            )  # fmt: skip


def _failing(rows: Rows, settings: Settings) -> Iterator[Problem]:
    for each in rows("measure_processes", {}):
        if each.failing:
            yield _error(
                "failing-processes", f"{each.failing} of {each.alive} {each.kind}s are there and have got nothing done "
                f"for {each.failing_seconds:.0f} s: {each.trouble}",
                "Is the broker up, and is it the one they are told of? Work waits in Postgres meanwhile, none is lost.",
            )  # fmt: skip


def _queues(rows: Rows, settings: Settings) -> Iterator[Problem]:
    paused = {each.name for each in rows("pauses", {}) if each.kind == "queue"}
    for each in rows("measure_queues", {}):
        if each.unclaimed_seconds > UNCLAIMED and each.queue not in paused:
            yield _error(
                "dead-relays", f"queue {each.queue}: work has been due for {each.unclaimed_seconds:.0f} s, and no "
                f"relay or worker has taken it ({each.due} rows are due)",
                f"Start `sagas relay` (or `sagas worker`); does one of them serve queue {each.queue}?",
            )  # fmt: skip
        if each.unserved:
            yield _error(
                "dead-workers", f"queue {each.queue}: {each.unserved} rows were published three times or more, and no "
                f"worker begins any", f"Start a Celery worker with `-Q {each.queue}`; or is the name wrong in queue=?",
            )  # fmt: skip
        if each.expired:
            yield _warning(
                "expired-claims", f"queue {each.queue}: the claims of {each.expired} rows have ended, and nobody has "
                f"taken them over", "Their workers died; the next relay or worker takes them over.",
            )  # fmt: skip


def _messages(rows: Rows, settings: Settings) -> Iterator[Problem]:
    for each in rows("measure_messages", {}):
        if each.dead:
            yield _warning(
                "dead-messages", f"{each.dead} messages to {each.destination} were given up; each holds up what comes "
                f"after it under its ordering key", "See `sagas messages dead`; then replay or drop them.",
            )  # fmt: skip


def _definitions(rows: Rows, settings: Settings) -> Iterator[Problem]:
    here = {(each.saga_name, each.saga_version): each.fingerprint() for each in registry.definitions()}
    for each in rows("operate_definitions", {}):
        place = (each.name, each.version)
        label = f"{each.unfinished} open sagas of {each.name} version {each.version}"
        if place not in here:
            yield _error(
                "unknown-version", f"{label}: this process does not know that version",
                "Deploy its class again, or run this where workers run.",
            )  # fmt: skip
        elif each.definition not in ("", here[place]):
            yield _error(
                "changed-version", f"{label} were started with other steps than this process has",
                "Deploy the former code, and give the changed steps a new version.",
            )  # fmt: skip


def _pauses(rows: Rows, settings: Settings) -> Iterator[Problem]:
    for each in rows("pauses", {}):
        yield _note(
            "paused", f"{each.kind} {each.name} is paused by {each.actor or '?'}: {each.reason}",
            f"`sagas resume-{each.kind} {each.name}` lets it go on.",
        )  # fmt: skip


def _schedules(rows: Rows, settings: Settings) -> Iterator[Problem]:
    for each in rows("schedules", {"name": None, "now": None}):
        if each.paused:
            continue
        if each.note.startswith(FAILED):
            yield _error(
                "failing-schedules", f"schedule {each.name} {each.note}",
                "It is tried again every 30 s: mend its input=, or what that needs. Which ticks are made up for then, "
                "its catch_up says.",
            )  # fmt: skip
        elif each.late > OVERDUE:
            yield _error(
                "late-schedules", f"schedule {each.name} should have started its saga {each.late:.0f} s ago",
                "Does a relay, or an embedded worker, run with its code? `sagas forget-schedule` removes what is gone "
                "from the code.",
            )  # fmt: skip


def _standing(rows: Rows, settings: Settings) -> Iterator[Problem]:
    """Sagas that somebody has to look at."""
    found = find_stuck(rows, settings, limit=100)
    if found:
        named = ", ".join(f"{each.name}:{each.key} ({each.reason})" for each in found[:MOST_NAMED])
        yield _error("stuck", f"{_number(found)} sagas are stuck: {named}", "See `sagas list --stuck`.")
    parked = sum(each.parked for each in rows("measure_open", {}))
    if parked:
        yield _warning(
            "parked", f"{parked} sagas are parked: a person has to decide", "See `sagas list --status parked`."
        )


def _number(found: Sequence[Any]) -> str:
    return f"{len(found)} or more" if len(found) == 100 else str(len(found))


def _aliases() -> Iterator[Problem]:
    """One database under two names: a saga and a business change in two transactions look like one."""
    known: dict[str, str] = {}
    for name in ports.store_names():
        try:
            with closing(ports.store(name).connect()) as connection:
                (found,) = rows_of(connection)("doctor_server", {})
        except (psycopg.Error, SagaError):
            continue  # not ours to look at: no Postgres, or without our tables
        if found.identity in known:
            yield _warning(
                "split-aliases", f"{known[found.identity]!r} and {name!r} are the same database: a saga started on one "
                f"does not commit together with a change made on the other",
                "Use one of them for both the business data and `using=`.",
            )  # fmt: skip
        known.setdefault(found.identity, name)


LOOKS: Final[tuple[Look, ...]] = (
    _server, _objects, _numbers, _tables, _transactions, _processes, _failing, _queues, _messages, _definitions,
    _pauses, _schedules, _standing,
)  # fmt: skip
