"""The commands of operators as a table: every command line offers the same ones, and says the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sagas import (
    operate,
    operate_asking,
    operate_beside,
    operate_data,
    operate_locks,
    operate_messages,
    operate_pauses,
    operate_queues,
    operate_restoring,
    operate_schedules,
    operate_show,
    operate_versions,
    operate_watching,
)
from sagas.commanding import Argument, Command, Run, Talk
from sagas.desk import Desk
from sagas.errors import InvalidInput
from sagas.pauses import Scope
from sagas.rights import REPAIRER

SAGA: Final = Argument(name="saga", help="id, or name:key")
SOME: Final = Argument(name="saga", help="id, or name:key; default: all", many=True)
STEP: Final = Argument(name="step", help="name of the step")
REASON: Final = Argument(name="--reason", help="why; stored in the log", required=True)
YES: Final = Argument(name="--yes", help="you know what it means: do not ask", type=bool)
ACTOR: Final = Argument(name="--actor", help="who asks; default: the user of this machine")
FILE: Final = Argument(name="--file", help="the file of released definitions; default: as configured")
QUEUE: Final = Argument(name="queue", help="name of the queue")
DEFINITION: Final = Argument(name="definition", help="NAME, or NAME:VERSION")


def _list(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    if given["stuck"]:
        _list_stuck(desk, given, talk)
        return
    if talk.json:
        talk.give(operate_data.listed(desk, given))
        return
    talk.all(operate.listing(
        desk, statuses=list(given["status"] or ()), name=given["name"], limit=given["limit"], waiting=given["waiting"]
    ))  # fmt: skip


def _list_stuck(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    if given["status"] or given["waiting"]:
        raise InvalidInput("--stuck goes with --name and --limit only", path="stuck")
    desk.check_ready()
    found = operate_watching.stuck_sagas(desk, name=given["name"], limit=given["limit"])
    talk.give(operate_data.stuck(found))
    talk.all(operate_watching.stuck_lines(desk, found))


def _show(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    if talk.json:
        talk.give(operate_data.shown(desk, given["saga"], payloads=given["payloads"]))
        return
    talk.all(operate_show.description(desk, given["saga"], payloads=given["payloads"], traceback=given["traceback"]))


def _asking(kind: str, help: str) -> Command:
    about_a_step = kind == "redo"

    def run(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
        desk.check_ready()
        found = operate_asking.ask(
            desk, given["saga"], kind, given["reason"], actor=given["actor"] or "", step=given.get("step", ""),
            sure=given.get("yes", True),
        )  # fmt: skip
        talk.give(operate_data.asked(found, kind, given.get("step")))
        talk.say(operate_asking.asked(desk, found, kind))

    return Command(
        name=kind, help=help, run=run,
        arguments=(SAGA, *((STEP, YES) if about_a_step else ()), REASON, ACTOR),
    )  # fmt: skip


def _resolve(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    kind, found = operate_asking.resolve(desk, given)
    talk.give(operate_data.asked(found, kind, given["step"]))
    talk.say(operate_asking.asked(desk, found, kind))


def _signal(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    added, saga, said = operate_asking.signal(
        desk, given["saga"], given["step"], given["value"], reason=given["reason"], actor=given["actor"] or "",
        dedupe_id=given["dedupe_id"],
    )  # fmt: skip
    talk.give(operate_data.asked(saga, "signal", given["step"]) | {"added": added})
    talk.say(said)


def _pause(scope: Scope) -> Run:
    def run(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
        desk.check_ready()
        talk.all(operate_pauses.pause(
            desk, scope, given[scope.value], reason=given["reason"], actor=given["actor"] or ""
        ))  # fmt: skip
        talk.give(operate_data.paused(scope, given[scope.value], now=True))

    return run


def _resume(scope: Scope) -> Run:
    def run(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
        desk.check_ready()
        talk.say(operate_pauses.resume(desk, scope, given[scope.value]))
        talk.give(operate_data.paused(scope, given[scope.value], now=False))

    return run


def _locks(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    talk.all(operate_locks.listing(desk, given["limit"]))
    talk.give(operate_data.locks(desk, given["limit"]) if talk.json else None)


def _unlock(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    freed, said = operate_locks.unlock(desk, given["subject"], reason=given["reason"], actor=given["actor"] or "")
    talk.give({"subject": given["subject"], "left_behind_by": freed})
    talk.say(said)


def _pauses(desk: Desk, given: Mapping[str, Any], talk: Talk) -> None:
    desk.check_ready()
    talk.give(operate_data.pauses(desk))
    talk.all(operate_pauses.listing(desk))


def _definitions(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    file = None if given["file"] is None else Path(given["file"])
    if given["release"]:
        operate_versions.release(desk, file, talk)
    if given["check"]:
        return operate_versions.check(desk, file, talk)
    if not given["release"]:
        operate_versions.definitions(desk, talk)
    return None


def _drain(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str:
    return operate_versions.drain(desk, given["name"], given["version"], wait=given["wait"], talk=talk)


def _replay(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str:
    desk.check_ready()
    return operate_versions.replaying(desk, given["saga"], talk)


def _verify(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    seen, problems = operate.verification(desk, list(given["saga"]), talk.complain, talk.bar)
    talk.give({"seen": seen, "problems": problems})
    talk.say(f"{seen} sagas verified, {problems} problems")
    return f"{problems} problems, listed above; the log is the truth" if problems else None


def _rebuild(desk: Desk, given: Mapping[str, Any], talk: Talk) -> str | None:
    changed, problems = operate.rebuilding(desk, list(given["saga"]), talk.say, talk.complain, talk.bar)
    talk.give({"changed": changed, "problems": problems})
    talk.say(f"{changed} sagas rebuilt, {problems} problems")
    return f"{problems} sagas could not be rebuilt, listed above; nothing of them was changed" if problems else None


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="list", help="list sagas, newest first, with why each does not go on", run=_list, arguments=(
        Argument(name="--status", help="only these; may be repeated", many=True),
        Argument(name="--name", help="only sagas of this name"),
        Argument(name="--waiting", help="only those that wait for a signal or a time", type=bool),
        Argument(name="--stuck", help="only those that make no progress, with why and since when", type=bool),
        Argument(name="--limit", help="at most so many (default: 50)", type=int, default=50),
    )),
    Command(name="show", help="one saga: why it waits, its steps, its work and its log", run=_show, arguments=(
        SAGA,
        Argument(name="--payloads", help="with input, results and signals; what is sensitive is masked", type=bool),
        Argument(name="--traceback", help="with that of the last error of what it is at or went back over", type=bool),
    )),
    Command(name="signal", help="send a saga what it waits for, or will wait for", run=_signal, also=("send",),
            arguments=(
        SAGA, Argument(name="step", help="the wait"), Argument(name="value", help="the signal, as JSON"), REASON, ACTOR,
        Argument(name="--dedupe-id", help="names this signal; sent again it changes nothing"),
    )),
    _asking("retry", "resume a parked saga, or make a waiting one due now"),
    _asking("cancel", "ask for a saga to be undone"),
    _asking("abort", "close a parked saga as it is"),
    _asking("pause", "begin nothing more of a saga until it is resumed"),
    _asking("resume", "let a paused saga go on"),
    _asking("redo", "do a step of a parked saga anew, external ones under a new idempotency key: it may happen twice"),
    Command(name="resolve", help="say what became of a step that a saga parked over", run=_resolve, arguments=(
        SAGA, STEP,
        Argument(name="--done", help="it happened; its result, as JSON of the step's type (null where it has none)"),
        Argument(name="--not-done", help="it did not happen: turn back without it", type=bool),
        Argument(name="--skip", help="go on without it", type=bool),
        Argument(name="--compensated", help="it was undone by hand: go on turning back", type=bool),
        YES, REASON, ACTOR,
    )),
    Command(name="locks", help="semantic locks: who holds what, and who waits for it", run=_locks, arguments=(
        Argument(name="--limit", help="at most so many (default: 1000)", type=int, default=operate_locks.MOST),
    )),
    Command(name="unlock", help="free a semantic lock that a saga has left behind that has ended", run=_unlock,
            arguments=(Argument(name="subject", help="what is locked"), REASON, ACTOR)),
    Command(name="pauses", help="what is paused as a whole", run=_pauses),
    Command(name="pause-queue", help="pause a queue: nothing of it is claimed", run=_pause(Scope.QUEUE),
            arguments=(QUEUE, REASON, ACTOR)),
    Command(name="resume-queue", help="let a paused queue go on", run=_resume(Scope.QUEUE), arguments=(QUEUE,)),
    Command(name="pause-definition", help="pause all sagas of a definition", run=_pause(Scope.DEFINITION),
            arguments=(DEFINITION, REASON, ACTOR)),
    Command(name="resume-definition", help="let a paused definition go on", run=_resume(Scope.DEFINITION),
            arguments=(DEFINITION,)),
    Command(name="definitions", help="versions that are here, or under way; compare them with what was released",
            run=_definitions, arguments=(
        Argument(name="--check", help="fail if a released definition was changed, or one is not in the file; needs no "
                                      "database", type=bool),
        Argument(name="--release", help="write what is new into the file", type=bool), FILE,
    )),
    Command(name="drain", help="wait until no saga of a version is open, else fail", run=_drain, arguments=(
        Argument(name="name", help="name of the definition"), Argument(name="version", help="its version", type=int),
        Argument(name="--wait", help="seconds to wait at most (default: 0)", type=float, default=0.0),
    )),
    Command(name="replay", help="read the log of a saga with today's code; fail if it does not fit", run=_replay,
            arguments=(SAGA,)),
    Command(name="verify", help="fold every log, or those named, and compare it with the saga rows", run=_verify,
            arguments=(SOME,)),
    Command(name="rebuild", help="make saga and outbox rows again from the log, after they were lost", run=_rebuild,
            role=REPAIRER, arguments=(SOME,)),
    *operate_queues.COMMANDS,
    *operate_schedules.COMMANDS,
    *operate_messages.COMMANDS,
    *operate_restoring.COMMANDS,
    *operate_beside.COMMANDS,
)  # fmt: skip
