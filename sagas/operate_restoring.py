"""After the database has gone back in time, on the command line: `restored`, `reconcile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sagas import ports, reconcile, reconcile_lists, restored
from sagas.commanding import Argument, Command, Talk
from sagas.desk import Desk
from sagas.errors import InvalidInput
from sagas.operate import one_line
from sagas.operate_asking import user
from sagas.reconcile import Match, Verdict
from sagas.reconciling import Written, write_down
from sagas.rights import REPAIRER

REASON: Final = Argument(name="--reason", help="why; stored in the log", required=True)
ACTOR: Final = Argument(name="--actor", help="who asks; default: the user of this machine")
TELLS: Final = {
    Verdict.VANISHED: "no such saga is here: undo over there what it did, or enter here what it was for",
    Verdict.AWAITED: "an open saga may start it again, under the same keys: undo nothing before that one has ended",
    Verdict.AHEAD: "the saga has not come to it here, and would do it again under the same key",
    Verdict.TURNED_BACK: "it was undone over there, and the saga here counts on it",
    Verdict.BEHIND: "the saga here has ended, or turns back, without it: undo it over there",
    Verdict.FORMER: "it is of an attempt before a redo: see that only one of them counts",
    Verdict.UNREADABLE: "the saga here cannot be read: run `sagas verify` on it",
    Verdict.LACKING: "it is done by the log, and the list lacks it: ask over there",
}
ENDED: Final = "the saga here has ended with it: put one of the two right by hand"


def tell_restored(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    """Say that the database has gone back in time; returns the last word if something could not be said."""
    since = _time(given["since"], "--since") if given["since"] else None
    desk.check_ready()
    sagas, problems, actor = 0, 0, given["actor"] or user()
    with desk.connect() as connection:
        until = restored.until(connection, since=since)
        renewed = restored.renew(connection)
        for each in restored.doubt(connection, until=until, actor=actor, reason=given["reason"]):
            sagas += 1
            if each.problem:
                problems += 1
                talk.complain(f"{each.label}: {one_line(each.problem)}")
    at = None if until is None else datetime.fromtimestamp(until, UTC).isoformat()
    talk.give({
        "rows": renewed.rows, "messages": renewed.messages, "sagas": sagas, "problems": problems, "until": at,
    })  # fmt: skip
    talk.say(
        f"{renewed.rows} outbox rows and {renewed.messages} messages have new ids: what was sent, claimed or begun "
        f"before does not fit them any more"
    )
    talk.say(f"{sagas} sagas are open; what each is still to do outside is in doubt, and asked about first")
    if at:
        talk.say(f"what was lost counts as begun at {at}; if the backup is older, say so: --since TIME")
    again = f"{problems} of them could not be told, listed above; the others were; for those: --since {at}"
    return again if problems else None


def reconciling(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    """Compare a list with the sagas here; returns the last word if somebody has to do something."""
    if given["apply"] and not given["reason"]:
        raise InvalidInput("--apply needs a --reason, which is stored in the logs", path="reason")
    desk.check_ready()
    effects = list(reconcile_lists.read(Path(given["list"]), key=given["key"] or ""))
    with desk.connect() as connection:
        found = list(reconcile.compare(connection, effects))
        if given["since"]:
            since, until = _time(given["since"], "--since"), given["until"] and _time(given["until"], "--until")
            found += reconcile.lacking(connection, found, since=since, until=until or None)
        unsettled = [match for match in found if not match.settled]
        written = list(_apply(desk, connection, unsettled, given)) if given["apply"] else []
    talk.give({"counts": _counts(found), "found": [_data(match, written) for match in unsettled]})
    talk.all(_lines(found, unsettled, written))
    left = len(unsettled) - sum(not each.problem for each in written)
    if not left:
        return None
    can = sum(match.open and match.verdict in (Verdict.AHEAD, Verdict.TURNED_BACK) for match in unsettled)
    hint = f"; --apply writes down {can} of them" if can and not given["apply"] else ""
    return f"{left} effects are not as they should be, listed above{hint}"


def _apply(desk: Desk, connection: Any, unsettled: Sequence[Match], given: Mapping[str, Any]) -> Iterator[Written]:
    actor, reason = given["actor"] or user(), given["reason"]
    payloads = ports.store(desk.name).settings.payloads
    yield from write_down(connection, unsettled, payloads=payloads, actor=actor, reason=reason)


def _time(text: str, option: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{option} {text}: a time such as 2026-11-30T14:05:00+00:00", path=option[2:]) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _counts(found: Sequence[Match]) -> dict[str, int]:
    counted = Counter(match.verdict for match in found)
    return {verdict.value: counted[verdict] for verdict in Verdict}


def _tells(match: Match) -> str:
    return ENDED if match.verdict is Verdict.TURNED_BACK and not match.open else TELLS[match.verdict]


def _became(match: Match, written: Sequence[Written]) -> str:
    for each in written:
        if each.match is match:
            if each.problem:
                return f"not written down: {one_line(each.problem)}"
            how = "its answer is written down" if each.answered else "that it was begun is written down"
            how += ", and the saga is asked to turn back" if each.cancel else ""
            return f"{how}; it is parked: retry it" if match.parked and not each.cancel else how
    return ""


def _data(match: Match, written: Sequence[Written]) -> dict[str, Any]:
    where, effect = match.address, match.effect
    return {
        "verdict": match.verdict.value, "key": effect.key, "reference": effect.reference, "amount": effect.amount,
        "at": effect.at, "saga": None if where is None else str(where.saga_id),
        "step": None if where is None else where.step, "effect": None if where is None else where.effect or None,
        "direction": None if where is None else where.direction,
        "generation": None if where is None else where.generation, "label": match.label, "what": _tells(match),
        "became": _became(match, written),
    }  # fmt: skip


def _lines(found: Sequence[Match], unsettled: Sequence[Match], written: Sequence[Written]) -> Iterator[str]:
    counts = _counts(found)
    yield f"{len(found)} effects: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    told = (Verdict.VANISHED, Verdict.AWAITED, Verdict.TURNED_BACK, Verdict.BEHIND, Verdict.FORMER, Verdict.LACKING,
            Verdict.AHEAD, Verdict.UNREADABLE)  # fmt: skip
    for verdict in told:
        for match in unsettled:
            if match.verdict is verdict:
                effect = match.effect
                facts = " ".join(filter(None, (effect.reference, effect.amount, effect.at)))
                yield f"{verdict.value}: {effect.key}" + (f" ({facts})" if facts else "")
                yield f"    {match.label}: {_became(match, written) or _tells(match)}"


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        name="restored", run=tell_restored, role=REPAIRER,
        help="say that the database has gone back in time (failover, backup), before relays and workers run on it",
        arguments=(
            REASON, ACTOR,
            Argument(name="--since", help="the last moment it knows of, needed if anything was started on it since"),
        ),
    ),
    Command(
        name="reconcile", run=reconciling, role=REPAIRER,
        help="compare what the other side knows, by idempotency key, with the sagas here; fail if they differ",
        arguments=(
            Argument(name="list", help="a file of what the other side knows: JSON Lines, or CSV"),
            Argument(name="--key", help='the field with the idempotency key (default: "key" or "idempotency_key")'),
            Argument(name="--since", help="the list is complete from then on: also say what it lacks"),
            Argument(name="--until", help="up to then (default: now)"),
            Argument(name="--apply", help="write down what open sagas do not know yet", type=bool),
            Argument(name="--reason", help="why; stored in the logs; needed with --apply"), ACTOR,
        ),
    ),
)  # fmt: skip
